"""A bound on the time that code of the program's may take, for a process that has nothing else to do."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, Self

AGAIN_S = 0.1
"""Code that catches everything is told again."""

# Bound now: a program may replace these names in their modules.
_signal, _setitimer, _REAL, _ALARM = signal.signal, signal.setitimer, signal.ITIMER_REAL, signal.SIGALRM


class OutOfTime(BaseException):
    """Not an Exception: the program's own handlers are not to take it for theirs."""


class TimeLimit:
    """Between `with` and its end SIGALRM is ours; what was there before comes back."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._before: Any = None
        self._timer = (0.0, 0.0)
        self._running = False

    def __enter__(self) -> Self:
        self._before = _signal(_ALARM, self._on_alarm)
        self._timer = _setitimer(_REAL, 0)
        return self

    def __exit__(self, *_: object) -> None:
        _setitimer(_REAL, 0)
        _signal(_ALARM, self._before if self._before is not None else signal.SIG_DFL)
        _setitimer(_REAL, *self._timer)

    def run(self, work: Callable[[], Any]) -> Any:
        """Raises OutOfTime when it takes too long in Python; nothing ends a call that never returns to it."""
        try:
            self._running = True
            _setitimer(_REAL, self._seconds, AGAIN_S)
            try:
                return work()
            finally:
                self._running = False
        finally:
            # A second time, because the alarm may have cut in between the first and here.
            self._running = False
            _setitimer(_REAL, 0)

    def run_uncut(self, work: Callable[[], Any]) -> Any:
        """A step of ours within `run` that must not be cut; what follows has its time anew."""
        running, self._running = self._running, False
        try:
            return work()
        finally:
            if running:
                _setitimer(_REAL, self._seconds, AGAIN_S)
            self._running = running

    def _on_alarm(self, _signum: int, _frame: object) -> None:
        if self._running:
            raise OutOfTime
