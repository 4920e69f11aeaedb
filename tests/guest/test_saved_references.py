"""Laws of saving: whatever refers to whatever, what comes back has the same shape."""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.guest.saved.deserialization import Entry, restore
from pinfold.guest.saved.serialization import save

pytestmark = pytest.mark.unit

LIMIT = 1 << 30


class Node:
    """Attributes and a slot of its own."""

    def __init__(self) -> None:
        self.held: list[object] = []


MADE: dict[str, Any] = {"list": list, "dict": dict, "ordered": OrderedDict, "deque": deque, "node": Node, "set": set}
MUTABLE: Any = (list, dict, deque, Node, set)


@st.composite
def sessions(draw: st.DrawFn) -> dict[str, object]:
    """Containers that hold each other at random, some of them under names, several names for some."""
    kinds = draw(st.lists(st.sampled_from((*MADE, "tuple")), min_size=1, max_size=12))
    # A tuple is made with what it holds, so only of what comes before it; everything else is filled afterwards.
    values: list[Any] = []
    for number, kind in enumerate(kinds):
        if kind == "tuple":
            held = draw(st.lists(st.integers(0, number - 1), max_size=3)) if number else []
            values.append(tuple(values[at] for at in held))
        else:
            values.append(MADE[kind]())
    for value in values:
        held = [values[at] for at in draw(st.lists(st.integers(0, len(values) - 1), max_size=4))]
        fill(value, held, draw(st.sampled_from((0, "text", None, 2.5, b"bytes"))))
    names = draw(st.lists(st.integers(0, len(values) - 1), min_size=1, max_size=6))
    return {f"v{number}": values[at] for number, at in enumerate(names)}


def fill(value: Any, held: list[Any], plain: object) -> None:
    name = type(value).__name__
    if name in ("list", "deque"):
        value.extend([plain, *held])
    elif name in ("dict", "OrderedDict"):
        value.update(enumerate([plain, *held]))
    elif name == "Node":
        value.held.extend(held)
        # Interned, as names in a program are: one that is not is written again where it is met again.
        value.__dict__.update({sys.intern(f"a{number}"): one for number, one in enumerate(held)})
    elif name == "set":
        value.update(one for one in [plain, *held] if isinstance(one, Node))


def inside(value: Any) -> list[Any]:
    name = type(value).__name__
    if name == "set":
        return [len(value)]
    pairs: Any = value.__dict__.items() if name == "Node" else value.items() if "ict" in name else ()
    return [part for pair in pairs for part in pair] if pairs else list(value) if name in ("list", "deque") else []


def shape(namespace: Mapping[str, object]) -> list[object]:
    """What a session looks like, with every object that can change by the number of its first sight."""
    numbers: dict[int, int] = {}
    described: list[object] = []
    ahead: list[Any] = []

    def told(value: Any) -> object:
        if type(value).__name__ == "tuple":
            return ("tuple", *map(told, value))
        if not isinstance(value, MUTABLE):
            return value
        if id(value) not in numbers:
            numbers[id(value)] = len(numbers)
            ahead.append(value)
        return ("see", numbers[id(value)])

    described.extend((name, told(namespace[name])) for name in sorted(namespace))
    while ahead:
        value = ahead.pop(0)
        described.append((type(value).__name__, [told(part) for part in inside(value)]))
    return described


def saved(namespace: dict[str, object]) -> tuple[list[Entry], dict[str, bytes]]:
    stored: dict[str, bytes] = {}

    def write(digest: str, pieces: Any) -> None:
        stored[digest] = b"".join(map(bytes, pieces))

    return save(namespace, (), write, cap_bytes=LIMIT, each_bytes=LIMIT), stored


@given(sessions())
def test_whatever_holds_whatever_comes_back_holding_the_same(session: dict[str, object]) -> None:
    entries, stored = saved(session)
    restored: dict[str, object] = {}
    labels = restore(restored, entries, stored.__getitem__)
    assert {(label.name, label.status, label.reason) for label in labels} == {
        (name, "restored", "") for name in session
    }
    assert shape(restored) == shape(session)


@given(sessions())
def test_saving_twice_gives_the_same_digests_and_changes_nothing(session: dict[str, object]) -> None:
    before = shape(session)
    first, _ = saved(session)
    second, _ = saved(session)
    assert [entry.row() for entry in first] == [entry.row() for entry in second]
    assert shape(session) == before


@given(sessions())
def test_what_is_restored_has_the_digests_it_was_saved_with(session: dict[str, object]) -> None:
    entries, stored = saved(session)
    restored: dict[str, object] = {}
    restore(restored, entries, stored.__getitem__)
    again, _ = saved(restored)
    assert {entry.name for entry in again} == {entry.name for entry in entries}
    assert sum(entry.size for entry in again) == sum(entry.size for entry in entries)


def test_rows_of_entries_are_json_and_come_back() -> None:
    entry = Entry("x", "pickle", digest="d", needs=["a", "b"], size=3, note="n")
    row = entry.row()
    assert row == {"name": "x", "kind": "pickle", "digest": "d", "needs": ("a", "b"), "size": 3, "note": "n"}
    assert Entry(**row).row() == row
    assert Entry("y", "lost", reason="r").row() == {"name": "y", "kind": "lost", "reason": "r"}
