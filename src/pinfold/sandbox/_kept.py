"""Text that comes in pieces and is wanted whole: a long one grows where it lies, in big pages of memory.

New memory is what keeping costs: 100 MB take longer to be had in small pages than to be read from a pipe, and pieces that
are joined in the end take them twice. Only ASCII grows in place; other text is joined.
"""

from __future__ import annotations

import ctypes
import mmap

LONG = 1 << 20
"""Characters; shorter text is joined in no time."""
ROOM = 1 << 30
"""What is longer is joined again, rather than room for it being asked for beforehand."""


class Kept:
    """What came since the last `taken`."""

    def __init__(self, most: int) -> None:
        """`most` is how many characters there will be at the most."""
        self._room = min(most, ROOM)
        self._parts: list[str] = []
        self._size = 0
        self._grows = True
        self._long: _Long | None = None

    def add(self, text: str) -> None:
        self._size += len(text)
        self._grows = self._grows and text.isascii() and self._size <= self._room
        if self._long is not None and self._grows:
            self._long.add(text)
            return
        parts = self.parts()
        parts.append(text)
        if self._size >= LONG and self._grows:
            self._long = _Long(self._room)
            for part in parts:
                self._long.add(part)
            parts.clear()

    def parts(self) -> list[str]:
        if self._long is not None:
            self._parts = [self._long.taken()]
            self._long = None
        return self._parts

    def taken(self) -> str:
        """All of it; starts afresh."""
        text = "".join(self.parts())
        self._parts, self._size, self._grows = [], 0, True
        return text


_python = ctypes.pythonapi
_new = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_uint32)(("PyUnicode_New", _python))
_resize = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_ssize_t)(("PyUnicode_Resize", _python))
_copy = ctypes.PYFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.py_object, ctypes.c_ssize_t, ctypes.c_ssize_t
)(("PyUnicode_CopyCharacters", _python))
_where = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)(
    ("PyUnicode_AsUTF8AndSize", _python)
)
_let_go = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", _python))
_madvise = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(
    ("madvise", ctypes.CDLL(None))
)


class _Long:
    """A str under construction, as C code makes one: it may be changed for as long as nobody else has it."""

    def __init__(self, room: int) -> None:
        """Memory that is not written yet is only a number."""
        self._made = ctypes.c_void_p(_new(room, 127))
        self._length = 0
        if hasattr(mmap, "MADV_HUGEPAGE"):
            first = _where(self._made, None) or 0
            begin, end = first // mmap.PAGESIZE, -(-(first + room) // mmap.PAGESIZE)
            # Where the kernel has no big pages it says no, and the small ones do.
            _madvise(begin * mmap.PAGESIZE, (end - begin) * mmap.PAGESIZE, mmap.MADV_HUGEPAGE)

    def add(self, text: str) -> None:
        _copy(self._made, self._length, text, 0, len(text))
        self._length += len(text)

    def taken(self) -> str:
        _resize(ctypes.byref(self._made), self._length)
        return ctypes.cast(self._made, ctypes.py_object).value

    def __del__(self) -> None:
        _let_go(self._made)
