"""Text with `{parameter}` placeholders. A value that fills one is never read as a template again."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from pinfold.events import Json
from pinfold.tools.declared.tables import Table

_MARK = re.compile(r"\{\{|\}\}|\$\{secret:(?P<secret>[^{}]*)\}|\{(?P<hole>[A-Za-z_]\w*)\}", re.ASCII)
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


@dataclass(frozen=True, slots=True)
class Hole:
    name: str
    """Of a parameter, or of a secret."""
    is_secret: bool = False


@dataclass(frozen=True, slots=True)
class Template:
    parts: tuple[str | Hole, ...]

    @property
    def holes(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts if isinstance(part, Hole) and not part.is_secret)

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(part.name for part in self.parts if isinstance(part, Hole) and part.is_secret)

    @property
    def only(self) -> str | None:
        """The parameter that is all of it."""
        return self.holes[0] if len(self.parts) == len(self.holes) == 1 else None

    def lacks(self, values: Mapping[str, Json]) -> bool:
        """Whether a parameter in it has no value."""
        return any(values.get(name) is None for name in self.holes)

    def fill(
        self,
        values: Mapping[str, Json],
        fit: Callable[[str, str], str] = lambda _, text: text,
        secrets: Mapping[str, str] | None = None,
    ) -> str:
        """`fit(name, text)` makes a value fit for its place."""
        done: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                done.append(part)
            elif part.is_secret:
                done.append((secrets or {})[part.name])
            else:
                done.append(fit(part.name, as_text(values.get(part.name))))
        return "".join(done)


def template(table: Table, key: str, text: str, known: AbstractSet[str], *, secrets: bool = False) -> Template:
    """Raises BadTool for a hole that no parameter fills, and for a secret outside a header."""
    parts: list[str | Hole] = []
    at = 0
    for mark in _MARK.finditer(text):
        parts.append(text[at : mark.start()])
        at = mark.end()
        if (hole := mark["hole"]) is not None:
            if hole not in known:
                near = difflib.get_close_matches(hole, known, n=1)
                else_ = f"declare it, or write {{{{{hole}}}}} for the text itself"
                meant = f"did you mean {{{near[0]}}}?" if near else else_
                table.fault(key, f"no parameter is called {hole!r}; {meant}")
            parts.append(Hole(hole))
        elif (secret := mark["secret"]) is not None:
            if not secrets:
                table.fault(key, "a secret may stand in http.headers only")
            if not _SECRET_NAME.fullmatch(secret):
                table.fault(key, f"{secret!r} is no name of a secret; use letters, digits and underscores")
            parts.append(Hole(secret, is_secret=True))
        else:
            parts.append(mark.group()[0])
    parts.append(text[at:])
    return Template(tuple(part for part in parts if part != ""))


def as_text(value: Json) -> str:
    if isinstance(value, bool | None):
        return "" if value is None else str(value).lower()
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) < 1e15
    return str(int(value) if is_whole else value)
