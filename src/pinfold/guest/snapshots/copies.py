"""Frozen copies of the program's process, each the state after one cell. Made here; kept, woken and ended by the init.

A copy is a sibling, not a child: the program can neither wait for it nor, as it is not dumpable, see it in /proc.
"""

from __future__ import annotations

import os
import select
import signal
import socket
from contextlib import suppress
from json import dumps

from ..kernel.syscalls import CLONE_PARENT, PR_SET_DUMPABLE, clone, fork, prctl
from .forks import ThreadPools, discard_sigchld, reap

FREED = b"wake"
SAVE = b"save"
BRANCH = b"branch"
"""What a copy is woken for: to be the session, to tell what its variables are made of and end, or to run beside the session."""

COPY_S = 3.0
"""For a copy to be made of a program with threads; a large one takes a second."""

# Bound now: a program may replace these names in their modules.
_close, _setsid, _exit, _pipe, _read, _write = os.close, os.setsid, os._exit, os.pipe, os.read, os.write
_send_fds, _recv_fds, _pair = socket.send_fds, socket.recv_fds, socket.socketpair
_kill, _poll, _POLLIN = os.kill, select.poll, select.POLLIN


class Snapshots:
    """`line` leads to the init."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._pools = ThreadPools()

    def leave_snapshot(self, cell: int, channel: int, namespace: dict[str, object]) -> tuple[bool, list[int]] | None:
        """Leave a copy of the state after `cell`. None in the original.

        In a copy it returns when that is woken, with whether it is only to be saved, and the descriptors it was given;
        another copy is in its place then. `channel` is closed in copies: it ends with the process that answers on it.
        """
        woken: tuple[bool, list[int]] | None = None
        threads = self._pools.pause(namespace)
        while True:
            wake, waker = _pair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with wake, waker:
                prctl(PR_SET_DUMPABLE, 0)  # before: the copy must not be seen for a moment either
                try:
                    pid = self._clone(alone=woken is not None or not self._pools.are_left)
                except OSError:  # no room for another process: then this state is not kept
                    pid = -1
                if pid:
                    if woken is None or not woken[0]:
                        prctl(PR_SET_DUMPABLE, 1)
                    self._pools.resume()
                    told = dumps({"cell": cell, "pid": pid, "threads": threads}).encode()
                    with suppress(OSError):  # the program has closed the line: the same
                        if pid > 0:
                            _send_fds(self._line, [told], [waker.fileno()])
                    return woken
                try:
                    waker.close()
                    for fd in (channel,) if woken is None else woken[1]:
                        _close(fd)
                    message, given = self._wait_until_woken(wake)
                    woken = message == SAVE, given
                    self._pools.numbers = [1] * len(self._pools.numbers)  # the other threads are not there
                    if message == BRANCH:
                        prctl(PR_SET_DUMPABLE, 1)
                        return woken  # a state in the middle of a cell is not gone back to: no copy takes its place
                except BaseException:  # it must never answer beside the original
                    _exit(1)

    def _clone(self, *, alone: bool) -> int:
        """Beside this process: not its child. 0 in the copy."""
        if alone:
            return clone(CLONE_PARENT | signal.SIGCHLD)
        # Libraries with threads want to hear of a fork. A child is made their way, and from it, which has one thread
        # and soon ends, the copy.
        out, into = _pipe()
        try:
            with discard_sigchld():
                child = fork()
                if child == 0:
                    _clone_and_exit(into)
                    return 0
                _close(into)
                into = -1
                # Python may want to let a thread go first that the child does not have, and wait for it for ever.
                ready = _poll()
                ready.register(out, _POLLIN)
                told = _read(out, 16) if ready.poll(COPY_S * 1000) else b""
                if not told:
                    _kill(child, signal.SIGKILL)
                reap(child)
                return int(told or b"-1")
        finally:
            _close(out)
            if into >= 0:
                _close(into)

    @staticmethod
    def _wait_until_woken(wake: socket.socket) -> tuple[bytes, list[int]]:
        """Until it is woken. Never returns if it cannot be woken any more."""
        _setsid()
        message, given, _, _ = _recv_fds(wake, 16, 8)
        if message not in (FREED, SAVE, BRANCH):
            _exit(0)
        wake.close()
        return message, given


def _clone_and_exit(into: int) -> None:
    """Ends this process; returns in the copy that it leaves, and whose number it has told."""
    try:
        copy = clone(signal.SIGCHLD)
        if copy == 0:
            return
        _write(into, str(copy).encode())
    except BaseException:  # it must never answer beside the original
        _exit(1)
    _exit(0)
