"""Children of ours that the program is not to hear of."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Generator
    from typing import Any, Self

_core = __import__("_signal")  # without the enums of `signal`: the default is 0
# Bound now: a program may replace these names in their modules.
_getsignal, _signal = _core.getsignal, _core.signal
_SIGNALS = {*range(1, signal.NSIG)} - {signal.SIGINT}
_waitpid, _sigmask, _sigtimedwait = os.waitpid, signal.pthread_sigmask, signal.sigtimedwait


@contextmanager
def discard_sigchld() -> Generator[None]:
    """A child that begins and ends meanwhile leaves no SIGCHLD."""
    before = _sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        yield
    finally:
        _sigtimedwait((signal.SIGCHLD,), 0)
        _sigmask(signal.SIG_SETMASK, before)


class SignalHandlers:
    """The program's handlers of signals, put aside while a child of ours runs, where this thread may.

    One for SIGCHLD could take the child's exit code, and one that raises could leave the child half started. That of
    SIGINT stays, which `Interrupts` looks after.
    """

    def __init__(self) -> None:
        self._aside: dict[int, Any] = {}
        self._came: list[tuple[int, object]] = []
        self._note = self._on_signal

    def __enter__(self) -> Self:
        try:
            for number in _SIGNALS:
                handler = _getsignal(number)
                if callable(handler) or (number == signal.SIGCHLD and handler):
                    self._aside[number] = handler
                    _signal(number, 0 if number == signal.SIGCHLD else self._note)
        except ValueError:  # not the main thread
            self._aside.clear()
        except BaseException:  # raised by one that is not put aside yet
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._aside.items():
            now = _getsignal(number)
            if now is self._note or (type(now) is int and now == 0):  # else one that was called has set another
                _signal(number, handler)

    def call(self) -> None:
        """Those whose signals have come. May raise whatever they do."""
        while self._came:
            number, frame = self._came.pop(0)
            self._aside[number](number, frame)

    def _on_signal(self, number: int, frame: object) -> None:
        self._came.append((number, frame))


def reap(pid: int) -> None:
    with suppress(OSError):  # a thread of the program's waits for any child
        _waitpid(pid, 0)
