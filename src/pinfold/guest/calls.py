"""Sends the calls a cell makes to the host's tools, several at once, and receives their answers.

The host decides what may be called; a forged call is judged like any other. While the host works on a call, it may
ask the guest to run programs: the thread that listens for the answers runs them.
"""

from __future__ import annotations

import os
import sys
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from json import loads

from .cells.interrupts import Interrupts, Quiet
from .frames import LOST_CHANNEL, Channel, Header
from .tool_calls.programs import Programs, encode_failure
from .tool_calls.slots import Cell, Slot, ToolFailed, ToolRefused, decode_answer, encode_args

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

CALLS = 10_000
"""The most calls of one cell. These limits are the host's, and it ends a guest that exceeds them."""
WINDOW = 32
"""The most unanswered calls; further ones wait."""
CALL_BYTES = 1 << 20
CALLS_BYTES = 256 << 20
"""The most bytes of all calls of one cell."""
TOOL_CHARS = 200
NOT_WAITED_FOR = "this call is no longer waited for"
NO_ANSWERS = "no host answers calls from this code"
ENDED = "the cell that made this call has ended"
TICK_S = 0.1
"""How often a waiting thread checks that its cell has not ended."""

# Bound at import: a program may replace these names in their modules, and the guest must still answer.
_getpid, _exit = os.getpid, os._exit


