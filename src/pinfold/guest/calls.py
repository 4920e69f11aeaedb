"""Calls from the program to tools of the host: one frame out, one answer in, while a cell runs. Decides nothing.

What may be called, and what comes of it, is the host's to say; whoever forges a call here gains nothing by it. While the
host works on a call, it may have programs run here: the thread that waits for the answer does that.
"""

from __future__ import annotations

import os
import signal
from _thread import allocate_lock, get_ident
from json import JSONEncoder, loads

from .frames import LOST_CHANNEL, Channel, Header
from .interrupts import Interrupts
from .programs import failed

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .programs import Programs

CALLS = 1000
"""Of one cell; this and the next two are the host's bounds, and it ends a guest that does not keep to them."""
CALL_BYTES = 1 << 20
TOOL_CHARS = 200
NOBODY_WAITS = "nobody waits for this call any more"
TICK_S = 0.1
"""A thread that waits looks this often whether its cell is still there."""

# Bound now: a program may replace these names in their modules, and we still have to answer.
_getpid, _sigmask, _exit = os.getpid, signal.pthread_sigmask, os._exit
_SIGNALS = signal.valid_signals()
_encode = JSONEncoder(allow_nan=False).encode


class ToolError(Exception):
    """A call did not give a result; the text says why."""

    __module__ = "builtins"  # a traceback then says its plain name


class ToolRefused(ToolError):
    """It was not run: policy or the user said no, or it could not even be asked for."""

    __module__ = "builtins"


class ToolFailed(ToolError):
    """It was run, and failed."""

    __module__ = "builtins"


class Calls:
    """One call at a time; other threads wait for their turn. A call belongs to the cell that runs when it is made."""

    def __init__(self, channel: Channel, interrupts: Interrupts) -> None:
        self._channel = channel
        self._interrupts = interrupts
        self._main = get_ident()
        self._frames = allocate_lock()
        """Held while a frame is sent or received, so that each is whole."""
        self._cell: _Cell | None = None
        self.after: Callable[[], None] | None = None
        """Called after each answer: what a tool put in place is then there."""
        self.programs: Programs | None = None
        """Run while a call is waited for."""

    def open(self, request_id: object) -> None:
        """A cell begins, and the host answers its calls."""
        self._cell = _Cell(request_id)

    @property
    def is_open(self) -> bool:
        cell = self._cell
        return cell is not None and cell.pid == _getpid()

    def reply(self, header: str, body: bytes) -> None:
        """The cell's end: no frame of a call comes after it."""
        self._cell = None
        with self._frames:
            self._channel.send(header, body)

    def call(self, tool: str, args: dict[str, object]) -> Any:
        cell = self._cell
        if cell is None:
            raise ToolRefused("nobody is there to answer calls from this code")
        if cell.pid != _getpid():
            raise ToolRefused("a forked process cannot call tools; call them where the cell itself runs")
        if type(tool) is not str or not (
            0 < len(tool) <= TOOL_CHARS and tool.isascii() and tool.isprintable()
        ):
            raise ToolRefused("that is no name of a tool")
        body = _encode(args).encode()
        if len(body) > CALL_BYTES:
            raise ToolRefused(f"the arguments have {len(body):,} bytes; {CALL_BYTES:,} is the most")
        me = get_ident()
        if me in cell.callers:
            raise ToolRefused("this thread is already waiting for a tool")
        cell.callers.add(me)
        quiet = _Quiet(self._interrupts) if me == self._main else None
        try:
            answer = self._made(cell, tool, body, quiet)
        finally:
            cell.callers.discard(me)
            if quiet:
                quiet.end()
        if self.after is not None:
            self.after()
        return _result(*answer)

    def _made(self, cell: _Cell, tool: str, body: bytes, quiet: _Quiet | None) -> tuple[Header, bytes]:
        if quiet:
            quiet.begin()
        while not cell.turn.acquire(timeout=TICK_S):
            if quiet:
                quiet.end()
                quiet.begin()
            self._check(cell)
        try:
            number = self._send(cell, tool, body)
            look = self._channel.looker()
            while True:
                if quiet:
                    quiet.end()
                ready = look(TICK_S)  # only looks: whatever is raised here, no frame is cut
                if quiet:
                    quiet.begin()
                heard = self._received(cell) if ready else self._check(cell)
                if heard is None:
                    continue
                if heard[0]["op"] == "nested":
                    self._nested(cell, number, *heard, quiet)
                elif heard[0]["call"] == number:
                    return heard
        finally:
            cell.turn.release()

    def _send(self, cell: _Cell, tool: str, body: bytes) -> int:
        with self._frames:
            self._check(cell)
            if cell.count == CALLS:
                raise ToolRefused(f"a cell may make {CALLS:,} calls, and this one has")
            cell.count += 1
            header: Header = {"id": cell.id, "status": "call", "call": cell.count, "tool": tool}
            self._whole(self._channel.send, header, body)
            return cell.count

    def _received(self, cell: _Cell) -> tuple[Header, bytes] | None:
        """The next frame, if it is an answer or a program to be run. An interrupt comes as a signal too, perhaps later."""
        with self._frames:
            self._check(cell)
            request = self._whole(self._channel.receive)
            if request is None:
                _exit(LOST_CHANNEL)
            header, _ = request
            if header["op"] == "interrupt" and header["id"] == cell.id and get_ident() == self._main:
                self._interrupts.was_told()
            return request if header["op"] in ("answer", "nested") and header["id"] == cell.id else None

    def _nested(self, cell: _Cell, call: int, header: Header, body: bytes, quiet: _Quiet | None) -> None:
        """Run a program for the host. What the program's own handlers raise meanwhile is raised when it has been told of."""
        stray: BaseException | None = None
        if header["call"] == call and self.programs is not None:
            told, stray = self._ran(self.programs, cell, header, body, quiet)
        else:
            told = failed(NOBODY_WAITS)
        number = int(str(header["command"]))
        for missed in range(cell.told + 1, number):
            self._tell(cell, {"status": "ran", "command": missed}, failed(NOBODY_WAITS))
        self._tell(cell, {"status": "ran", "command": number}, told)
        cell.told = number
        if stray is not None:
            raise stray

    def _ran(
        self, programs: Programs, cell: _Cell, header: Header, body: bytes, quiet: _Quiet | None
    ) -> tuple[bytes, BaseException | None]:
        look = self._channel.looker()

        def is_unwanted() -> bool:
            return self._cell is not cell or look(0)

        def tell(stream: str, data: bytes) -> None:
            if quiet:
                quiet.block()
            self._tell(cell, {"status": "output", "command": header["command"], "stream": stream}, data)
            if quiet:
                quiet.unblock()

        head = int(str(header["head"]))
        try:
            if quiet:
                quiet.unblock()  # or the program would not hear of any signal either
            return programs.run(
                loads(body[:head]), body[head:], is_unwanted, tell if header["tell"] else None
            )
        except BaseException as stray:
            return failed(f"it was cut short: {type(stray).__name__}"), stray
        finally:
            if quiet:
                quiet.block()

    def _tell(self, cell: _Cell, header: Header, body: bytes) -> None:
        with self._frames:
            self._check(cell)
            self._whole(self._channel.send, {"id": cell.id, **header}, body)

    def _check(self, cell: _Cell) -> None:
        if self._cell is not cell:
            raise ToolFailed("the cell that made this call has ended")

    @staticmethod
    def _whole(step: Any, *arguments: object) -> Any:
        """A frame that is cut in half leaves nothing to go on with."""
        try:
            return step(*arguments)
        except BaseException:
            _exit(LOST_CHANNEL)


