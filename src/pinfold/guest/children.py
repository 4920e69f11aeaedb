"""Children of ours that the program is not to hear of."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Generator

# Bound now: a program may replace these names in their modules.
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


def reap(pid: int) -> None:
    with suppress(OSError):  # a thread of the program's waits for any child
        _waitpid(pid, 0)
