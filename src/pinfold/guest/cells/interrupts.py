"""Raises KeyboardInterrupt on SIGINT while the program runs, and keeps signals from interrupting the guest's code."""

from __future__ import annotations

import signal
import sys
from _thread import get_ident, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from time import monotonic as _now
from time import sleep as _sleep

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# The C module: the enums of `signal` take longer than a short cell does.
_core = __import__("_signal")
# Bound at import: a program may replace them.
_sigmask, _BLOCK, _SETMASK = signal.pthread_sigmask, signal.SIG_BLOCK, signal.SIG_SETMASK
_kill_thread = signal.pthread_kill
_SIGNALS = signal.valid_signals()
OWED_S = 1.0
"""How long to ignore the signal of an interrupt that a frame has announced: it may come after its request has ended."""
REPEAT_S = 0.001
"""How long after an interrupt that Python dropped it is raised again."""


class Interrupts:
    """Raises at most once per request, and only between `arm` and `disarm`.

    The handler disarms by itself, so an interrupt that lands just before `disarm` cannot be followed
    by one that lands in the guest's code.
    """

    def __init__(self, asked: Callable[[], bool]) -> None:
        self.fired = False
        self._armed = False
        self._held = False
        self._late = False
        self._has_come = False
        """True if the signal of this request's interrupt has come."""
        self._owed_until = 0.0
        self._requests = 0
        self._asked = asked
        self._handler = self._on_signal
        self._report = sys.unraisablehook
        sys.unraisablehook = self._on_unraisable

    def begin(self) -> None:
        """Begin a new request: forget the last one, and take SIGINT back if the program installed its own handler."""
        self._armed = self._held = self._late = self._has_come = False
        self.fired = False
        self._requests += 1
        if _core.getsignal(2) is not self._handler:
            _core.signal(2, self._handler)

    def arm(self) -> None:
        self._armed = True

    def arm_cell(self) -> None:
        """Arm, and raise an interrupt that came too early for its signal to count."""
        self._armed = True
        if self._asked():
            self._on_signal(signal.SIGINT, None)

    def disarm(self) -> None:
        self._armed = False

    def hold(self) -> None:
        """Keep an interrupt until `release`, so that it does not cut guest code that runs during a cell."""
        self._held = True

    def release(self) -> None:
        """Raise the interrupt that came meanwhile."""
        self._held = False
        if self._late:
            self._late = False
            self._on_signal(signal.SIGINT, None)

    def expect_signal(self) -> None:
        """Note an interrupt that a frame announced; its signal may come later or be here already. Only while held."""
        is_awaited = self._held and not self._late and not self.fired
        if is_awaited and _core.getsignal(2) is self._handler and 2 not in _core.sigpending():
            self._late = True
            if not self._has_come:
                self._owed_until = _now() + OWED_S

    def _on_signal(self, _signum: int, frame: object) -> None:
        self._has_come |= frame is not None
        if frame is not None and _now() < self._owed_until:
            self._owed_until = 0.0  # the announced one
        elif self._held:
            self._late = True
        elif self._armed and not self.fired:
            self.fired = True
            raise KeyboardInterrupt

    def _on_unraisable(self, dropped: UnraisableHookArgs) -> None:
        """Repeat an interrupt that was raised in a finalizer or a weak reference's callback: Python drops it there."""
        if self.fired and issubclass(dropped.exc_type, KeyboardInterrupt):
            self.fired = False
            with suppress(RuntimeError):  # no thread can be started: the user may interrupt once more
                start_new_thread(self._repeat, (self._requests, get_ident()))
        else:
            self._report(dropped)

    def _repeat(self, request: int, thread: int) -> None:
        _sleep(REPEAT_S)
        if request == self._requests and not self.fired:
            _kill_thread(thread, signal.SIGINT)


class Quiet:
    """Holds back signals in the main thread while guest code runs; an interrupt that came is raised at its end.

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
        # The program's own handlers may raise as well. If it has threads, one of them may take the signal.
        if self._interrupts is not None and self._before is None:
            self._before = _sigmask(_BLOCK, _SIGNALS)

    def unblock(self) -> None:
        """Let signals through again; an interrupt is still held."""
        before, self._before = self._before, None
        if before is not None:
            _sigmask(_SETMASK, before)

    def end(self) -> None:
        try:
            self.unblock()
        finally:
            if self._interrupts is not None:
                self._interrupts.release()
