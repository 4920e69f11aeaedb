"""Threads do not survive a fork: what can be done about those of libraries, just before one and just after."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

_LIBRARY = re.compile(rb"/\S*/lib(?:(?:g|i|)omp|\w*openblas)[^/\s]*\.so[^\s]*")
_HARD = 2
"""omp_pause_hard: the pool is given up, and made again when it is next used, here and in the copy."""
_BLAS = ("scipy_openblas_{}_num_threads64_", "scipy_openblas_{}_num_threads", "openblas_{}_num_threads")
ENDING_S = 0.002

_modules = sys.modules


class Pools:
    """Of OpenMP and OpenBLAS: waiting for a thread that is not there, a copy would hang in its next loop or product."""

    def __init__(self) -> None:
        self._seen = 0
        self._known: set[bytes] = set()
        self._openmp: list[Any] = []
        self._blas: list[tuple[Any, Any]] = []
        """How to ask each for its number of threads, and how to set it."""
        self._numbers: list[int] = []

    def rest(self) -> int:
        """Before a copy is made. How many threads there are that this did not see to: the program's own, most likely."""
        if len(_modules) != self._seen:  # nothing new can have been loaded otherwise, as good as always
            self._seen = len(_modules)
            self._look()
        for library in self._openmp:
            library.omp_pause_resource_all(_HARD)
        self._numbers = [get() for get, _ in self._blas]
        for _, put in self._blas:
            put(1)  # a copy does with one; the others stay, and wait
        ours = sum(number - 1 for number in self._numbers)
        give_up_at = time.monotonic() + ENDING_S
        while self._openmp and _others() > ours and time.monotonic() < give_up_at:
            time.sleep(ENDING_S / 10)  # those of OpenMP have been told to end
        return max(0, _others() - ours)

    def do_with_one(self) -> None:
        """In a copy: the others are not there."""
        self._numbers = [1] * len(self._blas)

    def resume(self) -> None:
        """After it was made, in the original."""
        for (_, put), number in zip(self._blas, self._numbers, strict=True):
            put(number)

    def _look(self) -> None:
        with open("/proc/self/maps", "rb") as file:
            paths = set(_LIBRARY.findall(file.read())) - self._known
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


def _others() -> int:
    """How many threads there are besides this one."""
    return len(os.listdir("/proc/self/task")) - 1
