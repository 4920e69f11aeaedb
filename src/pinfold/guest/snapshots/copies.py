"""Frozen copies of the program's process, each the state after one cell. Made here; kept, woken and ended by the init.

A copy is a sibling of the program's process, not a child: the program cannot wait for it, and cannot see it in /proc
because it is not dumpable. A fork needs care, because it does not copy the threads of libraries.
"""

from __future__ import annotations

import ctypes
import os
import re
import select
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from json import dumps
from typing import Any

from ..kernel.processes import discard_sigchld, reap
from ..kernel.syscalls import CLONE_PARENT, PR_SET_DUMPABLE, clone, fork, prctl

_LIBRARY = re.compile(rb"/\S*/lib(?:(?:g|i|)omp|\w*openblas)[^/\s]*\.so[^\s]*")
_HARD = 2
"""omp_pause_hard: OpenMP ends its threads, and starts them again on the next use, here and in the copy."""
_BLAS = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
ENDING_S = 0.002

MISSED = (b"polars-", b"tokio-rt-")
JEMALLOC = b"jemalloc_bg_thd"
"""A thread of an allocator, which restarts it by itself after a fork."""

# Bound now: a program may replace these names in their modules.
_modules, _frames = sys.modules, sys._current_frames  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class ThreadPools:
    """Thread pools of OpenMP and OpenBLAS, paused for a fork: a copy that waits for a missing thread would hang."""

    def __init__(self) -> None:
        self._seen = 0
        self._known: set[bytes] = set()
        self._openmp: list[Any] = []
        self._blas: list[tuple[Any, Any]] = []
        """For each library: the functions that get and set its number of threads."""
        self.numbers: list[int] = []
        """The numbers of threads before `pause`; in a copy each is 1."""
        self._databases: Databases | None = None
        self.are_left = False
        """True if some threads remained that a copy will lack."""

    def pause(self, namespace: dict[str, object]) -> int:
        """Call before a copy is made. Return how many threads, most likely the program's own, it may hang without."""
        if len(_modules) != self._seen:  # otherwise almost certainly no new library was loaded
            self._seen = len(_modules)
            self._find_libraries()
        for library in self._openmp:
            library.omp_pause_resource_all(_HARD)
        self.numbers = [get() for get, _ in self._blas]
        for _, put in self._blas:
            put(1)  # a copy has only one; the other threads remain here, idle
        ours = sum(number - 1 for number in self.numbers)
        give_up_at = time.monotonic() + ENDING_S
        while self._openmp and _count_others() > ours and time.monotonic() < give_up_at:
            time.sleep(ENDING_S / 10)  # the threads of OpenMP are ending
        if _count_others() > ours and "duckdb" in _modules:
            self._databases = databases = Databases()
            databases.pause_all(namespace.values())
            if _count_others() > ours:  # last, because this call makes a default connection if there was none
                databases.pause(_modules["duckdb"].default_connection())
        left = _count_others() - ours
        self.are_left = left > 0
        return _count_needed(left)

    def resume(self) -> None:
        """Call after the copy was made, in the process that continues."""
        for (_, put), number in zip(self._blas, self.numbers, strict=True):
            put(number)
        if self._databases is not None:
            self._databases.resume()
            self._databases = None

    def _find_libraries(self) -> None:
        with open("/proc/self/maps", "rb") as file:
            lines = [line for line in file if b"omp" in line or b"openblas" in line]
        paths = {path for line in lines for path in _LIBRARY.findall(line)} - self._known
        for path in paths:
            self._known.add(path)
            try:
                library = ctypes.CDLL(os.fsdecode(path))
            except OSError:  # the file it was loaded from is gone
                continue
            if b"openblas" in path:
                names = [name for name in _BLAS if hasattr(library, name.format("set"))]
                self._blas += [(library[name.format("get")], library[name.format("set")]) for name in names]
            elif hasattr(library, "omp_pause_resource_all"):  # OpenMP 5
                self._openmp.append(library)


