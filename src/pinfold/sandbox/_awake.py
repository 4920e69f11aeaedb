"""Waits for what comes at once without going to sleep, on another core than the one who says it.

A core that sleeps takes longer to wake than a short cell runs, and two programs that take turns on one core
find it cold each time: both cost more than the cell itself. Waiting yields to whoever else wants the core.
"""

from __future__ import annotations

import ctypes
import os
import select
import sys
from time import perf_counter

SHARED_S = 0.00005
"""A yield as long as this, after which there is something, was used by whoever said it."""
APART_S = 0.002
"""Between two moves to another core: where all are busy, moving gains nothing."""

_libc = ctypes.CDLL(None)


class Ear:
    """On one descriptor."""

    def __init__(self, fd: int) -> None:
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)
        self._moved_at = 0.0

    def hears(self, limit_s: float) -> bool:
        """Something, by then. Everything else in this process waits."""
        now = perf_counter()
        until = now + limit_s
        while not self._poll.poll(0):
            if now > until:
                return False
            os.sched_yield()
            before, now = now, perf_counter()
            if now - before > SHARED_S and now - self._moved_at > APART_S and self._poll.poll(0):
                self._moved_at = now
                _move()
        return True


def _move() -> None:
    """To any other core. The kernel brings together who wake each other, and leaves them there though others are idle."""
    if sys.platform == "linux":
        allowed = os.sched_getaffinity(0)
        others = allowed - {core()}
        if others:
            os.sched_setaffinity(0, others)
            os.sched_setaffinity(0, allowed)


def core() -> int:
    """That this runs on. Linux only."""
    return _libc.sched_getcpu()
