"""Types of values, as a JSON schema can describe them, and as Python's annotations and TypedDicts write them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, cast

from msgspec import Struct

from pinfold.tools.stubs.names import numbered

Scalar: TypeAlias = str | int | bool


class Plain(Struct, frozen=True):
    name: Literal["str", "int", "float", "bool", "bytes", "None", "Any"]


class Table(Struct, frozen=True):
    """A `pyarrow.Table`, which code that has no pyarrow cannot name."""


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
    """An object with known keys, by its name in `Records`."""

    name: str


Type: TypeAlias = Plain | Table | Choice | ListOf | TupleOf | DictOf | Either | Record


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
    "None": (type(None),),
}
ANY = Plain("Any")
NONE = Plain("None")
MEMBERS = 12
"""Of one union; more say nothing to anybody."""


def either(types: Iterable[Type]) -> Type:
    """One of them: flat, each once, choices put together, None last."""
    flat: dict[Type, None] = {}
    values: dict[tuple[type, Scalar], Scalar] = {}
    for one in types:
        for member in one.members if isinstance(one, Either) else (one,):
            if isinstance(member, Choice):
                # By type too: True and 1 are equal and mean different things.
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
    """Whether a JSON value is of this type, as far as is worth looking: keys of records are not checked."""
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
        case Table():
            return False


def annotation(shape: Type, names: Mapping[str, str] | None = None) -> str:
    """`names` are those that records have in the module, where they differ."""
    match shape:
        case Plain(name):
            return name
        case Table():
            return "Any"
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
    """The records it names."""
    match shape:
        case Record(name):
            yield name
        case ListOf(inner) | DictOf(inner):
            yield from named_in(inner)
        case TupleOf(inner) | Either(inner):
            for member in inner:
                yield from named_in(member)
        case Plain() | Table() | Choice():
            pass


class Definitions:
    """The TypedDicts of one module; records that are alike in all they lead to share one."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._placed: dict[str, str] = {}
        self.lines: list[str] = []
        self._begun: set[str] = set()
        self._defined: set[str] = set()
        self.chars = 0

    def place(self, records: Records) -> Mapping[str, str]:
        """The module's names for a tool's records; writes those that are not there yet."""
        names: dict[str, str] = {}
        written: dict[str, tuple[str, Collection[str]]] = {}
        for own, fields in records.items():
            others = dict.fromkeys(name for field in fields for name in named_in(field.type))
            written[own] = ", ".join(_entry(field, {}, others) for field in fields), others
        for own in records:
            meaning = _meaning(own, written)
            if meaning not in self._placed:
                self._placed[meaning] = name = numbered(own, self._taken)
                self._taken.add(name)
            names[own] = self._placed[meaning]
        for own in records:
            self._write(own, records, names)
        return names

    def _write(self, own: str, records: Records, names: Mapping[str, str]) -> None:
        """Write the records it names first; only a record that leads back to itself is quoted."""
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
    """It and all that it leads to; `written` are entries with the tool's own names, and the records they name."""
    reached: dict[str, None] = {}
    waiting = [own]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = None
            waiting.extend(written[name][1])
    return "\n".join(f"{name} {written[name][0]}" for name in reached)
