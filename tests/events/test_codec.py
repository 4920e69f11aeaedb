"""The one codec: what goes in comes out, what JSON cannot say is refused, what is new is kept."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from typing import Any, get_args

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import fields
from tests.events.strategies import ENVELOPE, KINDS, commands, deltas, entries, events, plain, texts

from pinfold.events import (
    ActionId,
    ActionProposed,
    BadEvent,
    CallTool,
    Command,
    Decide,
    Delta,
    Entry,
    Event,
    Json,
    Noticed,
    NotPlain,
    SessionChanged,
    SessionId,
    TurnId,
    Unknown,
    UserSpoke,
    decode,
    decode_command,
    decode_line,
    decode_object,
    encode,
    entry_line,
    line_of,
    parse_json,
    plain_json,
)

pytestmark = pytest.mark.unit


def kind_of(event: Event) -> str:
    return event.kind if isinstance(event, Unknown) else type(event).__name__


@given(st.one_of(events, deltas, commands))
def test_the_fast_way_writes_what_the_plain_one_does(value: Event | Delta | Command) -> None:
    assert encode(value) == plain_json({"kind": value.kind, **value.body} if isinstance(value, Unknown) else value)


@pytest.mark.installed
@given(events)
def test_every_event_comes_back_as_it_was(event: Event) -> None:
    text = encode(event)
    assert decode(kind_of(event), text) == event
    assert decode_object(parse_json(text)) == event
    assert encode(decode(kind_of(event), text)) == text


@given(deltas)
def test_every_delta_comes_back_as_it_was(delta: Delta) -> None:
    assert decode_line(encode(delta)) == delta


@given(commands)
def test_every_command_comes_back_as_it_was(command: Command) -> None:
    assert decode_command(parse_json(encode(command))) == command


@given(entries)
def test_every_line_comes_back_as_it_was(entry: Entry) -> None:
    assert decode_line(entry_line(entry)) == entry
    assert decode_line(entry_line(entry).encode()) == entry
    assert line_of(entry.seq, entry.session, entry.at, encode(entry.event)) == entry_line(entry)


@given(st.one_of(events, deltas, commands))
def test_text_is_ascii_and_one_line(value: Event | Delta | Command) -> None:
    text = encode(value)
    assert text.isascii()
    assert text.isprintable()
    assert len(text.splitlines()) == 1


@given(plain)
def test_plain_data_comes_back_as_it_was(value: Json) -> None:
    assert parse_json(plain_json(value)) == value


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def cycle() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (float("nan"), "Out of range float values are not JSON compliant"),
        (float("inf"), "Out of range float values are not JSON compliant"),
        ({"deep": [-float("inf")]}, "Out of range float values are not JSON compliant"),
        (object(), "object"),
        (b"bytes", "bytes"),
        (datetime(2026, 1, 1, tzinfo=UTC), "datetime"),
        (Decimal(1), "Decimal"),
        ({1, 2}, "set"),
        ({(1, 2): 3}, "tuple"),
        (cycle(), "too deep|[Cc]ircular|recursion"),
        (nested(100_000), "too deep|recursion"),
        (10**5000, "digits"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_json_cannot_say_is_refused_in_words(value: object, words: str) -> None:
    with pytest.raises(NotPlain, match=f"^this cannot be written as JSON: .*({words})"):
        plain_json(value)
    for event in (
        ActionProposed(id=ActionId("a"), action=CallTool(tool="t", args={"x": value})),
        Unknown(kind="New", body={"x": value}),
    ):
        with pytest.raises(NotPlain, match=f"^this cannot be written as JSON: .*({words})"):
            encode(event)


@pytest.mark.parametrize("text", ["NaN", "[Infinity]", '{"a": -Infinity}', "1e999", "[-1e999]", "[" * 100_000])
def test_what_json_does_not_know_is_not_read(text: str) -> None:
    with pytest.raises(BadEvent, match=r"^not JSON: "):
        parse_json(text)


@given(st.text(min_size=1).filter(lambda kind: kind not in {k.__name__ for k in KINDS}), plain)
def test_an_unknown_kind_is_kept_and_written_again_the_same(kind: str, value: Json) -> None:
    body = plain_json({"kind": kind, "what": value, "more": {"x": [value]}})
    event = decode(kind, body)
    assert event == Unknown(kind=kind, body={"what": value, "more": {"x": [value]}})
    assert encode(event) == body


@given(events, st.dictionaries(st.text().map("x-{}".format), plain, max_size=3))
def test_fields_of_a_newer_version_do_no_harm(event: Event, extra: Mapping[str, Json]) -> None:
    body = {**parse_json(encode(event)), **extra}
    read = decode(kind_of(event), plain_json(body))
    assert read == (event if not isinstance(event, Unknown) else Unknown(kind=event.kind, body={**event.body, **extra}))


def test_an_upcaster_turns_an_old_kind_into_todays() -> None:
    def heard(body: dict[str, Json]) -> dict[str, Json]:
        return {"kind": "UserSpoke", "turn": body["turn"], "text": body["words"]}

    old = '{"kind": "UserTalked", "turn": "t1", "words": "hi"}'
    assert decode("UserTalked", old, {"UserTalked": heard}) == UserSpoke(turn=TurnId("t1"), text="hi")
    assert decode("UserTalked", old) == Unknown(kind="UserTalked", body={"turn": "t1", "words": "hi"})


def test_an_upcaster_reaches_an_old_shape_of_a_kind_that_is_still_known() -> None:
    def titled(body: dict[str, Json]) -> dict[str, Json]:
        return {"kind": "SessionChanged", "title": body.get("title") or body["name"]}

    upcasters = {"SessionChanged": titled}
    old = '{"kind": "SessionChanged", "name": "taxes"}'
    assert decode("SessionChanged", old, upcasters) == SessionChanged(title="taxes")
    assert decode("SessionChanged", encode(SessionChanged(title="now")), upcasters) == SessionChanged(title="now")


kinds = st.sampled_from([kind.__name__ for kind in KINDS]) | st.text(max_size=6)


@given(kinds, st.one_of(st.text(), st.recursive(plain, st.lists).map(json.dumps), texts))
def test_no_text_makes_decoding_fail_any_other_way(kind: str, text: str) -> None:
    for read in (partial(decode, kind, text), partial(decode_line, text), partial(parse_json, text)):
        with suppress(BadEvent):
            read()


@given(kinds, st.dictionaries(st.sampled_from(["seq", "session", "at", "turn", "id", "text", "action"]), plain))
def test_no_object_makes_decoding_fail_any_other_way(kind: str, body: dict[str, Json]) -> None:
    value = {"kind": kind, **body}
    for read in (
        partial(decode, kind, json.dumps(value)),
        partial(decode_object, value),
        partial(decode_command, value),
        partial(decode_line, json.dumps(value)),
    ):
        with suppress(BadEvent):
            read()


@given(st.binary())
def test_no_bytes_make_reading_a_line_fail_any_other_way(data: bytes) -> None:
    with pytest.raises(BadEvent):
        decode_line(data)


@pytest.mark.parametrize("escape", ["\\ud800", "\\uD800", "\\uDFFF\\ud83d"])
def test_a_lone_surrogate_is_read_however_it_is_written(escape: str) -> None:
    body = f'{{"kind": "Noticed", "text": "{escape}"}}'
    assert decode("Noticed", body) == Noticed(text=json.loads(f'"{escape}"'))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("", "not JSON: Expecting value"),
        ("[]", "not an object with a `kind`"),
        ('{"kind": 3}', "not an object with a `kind`"),
        ('{"kind": "Noticed", "text": "x"}', "envelope: Expected `int`, got `null` - at `$.seq`"),
        ('{"seq": 1, "session": "s", "at": "", "kind": "Noticed"}', "Noticed: Object missing required field `text`"),
    ],
)
def test_a_bad_line_says_where_it_goes_wrong(line: str, words: str) -> None:
    with pytest.raises(BadEvent) as caught:
        decode_line(line)
    assert str(caught.value).startswith(words)


def test_a_command_says_where_it_goes_wrong() -> None:
    with pytest.raises(BadEvent, match=r"^Decide: Invalid enum value 'perhaps' - at `\$.verdict`$"):
        decode_command({"kind": "Decide", "id": "a", "digest": "", "verdict": "perhaps"})
    assert decode_command({"kind": "Decide", "id": "a", "digest": "d", "verdict": "deny"}) == Decide(
        id=ActionId("a"), digest="d", verdict="deny"
    )


@pytest.mark.parametrize("kind", [*KINDS, *get_args(Delta), *get_args(Command)], ids=lambda kind: kind.__name__)
def test_a_kind_is_named_as_its_class_and_leaves_the_lines_names_alone(kind: Any) -> None:
    assert (kind.__struct_config__.tag, kind.__struct_config__.tag_field) == (kind.__name__, "kind")
    assert kind.__struct_config__.frozen
    assert not ENVELOPE & set(kind.__struct_fields__)


def test_there_are_few_kinds() -> None:
    assert len(get_args(Event)) <= 25


def test_every_field_added_later_has_a_default() -> None:
    """The fields without a default are those of the first version; old logs must go on loading."""
    needed = {kind.__name__: {field.name for field in fields(kind) if field.required} for kind in KINDS}
    first: dict[str, set[str]] = {
        "SessionOpened": {"version", "workspace", "model", "mode", "sandbox"},
        "SessionChanged": {"title"},
        "Noticed": {"text"},
        "UserSpoke": {"turn", "text"},
        "ModelCalled": {"turn", "model"},
        "ModelReplied": {"turn", "model", "text"},
        "ModelFailed": {"turn", "model", "error"},
        "ActionProposed": {"id", "action"},
        "ActionAllowed": {"id"},
        "ActionDenied": {"id", "reason"},
        "ApprovalRequested": {"id", "reason", "digest"},
        "ApprovalDecided": {"id", "verdict"},
        "ActionStarted": {"id", "effect"},
        "ActionFinished": {"id", "outcome", "observation"},
        "TurnEnded": {"turn", "text"},
        "TurnInterrupted": {"turn"},
        "TurnFailed": {"turn", "error"},
    }
    assert {kind: needed[kind] for kind in first} == first


def test_an_entry_is_told_flat() -> None:
    entry = Entry(seq=7, session=SessionId("s_1"), at="then", event=Noticed(text="é\0"))
    assert entry_line(entry) == ('{"seq":7,"session":"s_1","at":"then","kind":"Noticed","text":"\\u00e9\\u0000"}')