class Calls:
    """Each call belongs to the cell that runs when it is made. One thread at a time listens for the answers to all."""

    def __init__(self, channel: Channel, interrupts: Interrupts) -> None:
        self.channel = channel
        self._interrupts = interrupts
        self._main = get_ident()
        self._frames = allocate_lock()
        """Held while a frame is sent or received, so that each is whole."""
        self._cell: Cell | None = None
        self.after: Callable[[], None] | None = None
        """Called after each answer, so that the cell finds what the tool installed."""
        self.programs: Programs | None = None
        """Runs programs for the host while a call waits."""
        self.fork: Callable[[int, Quiet], None] | None = None
        """Leaves a copy of the state in the middle of a cell, for a branch. Does not return in the copy."""

    def open(self, request_id: object) -> None:
        """Begin a cell whose calls the host answers."""
        self._cell = Cell(request_id, self.channel)

    def begin_anew(self) -> None:
        """Reset in a branch, where neither the cell nor the threads that made calls exist."""
        self._cell = None
        self._frames = allocate_lock()
        events = sys.modules.get("_asyncio")
        if events is not None:
            events._set_running_loop(None)  # noqa: SLF001 - there is no public way

    @property
    def open_cell(self) -> Cell | None:
        """The running cell; None in a process that it forked."""
        cell = self._cell
        return cell if cell is not None and cell.pid == _getpid() else None

    def reply(self, header: Header, body: bytes) -> None:
        """End the cell with its reply; no frame of a call follows."""
        self._cell = None
        with self._frames:
            self.channel.send(header, body)

    def call(self, tool: str, args: dict[str, object]) -> Any:
        """Call a tool and wait for the result."""
        return self._wait_for_answer(*self._new_call(tool, args, None))

    def begin(self, tool: str, args: dict[str, object], done: Callable[[], None]) -> Slot:
        """Start a call without waiting, and send it now if the window allows. `result` returns its result."""
        cell, slot = self._new_call(tool, args, done)
        cell.queue.append(slot)
        with self._our_step():
            self._send_queued(cell)
        return slot

    def result(self, slot: Slot) -> Any:
        """Return the result of a call, waiting for it if necessary."""
        cell = self._cell
        if slot.answer is None:
            if cell is None or (slot.number not in cell.waiting and slot not in cell.queue):
                raise ToolFailed(ENDED)
            return self._wait_for_answer(cell, slot)
        if self.after is not None:
            self.after()
        return decode_answer(*slot.answer)

    def drop(self, slot: Slot) -> None:
        """Give up a call: its answer is no longer wanted."""
        cell = self._cell
        if cell is None or slot.answer is not None or get_ident() in cell.callers:
            return
        if slot in cell.queue:
            cell.queue.remove(slot)
        elif cell.waiting.pop(slot.number, None):
            with self._our_step():
                self._send_status(cell, {"status": "drop", "call": slot.number}, b"")

    def receive_pending(self) -> None:
        """Receive what has arrived, for an event loop; does nothing while another thread listens."""
        cell = self.open_cell
        if cell is None or get_ident() in cell.callers:
            return
        with self._our_step() as quiet:
            if cell.seat.acquire(False):
                try:
                    while self._cell is cell and cell.wait_for_input(0):
                        self._handle_frame(cell, quiet)
                finally:
                    cell.seat.release()

    def finish(self) -> None:
        """Wait for calls that the ending cell began and did not await. Raises failures that the cell has not seen."""
        cell = self.open_cell
        if cell is not None:
            for slot in [*cell.waiting.values(), *cell.queue]:
                if slot.done is not None:
                    self._wait_for_answer(cell, slot)

    def _new_call(self, tool: str, args: dict[str, object], done: Callable[[], None] | None) -> tuple[Cell, Slot]:
        cell = self._cell
        if cell is None:
            raise ToolRefused(NO_ANSWERS)
        if cell.pid != _getpid():
            raise ToolRefused("a forked process cannot call tools; call them where the cell itself runs")
        if type(tool) is not str or not (0 < len(tool) <= TOOL_CHARS and tool.isascii() and tool.isprintable()):
            raise ToolRefused("that is not the name of a tool")
        body = encode_args(args)
        if len(body) > CALL_BYTES:
            raise ToolRefused(f"the arguments have {len(body):,} bytes; {CALL_BYTES:,} is the most")
        if get_ident() in cell.callers:
            raise ToolRefused("this thread is already waiting for a tool")
        return cell, Slot(tool, body, done)

    @contextmanager
    def _our_step(self) -> Generator[Quiet]:
        """Run guest code in a thread of the program: with signals held back, and no other call in this thread."""
        callers = self._cell.callers if self._cell else set[int]()
        quiet = Quiet(self._interrupts if get_ident() == self._main else None)
        callers.add(get_ident())
        quiet.begin()
        try:
            yield quiet
        finally:
            callers.discard(get_ident())
            quiet.end()

    def _wait_for_answer(self, cell: Cell, slot: Slot) -> Any:
        with self._our_step() as quiet:
            try:
                if slot.done is None:
                    while cell.unanswered >= WINDOW:
                        self._listen(cell, slot, quiet)
                    self._send(cell, slot)
                while slot.answer is None:
                    self._listen(cell, slot, quiet)
            finally:
                if slot.done is None:
                    cell.waiting.pop(slot.number, None)
                for other in [*cell.waiting.values()]:  # another thread must listen now
                    other.awaken()
        if self.after is not None:
            self.after()
        return decode_answer(*slot.answer)

    def _listen(self, cell: Cell, slot: Slot, quiet: Quiet) -> None:
        """Wait for one tick: for the host, or for the thread that listens to it."""
        if not cell.seat.acquire(False):
            quiet.end()
            slot.wake.acquire(timeout=TICK_S)
            quiet.begin()
            self._check(cell)
            return
        try:
            quiet.end()
            ready = cell.wait_for_input(TICK_S)  # only polls: an exception here cuts no frame
            quiet.begin()
            if ready:
                self._handle_frame(cell, quiet)
            else:
                self._check(cell)
        finally:
            cell.seat.release()

    def _send(self, cell: Cell, slot: Slot) -> None:
        with self._frames:
            self._check(cell)
            if cell.count == CALLS:
                raise ToolRefused(f"this cell has made {CALLS:,} calls, the most a cell may make")
            cell.size += len(slot.body)
            if cell.size > CALLS_BYTES:
                raise ToolRefused(
                    f"the calls of this cell have reached {CALLS_BYTES >> 20} MB, the most a cell may send"
                )
            cell.count += 1
            cell.unanswered += 1
            slot.number = cell.count
            cell.waiting[slot.number] = slot
            header: Header = {"id": cell.id, "status": "call", "call": slot.number, "tool": slot.tool}
            self._do_or_exit(self.channel.send, header, slot.body)
            slot.body = b""

    def _send_queued(self, cell: Cell) -> None:
        while cell.queue and cell.unanswered < WINDOW:
            slot = cell.queue.popleft()
            try:
                self._send(cell, slot)
            except ToolRefused as refused:
                self._give(slot, {"ok": False}, encode_args({"refused": True, "reason": str(refused)}))

    def _receive(self, cell: Cell) -> tuple[Header, bytes]:
        """Return the next frame; empty if it is not for this cell. An interrupt also sends a signal, maybe later."""
        with self._frames:
            self._check(cell)
            request = self._do_or_exit(self.channel.receive)
            if request is None:
                _exit(LOST_CHANNEL)
            header, _ = request
            if header["id"] != cell.id:
                return {}, b""
            if header["op"] == "interrupt":
                cell.is_unwanted = True
                if get_ident() == self._main:
                    self._interrupts.expect_signal()
            return request

    def _handle_frame(self, cell: Cell, quiet: Quiet) -> None:
        header, body = self._receive(cell)
        if header.get("op") == "answer":
            self._deliver(cell, header, body)
            self._send_queued(cell)
        elif header.get("op") == "nested":  # a "stop" here is too late: its program has ended
            self._run_nested(cell, header, body, quiet)
        elif header.get("op") == "branch" and self.fork is not None and get_ident() == self._main:
            self.fork(int(str(header["state"])), quiet)  # a branch needs the main thread, for signals

    def _deliver(self, cell: Cell, header: Header, body: bytes) -> None:
        cell.unanswered -= 1
        slot = cell.waiting.pop(int(str(header["call"])), None)
        if slot is not None:
            self._give(slot, header, body)

    @staticmethod
    def _give(slot: Slot, header: Header, body: bytes) -> None:
        slot.answer = header, body
        if slot.done is not None:
            slot.done()
        slot.awaken()

    def _run_nested(self, cell: Cell, header: Header, body: bytes, quiet: Quiet) -> None:
        """Run a program for the host. What the cell's signal handlers raise meanwhile is raised after the reply."""
        stray: BaseException | None = None
        if header["call"] in cell.waiting and self.programs is not None:
            told, stray = self._run_program(self.programs, cell, header, body, quiet)
        else:
            told = encode_failure(NOT_WAITED_FOR)
        number = int(str(header["command"]))
        for missed in range(cell.told + 1, number):
            self._send_status(cell, {"status": "ran", "command": missed}, encode_failure(NOT_WAITED_FOR))
        self._send_status(cell, {"status": "ran", "command": number}, told)
        cell.told = number
        if stray is not None:
            raise stray

    def _run_program(
        self, programs: Programs, cell: Cell, header: Header, body: bytes, quiet: Quiet
    ) -> tuple[bytes, BaseException | None]:
        cell.is_unwanted = False
        is_unwanted = partial(self._is_unwanted, cell, header, quiet)

        def tell(stream: str, data: bytes) -> None:
            quiet.block()
            self._send_status(cell, {"status": "output", "command": header["command"], "stream": stream}, data)
            quiet.unblock()

        head = int(str(header["head"]))
        try:
            quiet.unblock()  # else the child would inherit the blocked signals
            return programs.run(loads(body[:head]), body[head:], is_unwanted, tell if header["tell"] else None)
        except BaseException as stray:
            return encode_failure(f"it was cut short: {type(stray).__name__}"), stray
        finally:
            quiet.block()

    def _is_unwanted(self, cell: Cell, header: Header, quiet: Quiet) -> bool:
        """Return whether the host no longer wants its program. Receives answers to other calls meanwhile."""
        while self._cell is cell and not cell.is_unwanted and cell.wait_for_input(0):
            quiet.block()
            told, body = self._receive(cell)
            if told.get("op") == "answer":
                self._deliver(cell, told, body)
            elif told.get("op") == "stop" and told["command"] == header["command"]:
                cell.is_unwanted = True
            quiet.unblock()
        return self._cell is not cell or cell.is_unwanted or header["call"] not in cell.waiting

    def _send_status(self, cell: Cell, header: Header, body: bytes) -> None:
        with self._frames:
            self._check(cell)
            self._do_or_exit(self.channel.send, {"id": cell.id, **header}, body)

    def _check(self, cell: Cell) -> None:
        if self._cell is not cell:
            raise ToolFailed(ENDED)

    @staticmethod
    def _do_or_exit(step: Any, *arguments: object) -> Any:
        """Send or receive; exit on failure, because after half a frame the channel cannot be used."""
        try:
            return step(*arguments)
        except BaseException:
            _exit(LOST_CHANNEL)


_calls: Calls | None = None


def set_current(calls: Calls) -> None:
    """Set the object that `call` uses."""
    global _calls
    _calls = calls


def current() -> Calls:
    """Return the object that `call` uses. Raises ToolRefused if there is none."""
    if _calls is None:
        raise ToolRefused(NO_ANSWERS)
    return _calls


def is_possible() -> bool:
    """Return whether the host answers calls now."""
    return _calls is not None and _calls.open_cell is not None


def call(tool: str, /, **args: object) -> Any:
    """Call a host tool and wait for its result. Raises ToolRefused, ToolFailed; TypeError, ValueError if not JSON."""
    return current().call(tool, args)
