"""The host's end of the channel: bounded frames of JSON and bytes from a peer that may be hostile.

Anything wrong in what the guest sends raises ChannelBroken. It never leaves this package: the callers
kill the guest for it. Nothing here kills, and nothing here reads a file descriptor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Annotated, Literal, TypeAlias, TypeVar, cast

import msgspec

from pinfold.events import BadEvent, Json, decoder_of, parse_json
from pinfold.sandbox.abilities import VariablePage
from pinfold.sandbox.contract import COMMAND_BYTES, CommandOutcome, Display, Lost, ReadOnly, Stream, Variable

LENGTHS = Struct("<II")
HEADER_BYTES = 128 << 10
"""Most bytes of a header. It holds an id, a status, a few numbers, and the types and sizes of displays."""
TEXT_BYTES = 1 << 20
"""The guest's own cap on the text of a value, and on that of an error."""
DISPLAYS = 64
"""Displays of one cell. The guest keeps to this and the next two caps; one that does not has been taken over."""
FORMS = 8
"""Representations of one display."""
DISPLAY_BYTES = 32 << 20
"""Bytes of all displays of one cell."""
MIME = r"^[a-z0-9][a-z0-9.+-]{0,80}/[a-z0-9][a-z0-9.+-]{0,80}\Z"
CELL_BYTES = 2 * TEXT_BYTES + DISPLAY_BYTES
INVENTORY_BYTES = 8 << 20
PAGE_BYTES = 64 << 20
"""Enough for 4 million characters, each in its longest JSON form."""
REFUSAL_BYTES = 64 << 10
CALLS = 10_000
"""Calls of one cell. The guest keeps to the caps from here to CALLS_BYTES as well."""
OPEN_CALLS = 64
"""Calls that wait for their answers at once."""
CALL_BYTES = 1 << 20
"""The arguments of one call."""
TOOL_CHARS = 200
"""A tool's name."""
PACKAGE_CHARS = 100
CALLS_BYTES = 256 << 20
"""The arguments of all calls of one cell."""
ANSWER_BYTES = 16 << 20
"""The JSON of one answer."""
BESIDE_BYTES = 1 << 30
"""The bytes and tables that one answer holds besides its JSON."""
ANSWERS_BYTES = 4 << 30
"""The answers to all calls of one cell."""
RAN_BYTES = 2 * COMMAND_BYTES + REFUSAL_BYTES
"""The end of a command with its output."""
PIECE_BYTES = 1 << 16
"""One piece of a command's output, sent as it is written."""

GuestStatus: TypeAlias = Literal["hello", "ok", "error", "interrupted", "refused", "call", "drop", "ran", "output"]


class ChannelBroken(Exception):
    """The guest violated the protocol; the text says how."""


_T = TypeVar("_T")
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
_Size: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=DISPLAY_BYTES)]
_Form: TypeAlias = tuple[Annotated[str, msgspec.Meta(pattern=MIME)], _Size]
_Forms: TypeAlias = Annotated[list[_Form], msgspec.Meta(min_length=1, max_length=FORMS)]


ASK_STATUSES = frozenset[GuestStatus]({"ok", "refused"})
"""Final statuses of a request that is not a cell."""
BEFORE_THE_END = frozenset[GuestStatus]({"call", "drop", "ran", "output"})
"""Statuses of frames that do not end their request."""


class Header(msgspec.Struct, frozen=True):
    id: int
    status: GuestStatus
    value: int | None = None
    error: int | None = None
    interrupted: bool = False
    again: bool = False
    out_of_memory: bool = False
    missing: Annotated[str, msgspec.Meta(max_length=PACKAGE_CHARS)] = ""
    displays: Annotated[list[_Forms], msgspec.Meta(max_length=DISPLAYS)] = []
    lost: Annotated[list[Lost], msgspec.Meta(max_length=4)] = []
    call: int | None = None
    tool: Annotated[str, msgspec.Meta(max_length=TOOL_CHARS)] = ""
    command: int | None = None
    stream: Stream = "stdout"


class GuestCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call by the program. Only its shape has been checked."""

    number: int
    """Counts from 1 in each request."""
    tool: str
    args: Mapping[str, Json]


OnGuestCall: TypeAlias = Callable[[GuestCall | int], None]
"""Takes a call, or the number of a call whose answer is no longer wanted."""
OnPiece: TypeAlias = Callable[[Stream, bytes], None]
"""Takes a piece of a command's output as it arrives."""


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """How a command ended, as the guest reports it."""

    outcome: CommandOutcome
    pid: int
    """Its process number inside; 0 if it did not start."""


