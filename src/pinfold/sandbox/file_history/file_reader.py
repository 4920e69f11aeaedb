"""Reads one open file into the store, so that what is kept was its content at one moment."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pinfold.sandbox.file_history.entries import File, Uncovered, Why, mode_of, owner_of
from pinfold.sandbox.file_history.store import NoRoom, TooLarge
from pinfold.sandbox.kernel.safe_files import Stamp, is_open_for_writing

TICK_NS = 20_000_000
"""Longer than the kernel's clock for files stands still."""
_TRIES = 3
"""Of reading a file that is being written."""


@dataclass(frozen=True, slots=True)
class ReadResult:
    entry: File | Uncovered
    stamp: Stamp
    is_fresh: bool
    """Changed so shortly before that the next change could bear the same time."""
    is_held: bool
    """Open for writing."""


def read_file(fd: int, take: Callable[[int], str]) -> ReadResult:
    is_held = is_open_for_writing(fd)
    if is_held:
        # A page that is dirty already can be written through a map without a trace; a clean one cannot.
        with suppress(OSError):  # not every file system has it
            os.fdatasync(fd)
    stamp = Stamp.of(os.fstat(fd))
    for _ in range(_TRIES):
        fresh = is_fresh(stamp)
        try:
            digest = take(fd)
        except (NoRoom, TooLarge, OSError) as error:
            return ReadResult(Uncovered(reason(error), stamp.thing), stamp, fresh, is_held)
        status = os.fstat(fd)
        if Stamp.of(status) == stamp:
            # Asked again: nobody is told of who opened it while we had it open.
            return ReadResult(file_of(digest, status), stamp, fresh, is_held or is_open_for_writing(fd))
        stamp = Stamp.of(status)
    return ReadResult(Uncovered("changed while it was read", stamp.thing), stamp, is_fresh=True, is_held=is_held)


def file_of(digest: str | None, status: os.stat_result) -> File:
    return File(digest, status.st_size, mode_of(status), owner_of(status), status.st_mtime_ns)


def is_fresh(stamp: Stamp) -> bool:
    return stamp.ctime_ns > time.time_ns() - TICK_NS


def reason(error: Exception) -> Why:
    match error:
        case NoRoom():
            return "no room"
        case TooLarge():
            return "too large"
        case OSError(errno=errno.EXDEV):
            return "another file system"
        case OSError(errno=errno.E2BIG):
            return "too many files"
        case _:
            return "unreadable"
