"""Types as Python's annotations, and objects as TypedDicts of a module."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Self

from msgspec import Struct

from pinfold.tools.stubs.shapes import (
    Choice,
    DictOf,
    Either,
    Field,
    ListOf,
    Plain,
    Record,
    Records,
    Table,
    TupleOf,
    Type,
)

_SAME: Mapping[str, str] = {}


def annotation(shape: Type, names: Mapping[str, str] = _SAME) -> str:
    """`names` are those of records in the module, where they have others."""
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
            return names.get(name, name)


def named_in(shape: Type) -> Iterator[str]:
    """The records it speaks of."""
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
    """The TypedDicts of one module: those that are alike in all they lead to are one."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._placed: dict[str, str] = {}
        self._lines: list[str] = []
        self._begun: set[str] = set()
        self._defined: set[str] = set()
        self.chars = 0

    @property
    def lines(self) -> tuple[str, ...]:
        return tuple(self._lines)

    def place(self, records: Records) -> Mapping[str, str]:
        """The names in the module of a tool's records; what is not there yet is written."""
        names: dict[str, str] = {}
        entries = {own: _Entries.of(fields) for own, fields in records.items()}
        for own in records:
            meaning = _meaning(own, entries)
            if meaning not in self._placed:
                self._placed[meaning] = self._free(own)
            names[own] = self._placed[meaning]
        for own in records:
            self._write(own, records, names)
        return names

    def _free(self, name: str) -> str:
        number, free = 1, name
        while free in self._taken:
            number += 1
            free = f"{name}{number}"
        self._taken.add(free)
        return free

    def _write(self, own: str, records: Records, names: Mapping[str, str]) -> None:
        """What it speaks of first; only what leads back to itself stays a name in quotes."""
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
        self._lines.append(line)
        self.chars += len(line)


def _entry(field: Field, names: Mapping[str, str], there: Collection[str]) -> str:
    text = annotation(field.type, names)
    if not all(name in there for name in named_in(field.type)):
        text = repr(text)
    return f"{field.name!r}: {text if field.is_required else f'NotRequired[{text}]'}"


class _Entries(Struct, frozen=True):
    text: str
    leads_to: tuple[str, ...]

    @classmethod
    def of(cls, fields: Sequence[Field]) -> Self:
        others = dict.fromkeys(name for field in fields for name in named_in(field.type))
        return cls(", ".join(_entry(field, _SAME, others) for field in fields), tuple(others))


def _meaning(own: str, entries: Mapping[str, _Entries]) -> str:
    """It and all that it leads to, in its own words."""
    reached: dict[str, None] = {}
    waiting = [own]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached[name] = None
            waiting.extend(entries[name].leads_to)
    return "\n".join(f"{name} {entries[name].text}" for name in reached)