OnRan: TypeAlias = Callable[[int, Ran], None]
"""Takes the number of a nested command within its request, and its result."""


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """One checked reply of the guest."""

    status: GuestStatus
    body: bytes
    value: str | None = None
    error: str | None = None
    interrupted: bool = False
    again: bool = False
    """The cell can be run again, so no copy of its state was kept."""
    out_of_memory: bool = False
    missing: str = ""
    displays: tuple[Display, ...] = ()
    lost: tuple[Lost, ...] = ()


class _Ended(msgspec.Struct, frozen=True):
    """The header of a command's end, which comes before its output."""

    status: Literal["ok", "error", "timeout"]
    code: int | None
    out: _Count
    err: _Count
    dropped: _Count
    pid: Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)] = 0
    read_only: ReadOnly = ""


_ended = decoder_of(_Ended)
_header = decoder_of(Header)
_variables = decoder_of(tuple[Variable, ...])
_page = decoder_of(VariablePage)


def frame(header: Mapping[str, object], *parts: bytes) -> tuple[bytes, ...]:
    """Return the pieces of a frame to send; a small body is joined with its header."""
    encoded = msgspec.json.encode(header)
    size = sum(map(len, parts))
    head = LENGTHS.pack(len(encoded), size) + encoded
    return (head + b"".join(parts),) if size <= PIECE_BYTES else (head, *parts)


def _decode(decoder: msgspec.json.Decoder[_T], data: bytes, fault: str) -> _T:
    try:
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ChannelBroken(fault) from error