class Databases:
    """The session's duckdb connections, set to run without threads until `resume`; open results stay open."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, int]] = []
        """The old settings. One database may occur more than once, by several connections."""

    def pause_all(self, values: Iterable[object]) -> None:
        for value in list(values):
            if type(value).__name__ == "DuckDBPyConnection":
                self.pause(value)

    def pause(self, connection: Any) -> None:
        with suppress(Exception):  # the connection is closed, or has no such setting
            cursor = connection.cursor()  # a separate cursor: the program may be reading a result with its own
            for name, least in (("threads", 1), ("async_threads", 0)):
                (number,) = cursor.execute(f"SELECT current_setting('{name}')").fetchone()
                if number != least:
                    self._before.append((cursor, name, int(number)))
                    cursor.execute(f"SET {name} = {least}")

    def resume(self) -> None:
        for cursor, name, number in reversed(self._before):
            with suppress(Exception):
                cursor.execute(f"SET {name} = {number}")


def _count_needed(others: int) -> int:
    """Return how many of `others` threads a copy needs and lacks."""
    if others <= 0:
        return 0
    kinds = [_name_of(task) for task in os.listdir("/proc/self/task")]
    python = len(_frames()) - 1
    known = sum(kind.startswith(MISSED) for kind in kinds)
    native = others - python - known - kinds.count(JEMALLOC)
    arrow: Any = _modules.get("pyarrow.lib")
    if arrow is not None and native > 0:  # it restarts its threads after a fork, and they have no names of their own
        native -= arrow.cpu_count() + arrow.io_thread_count()
    return python + known + max(0, native)


def _name_of(task: str) -> bytes:
    with suppress(OSError), open(f"/proc/self/task/{task}/comm", "rb") as file:  # the thread may have ended
        return file.read().strip()
    return b""


def _count_others() -> int:
    """Return the number of threads besides this one."""
    return len(os.listdir("/proc/self/task")) - 1


FREED = b"wake"
SAVE = b"save"
BRANCH = b"branch"
"""The words that wake a copy: to become the session, to send its variables and end, or to run alongside the session."""

COPY_S = 3.0
"""Time limit for copying a process with threads; a large one takes a second."""

# Bound now: a program may replace these names in their modules.
_close, _setsid, _exit, _pipe, _read, _write = os.close, os.setsid, os._exit, os.pipe, os.read, os.write
_send_fds, _recv_fds, _pair = socket.send_fds, socket.recv_fds, socket.socketpair
_kill, _poll, _POLLIN = os.kill, select.poll, select.POLLIN


class Snapshots:
    """Makes the copies. `line` is the socket to the init."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._pools = ThreadPools()

    def leave_snapshot(self, cell: int, channel: int, namespace: dict[str, object]) -> tuple[bool, list[int]] | None:
        """Leave a copy of the state after `cell`. Return None in the original.

        In a copy it returns when the copy is woken: True if it is only to be saved, and the descriptors it was given.
        Before that it leaves another copy in its place. Copies close `channel`, so that it ends with the process that
        answers on it.
        """
        woken: tuple[bool, list[int]] | None = None
        threads = self._pools.pause(namespace)
        while True:
            wake, waker = _pair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with wake, waker:
                prctl(PR_SET_DUMPABLE, 0)  # before the fork, so that the copy is never visible
                try:
                    pid = self._clone(alone=woken is not None or not self._pools.are_left)
                except OSError:  # too many processes: this state is not kept
                    pid = -1
                if pid:
                    if woken is None or not woken[0]:
                        prctl(PR_SET_DUMPABLE, 1)
                    self._pools.resume()
                    told = dumps({"cell": cell, "pid": pid, "threads": threads}).encode()
                    with suppress(OSError):  # the program has closed the line: the state is not kept either
                        if pid > 0:
                            _send_fds(self._line, [told], [waker.fileno()])
                    return woken
                try:
                    waker.close()
                    for fd in (channel,) if woken is None else woken[1]:
                        _close(fd)
                    message, given = self._wait_until_woken(wake)
                    woken = message == SAVE, given
                    self._pools.numbers = [1] * len(self._pools.numbers)  # the fork did not copy other threads
                    if message == BRANCH:
                        prctl(PR_SET_DUMPABLE, 1)
                        return woken  # a state in the middle of a cell is never restored, so no copy takes its place
                except BaseException:  # a copy must never answer cells alongside the original
                    _exit(1)

    def _clone(self, *, alone: bool) -> int:
        """Make the copy, a sibling of this process. Return its pid, or 0 in the copy. `alone`: there is one thread."""
        if alone:
            return clone(CLONE_PARENT | signal.SIGCHLD)
        # Libraries with threads need their fork handlers called. So `fork` makes a child, and that child, which has one
        # thread and soon ends, makes the copy.
        out, into = _pipe()
        try:
            with discard_sigchld():
                child = fork()
                if child == 0:
                    _clone_and_exit(into)
                    return 0
                _close(into)
                into = -1
                # In the child, Python may wait without end for a thread that the child does not have.
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
        """Block until this copy is woken. Exits if it can no longer be woken."""
        _setsid()
        message, given, _, _ = _recv_fds(wake, 16, 8)
        if message not in (FREED, SAVE, BRANCH):
            _exit(0)
        wake.close()
        return message, given


def _clone_and_exit(into: int) -> None:
    """Make the copy, write its pid to `into`, and exit. Returns only in the copy."""
    try:
        copy = clone(signal.SIGCHLD)
        if copy == 0:
            return
        _write(into, str(copy).encode())
    except BaseException:  # a copy must never answer cells alongside the original
        _exit(1)
    _exit(0)
