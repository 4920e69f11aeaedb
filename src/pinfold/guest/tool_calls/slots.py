"""What the calls of one cell consist of, and how a step of ours within the program's time stays whole."""

from __future__ import annotations

import os
import signal
from _thread import allocate_lock, get_ident
from collections import deque

from ..cells.interrupts import Interrupts
from ..frames import Channel, Header

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

# Bound now, as everywhere: a program may replace them.
_sigmask, _BLOCK, _SETMASK = signal.pthread_sigmask, signal.SIG_BLOCK, signal.SIG_SETMASK
_SIGNALS = signal.valid_signals()
_getpid = os.getpid


class Slot:
    """One call that was made."""

    __slots__ = ("answer", "body", "done", "number", "tool", "wake")

    def __init__(self, tool: str, body: bytes, done: Callable[[], None] | None) -> None:
        self.tool = tool
        self.body = body
        self.number = 0
        """When it is sent."""
        self.answer: tuple[Header, bytes] | None = None
        self.done = done
        """Told of the answer, in whichever thread hears it; None where a thread waits."""
        self.wake: Any = None

    def awaken(self) -> None:
        """The thread that waits."""
        if self.wake is not None:
            try:
                self.wake.release()
            except RuntimeError:  # it is awake
                return


class Cell:
    """The calls of one cell."""

    def __init__(self, request_id: object, channel: Channel) -> None:
        self._channel = channel
        self.id = request_id
        self.pid = _getpid()
        self.count = self.size = 0
        self.unanswered = 0
        self.told = 0
        """Of the programs the host wanted, the last it has heard the end of."""
        self.is_unwanted = False
        """The program that runs for the host now."""
        self.seat = allocate_lock()
        """Of the thread that listens."""
        self._look: Callable[[float], bool] | None = None
        self.waiting: dict[int, Slot] = {}
        """By number; sent, and not answered."""
        self.queue: deque[Slot] = deque()
        self.callers: set[int] = set()
        """Threads that are in a call: what runs in one meanwhile, a finaliser say, must not wait for its own turn."""

    def wait_for_input(self, seconds: float) -> bool:
        """Wait so long for the host to say something more. Only for the thread that has the seat."""
        if self._look is None:
            self._look = self._channel.make_poller()
        return self._look(seconds)


class Step:
    """A step of ours within the program's time, in a thread that makes no other meanwhile."""

    __slots__ = ("_callers", "_quiet")

    def __init__(self, callers: set[int], quiet: Quiet) -> None:
        self._callers = callers
        self._quiet = quiet

    def __enter__(self) -> Quiet:
        self._callers.add(get_ident())
        self._quiet.begin()
        return self._quiet

    def __exit__(self, *_: object) -> None:
        self._callers.discard(get_ident())
        self._quiet.end()


class Quiet:
    """Keeps what signals raise in the main thread out of our own steps; an interrupt that came is raised at their end.

    Without `interrupts`, in any other thread, it does nothing.
    """

    def __init__(self, interrupts: Interrupts | None) -> None:
        self._interrupts = interrupts
        self._before: set[int | signal.Signals] | None = None

    def begin(self) -> None:
        if self._interrupts is not None:
            self._interrupts.hold()
        self.block()

    def block(self) -> None:
        # A handler of the program's own may raise as well. Where it has threads, one of them may take the signal.
        if self._interrupts is not None and self._before is None:
            self._before = _sigmask(_BLOCK, _SIGNALS)

    def unblock(self) -> None:
        """An interrupt is still kept."""
        before, self._before = self._before, None
        if before is not None:
            _sigmask(_SETMASK, before)

    def end(self) -> None:
        try:
            self.unblock()
        finally:
            if self._interrupts is not None:
                self._interrupts.release()
