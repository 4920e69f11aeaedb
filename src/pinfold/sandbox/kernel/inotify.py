"""Reports which names in watched folders had events, through one inotify descriptor."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Collection, Container, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

ATTRIB, WRITTEN, OPENED = 0x4, 0x2 | 0x8, 0x20
CREATED_OR_DELETED, RENAMED = 0x100 | 0x200, 0x40 | 0x80
SELF_GONE = 0x400 | 0x800
"""The folder itself was removed or renamed."""
NAMED = CREATED_OR_DELETED | RENAMED | SELF_GONE
CLOSED_AFTER_WRITING = 0x8
IS_FOLDER = 0x40000000
_OVERFLOW, _IGNORED = 0x4000, 0x8000
_ONLY_FOLDERS, _NO_LINKS, _NOT_UNLINKED = 0x1000000, 0x2000000, 0x4000000
_HEADER = struct.Struct("iIII")
_BUFFER = 1 << 16
_READS = 64
"""Most reads per `collect`: more than the kernel's queue holds, but bounded if a program never stops writing."""
FOLDERS = 256
"""Default number of watched folders; a system allows each user some thousands."""
NAMES = NAMED | CLOSED_AFTER_WRITING | ATTRIB
FILES = CREATED_OR_DELETED | RENAMED | WRITTEN | ATTRIB | OPENED

_LIBC = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Watches at most `most` folders, and at most a quarter of the watches each user may have.

    Raises OSError if inotify is not available. `fd` is readable when there are events.
    """

    def __init__(self, most: int = FOLDERS, events: int = NAMES) -> None:
        """`events`: the events to watch for, of a folder and of the names in it."""
        given = Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii")
        self._most = min(most, int(given) // 4)
        self._events = events
        self.fd = self._check_result(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        """Without folders that were removed or renamed, so that they count as new when added again."""
        self._happened: dict[str, int] = {}
        self._lost = False

    def add(self, path: str, folder: int | None = None) -> bool:
        """Watch the folder at `path`, or the open folder `folder` under that name. Returns True if new. Raises OSError.

        A folder that is already watched under another path gets the new path.
        """
        if folder is None:
            place, flags = path, _NO_LINKS
        else:  # the open folder itself, even if the path means another by now
            place, flags = f"/proc/self/fd/{folder}", _NOT_UNLINKED
        asked = self._events | _ONLY_FOLDERS | flags
        number = self._check_result(_LIBC.inotify_add_watch(self.fd, os.fsencode(place), asked))
        if self._numbers.get(path) == number:
            return False
        if number in self._folders:
            self._forget(number)
        elif len(self._folders) >= self._most:
            _LIBC.inotify_rm_watch(self.fd, number)
            raise OSError(0, f"more than {self._most} folders to watch")
        self.remove(path)
        self._folders[number] = path
        self._numbers[path] = number
        return True

    def add_all(self, paths: Iterable[str]) -> bool:
        """Watch these folders. Missing ones are skipped: the parent reports their creation. Returns True if any is new.

        Raises OSError.
        """
        any_new = False
        for path in paths:
            with suppress(FileNotFoundError, NotADirectoryError):
                any_new = self.add(path) or any_new
        return any_new

    def remove(self, path: str) -> None:
        number = self._numbers.get(path)
        if number is not None:
            self._forget(number)
            _LIBC.inotify_rm_watch(self.fd, number)

    def collect(self, *, ours: Container[str] = ()) -> None:
        """Read the kernel's events. Ignores opens of the paths in `ours`, which this process has opened itself."""
        for _ in range(_READS):
            try:
                data = os.read(self.fd, _BUFFER)
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
                    self._forget(number)
                else:
                    self._note(number, os.fsdecode(name), mask, ours)

    @property
    def is_quiet(self) -> bool:
        self.collect()
        return not self._happened and not self._lost

    def take_events(self) -> dict[str, int] | None:
        """Return the events since the last call, by path; None if the kernel's queue overflowed."""
        self.collect()
        happened, self._happened = self._happened, {}
        lost, self._lost = self._lost, False
        return None if lost else happened

    def changes(self) -> tuple[set[str], set[str]] | None:
        """Like `take_events`: the paths that mean another file now, and those written in place."""
        happened = self.take_events()
        return None if happened is None else _split(happened)

    def peek_paths(self) -> Collection[str] | None:
        """Return the paths that `take_events` will report; None if the kernel's queue overflowed."""
        self.collect()
        return None if self._lost else self._happened.keys()

    def peek_touched(self) -> tuple[set[str], set[str]] | None:
        """Return what `changes` will return."""
        self.collect()
        return None if self._lost else _split(self._happened)

    def close(self) -> None:
        # In a thread, because the kernel takes up to a tenth of a second.
        Thread(target=os.close, args=(self.fd,), name="pinfold-unwatch").start()

    def _note(self, number: int, name: str, mask: int, ours: Container[str]) -> None:
        if mask & IS_FOLDER and mask & OPENED:
            return  # listing a folder changes nothing
        folder = self._folders[number]
        if mask & SELF_GONE and self._numbers.get(folder) == number:
            del self._numbers[folder]
        path = f"{folder}/{name}" if folder and name else folder or name
        if not (mask & OPENED and path in ours):
            self._happened[path] = self._happened.get(path, 0) | mask

    def _forget(self, number: int) -> None:
        path = self._folders.pop(number)
        if self._numbers.get(path) == number:
            del self._numbers[path]

    @staticmethod
    def _check_result(result: int) -> int:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return result


def _split(happened: Mapping[str, int]) -> tuple[set[str], set[str]]:
    renamed = {path for path, mask in happened.items() if mask & NAMED}
    return renamed, {path for path, mask in happened.items() if mask & (WRITTEN | ATTRIB)}
