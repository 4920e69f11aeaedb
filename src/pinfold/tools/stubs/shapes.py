"""The types that a JSON schema can describe, and their Python source: annotations, TypedDicts, identifiers."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, TypeAlias, cast

from msgspec import Struct

WRITTEN = frozenset(
    {
        *("str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "locals"),
        *("Any", "Literal", "NotRequired", "TypedDict"),
    }
)
"""Names used by the generated code: no tool or type may shadow them."""
_LENGTH = 64
_READ = 200
"""Maximum number of characters of a name that are read."""
_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_WORD = re.compile(r"[A-Za-z0-9]+")


def identifiers(names: Sequence[str], *, taken: Collection[str] = (), prefix: str = "tool") -> Mapping[str, str]:
    """Map names of tools or servers to Python identifiers.

    The same set of names gives the same identifiers in any order; a name that is an identifier already is kept.
    `taken` are identifiers not to use; `prefix` is put before a name that begins with a digit.
    """
    return unique(names, taken={*WRITTEN, *taken}, prefix=prefix)


def module_names(servers: Sequence[str]) -> Mapping[str, str]:
    """Map servers to modules of the package `servers`; `search` is taken by the package's own function."""
    return identifiers(servers, taken=("search",), prefix="server")


def unique(names: Sequence[str], *, taken: Collection[str], prefix: str) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for name in names:
        plain = _plain(name, prefix)
        wanted[name] = f"{plain}_" if plain in taken or keyword.iskeyword(plain) else plain
    used: set[str] = set()
    numbers: dict[str, int] = {}
    found: dict[str, str] = {}
    for name in sorted(wanted, key=lambda name: (wanted[name] != name, name)):
        base = given = wanted[name]
        while given in used or given in taken:
            numbers[base] = numbers.get(base, 1) + 1
            given = f"{base}_{numbers[base]}"
        used.add(given)
        found[name] = given
    return {name: found[name] for name in names}


