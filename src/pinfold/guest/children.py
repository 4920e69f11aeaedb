"""Children of ours that the program is not to hear of."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Generator

_core = __import__("_signal")  # without the enums of `signal`: the default is 0
# Bound now: a program may replace these names in their modules.
_getsignal, _signal = _core.getsignal, _core.signal
_waitpid, _sigmask, _sigtimedwait = os.waitpid, signal.pthread_sigmask, signal.sigtimedwait


@contextmanager
def unheard() -> Generator[None]:
    """A child that begins and ends meanwhile leaves no SIGCHLD."""
    before = _sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        yield
    finally:
        _sigtimedwait((signal.SIGCHLD,), 0)
        _sigmask(signal.SIG_SETMASK, before)


@contextmanager
def unhandled() -> Generator[None]:
    """What the program does about children that end is put aside, where this thread may: it could take their exit codes."""
    before = _getsignal(signal.SIGCHLD)
    is_aside = before is not None and not (type(before) is int and before == 0)
    if is_aside:
        try:
            _signal(signal.SIGCHLD, 0)
        except ValueError:  # not the main thread
            is_aside = False
    try:
        yield
    finally:
        if is_aside:
            _signal(signal.SIGCHLD, before)


def reap(pid: int) -> None:
    with suppress(OSError):  # a thread of the program's waits for any child
        _waitpid(pid, 0)
