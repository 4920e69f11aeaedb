"""The program's stdin, stdout and stderr: plain pipes, separate from the channel and never parsed."""

from __future__ import annotations

import builtins
import fcntl
import os
import resource
import select
import sys
from contextlib import suppress

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import NoReturn, TextIO

NAMES = {1: "stdout", 2: "stderr"}
SPARE_FD = 64
"""Lowest descriptor for the spare copies, above the 3 to 63 that some programs close, if the limit allows it."""


class Streams:
    """Gives each cell a working stdout and stderr, whatever the cell before did to them."""

    def __init__(self) -> None:
        self._spares = {fd: _spare(fd) for fd in NAMES}
        self._ours: dict[int, TextIO] = {}
        self._poll = select.poll()
        for fd in NAMES:
            self._poll.register(fd, 0)
            self._install(fd)
        builtins.input = _input

    def adopt(self, stdout: int, stderr: int) -> None:
        """Redirect stdout and stderr to these descriptors."""
        for fd, new in zip(NAMES, (stdout, stderr), strict=True):
            os.dup2(new, fd)
            os.close(new)
            os.close(self._spares[fd])
            self._spares[fd] = _spare(fd)

    def prepare(self) -> None:
        """Restore a stream that the program closed; one that it replaced stays replaced."""
        for fd, happened in self._poll.poll(0):
            if happened & select.POLLNVAL:
                os.dup2(self._spares[fd], fd)
        for fd, name in NAMES.items():
            current = getattr(sys, name, None)
            if current is None or (current is self._ours[fd] and _is_closed(current)):
                self._install(fd)

    def flush(self) -> None:
        """Flush the original streams first; those that the program put in their place may run its code."""
        for fd, name in NAMES.items():
            ours, current = self._ours[fd], getattr(sys, name, None)
            with suppress(Exception):  # the program may have broken it
                ours.flush()
            if current is not ours and current is not None:
                with suppress(Exception):
                    current.flush()

    def _install(self, fd: int) -> None:
        # Line buffered: what a cell printed before it crashed, or before a long step, is already out.
        stream = open(fd, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        self._ours[fd] = stream
        setattr(sys, NAMES[fd], stream)
        setattr(sys, f"__{NAMES[fd]}__", stream)


def _spare(fd: int) -> int:
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    has_room = most == resource.RLIM_INFINITY or most > 2 * SPARE_FD
    return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, SPARE_FD if has_room else 3)


def _is_closed(stream: TextIO) -> bool:
    try:
        return stream.closed
    except ValueError:  # detached
        return True


def _input(_prompt: object = "", /) -> NoReturn:
    raise EOFError("input() has no user to ask here; put the value in a variable, or read it from a file")
