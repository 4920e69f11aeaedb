"""Tells which names in a few folders were made, replaced, written or removed, by anyone. One inotify descriptor."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Iterable

_CREATE, _DELETE, _FROM, _TO, _WRITTEN, _ATTRIB = 0x100, 0x200, 0x40, 0x80, 0x8, 0x4
_SELF_GONE, _OVERFLOW, _IGNORED = 0x400 | 0x800, 0x4000, 0x8000
_ONLY_FOLDERS, _NO_LINKS = 0x1000000, 0x2000000
_ASKED = _CREATE | _DELETE | _FROM | _TO | _WRITTEN | _ATTRIB | 0x400 | 0x800
_HEADER = struct.Struct("iIII")
_BUFFER = 1 << 16
_READS = 64
"""At once: a program that never stops must not keep us from putting back what it did. The rest is told next time."""
EMPTY: tuple[set[str], set[str]] = (set(), set())
FOLDERS = 256
"""That one session watches; a machine gives each user some thousands."""


SPARES = 16
_spares: list[tuple[int, int]] = []
"""Descriptors without a watch, each with the process it belongs to."""


def _spare() -> int | None:
    while _spares:
        owner, fd = _spares.pop()
        if owner == os.getpid():
            return fd
    return None


class Watch:
    """Raises OSError where there is no inotify, or none left. `fd` is readable when something happened."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = _spare() or self._called(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)
        self._folders: dict[int, str] = {}
        self._watched: set[str] = set()

    def add(self, folders: Iterable[str]) -> bool:
        """A missing one is left out: that it is made is seen in the one above. Whether any was new. Raises OSError."""
        any_new = False
        for folder in folders:
            if folder in self._watched:
                continue
            if len(self._watched) >= FOLDERS:
                raise OSError(0, f"more than {FOLDERS} folders to watch")
            try:
                number = self._called(
                    self._libc.inotify_add_watch(
                        self.fd, os.fsencode(folder), _ASKED | _ONLY_FOLDERS | _NO_LINKS
                    )
                )
            except (FileNotFoundError, NotADirectoryError):
                continue
            self._folders[number] = folder
            self._watched.add(folder)
            any_new = True
        return any_new

    def events(self) -> tuple[set[str], set[str]] | None:
        """Paths whose name now means something else, and paths written in place; None: too much happened to say."""
        if not self._poll.poll(0):
            return EMPTY
        renamed: set[str] = set()
        written: set[str] = set()
        lost = False
        for _ in range(_READS):
            try:
                data = os.read(self.fd, _BUFFER)
            except BlockingIOError:
                break
            at = 0
            while at < len(data):
                number, mask, _, length = _HEADER.unpack_from(data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0")
                at += 16 + length
                folder = self._folders.get(number)
                if mask & _OVERFLOW:
                    lost = True
                elif folder is None:
                    continue  # of whoever had the descriptor before
                elif mask & _IGNORED:
                    self._watched.discard(self._folders.pop(number))
                elif mask & _SELF_GONE:
                    renamed.add(folder)
                    self._watched.discard(folder)
                elif name:
                    path = f"{folder}/{os.fsdecode(name)}"
                    (written if mask & (_WRITTEN | _ATTRIB) else renamed).add(path)
        return None if lost else (renamed, written)

    def close(self) -> None:
        """Not always the descriptor: that takes the kernel ten milliseconds and more, and the next one is glad of it."""
        for number in self._folders:
            self._libc.inotify_rm_watch(self.fd, number)
        self._folders.clear()
        self.events()
        if len(_spares) < SPARES:
            _spares.append((os.getpid(), self.fd))
        else:
            os.close(self.fd)

    @staticmethod
    def _called(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result
