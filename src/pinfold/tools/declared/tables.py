"""Parses YAML files into plain values, and their texts into templates. Each error names the file, the key and the fix.

A value that fills a `{parameter}` of a template is never parsed as a template itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar, cast

from msgspec import ValidationError

from pinfold.events import Json, convert, is_deeper
from pinfold.text import closest, first_line
from pinfold.tools.arguments import describe_misfit
from pinfold.tools.results import BadTool

FILE_BYTES = 64_000
_DEPTH = 20
_BOOL = "tag:yaml.org,2002:bool"
_MARK = re.compile(r"\{\{|\}\}|\$\{secret:(?P<secret>[^{}]*)\}|\{(?P<hole>[A-Za-z_]\w*)\}", re.ASCII)
_SECRET_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
T = TypeVar("T")
Plain: TypeAlias = str | int | float
"""A text, or a number to be used as text."""


def fault(source: str, key: str, words: str) -> NoReturn:
    told = f"{source}: {key + ': ' if key else ''}{words}"
    raise BadTool("".join(sign if sign.isprintable() else repr(sign)[1:-1] for sign in told))


def read_as(content: Json, kind: type[T], source: str, where: str = "") -> T:
    """Convert the content of a file at `where` to a type. Raises BadTool."""
    try:
        return convert(content, kind)
    except ValidationError as error:
        path, words = describe_misfit(error, kind)
        hint = "; put it in quotes" if "a text" in words else ""
        fault(source, f"{where}{path if path.startswith('[') else f'.{path}'}".strip("."), words + hint)


def parse(content: bytes, source: str) -> Json:
    """Parse YAML into plain values. Raises BadTool, also for aliases, Python tags and duplicate keys."""
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = key_node.value
                if key in seen:
                    words = f"the key {key!r} is given twice"
                    raise yaml.constructor.ConstructorError(None, None, words, key_node.start_mark)
                seen.add(key)
            return super().construct_mapping(node, deep=deep)

    # As in YAML 1.2, only true and false are booleans; `on`, `no` and `yes` are strings.
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
                words = "aliases (*name) are not supported; write the value out"
                raise yaml.constructor.ConstructorError(None, None, words, event.start_mark)
        loaded = yaml.load(text, Loader)  # noqa: S506 - a loader of plain values
    except UnicodeDecodeError as error:
        raise BadTool(f"{source}: it is not UTF-8; save it as UTF-8") from error
    except yaml.YAMLError as error:
        mark: yaml.Mark | None = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise BadTool(f"{source}: {where}{first_line(getattr(error, 'problem', None) or str(error))}") from error
    except (RecursionError, ValueError) as error:
        raise BadTool(f"{source}: {first_line(str(error))}") from error
    if is_deeper(loaded, _DEPTH):
        raise BadTool(f"{source}: it is nested deeper than {_DEPTH}; make it flatter")
    return loaded


@dataclass(frozen=True, slots=True)
class Hole:
    name: str
    """Name of the parameter or secret."""
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
        """The parameter, if the template is nothing but that."""
        return self.holes[0] if len(self.parts) == len(self.holes) == 1 else None

    def lacks(self, values: Mapping[str, Json]) -> bool:
        """True if a parameter in it has no value."""
        return any(values.get(name) is None for name in self.holes)

    def fill(
        self,
        values: Mapping[str, Json],
        fit: Callable[[str, str], str] = lambda _, text: text,
        secrets: Mapping[str, str] | None = None,
    ) -> str:
        """Fill in the values. `fit(name, text)` encodes a value for its place."""
        done: list[str] = []
        for part in self.parts:
            if isinstance(part, str):
                done.append(part)
            elif part.is_secret:
                done.append((secrets or {})[part.name])
            else:
                done.append(fit(part.name, as_text(values.get(part.name))))
        return "".join(done)


def template(source: str, key: str, text: str, known: AbstractSet[str], *, secrets: bool = False) -> Template:
    """Parse a template. Raises BadTool for an unknown parameter, and for a secret outside a header."""
    parts: list[str | Hole] = []
    at = 0
    for mark in _MARK.finditer(text):
        parts.append(text[at : mark.start()])
        at = mark.end()
        if (hole := mark["hole"]) is not None:
            if hole not in known:
                near = closest(hole, known)
                else_ = f"declare it, or write {{{{{hole}}}}} for the text itself"
                meant = f"did you mean {{{near}}}?" if near else else_
                fault(source, key, f"no parameter is called {hole!r}; {meant}")
            parts.append(Hole(hole))
        elif (secret := mark["secret"]) is not None:
            if not secrets:
                fault(source, key, "secrets are allowed in http.headers only")
            if not _SECRET_NAME.fullmatch(secret):
                fault(source, key, f"{secret!r} is not a valid name for a secret; use letters, digits and underscores")
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
