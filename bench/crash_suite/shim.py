"""Stands between the product and the disk, and strikes at the n-th durable write.

SQLite's own writes go through its table of system calls, which is there to be replaced in tests; the
product's other writes go through `os`. Neither needs a preloaded library or a debugger.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias, assert_never

Strike: TypeAlias = Literal["before", "torn", "after", "full", "failing"]
"""Die before, in the middle of, or after the write; or find the disk full from then on, or fail this once."""
_Vfs = ctypes.c_void_p
_GET = ctypes.CFUNCTYPE(ctypes.c_void_p, _Vfs, ctypes.c_char_p)
_SET = ctypes.CFUNCTYPE(ctypes.c_int, _Vfs, ctypes.c_char_p, ctypes.c_void_p)
_PWRITE = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)
_TRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int64, use_errno=True)
_SET_AT, _GET_AT = 18, 19
"""Where the table of a `sqlite3_vfs` has xSetSystemCall and xGetSystemCall, in pointers."""
_CHANGES = ("fsync", "replace", "link", "unlink")
"""Writes no data, so there is nothing that a full disk would refuse."""
_kept: list[Any] = []
"""What C points at must not be collected."""


class _Trap:
    def __init__(self, at: int, how: Strike, count: Path) -> None:
        self._at = at
        self._how: Strike = how
        self._count = count
        self._n = 0

    def step(self, write: Callable[[int | None], Any], size: int, refuse: Callable[[int], Any]) -> Any:
        """One write. `write(n)` writes the first n bytes; `refuse(code)` fails like the kernel would."""
        self._n += 1
        if not self._at:
            self._count.write_text(str(self._n), encoding="ascii")
            return write(None)
        if self._n < self._at or (self._n > self._at and self._how != "full"):
            return write(None)
        match self._how:
            case "before":
                return _die()
            case "torn":
                return _die(write(size // 2) if size else None)
            case "after":
                return _die(write(None))
            case "full":
                return refuse(errno.ENOSPC)
            case "failing":
                return refuse(errno.EIO)
            case _:
                assert_never(self._how)


def _die(_: object = None) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def reachable() -> bool:
    """Whether the SQLite this Python uses is a library we can reach into."""
    try:
        library = _library()
    except OSError:
        return False
    library.sqlite3_libversion.restype = ctypes.c_char_p
    return library.sqlite3_libversion() == sqlite3.sqlite_version.encode()


def _library() -> ctypes.CDLL:
    return ctypes.CDLL(ctypes.util.find_library("sqlite3") or "libsqlite3.so.0")


def trap(at: int, how: Strike, count: str) -> None:
    """Strike at the write number `at`; 0 only counts them, into the file `count`."""
    it = _Trap(at, how, Path(count))
    library = _library()
    library.sqlite3_vfs_find.restype = ctypes.c_void_p
    vfs: int = library.sqlite3_vfs_find(None)
    table = ctypes.cast(vfs, ctypes.POINTER(ctypes.c_void_p))
    replace, original = _SET(table[_SET_AT] or 0), _GET(table[_GET_AT] or 0)
    pwrite = _PWRITE(original(vfs, b"pwrite64"))
    truncate = _TRUNCATE(original(vfs, b"ftruncate"))

    def on_pwrite(fd: int, data: int, size: int, offset: int) -> int:
        return it.step(lambda n: pwrite(fd, data, size if n is None else n, offset), size, _refused)

    def on_truncate(fd: int, size: int) -> int:
        return it.step(lambda _: truncate(fd, size), 0, _refused)

    _kept.extend([_PWRITE(on_pwrite), _TRUNCATE(on_truncate)])
    for name, ours in zip((b"pwrite64", b"ftruncate"), _kept, strict=True):
        replace(vfs, name, ctypes.cast(ours, ctypes.c_void_p))
    for name in ("pwrite", *(() if how in ("full", "failing") else _CHANGES)):
        setattr(os, name, _stepping(it, name, getattr(os, name)))


def _refused(code: int) -> int:
    ctypes.set_errno(code)
    return -1


def _stepping(it: _Trap, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def refuse(code: int) -> None:
        raise OSError(code, os.strerror(code))

    def write(descriptor: int, data: bytes, offset: int) -> int:
        return it.step(lambda n: original(descriptor, data[:n], offset), len(data), refuse)

    def change(*arguments: Any, **named: Any) -> Any:
        return it.step(lambda _: original(*arguments, **named), 0, refuse)

    return write if name == "pwrite" else change
