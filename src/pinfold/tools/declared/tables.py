"""A YAML file as tables, and its texts as templates; each error names the file, the key and what to write instead.

A value that fills a `{parameter}` of a template is never read as a template again.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from pinfold.events import Json
from pinfold.text import first_line
from pinfold.tools.results import BadTool

FILE_BYTES = 64_000
_DEPTH = 20
_BOOL = "tag:yaml.org,2002:bool"
_MARK = re.compile(r"\{\{|\}\}|\$\{secret:(?P<secret>[^{}]*)\}|\{(?P<hole>[A-Za-z_]\w*)\}", re.ASCII)
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
T = TypeVar("T", bound=str)


class Table:
    """One mapping of the file. A key that is not taken out of it is an error."""

    def __init__(self, source: str, where: str, content: Json) -> None:
        self.source = source
        self.where = where
        if not isinstance(content, Mapping):
            self.fault("", f"should be a mapping of keys to values, not {kind_of(content)}")
        self._left = dict(cast("Mapping[str, Json]", content))
        for key in self._left:
            if not isinstance(key, str):  # pyright: ignore[reportUnnecessaryIsInstance] - YAML's may be anything
                self.fault("", f"the key {key!r} is {kind_of(key)}; put it in quotes")

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def path(self, key: str) -> str:
        return ".".join(filter(None, (self.where, key)))

    def fault(self, key: str, words: str) -> NoReturn:
        path = self.path(key)
        told = f"{self.source}: {path + ': ' if path else ''}{words}"
        raise BadTool("".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in told))

    def take(self, key: str, default: Json = None) -> Json:
        return self._left.pop(key, default)

    def table(self, key: str) -> Table | None:
        content = self.take(key)
        return None if content is None else Table(self.source, self.path(key), content)

    def text(self, key: str, default: str = "") -> str:
        value = self.take(key, default)
        if not isinstance(value, str):
            self.fault(key, f"should be text, not {kind_of(value)}; put it in quotes")
        return value

    def texts(self, key: str) -> dict[str, str]:
        content: Json = self.take(key) or cast("Json", {})
        if not isinstance(content, dict):
            self.fault(key, f"should be a mapping of names to texts, not {kind_of(content)}")
        found: dict[str, str] = {}
        for name, value in cast("dict[Json, Json]", content).items():
            if not isinstance(name, str) or isinstance(value, bool) or not isinstance(value, str | int | float):
                self.fault(f"{key}.{name}", f"should be text, not {kind_of(value)}; put it in quotes")
            found[name] = str(value)
        return found

    def flag(self, key: str, default: bool | None) -> bool | None:
        value = self.take(key, default)
        if value is not default and not isinstance(value, bool):
            self.fault(key, f"should be true or false, not {kind_of(value)}")
        return value

    def number(self, key: str, default: float, most: float) -> float:
        value = self.take(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fault(key, f"should be a number, not {kind_of(value)}")
        if not 0 < value <= most:
            self.fault(key, f"should be more than 0 and at most {most:g}, not {value:g}")
        return value

    def choice(self, key: str, choices: Sequence[T], default: T) -> T:
        value = self.take(key, default)
        found = next((choice for choice in choices if value == choice), None)
        if found is not None:
            return found
        near = difflib.get_close_matches(str(value), choices, n=1)
        more = f"; did you mean {near[0]}?" if near else ""
        return self.fault(key, f"should be one of {', '.join(choices)}, not {value!r}{more}")

    def end(self, known: Iterable[str]) -> None:
        """Nothing may be left."""
        for key in self._left:
            near = difflib.get_close_matches(key, list(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
            self.fault("", f"there is no key {key!r} here; {hint}")


def kind_of(value: Json) -> str:
    match value:
        case bool():
            return f"the truth value {str(value).lower()}"
        case str():
            return f"the text {first_line(value, 40)!r}"
        case int() | float():
            return f"the number {value}"
        case _:
            name = type(cast("object", value)).__name__
            return {"NoneType": "nothing", "dict": "a mapping"}.get(name, f"a {name}")


def parse(content: bytes, source: str) -> Json:
    """The plain values of a YAML text, or BadTool. Anchors, tags of Python's and doubled keys are refused."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = key_node.value
                if key in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"the key {key!r} stands there twice", key_node.start_mark
                    )
                seen.add(key)
            return super().construct_mapping(node, deep=deep)

    # `on`, `no` and `yes` are words, as in YAML 1.2; only true and false are truth values.
    cast("Any", Loader).yaml_implicit_resolvers = {
        sign: [one for one in resolvers if one[0] != _BOOL or sign in "tTfF"]
        for sign, resolvers in cast("Any", yaml.SafeLoader).yaml_implicit_resolvers.items()
    }
    if len(content) > FILE_BYTES:
        raise BadTool(f"{source}: it has {len(content):,} bytes; a tool has at most {FILE_BYTES:,}")
    try:
        text = content.decode("utf-8")
        for event in cast("Iterable[yaml.Event]", cast("Any", yaml).parse(text, Loader)):
            if isinstance(event, yaml.AliasEvent):
                words = "an alias (*name) is not taken; write the value out"
                raise yaml.constructor.ConstructorError(None, None, words, event.start_mark)
        loaded = yaml.load(text, Loader)  # noqa: S506 - a loader of plain values
    except UnicodeDecodeError as error:
        raise BadTool(f"{source}: it is not UTF-8; save it as such") from error
    except yaml.YAMLError as error:
        mark: yaml.Mark | None = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise BadTool(f"{source}: {where}{first_line(getattr(error, 'problem', None) or str(error))}") from error
    except (RecursionError, ValueError) as error:
        raise BadTool(f"{source}: {first_line(str(error))}") from error
    if _depth(loaded) > _DEPTH:
        raise BadTool(f"{source}: it is nested deeper than {_DEPTH}; make it flatter")
    return loaded


def _depth(value: Json) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, cast("dict[Any, Json]", value).values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(_depth, cast("list[Json]", value)), default=0)
    return 0


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
