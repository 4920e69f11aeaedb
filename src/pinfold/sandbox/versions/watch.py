"""Tells to which names below one folder something happened, opening included. One inotify descriptor, no thread."""

from __future__ import annotations

import ctypes
import os
import select
import struct
from collections.abc import Collection
from pathlib import Path
from threading import Thread

ATTRIB, WRITTEN, OPENED = 0x4, 0x2 | 0x8, 0x20
NAMED = 0x40 | 0x80 | 0x100 | 0x200
"""Made, removed, or renamed from or to."""
IS_FOLDER = 0x40000000
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLY_FOLDERS, _NOT_UNLINKED = 0x1000000, 0x4000000
_ASKED = ATTRIB | WRITTEN | OPENED | NAMED | _ONLY_FOLDERS | _NOT_UNLINKED
_HEADER = struct.Struct("iIII")
_BUFFER = 1 << 16


class Watch:
    """Of at most so many folders, and a quarter of what the machine gives each user. Raises OSError where there is none."""

    def __init__(self, most: int) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        given = Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii")
        self._most = min(most, int(given) // 4)
        self._fd = self._called(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLIN)
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._happened: dict[str, int] = {}
        self._lost = False

    def add(self, folder: int, path: str) -> bool:
        """Watches an open folder; whether that is new. The same folder under another path loses the old one."""
        if len(self._folders) >= self._most:
            raise OSError(0, f"more than {self._most} folders to watch")
        # By its descriptor: whatever the path means by now, this folder is the one that was opened.
        name = f"/proc/self/fd/{folder}".encode()
        number = self._called(self._libc.inotify_add_watch(self._fd, name, _ASKED))
        if self._folders.get(number) == path:
            return False
        if number in self._folders:
            del self._numbers[self._folders[number]]
        self.remove(path)
        self._folders[number] = path
        self._numbers[path] = number
        return True

    def remove(self, path: str) -> None:
        number = self._numbers.pop(path, None)
        if number is not None:
            del self._folders[number]
            self._libc.inotify_rm_watch(self._fd, number)

    def collect(self, *, ours: str | None = None) -> None:
        """Takes what the kernel has to tell. That `ours` was opened is not told: we did it, since the last time."""
        while True:
            try:
                data = os.read(self._fd, _BUFFER)
            except BlockingIOError:
                return
            at = 0
            while at < len(data):
                number, mask, _, length = _HEADER.unpack_from(data, at)
                name = data[at + 16 : at + 16 + length].rstrip(b"\0")
                at += 16 + length
                if mask & _OVERFLOW:
                    self._lost = True
                elif number not in self._folders:
                    continue
                elif mask & _IGNORED:
                    del self._numbers[self._folders.pop(number)]
                else:
                    self._note(self._folders[number], os.fsdecode(name), mask, ours)

    @property
    def is_quiet(self) -> bool:
        return not self._happened and not self._lost and not self._poll.poll(0)

    def happened(self) -> dict[str, int] | None:
        """By path, since the last call; None: too much to say."""
        self.collect()
        happened, self._happened = self._happened, {}
        lost, self._lost = self._lost, False
        return None if lost else happened

    def noted(self) -> Collection[str] | None:
        """The paths that `happened` will tell of; None: too much to say."""
        self.collect()
        return None if self._lost else self._happened.keys()

    def touched(self) -> tuple[set[str], set[str]] | None:
        """What `happened` will say: paths whose name means something else, and paths written. None: too much to say."""
        self.collect()
        if self._lost:
            return None
        renamed = {path for path, mask in self._happened.items() if mask & NAMED}
        return renamed, {path for path, mask in self._happened.items() if mask & (WRITTEN | ATTRIB)}

    def close(self) -> None:
        # In a thread of its own: it takes the kernel up to a tenth of a second.
        Thread(target=os.close, args=(self._fd,), name="pinfold-unwatch").start()

    def _note(self, folder: str, name: str, mask: int, ours: str | None) -> None:
        if mask & IS_FOLDER and mask & OPENED:
            return  # listing a folder changes nothing
        path = f"{folder}/{name}" if folder and name else folder or name
        if not (mask & OPENED and path == ours):
            self._happened[path] = self._happened.get(path, 0) | mask

    @staticmethod
    def _called(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result
