"""The host's end of the channel: bounded frames of JSON and bytes from a peer that may be hostile.

Whatever is wrong with what the guest sends raises ChannelBroken, which never leaves this room: the
guest is killed for it. Nothing here decides that, and nothing here reads a descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Annotated, Literal, TypeAlias, cast

import msgspec

from pinfold.events import BadEvent, Json, parse_json
from pinfold.sandbox.contract import CommandOutcome, Display, Variable

LENGTHS = Struct("<II")
HEADER_BYTES = 128 << 10
"""A reply's header holds an id, a status, three numbers, and the types and sizes of displays."""
TEXT_BYTES = 1 << 20
"""The guest's own cap on the text of a value and of an error, each."""
DISPLAYS = 64
"""Of one cell; this and the next two are caps the guest keeps to, and a guest that does not is not ours."""
FORMS = 8
"""Representations of one display."""
DISPLAY_BYTES = 32 << 20
"""Of all displays of one cell."""
MIME = r"^[a-z0-9][a-z0-9.+-]{0,80}/[a-z0-9][a-z0-9.+-]{0,80}\Z"
CELL_BYTES = 2 * TEXT_BYTES + DISPLAY_BYTES
INVENTORY_BYTES = 8 << 20
REFUSAL_BYTES = 64 << 10
CALLS = 1000
"""Of one cell; the guest keeps to this and the next two as well."""
CALL_BYTES = 1 << 20
"""The arguments of one call."""
TOOL_CHARS = 200
"""A tool's name."""
ANSWER_BYTES = 16 << 20
"""What a cell may get for a call."""

GuestStatus: TypeAlias = Literal["hello", "ok", "error", "interrupted", "refused", "call"]


class ChannelBroken(Exception):
    """The guest said something that is not the protocol; the text says what."""


_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=DISPLAY_BYTES)]
_Form: TypeAlias = tuple[Annotated[str, msgspec.Meta(pattern=MIME)], _Size]
_Forms: TypeAlias = Annotated[list[_Form], msgspec.Meta(min_length=1, max_length=FORMS)]


ASK_STATUSES = frozenset[GuestStatus]({"ok", "refused"})
"""How anything that is not a cell may end."""