class _Cell:
    """The calls of one cell."""

    __slots__ = ("callers", "count", "id", "pid", "told", "turn")

    def __init__(self, request_id: object) -> None:
        self.id = request_id
        self.pid = _getpid()
        self.count = 0
        self.told = 0
        """Of the programs the host wanted, the last it has heard the end of."""
        self.turn = allocate_lock()
        self.callers: set[int] = set()
        """Threads that are in a call: what runs in one meanwhile, a finaliser say, must not wait for its own turn."""


class _Quiet:
    """Keeps what signals raise in the main thread out of our own steps; an interrupt that came is raised at their end."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._before: set[signal.Signals] | None = None

    def begin(self) -> None:
        self._interrupts.hold()
        self.block()

    def block(self) -> None:
        # A handler of the program's own may raise as well. Where it has threads, one of them may take the signal.
        if self._before is None:
            self._before = set(_sigmask(signal.SIG_BLOCK, _SIGNALS))  # pyright: ignore[reportAttributeAccessIssue]

    def unblock(self) -> None:
        """An interrupt is still kept."""
        before, self._before = self._before, None
        if before is not None:
            _sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        try:
            self.unblock()
        finally:
            self._interrupts.release()


def _result(header: Header, body: bytes) -> Any:
    told = loads(body)
    if header["ok"]:
        return told
    raise (ToolRefused if told["refused"] else ToolFailed)(told["reason"])


_calls: Calls | None = None


def use(calls: Calls) -> None:
    """From now on `call` goes there."""
    global _calls  # noqa: PLW0603 - one program, one host
    _calls = calls


def is_possible() -> bool:
    """Whether anybody would answer now."""
    return _calls is not None and _calls.is_open


def call(tool: str, /, **args: object) -> Any:
    """Have the host call a tool, and wait for its result. Raises ToolRefused, ToolFailed; TypeError, ValueError if not JSON."""
    if _calls is None:
        raise ToolRefused("nobody is there to answer calls from this code")
    return _calls.call(tool, args)