def add_number(name: str, taken: Collection[str]) -> str:
    """Return the name, with a number appended if it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}{number}"
    return free


def camel(*names: str) -> str:
    """Join names to one type name: `list_issues` and `filter` give `ListIssuesFilter`."""
    words = [word for name in names for word in _WORD.findall(_ascii(name[:_READ]))]
    text = "".join(word[0].upper() + word[1:] for word in words)[:_LENGTH]
    return text if text and not text[0].isdigit() else f"Type{text}"


def _plain(name: str, prefix: str) -> str:
    # Strip leading underscores: `__getattr__` and `_call` have a meaning in the module.
    text = _OTHER.sub("_", _ascii(name[:_READ])).lstrip("_")
    if not name.isidentifier():
        text = text.rstrip("_")
    if not text:
        return prefix
    return (f"{prefix}_{text}" if text[0].isdigit() else text)[:_LENGTH]


def _ascii(name: str) -> str:
    return name if name.isascii() else "".join(letter if letter.isascii() else _fold_letter(letter) for letter in name)


def _fold_letter(letter: str) -> str:
    """Drop accents, else use the code point: which letters are valid differs between versions of Python."""
    base = "".join(part for part in unicodedata.normalize("NFKD", letter.replace("ß", "ss")) if part.isascii())
    if base or unicodedata.combining(letter):
        return base
    return f"u{ord(letter):x}" if letter.isalnum() else "_"


Scalar: TypeAlias = str | int | bool


class Plain(Struct, frozen=True):
    name: Literal["str", "int", "float", "bool", "bytes", "pyarrow.Table", "None", "Any"]


class Choice(Struct, frozen=True):
    values: tuple[Scalar, ...]


class ListOf(Struct, frozen=True):
    item: Type


class TupleOf(Struct, frozen=True):
    items: tuple[Type, ...]


class DictOf(Struct, frozen=True):
    value: Type


class Either(Struct, frozen=True):
    members: tuple[Type, ...]


class Record(Struct, frozen=True):
    """An object with known keys; `name` is its key in `Records`."""

    name: str


Type: TypeAlias = Plain | Choice | ListOf | TupleOf | DictOf | Either | Record


class Field(Struct, frozen=True):
    name: str
    type: Type
    is_required: bool


Records: TypeAlias = Mapping[str, tuple[Field, ...]]

_KINDS: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "bytes": (),
    "pyarrow.Table": (),
    "None": (type(None),),
}
ANY = Plain("Any")
NONE = Plain("None")
TABLE = Plain("pyarrow.Table")
MEMBERS = 12
"""Maximum in a union; a larger one becomes Any."""


def either(types: Iterable[Type]) -> Type:
    """Return the union of types: flat, without duplicates, all choices in one, None last."""
    flat: dict[Type, None] = {}
    values: dict[tuple[type, Scalar], Scalar] = {}
    for one in types:
        for member in one.members if isinstance(one, Either) else (one,):
            if isinstance(member, Choice):
                # The type is part of the key: True equals 1, but is a different value.
                values |= {(type(value), value): value for value in member.values}
            flat[Choice(()) if isinstance(member, Choice) else member] = None
    choice = Choice(tuple(values.values()))
    members = [choice if isinstance(member, Choice) else member for member in flat if member != NONE]
    if ANY in members or len(members) > MEMBERS:
        return ANY
    if NONE in flat:
        members.append(NONE)
    return members[0] if len(members) == 1 else Either(tuple(members)) if members else ANY


def fits(value: object, shape: Type) -> bool:
    """True if a JSON value has this type. The keys of records are not checked."""
    match shape:
        case Choice(values):
            return any(type(value) is type(one) and value == one for one in values)
        case ListOf(item):
            return isinstance(value, list) and all(fits(one, item) for one in cast("list[object]", value))
        case TupleOf(items):
            given = cast("list[object]", value)
            return isinstance(value, list) and len(given) == len(items) and all(map(fits, given, items))
        case DictOf(inner):
            return isinstance(value, dict) and all(
                fits(one, inner) for one in cast("dict[str, object]", value).values()
            )
        case Either(members):
            return any(fits(value, member) for member in members)
        case Record():
            return isinstance(value, dict)
        case Plain(name):
            return name == "Any" or type(value) in _KINDS[name]


def annotation(shape: Type, names: Mapping[str, str] | None = None) -> str:
    """Return the annotation of a type. `names` maps records to their names in the module, where these differ."""
    match shape:
        case Plain(name):
            return "Any" if shape == TABLE else name  # pyarrow may be missing in the session
        case Choice(values):
            return f"Literal[{', '.join(map(repr, values))}]"
        case ListOf(item):
            return f"list[{annotation(item, names)}]"
        case TupleOf(items):
            return f"tuple[{', '.join(annotation(item, names) for item in items)}]"
        case DictOf(value):
            return f"dict[str, {annotation(value, names)}]"
        case Either(members):
            return " | ".join(annotation(member, names) for member in members)
        case Record(name):
            return (names or {}).get(name, name)


def named_in(shape: Type) -> Iterator[str]:
    """Yield the names of the records in a type."""
    match shape:
        case Record(name):
            yield name
        case ListOf(inner) | DictOf(inner):
            yield from named_in(inner)
        case TupleOf(inner) | Either(inner):
            for member in inner:
                yield from named_in(member)
        case Plain() | Choice():
            pass


class Definitions:
    """The TypedDicts of one module; records that are equal, including all records they refer to, share one."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._placed: dict[str, str] = {}
        self.lines: list[str] = []
        self._begun: set[str] = set()
        self._defined: set[str] = set()
        self.chars = 0

    def place(self, records: Records) -> Mapping[str, str]:
        """Define a tool's records unless they exist already; return their names in the module."""
        names: dict[str, str] = {}
        written: dict[str, tuple[str, Collection[str]]] = {}
        for own, fields in records.items():
            others = dict.fromkeys(name for field in fields for name in named_in(field.type))
            written[own] = ", ".join(_entry(field, {}, others) for field in fields), others
        for own in records:
            meaning = _meaning(own, written)
            if meaning not in self._placed:
                self._placed[meaning] = name = add_number(own, self._taken)
                self._taken.add(name)
            names[own] = self._placed[meaning]
        for own in records:
            self._write(own, records, names)
        return names

    def _write(self, own: str, records: Records, names: Mapping[str, str]) -> None:
        """Write a record after those it refers to. Only a reference back to an unfinished record is quoted."""
        if names[own] in self._begun:
            return
        self._begun.add(names[own])
        for field in records[own]:
            for other in named_in(field.type):
                self._write(other, records, names)
        there = {name for name in records if names[name] in self._defined}
        fields = ", ".join(_entry(field, names, there) for field in records[own])
        line = f"{names[own]} = TypedDict({names[own]!r}, {{{fields}}})"
        self._defined.add(names[own])
        self.lines.append(line)
        self.chars += len(line)


def _entry(field: Field, names: Mapping[str, str], there: Collection[str]) -> str:
    text = annotation(field.type, names)
    if not all(name in there for name in named_in(field.type)):
        text = repr(text)
    return f"{field.name!r}: {text if field.is_required else f'NotRequired[{text}]'}"


def _meaning(own: str, written: Mapping[str, tuple[str, Collection[str]]]) -> str:
    """Return the text of a record and all it refers to. `written` has their fields and the records these name."""
    reached: dict[str, None] = {}
    waiting = [own]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = None
            waiting.extend(written[name][1])
    return "\n".join(f"{name} {written[name][0]}" for name in reached)
