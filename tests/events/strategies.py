"""Any value of ours: events, deltas and commands with the nastiest plain data JSON can carry."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import hypothesis.strategies as st
from msgspec import NODEFAULT
from msgspec.structs import fields

from pinfold.events import (
    Action,
    Call,
    CallTool,
    Command,
    Delta,
    DisplayRef,
    Entry,
    Event,
    Image,
    RunCell,
    SessionId,
    Unknown,
    Usage,
)

ENVELOPE = {"seq", "session", "at", "kind"}
"""Names that belong to the line, never to an event."""
KINDS: tuple[Any, ...] = tuple(kind for kind in get_args(Event) if kind is not Unknown)

nasty = st.sampled_from(
    ["", "\0", "\ud800", "\udfffx\ud800", "\u2028\u2029\x85\x0b", "\r\n", "👩‍🔬", '"\\', "\\ud800", "\x1b[2J"]
)


def _whole(text: str) -> str:
    """Two halves of a character that stand side by side are that character: JSON cannot tell them apart."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")


texts = st.one_of(
    st.text(), nasty, st.lists(st.one_of(nasty, st.text(max_size=3)), max_size=4).map("".join).map(_whole)
)
numbers = st.one_of(st.integers(), st.integers(-(10**60), 10**60), st.floats(allow_nan=False, allow_infinity=False))
plain = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
calls = st.builds(Call, id=texts, tool=texts, args=plain)
usages = st.builds(Usage, input_tokens=st.integers(0), output_tokens=st.integers(0))
actions: st.SearchStrategy[Action] = st.one_of(
    st.builds(RunCell, code=texts, timeout_s=st.none() | st.floats(0, 1e9)), st.builds(CallTool, tool=texts, args=plain)
)
_BY_NAME: dict[str, st.SearchStrategy[Any]] = {
    "action": actions,
    "actions": st.lists(calls, max_size=3).map(tuple),
    "displays": st.lists(st.builds(DisplayRef, mime=st.dictionaries(texts, texts, max_size=2)), max_size=2).map(tuple),
    "images": st.lists(st.builds(Image, mime=texts, blob=texts), max_size=2).map(tuple),
    "echo": plain,
    "usage": usages,
}


def _of_type(name: str, type_: Any) -> st.SearchStrategy[Any]:
    if name in _BY_NAME:
        return _BY_NAME[name]
    if type_ is str:
        return texts
    if getattr(type_, "__supertype__", None) is str:
        return texts
    if type_ == tuple[str, ...] or name == "blobs":
        return st.lists(texts, max_size=3).map(tuple)
    return st.from_type(type_).filter(lambda value: value == value and value not in (float("inf"), -float("inf")))


def instances(kind: Any) -> st.SearchStrategy[Any]:
    """Every field given, or left to its default."""
    needed: dict[str, st.SearchStrategy[Any]] = {}
    optional: dict[str, st.SearchStrategy[Any]] = {}
    types = get_type_hints(kind)
    for field in fields(kind):
        given = _of_type(field.name, types[field.name])
        (needed if field.default is NODEFAULT else optional)[field.name] = given
    return st.fixed_dictionaries(needed, optional=optional).map(lambda given: kind(**given))


unknowns = st.builds(
    Unknown,
    kind=st.text(max_size=8).map("Future{}".format),
    body=st.dictionaries(texts.filter(lambda key: key not in ENVELOPE), plain, max_size=4),
)
events: st.SearchStrategy[Event] = st.one_of(unknowns, *map(instances, KINDS))
deltas: st.SearchStrategy[Delta] = st.one_of(*map(instances, get_args(Delta)))
commands: st.SearchStrategy[Command] = st.one_of(*map(instances, get_args(Command)))
entries = st.builds(Entry, seq=st.integers(1, 1 << 62), session=texts.map(SessionId), at=texts, event=events)
