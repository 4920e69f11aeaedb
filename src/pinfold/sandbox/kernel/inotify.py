"""Reports to which names in watched folders something happened. One inotify descriptor."""

from __future__ import annotations

import ctypes
import os
import select
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
"""At once: more than the kernel's queue holds, and a program that never stops must not keep us reading."""
FOLDERS = 256
"""That are watched for names; a machine gives each user some thousands."""
NAMES = NAMED | CLOSED_AFTER_WRITING | ATTRIB
FILES = CREATED_OR_DELETED | RENAMED | WRITTEN | ATTRIB | OPENED

_LIBC = ctypes.CDLL(None, use_errno=True)


class Watch:
    """Of at most so many folders, and a quarter of what the machine gives each user.

    Raises OSError where there is none. `fd` is readable when something happened.
    """

    def __init__(self, most: int = FOLDERS, events: int = NAMES) -> None:
        """`events`: what is asked for, of a folder and of what is in it."""
        given = Path("/proc/sys/fs/inotify/max_user_watches").read_text(encoding="ascii")
        self._most = min(most, int(given) // 4)
        self._events = events
        self.fd = self._check_result(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._poll = select.poll()
        self._poll.register(self.fd, select.POLLIN)
        self._folders: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        """Without those that are gone from where they were: they are new when they are added again."""
        self._happened: dict[str, int] = {}
        self._lost = False

    def add(self, path: str, folder: int | None = None) -> bool:
        """Watches the folder at `path`, or the open one `folder`, which is called so. Whether that is new. Raises OSError.

        The same folder under another path loses the old one.
        """
        if folder is None:
            place, flags = path, _NO_LINKS
        else:  # whatever the path means by now, this is the one that was opened
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
        """A missing one is left out: that it is made is seen in the one above. Whether any was new. Raises OSError."""
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
        """Takes what the kernel has to tell. That one of `ours` was opened is not told: we did it, since the last time."""
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
        return not self._happened and not self._lost and not self._poll.poll(0)

    def take_events(self) -> dict[str, int] | None:
        """By path, since the last call; None: too much to say."""
        self.collect()
        happened, self._happened = self._happened, {}
        lost, self._lost = self._lost, False
        return None if lost else happened

    def changes(self) -> tuple[set[str], set[str]] | None:
        """As `happened`: paths whose name means something else, and paths written in place."""
        happened = self.take_events()
        return None if happened is None else _split(happened)

    def peek_paths(self) -> Collection[str] | None:
        """The paths that `happened` will tell of; None: too much to say."""
        self.collect()
        return None if self._lost else self._happened.keys()

    def peek_touched(self) -> tuple[set[str], set[str]] | None:
        """What `changes` will say."""
        self.collect()
        return None if self._lost else _split(self._happened)

    def close(self) -> None:
        # In a thread of its own: it takes the kernel up to a tenth of a second.
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
