"""Types of values, as a JSON schema can say them and Python can write them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, TypeAlias, cast

from msgspec import Struct

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
            return isinstance(value, list) and all(fits(one, item) for one in cast("list[Any]", value))
        case TupleOf(items):
            given = cast("list[Any]", value)
            return isinstance(value, list) and len(given) == len(items) and all(map(fits, given, items))
        case DictOf(inner):
            return isinstance(value, dict) and all(fits(one, inner) for one in cast("dict[str, Any]", value).values())
        case Either(members):
            return any(fits(value, member) for member in members)
        case Record():
            return isinstance(value, dict)
        case Plain(name):
            return name == "Any" or type(value) in _KINDS[name]
        case Table():
            return False
