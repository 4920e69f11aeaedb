"""Reads the folder in which overlayfs keeps what a session changed. All of it is hostile: no link is followed, nothing is run."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pinfold.sandbox.file_history.entries import File, Folder, Link, join_path, mode_of, owner_of
from pinfold.sandbox.file_history.store import pieces, write_at
from pinfold.sandbox.kernel.safe_files import SET_ID, Changed, SafeFolder, Stamp, chmod, reopen

_OPAQUE, _REDIRECT = "user.overlay.opaque", "user.overlay.redirect"
_METACOPY, _WHITEOUT = "user.overlay.metacopy", "user.overlay.whiteout"
_NO_ATTRIBUTE = (errno.ENODATA, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class Odd:
    """Something that is not brought over."""

    why: str


Layered: TypeAlias = File | Folder | Link | Odd | None
"""None: it was removed. Set-id bits are never among the modes."""


class Layer:
    """`entries` by path, folders before what is in them; "" is the workspace. Raises OSError."""

    def __init__(self, files: Path, owner: int) -> None:
        """`owner`: what belongs to another user was not made by the session."""
        self._top = SafeFolder(files)
        self._owner = owner
        self._opened_up: list[tuple[str, int]] = []
        self._stamps: dict[str, Stamp] = {}
        self.entries: dict[str, Layered] = {}
        self.opaque: set[str] = set()
        """Folders in which nothing of the workspace is seen."""
        try:
            self._walk()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        for path, mode in reversed(self._opened_up):
            with suppress(OSError), self._top.open_below(path) as fd:
                chmod(fd, mode)
        self._top.close()

    @property
    def hiding(self) -> set[str]:
        """At and below these, what the workspace has is not seen."""
        return self.opaque | {path for path, entry in self.entries.items() if not isinstance(entry, Folder)}

    def copy(self, path: str, to: int) -> None:
        """The content of a file that was found, holes left out. Raises Changed, OSError."""
        with self._top.open_below(path) as named:
            if Stamp.of(os.fstat(named)) != self._stamps[path]:
                raise Changed(0, "it was changed meanwhile", path)
            fd = _readable(named)
        opened = Stamp.of(os.fstat(fd))
        try:
            os.ftruncate(to, opened.size)
            for at, piece, is_written in pieces(fd):
                if is_written:
                    write_at(to, piece, at)
            if Stamp.of(os.fstat(fd)) != opened:
                raise Changed(0, "it was changed meanwhile", path)
        finally:
            os.close(fd)

    @contextmanager
    def open_for_reading(self, path: str) -> Generator[int]:
        with self._top.open_below(path) as named:
            fd = _readable(named)
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self) -> None:
        waiting = [""]
        while waiting:
            path = waiting.pop()
            try:
                with self._top.open_below(path) as fd:
                    entry = self._entry(path, fd)
                    names = self._names(fd) if isinstance(entry, Folder) else []
            except OSError as error:
                entry, names = Odd(error.strerror or "it cannot be read"), []
            self.entries[path] = entry
            waiting += [join_path(path, name) for name in names]

    def _entry(self, path: str, fd: int) -> Layered:
        status = os.fstat(fd)
        mode = mode_of(status)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            return None
        if status.st_uid != self._owner:
            return Odd("it belongs to someone else")
        if stat.S_ISLNK(status.st_mode):
            return Link(os.fsdecode(os.readlink(b"", dir_fd=fd)), owner_of(status))
        if stat.S_ISREG(status.st_mode):
            self._stamps[path] = Stamp.of(status)
            if _attribute(fd, _WHITEOUT) is not None:
                return None
            if _attribute(fd, _METACOPY) is not None:
                return Odd("its content is not there")
            return File(None, status.st_size, mode & ~SET_ID, owner_of(status), status.st_mtime_ns)
        if not stat.S_ISDIR(status.st_mode):
            return Odd("special file")
        if mode & 0o500 != 0o500 and os.geteuid() != 0:
            self._opened_up.append((path, mode))
            chmod(fd, mode | 0o700)
        if _attribute(fd, _REDIRECT) is not None:
            return Odd("its content is elsewhere")
        if _attribute(fd, _OPAQUE) == b"y":
            self.opaque.add(path)
        return Folder(mode & ~SET_ID, owner_of(status))

    def _names(self, named: int) -> list[str]:
        fd = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=named)
        try:
            return sorted(os.listdir(fd), reverse=True)  # noqa: PTH208 - of a descriptor
        finally:
            os.close(fd)


def _attribute(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(f"/proc/self/fd/{fd}", name)
    except PermissionError:
        return None  # a file that its owner may not read; the kernel sets none on such
    except OSError as error:
        if error.errno in _NO_ATTRIBUTE:
            return None
        raise


def _readable(named: int) -> int:
    try:
        return reopen(named)
    except PermissionError:
        mode = mode_of(os.fstat(named))
        chmod(named, mode | stat.S_IRUSR)
        try:
            return reopen(named)
        finally:
            chmod(named, mode)
