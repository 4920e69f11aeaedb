"""Threads do not survive a fork: what can be done about those of libraries, just before one and just after."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

_LIBRARY = re.compile(rb"/\S*/lib(?:(?:g|i|)omp|\w*openblas)[^/\s]*\.so[^\s]*")
_HARD = 2
"""omp_pause_hard: the pool is given up, and made again when it is next used, here and in the copy."""
_BLAS = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
ENDING_S = 0.002

MISSED = (b"polars-", b"tokio-rt-")
JEMALLOC = b"jemalloc_bg_thd"
"""Of an allocator, which sees to it by itself."""

_modules, _frames = sys.modules, sys._current_frames  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]


class ThreadPools:
    """Of OpenMP and OpenBLAS: waiting for a thread that is not there, a copy would hang in its next loop or product."""

    def __init__(self) -> None:
        self._seen = 0
        self._known: set[bytes] = set()
        self._openmp: list[Any] = []
        self._blas: list[tuple[Any, Any]] = []
        """How to ask each for its number of threads, and how to set it."""
        self._numbers: list[int] = []
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
        self._numbers = [get() for get, _ in self._blas]
        for _, put in self._blas:
            put(1)  # a copy does with one; the others stay, and wait
        ours = sum(number - 1 for number in self._numbers)
        give_up_at = time.monotonic() + ENDING_S
        while self._openmp and _count_others() > ours and time.monotonic() < give_up_at:
            time.sleep(ENDING_S / 10)  # those of OpenMP have been told to end
        if _count_others() > ours and "duckdb" in _modules:
            self._databases = databases = Databases()
            databases.pause_all(namespace.values())
            if _count_others() > ours:  # only now: where there was no default one, asking for it makes it
                databases.pause_default()
        left = _count_others() - ours
        self.are_left = left > 0
        return _count_needed(left)

    def use_single_thread(self) -> None:
        """In a copy: the others are not there."""
        self._numbers = [1] * len(self._blas)

    def resume(self) -> None:
        """After it was made, in the one that goes on."""
        for (_, put), number in zip(self._blas, self._numbers, strict=True):
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
                self._pause(value)

    def pause_default(self) -> None:
        self._pause(_modules["duckdb"].default_connection())

    def _pause(self, connection: Any) -> None:
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
    try:
        with open(f"/proc/self/task/{task}/comm", "rb") as file:
            return file.read().strip()
    except OSError:  # it has ended
        return b""


def _count_others() -> int:
    """How many threads there are besides this one."""
    return len(os.listdir("/proc/self/task")) - 1
