"""Threads do not survive a fork: what can be done about those of libraries, just before one."""

from __future__ import annotations

import ctypes
import os
import re
import sys
import time

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

_OPENMP = re.compile(rb"/\S*/lib(?:g|i|)omp[^/\s]*\.so[^\s]*")
_HARD = 2
"""omp_pause_hard: the pool is given up, and made again when it is next used, here and in the copy."""

ENDING_S = 0.002

_modules = sys.modules


class Pools:
    """The pools of OpenMP: waiting for a thread that is not there, a copy would hang in its next parallel loop."""

    def __init__(self) -> None:
        self._seen = 0
        self._libraries: dict[bytes, Any] = {}

    def pause(self) -> None:
        if len(_modules) != self._seen:  # nothing new can have been loaded otherwise, as good as always
            self._seen = len(_modules)
            self._look()
        for library in self._libraries.values():
            library.omp_pause_resource_all(_HARD)
        if self._libraries:
            give_up_at = time.monotonic() + ENDING_S
            while others() and time.monotonic() < give_up_at:
                time.sleep(
                    ENDING_S / 10
                )  # they have been told to end, and are not to be taken for the program's own

    def _look(self) -> None:
        with open("/proc/self/maps", "rb") as file:
            paths = set(_OPENMP.findall(file.read()))
        for path in paths - self._libraries.keys():
            try:
                library = ctypes.CDLL(os.fsdecode(path))
                library.omp_pause_resource_all.argtypes = [ctypes.c_int]
            except (OSError, AttributeError):  # older than OpenMP 5
                continue
            self._libraries[path] = library


def others() -> int:
    """How many threads there are besides this one."""
    return len(os.listdir("/proc/self/task")) - 1
