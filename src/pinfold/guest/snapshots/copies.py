"""Frozen copies of the program's process, each the state after one cell. Made here; kept, woken and ended by the init.

A copy is a sibling, not a child: the program can neither wait for it nor, as it is not dumpable, see it in /proc. A fork
needs care: threads of libraries do not survive it.
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
"""omp_pause_hard: the pool is given up, and made again when it is next used, here and in the copy."""
_BLAS = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
ENDING_S = 0.002

MISSED = (b"polars-", b"tokio-rt-")
JEMALLOC = b"jemalloc_bg_thd"
"""Of an allocator, which sees to it by itself."""

# Bound now: a program may replace these names in their modules.
_modules, _frames = sys.modules, sys._current_frames  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class ThreadPools:
    """Of OpenMP and OpenBLAS: waiting for a thread that is not there, a copy would hang in its next loop or product."""

    def __init__(self) -> None:
        self._seen = 0
        self._known: set[bytes] = set()
        self._openmp: list[Any] = []
        self._blas: list[tuple[Any, Any]] = []
        """How to ask each for its number of threads, and how to set it."""
        self.numbers: list[int] = []
        """Of threads, as they were; a copy has one of each."""
        self._databases: Databases | None = None
        self.are_left = False
        """Threads that no copy has."""

    def pause(self, namespace: dict[str, object]) -> int:
        """Before a copy is made. How many threads there are without which it may wait for ever: the program's own, most likely."""
        if len(_modules) != self._seen:  # nothing new can have been loaded otherwise, as good as always
            self._seen = len(_modules)
            self._find_libraries()
        for library in self._openmp:
            library.omp_pause_resource_all(_HARD)
        self.numbers = [get() for get, _ in self._blas]
        for _, put in self._blas:
            put(1)  # a copy does with one; the others stay, and wait
        ours = sum(number - 1 for number in self.numbers)
        give_up_at = time.monotonic() + ENDING_S
        while self._openmp and _count_others() > ours and time.monotonic() < give_up_at:
            time.sleep(ENDING_S / 10)  # those of OpenMP have been told to end
        if _count_others() > ours and "duckdb" in _modules:
            self._databases = databases = Databases()
            databases.pause_all(namespace.values())
            if _count_others() > ours:  # only now: where there was no default one, asking for it makes it
                databases.pause(_modules["duckdb"].default_connection())
        left = _count_others() - ours
        self.are_left = left > 0
        return _count_needed(left)

    def resume(self) -> None:
        """After it was made, in the one that goes on."""
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
            except OSError:  # it is gone from where it was loaded
                continue
            if b"openblas" in path:
                names = [name for name in _BLAS if hasattr(library, name.format("set"))]
                self._blas += [(library[name.format("get")], library[name.format("set")]) for name in names]
            elif hasattr(library, "omp_pause_resource_all"):  # OpenMP 5
                self._openmp.append(library)


class Databases:
    """Connections of duckdb's in the session, each without threads until `resume`; what they were asked stays open."""

    def __init__(self) -> None:
        self._before: list[tuple[Any, str, int]] = []
        """Settings as they were, of the same database perhaps by way of several connections."""

    def pause_all(self, values: Iterable[object]) -> None:
        for value in list(values):
            if type(value).__name__ == "DuckDBPyConnection":
                self.pause(value)

    def pause(self, connection: Any) -> None:
        with suppress(Exception):  # it is closed, or has no such setting
            cursor = connection.cursor()  # one of our own: the program's may be in the middle of a result
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
    """Of so many other threads, those that are missed where they are not."""
    if others <= 0:
        return 0
    kinds = [_name_of(task) for task in os.listdir("/proc/self/task")]
    python = len(_frames()) - 1
    known = sum(kind.startswith(MISSED) for kind in kinds)
    native = others - python - known - kinds.count(JEMALLOC)
    arrow: Any = _modules.get("pyarrow.lib")
    if arrow is not None and native > 0:  # it begins anew after a fork, and nothing tells its threads from others
        native -= arrow.cpu_count() + arrow.io_thread_count()
    return python + known + max(0, native)


def _name_of(task: str) -> bytes:
    with suppress(OSError), open(f"/proc/self/task/{task}/comm", "rb") as file:  # it may have ended
        return file.read().strip()
    return b""


def _count_others() -> int:
    """How many threads there are besides this one."""
    return len(os.listdir("/proc/self/task")) - 1


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