class Header(msgspec.Struct, frozen=True):
    id: int
    status: GuestStatus
    value: int | None = None
    error: int | None = None
    interrupted: bool = False
    again: bool = False
    out_of_memory: bool = False
    displays: Annotated[list[_Forms], msgspec.Meta(max_length=DISPLAYS)] = []
    call: int | None = None
    tool: Annotated[str, msgspec.Meta(max_length=TOOL_CHARS)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestCall:
    """A tool the program wants called. Shaped as one, and no more than that."""

    number: int
    """Counted from 1 in each request."""
    tool: str
    args: Mapping[str, Json]


OnGuestCall: TypeAlias = Callable[[GuestCall], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One checked answer of the guest."""

    status: GuestStatus
    body: bytes
    value: str | None = None
    error: str | None = None
    interrupted: bool = False
    again: bool = False
    """The cell can be run again instead of its state being kept."""
    out_of_memory: bool = False
    displays: tuple[Display, ...] = ()


class _Row(msgspec.Struct, frozen=True):
    name: str
    type: str
    shape: str | None
    size: int | None
    cell: int | None = None


class _Ended(msgspec.Struct, frozen=True):
    """Of a command, before its output."""

    status: Literal["ok", "error", "timeout"]
    code: int | None
    out: Annotated[int, msgspec.Meta(ge=0)]
    err: Annotated[int, msgspec.Meta(ge=0)]
    dropped: Annotated[int, msgspec.Meta(ge=0)]


_ended = msgspec.json.Decoder(_Ended)
_header = msgspec.json.Decoder(Header)
_rows = msgspec.json.Decoder(list[_Row])


def frame(header: Mapping[str, object], body: bytes = b"") -> bytes:
    encoded = msgspec.json.encode(header)
    return LENGTHS.pack(len(encoded), len(body)) + encoded + body


class ReplyReader:
    """Turns the bytes that come into replies, each checked against the one request that is open."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._id: int | None = None
        self._statuses: frozenset[GuestStatus] = frozenset()
        self._body_bytes = 0
        self._calls = 0
        self._on_call: OnGuestCall | None = None

    def expect(
        self,
        request_id: int,
        statuses: frozenset[GuestStatus],
        body_bytes: int,
        on_call: OnGuestCall | None = None,
    ) -> None:
        """Open a request; its reply may say one of these and carry this much. Calls may come first, if anyone wants them."""
        self._id = request_id
        self._statuses = statuses
        self._body_bytes = body_bytes
        self._calls = 0
        self._on_call = on_call

    def feed(self, data: bytes) -> Reply | None:
        """The reply, when these bytes complete it. Raises ChannelBroken."""
        if self._id is None:
            raise ChannelBroken("it spoke without being asked")
        self._buffer += data
        buffer = self._buffer
        while len(buffer) >= LENGTHS.size:
            header_size, body_size = LENGTHS.unpack_from(buffer)
            if header_size > HEADER_BYTES or body_size > self._body_bytes:
                raise ChannelBroken(f"it announced a frame of {header_size} + {body_size} bytes")
            size = LENGTHS.size + header_size + body_size
            if len(buffer) < size:
                return None
            start = LENGTHS.size + header_size
            header = self._header(bytes(buffer[LENGTHS.size : start]))
            if header.status == "call":
                self._take_call(header, bytes(buffer[start:size]))
                del buffer[:size]
                continue
            if len(buffer) > size:
                raise ChannelBroken("it answered more than once")
            reply = self._checked(header, bytes(buffer[start:]))
            buffer.clear()
            self._id = None
            return reply
        return None

    def _header(self, encoded: bytes) -> Header:
        try:
            header = _header.decode(encoded)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise ChannelBroken("its header is not ours") from error
        if header.id != self._id:
            raise ChannelBroken(f"it answered request {header.id}, asked was {self._id}")
        return header

    def _take_call(self, header: Header, body: bytes) -> None:
        if self._on_call is None:
            raise ChannelBroken("it made a call that nobody was there to answer")
        if self._calls == CALLS:
            raise ChannelBroken(f"it made more than {CALLS} calls in one cell")
        if len(body) > CALL_BYTES:
            raise ChannelBroken(f"it made a call with {len(body)} bytes")
        self._calls += 1
        if header.call != self._calls or not header.tool:
            raise ChannelBroken("its call is not one")
        try:
            args = parse_json(body.decode())
        except (BadEvent, UnicodeDecodeError) as error:
            raise ChannelBroken("the arguments of its call are not JSON") from error
        if not isinstance(args, dict):
            raise ChannelBroken("the arguments of its call have no names")
        self._on_call(GuestCall(number=self._calls, tool=header.tool, args=cast("dict[str, Json]", args)))

    def _checked(self, header: Header, body: bytes) -> Reply:
        if header.status not in self._statuses:
            raise ChannelBroken(f"it answered {header.status!r} to request {header.id}")
        value, error = header.value, header.error
        if value is None and error is None and not header.displays:
            return Reply(status=header.status, body=body, interrupted=header.interrupted, again=header.again)
        split, shown = value or 0, (value or 0) + (error or 0)
        rich = sum(size for forms in header.displays for _, size in forms)
        if split < 0 or (error or 0) < 0 or shown + rich != len(body):
            raise ChannelBroken("its texts do not add up")
        return Reply(
            status=header.status,
            body=b"",
            value=None if value is None else body[:split].decode("utf-8", "replace"),
            error=None if error is None else body[split:shown].decode("utf-8", "replace"),
            interrupted=header.interrupted,
            again=header.again,
            out_of_memory=header.out_of_memory,
            displays=_displays(header.displays, memoryview(body)[shown:]) if header.displays else (),
        )


def _displays(sizes: list[_Forms], body: memoryview) -> tuple[Display, ...]:
    """What the header announced, cut from a body that has been found to be as long."""
    found: list[Display] = []
    for forms in sizes:
        mime: dict[str, bytes] = {}
        for name, size in forms:
            mime[name], body = bytes(body[:size]), body[size:]
        if len(mime) != len(forms):
            raise ChannelBroken("it shows one thing twice in the same form")
        found.append(Display(mime=mime))
    return tuple(found)


def command_outcome(body: bytes) -> CommandOutcome:
    """Raises ChannelBroken."""
    head, _, output = body.partition(b"\n")
    try:
        ended = _ended.decode(head)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ChannelBroken("the end of a command is not told as one") from error
    if ended.out + ended.err != len(output):
        raise ChannelBroken("the output of a command does not add up")
    return CommandOutcome(
        status=ended.status,
        code=ended.code,
        stdout=output[: ended.out],
        stderr=output[ended.out :],
        dropped_bytes=ended.dropped,
    )


def inventory(body: bytes) -> tuple[Variable, ...]:
    """Raises ChannelBroken."""
    try:
        rows = _rows.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ChannelBroken("its list of variables is not one") from error
    return tuple(
        Variable(name=row.name, type=row.type, shape=row.shape, size=row.size, cell=row.cell) for row in rows
    )
