"""The host's reader of frames, against everything a hostile guest could write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.sandbox import Display
from pinfold.sandbox.session.channel import (
    CALL_BYTES,
    CALLS,
    CELL_BYTES,
    DISPLAYS,
    FORMS,
    OPEN_CALLS,
    PIECE_BYTES,
    RAN_BYTES,
    ChannelBroken,
    GuestCall,
    GuestStatus,
    Reply,
    ReplyReader,
    inventory,
)
from pinfold.sandbox.session.channel import (
    frame as frame_parts,
)

pytestmark = pytest.mark.unit

NO_FORMS: list[list[object]] = [[]]
STATUSES = frozenset[GuestStatus]({"ok", "error"})


def frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    return b"".join(frame_parts(header, body))


def reader_for(request_id: int = 7, body_bytes: int = 1000) -> ReplyReader:
    reader = ReplyReader()
    reader.expect(request_id, STATUSES, body_bytes)
    return reader


def shows(displays: object, body: bytes) -> bytes:
    return frame({"id": 7, "status": "ok", "displays": displays}, body)


def fed(data: bytes, step: int) -> Reply | None:
    reader = reader_for()
    reply = None
    for start in range(0, len(data), step):
        reply = reader.feed(data[start : start + step])
    return reply


@pytest.mark.parametrize("step", [1, 3, 1000])
def test_a_reply_is_the_same_however_it_is_cut(step: int) -> None:
    header = {"id": 7, "status": "ok", "value": 4, "error": 3, "interrupted": True}
    assert fed(frame(header, b"\xc3\xa9xyerr"), step) == Reply(
        status="ok", body=b"", value="éxy", error="err", interrupted=True
    )


@pytest.mark.parametrize("step", [1, 1000])
def test_displays_are_cut_out_as_announced(step: int) -> None:
    forms = [[["text/plain", 2], ["image/png", 3]], [["application/vnd.x.v1+json", 0]]]
    header = {"id": 7, "status": "error", "value": 1, "error": 2, "displays": forms}
    assert fed(frame(header, b"veeab\x00\xff!"), step) == Reply(
        status="error",
        body=b"",
        value="v",
        error="ee",
        displays=(
            Display(mime={"text/plain": b"ab", "image/png": b"\x00\xff!"}),
            Display(mime={"application/vnd.x.v1+json": b""}),
        ),
    )


def test_the_largest_header_the_guest_may_send_is_taken() -> None:
    longest = "a" * 81 + "/" + "b" * 80
    forms = [[[longest + str(n), 0] for n in range(FORMS)] for _ in range(DISPLAYS)]
    assert fed(shows(forms, b""), 1 << 20) is not None


def test_texts_that_are_not_utf8_are_replaced() -> None:
    reply = fed(frame({"id": 7, "status": "ok", "value": 2}, b"\xff\xfe"), 1000)
    assert reply is not None
    assert reply.value == "\ufffd\ufffd"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame({"id": 8, "status": "ok"}), "answered request 8 instead of 7"),
        (frame({"id": 7, "status": "hello"}), "answered 'hello'"),
        (frame({"id": 7, "status": "maybe"}), "header is malformed"),
        (frame({"id": "7", "status": "ok"}), "header is malformed"),
        (frame({"status": "ok"}), "header is malformed"),
        (frame({"id": 7, "status": "ok", "value": -1, "error": 1}), "do not add up"),
        (frame({"id": 7, "status": "ok", "value": 5}, b"1234"), "do not add up"),
        (frame({"id": 7, "status": "ok"}) * 2, "more than once"),
        (frame({"id": 7, "status": "ok"}, b"x" * 1001), "announced a frame"),
        (pack("<II", 0xFFFFFFFF, 0), "announced a frame"),
        (pack("<II", 10, 0xFFFFFFFF), "announced a frame"),
        (pack("<II", 4096, 0) + b"[" * 4096, "header is malformed"),
        (pack("<II", 2, 0) + b"\xff\xff", "header is malformed"),
        (pack("<II", 0, 0), "header is malformed"),
        (shows([[["text/plain", 3]]], b"ab"), "do not add up"),
        (shows([[["text/plain", 3]]], b"abcd"), "do not add up"),
        (shows([[["text/plain", -1], ["text/html", 1]]], b""), "header is malformed"),
        (shows([[["text/plain", 2**80]]], b""), "header is malformed"),
        (shows([[["text/plain", 1.0]]], b"x"), "header is malformed"),
        (shows([[["text/plain", 1, 1]]], b"x"), "header is malformed"),
        (shows([[["text/plain\n", 1]]], b"x"), "header is malformed"),
        (shows([[["../../etc/passwd", 1]]], b"x"), "header is malformed"),
        (shows([[["TEXT/HTML", 1]]], b"x"), "header is malformed"),
        (shows(NO_FORMS, b""), "header is malformed"),
        (shows([[["text/plain", 1], ["text/plain", 1]]], b"xy"), "same format twice"),
        (shows([[["text/plain", 0]]] * (DISPLAYS + 1), b""), "header is malformed"),
        (shows([[[f"text/x{n}", 0] for n in range(FORMS + 1)]], b""), "header is malformed"),
        (b"Traceback (most recent call last)", "announced a frame"),
    ],
)
def test_what_is_not_the_protocol_breaks_the_channel(data: bytes, why: str) -> None:
    with pytest.raises(ChannelBroken, match=why):
        reader_for().feed(data)


def test_a_guest_that_speaks_unasked_breaks_the_channel() -> None:
    reader = reader_for()
    assert reader.feed(frame({"id": 7, "status": "ok"})) is not None
    with pytest.raises(ChannelBroken, match="without a request"):
        reader.feed(b"\0")


def call(number: int = 1, body: bytes = b"{}", **more: object) -> bytes:
    return frame({"id": 7, "status": "call", "call": number, "tool": "look", **more}, body)


def called(data: bytes, step: int = 1 << 22, *, answered: bool = False) -> tuple[list[GuestCall | int], Reply | None]:
    """What the reader takes for calls, and the reply behind them."""
    reader, calls = ReplyReader(), list[GuestCall | int]()

    def on_call(call: GuestCall | int) -> None:
        calls.append(call)
        reader.open_calls -= answered

    reader.expect(7, STATUSES, CELL_BYTES, on_call)
    replies = [reader.feed(data[start : start + step]) for start in range(0, len(data), step)]
    return calls, replies[-1]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_calls_come_before_the_reply_however_they_are_cut(step: int) -> None:
    data = call(1, b'{"at": [1, null]}') + call(2) + frame({"id": 7, "status": "ok", "value": 1}, b"x")
    assert called(data, step) == (
        [GuestCall(number=1, tool="look", args={"at": [1, None]}), GuestCall(number=2, tool="look", args={})],
        Reply(status="ok", body=b"", value="x"),
    )


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (call(id=6), "answered request 6 instead of 7"),
        (call(2), "its call is malformed"),
        (call(1) + call(1), "its call is malformed"),
        (call(tool=""), "its call is malformed"),
        (call(tool="x" * 201), "header is malformed"),
        (call(tool=None), "header is malformed"),
        (call(number="1"), "header is malformed"),  # pyright: ignore[reportArgumentType]
        (frame({"id": 7, "status": "call"}, b"{}"), "its call is malformed"),
        (call(1, b""), "not JSON"),
        (call(1, b"{"), "not JSON"),
        (call(1, b'{"x": NaN}'), "not JSON"),
        (call(1, b'"\xff"'), "not JSON"),
        (call(1, b"[" * 100_000), "not JSON"),
        (call(1, b"[1]"), "are not a JSON object"),
        (call(1, b" " * (CALL_BYTES + 1)), "made a call with"),
        (b"".join(call(number) for number in range(1, OPEN_CALLS + 2)), f"more than {OPEN_CALLS} calls at once"),
        (frame({"id": 7, "status": "drop", "call": 1}), "never made"),
        (call() + frame({"id": 7, "status": "drop", "call": 2}), "never made"),
        (call() + frame({"id": 7, "status": "drop"}), "never made"),
        (call() + frame({"id": 7, "status": "drop", "call": 1}) * 2, "never made"),
        (frame({"id": 7, "status": "ok"}) + call(), "more than once"),
    ],
)
def test_a_call_that_is_not_one_breaks_the_channel(data: bytes, why: str) -> None:
    with pytest.raises(ChannelBroken, match=why):
        called(data)


def test_the_most_calls_and_the_largest_are_taken() -> None:
    data = b"".join(call(number) for number in range(1, CALLS + 1))
    assert len(called(data, answered=True)[0]) == CALLS
    with pytest.raises(ChannelBroken, match=f"more than {CALLS} calls in one cell"):
        called(data + call(CALLS + 1), answered=True)
    open_calls = b"".join(call(number) for number in range(1, OPEN_CALLS + 1))
    assert len(called(open_calls + frame({"id": 7, "status": "drop", "call": 3}))[0]) == OPEN_CALLS + 1
    assert len(called(call(1, b"{}" + b" " * (CALL_BYTES - 2)))[0]) == 1


def test_without_anybody_to_answer_a_call_breaks_the_channel() -> None:
    with pytest.raises(ChannelBroken, match="calls are not served"):
        reader_for().feed(call())


ENDED = b'{"status":"ok","code":0,"out":1,"err":0,"dropped":0,"pid":7}\nx'


def ran(command: object = 1, body: bytes = ENDED, **more: object) -> bytes:
    return frame({"id": 7, "status": "ran", "command": command, **more}, body)


def said(command: object = 1, body: bytes = b"y", **more: object) -> bytes:
    return frame({"id": 7, "status": "output", "command": command, "stream": "stderr", **more}, body)


def nested(data: bytes, commands: int = 2, step: int = 1 << 22) -> tuple[list[object], Reply | None]:
    """What the reader takes for news of so many commands, whose output is wanted, and the reply behind."""
    reader, news = ReplyReader(), list[object]()
    reader.expect(7, STATUSES, 1000, lambda _call: None)
    for _ in range(commands):
        reader.expect_command(
            lambda number, ran: news.append((number, ran.pid)), lambda stream, data: news.append((stream, data))
        )
    replies = [reader.feed(data[start : start + step]) for start in range(0, len(data), step)]
    return news, replies[-1]


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_news_of_commands_come_in_order_however_they_are_cut(step: int) -> None:
    data = said() + said(stream="stdout") + ran() + said(2) + ran(2) + frame({"id": 7, "status": "ok"})
    pieces = [("stderr", b"y"), ("stdout", b"y"), (1, 7), ("stderr", b"y"), (2, 7)]
    assert nested(data, 2, step) == (pieces, Reply(status="ok", body=b""))


def test_a_request_may_end_before_its_commands_are_told_of() -> None:
    assert nested(said() + frame({"id": 7, "status": "ok"})) == ([("stderr", b"y")], Reply(status="ok", body=b""))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (ran(2), "a command that was not started"),
        (ran() + ran(), "a command that was not started"),
        (ran() + ran(2) + ran(3), "a command that was not started"),
        (ran(None), "a command that was not started"),
        (ran("1"), "header is malformed"),
        (ran(id=6), "answered request 6"),
        (ran(1, b""), "end is malformed"),
        (ran(1, ENDED + b"y"), "add up"),
        (ran(1, ENDED.replace(b'"pid":7', b'"pid":-1')), "end is malformed"),
        (ran(1, ENDED.replace(b'"pid":7', b'"pid":2147483648')), "end is malformed"),
        (ran(1, b"x" * (RAN_BYTES + 1)), "announced a frame"),
        (ran() + ran(2) + frame({"id": 7, "status": "ok"}, b"x" * 1001), "announced a frame"),
        (ran() + frame({"id": 7, "status": "ok"}, b"x" * 1001), "answered with 1001 bytes"),
        (said(3), "not requested"),
        (said(0), "not requested"),
        (said(None), "not requested"),
        (ran() + said(), "not requested"),
        (said(1, b"y" * (PIECE_BYTES + 1)), "not requested"),
        (said(stream="stdin"), "header is malformed"),
        (frame({"id": 7, "status": "ok"}) + ran(), "more than once"),
    ],
)
def test_news_of_a_command_that_are_none_break_the_channel(data: bytes, why: str) -> None:
    with pytest.raises(ChannelBroken, match=why):
        nested(data)


@pytest.mark.parametrize("data", [ran(), said(), said(0)])
def test_news_that_nobody_asked_for_break_the_channel(data: bytes) -> None:
    with pytest.raises(ChannelBroken, match=r"a command that was not started|not requested"):
        reader_for().feed(data)


@given(st.binary(max_size=200), st.integers(), st.sampled_from(["ran", "output"]), st.text(max_size=20))
def test_no_news_raise_anything_but_channel_broken(body: bytes, number: int, status: str, stream: str) -> None:
    with suppress(ChannelBroken):
        nested(frame({"id": 7, "status": status, "command": number, "stream": stream}, body))


@given(st.binary(max_size=200), st.integers(), st.text(max_size=300))
def test_no_call_raises_anything_but_channel_broken(body: bytes, number: int, tool: str) -> None:
    with suppress(ChannelBroken):
        called(call(number, body, tool=tool))


@given(st.lists(st.binary(max_size=200), max_size=20))
def test_no_bytes_raise_anything_but_channel_broken(chunks: list[bytes]) -> None:
    reader = reader_for()
    with suppress(ChannelBroken):
        for chunk in chunks:
            reader.feed(chunk)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ),
    st.binary(max_size=50),
)
def test_no_json_raises_anything_but_channel_broken(header: object, body: bytes) -> None:
    encoded = json.dumps(header).encode()
    with suppress(ChannelBroken):
        reader_for().feed(pack("<II", len(encoded), len(body)) + encoded + body)


@given(st.binary())
def test_an_inventory_is_one_or_breaks_the_channel(body: bytes) -> None:
    with suppress(ChannelBroken):
        inventory(body)