class ReplyReader:
    """Turns received bytes into replies, each checked against the one open request."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._id: int | None = None
        self._statuses: frozenset[GuestStatus] = frozenset()
        self._body_bytes = 0
        self._calls = self._drops = self._call_bytes = 0
        self.open_calls = 0
        """Calls without an answer. Decreased by the code that answers them."""
        self._on_call: OnGuestCall | None = None
        self._commands = self._ran = 0
        """Commands nested in the request, and those of them whose end has been received."""
        self._on_ran: OnRan | None = None
        self._on_pieces: dict[int, OnPiece | None] = {}
        """By the number of the command; 0 is the request itself."""

    def expect(
        self,
        request_id: int,
        statuses: frozenset[GuestStatus],
        body_bytes: int,
        on_call: OnGuestCall | None = None,
        on_piece: OnPiece | None = None,
    ) -> None:
        """Open a request, whose reply may have one of `statuses` and at most `body_bytes`. Calls and pieces of output
        may come before it, if `on_call` and `on_piece` are given."""
        self._id = request_id
        self._statuses = statuses
        self._body_bytes = body_bytes
        self._calls = self._drops = self._call_bytes = 0
        self.open_calls = self._commands = self._ran = 0
        self._on_call = on_call
        self._on_pieces = {0: on_piece}

    def expect_command(self, on_ran: OnRan, on_piece: OnPiece | None) -> int:
        """Nest a command in the open request and return its number. Ends arrive once each, in order, if at all."""
        self._commands += 1
        self._on_ran = on_ran
        self._on_pieces[self._commands] = on_piece
        return self._commands

    def feed(self, data: bytes) -> Reply | None:
        """Take received bytes, and return the reply if they complete it. Raises ChannelBroken."""
        if self._id is None:
            raise ChannelBroken("it sent data without a request")
        self._buffer += data
        come, at = self._buffer, 0
        while (start := at + LENGTHS.size) <= len(come):
            header_size, body_size = LENGTHS.unpack_from(come, at)
            most = RAN_BYTES if self._ran < self._commands else 0
            if header_size > HEADER_BYTES or body_size > max(self._body_bytes, most):
                raise ChannelBroken(f"it announced a frame of {header_size} + {body_size} bytes")
            body = start + header_size
            end = body + body_size
            if end > len(come):
                break
            header = _decode(_header, bytes(come[start:body]), "its header is malformed")
            if header.id != self._id:
                raise ChannelBroken(f"it answered request {header.id} instead of {self._id}")
            if header.status not in BEFORE_THE_END:
                if len(come) > end:
                    raise ChannelBroken("it answered more than once")
                reply = self._check_reply(header, bytes(come[body:end]))
                self._buffer.clear()
                self._id = None
                return reply
            self._take(header, bytes(come[body:end]))
            at = end
        del self._buffer[:at]
        return None

    def _take(self, header: Header, body: bytes) -> None:
        """Handle a frame that does not end the request."""
        takes = {"call": self._take_call, "drop": self._take_drop, "ran": self._take_end, "output": self._take_piece}
        takes[header.status](header, body)

    def _take_end(self, header: Header, body: bytes) -> None:
        if self._on_ran is None or header.command != self._ran + 1 or self._ran == self._commands:
            raise ChannelBroken("it reported the end of a command that was not started")
        if len(body) > RAN_BYTES:
            raise ChannelBroken(f"it sent {len(body)} bytes at the end of a command")
        ran = command_outcome(body)
        self._ran += 1
        self._on_pieces.pop(self._ran)
        self._on_ran(self._ran, ran)

    def _take_piece(self, header: Header, body: bytes) -> None:
        on_piece = self._on_pieces.get(-1 if header.command is None else header.command)
        if on_piece is None or len(body) > PIECE_BYTES:
            raise ChannelBroken("it sent output of a command that was not requested")
        on_piece(header.stream, body)

    def _take_call(self, header: Header, body: bytes) -> None:
        if self._on_call is None:
            raise ChannelBroken("it made a call although calls are not served")
        if self._calls == CALLS:
            raise ChannelBroken(f"it made more than {CALLS} calls in one cell")
        if len(body) > CALL_BYTES:
            raise ChannelBroken(f"it made a call with {len(body)} bytes")
        self._call_bytes += len(body)
        if self._call_bytes > CALLS_BYTES:
            raise ChannelBroken(f"it made calls with more than {CALLS_BYTES >> 20} MB in one cell")
        if self.open_calls == OPEN_CALLS:
            raise ChannelBroken(f"it made more than {OPEN_CALLS} calls at once")
        self._calls += 1
        self.open_calls += 1
        if header.call != self._calls or not header.tool:
            raise ChannelBroken("its call is malformed")
        try:
            args = parse_json(body.decode())
        except (BadEvent, UnicodeDecodeError) as error:
            raise ChannelBroken("the arguments of its call are not JSON") from error
        if not isinstance(args, dict):
            raise ChannelBroken("the arguments of its call are not a JSON object")
        self._on_call(GuestCall(number=self._calls, tool=header.tool, args=cast("dict[str, Json]", args)))

    def _take_drop(self, header: Header, _body: bytes) -> None:
        """Handle the drop of a call, which may just have been answered."""
        self._drops += 1
        number = header.call or 0
        if self._on_call is None or not 0 < number <= self._calls or self._drops > self._calls:
            raise ChannelBroken("it dropped a call that it never made")
        self._on_call(number)

    def _check_reply(self, header: Header, body: bytes) -> Reply:
        if len(body) > self._body_bytes:
            raise ChannelBroken(f"it answered with {len(body)} bytes")
        if header.status not in self._statuses:
            raise ChannelBroken(f"it answered {header.status!r} to request {header.id}")
        value, error = header.value or 0, header.error or 0
        shown = value + error
        rich = sum(size for forms in header.displays for _, size in forms)
        is_cell = header.value is not None or header.error is not None or bool(header.displays)
        if is_cell and (value < 0 or error < 0 or shown + rich != len(body)):
            raise ChannelBroken("the lengths in its reply do not add up")
        return Reply(
            status=header.status,
            body=b"" if is_cell else body,
            value=None if header.value is None else body[:value].decode("utf-8", "replace"),
            error=None if header.error is None else body[value:shown].decode("utf-8", "replace"),
            interrupted=header.interrupted,
            again=header.again,
            out_of_memory=header.out_of_memory,
            missing=header.missing,
            displays=_displays(header.displays, memoryview(body)[shown:]),
            lost=tuple(header.lost),
        )


def _displays(sizes: list[_Forms], body: memoryview) -> tuple[Display, ...]:
    """Cut the announced displays from the body, whose length has been checked."""
    found: list[Display] = []
    for forms in sizes:
        mime: dict[str, bytes] = {}
        for name, size in forms:
            mime[name], body = bytes(body[:size]), body[size:]
        if len(mime) != len(forms):
            raise ChannelBroken("one of its displays has the same format twice")
        found.append(Display(mime=mime))
    return tuple(found)


def command_outcome(body: bytes) -> Ran:
    """Decode the end of a command. Raises ChannelBroken."""
    head, _, output = body.partition(b"\n")
    ended = _decode(_ended, head, "its report of a command's end is malformed")
    if ended.out + ended.err != len(output):
        raise ChannelBroken("the lengths of a command's output do not add up")
    outcome = CommandOutcome(
        status=ended.status,
        code=ended.code,
        stdout=output[: ended.out],
        stderr=output[ended.out :],
        dropped_bytes=ended.dropped,
        read_only=ended.read_only,
    )
    return Ran(outcome=outcome, pid=ended.pid)


def inventory(body: bytes) -> tuple[Variable, ...]:
    """Decode a list of variables. Raises ChannelBroken."""
    return _decode(_variables, body, "its list of variables is malformed")


def variable_page(body: bytes) -> VariablePage:
    """Decode a page of a variable. Raises ChannelBroken."""
    page = _decode(_page, body, "its page of a variable is malformed")
    if any(len(row) != len(page.columns) for row in page.rows):
        raise ChannelBroken("the rows of its page do not fit its columns")
    return page
