"""Reads what is at a path below one folder as a value, compares it and puts it back. Uses `safe_files`."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct

from pinfold.sandbox.kernel.safe_files import (
    FOLDER,
    LOOK,
    SafeFolder,
    give,
    grant_owner_access,
    lstat,
    make_file,
    names_in,
    partial_name,
    remove_all,
)

FILE_BYTES = 4 << 20
"""Largest file, in bytes, whose content is remembered; of a larger file only the stamp is."""
FOLDER_ENTRIES = 2000
FOLDER_DEPTH = 32
TICK_NS = 20_000_000
"""Longer than a tick of the kernel's clock for file times."""
_REMOVED = 200_000
"""Entries to remove before giving up, because a process may keep making more."""


class FileContent(Struct, frozen=True):
    data: bytes | None
    """None if the file is too large to be remembered."""
    mode: int
    owner: tuple[int, int]
    stamp: tuple[int, int] | None = None
    """For a file that is too large: its inode and the time of its last change."""


class FolderContent(Struct, frozen=True):
    entries: Mapping[str, Content]
    mode: int
    owner: tuple[int, int]


class LinkContent(Struct, frozen=True):
    target: str


class UnknownContent(Struct, frozen=True):
    """A pipe, a socket, a device, or more than is remembered."""


Content: TypeAlias = FileContent | FolderContent | LinkContent | UnknownContent | None
"""None if nothing is there."""
_Sign: TypeAlias = tuple[str, int, int]
"""A path, its inode, and the time of the inode's last change."""


class Contents:
    """Reads and restores content below `top`. Paths are relative to it, without `..`."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._folder = SafeFolder(Path(top), one_file_system=False)
        self._signs: dict[str, list[_Sign]] = {}

    def close(self) -> None:
        self._folder.close()

    def read(self, path: str) -> Content:
        """Read the content. Also remembers stamps by which `is_untouched` can tell that it is the same."""
        long_ago = time.time_ns() - TICK_NS
        content = self._read(path)
        signs = [_sign(f"{self._top}/{name}") for name in _paths(path, content)]
        # After a change just now, the next change could leave the same time.
        if signs and all(sign[2] < long_ago for sign in signs):
            self._signs[path] = signs
        else:
            self._signs.pop(path, None)
        return content

    def is_untouched(self, path: str) -> bool:
        """Return True if the path is surely as it was when last read. False means unknown."""
        signs = self._signs.get(path)
        return signs is not None and all(_sign(sign[0]) == sign for sign in signs)

    def is_shared(self, path: str) -> bool:
        """Return True if the path is or holds a file with more than one hard link."""
        for name in _paths(path, self._read(path)):
            status = os.lstat(f"{self._top}/{name}")
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                return True
        return False

    def _read(self, path: str) -> Content:
        try:
            with self._folder.place(path) as (parent, name):
                return _read(parent, name, [FOLDER_ENTRIES], FOLDER_DEPTH)
        except FileNotFoundError:
            return None
        except NotADirectoryError:
            # Git would follow a link among the folders above, but a plain file there means that nothing is at the path.
            ways = filter(None, map(self._folder.status, folders_above(path)))
            return UnknownContent() if any(stat.S_ISLNK(way.st_mode) for way in ways) else None
        except OSError as error:
            if error.errno == errno.ENOSYS:
                raise  # nothing at all can be read
            return UnknownContent()

    def put_back(self, path: str, content: Content) -> bool:
        """Restore `content` and return True on success. Removes links among the folders above: they are new."""
        if isinstance(content, UnknownContent):
            return False
        if self._place(path, content, clear=True):
            return True
        # A session may take away the permissions of a folder to keep its files there.
        opened = [folder for folder in ("", *folders_above(path)) if grant_owner_access(f"{self._top}/{folder}")]
        return bool(opened) and self._place(path, content, clear=True)

    def write(self, path: str, content: FileContent) -> bool:
        """Write a file and return True on success. Makes missing folders; removes nothing that is in the way."""
        return self._place(path, content, clear=False)

    def _place(self, path: str, content: Content, *, clear: bool) -> bool:
        try:
            for folder in folders_above(path):
                with self._folder.place(folder) as (parent, name):
                    if clear and not _is_folder(parent, name):
                        with suppress(FileNotFoundError):
                            os.unlink(name, dir_fd=parent)
                    if content is not None:
                        with suppress(FileExistsError):
                            os.mkdir(name, 0o755, dir_fd=parent)
            with self._folder.place(path) as (parent, name):
                return _put(parent, name, content)
        except FileNotFoundError:
            return content is None
        except OSError:
            return False

    def rename(self, moved: str, path: str) -> bool:
        """Move a folder that was moved away back to its place."""
        try:
            with self._folder.place(moved) as (source, name), self._folder.place(path) as (parent, target):
                _remove(parent, target)
                os.rename(name, target, src_dir_fd=source, dst_dir_fd=parent)
        except OSError:
            return False
        return True


class HeldFolder(Struct, frozen=True):
    """A git folder held by a descriptor, which finds it wherever it was moved and keeps its inode from being reused."""

    fd: int
    inode: tuple[int, int]

    @property
    def where(self) -> str:
        """The present path; empty if the folder was removed."""
        path = os.readlink(f"/proc/self/fd/{self.fd}")
        return "" if path.endswith(" (deleted)") else path


def hold_folder(path: str) -> HeldFolder | None:
    try:
        fd = os.open(path, LOOK | os.O_DIRECTORY)
    except OSError:
        return None
    status = os.fstat(fd)
    return HeldFolder(fd, (status.st_dev, status.st_ino))


def folders_above(path: str) -> list[str]:
    """Return the folders that contain `path`, the outermost first."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(1, len(parts))]


def is_fresh(ctime_ns: int) -> bool:
    """Return True if the last change is so recent that the next could leave the same time."""
    return ctime_ns > time.time_ns() - TICK_NS


def _sign(path: str) -> _Sign:
    status = lstat(path)
    return (path, status.st_ino, status.st_ctime_ns) if status else (path, 0, 0)


def _paths(path: str, content: Content) -> list[str]:
    match content:
        case FileContent() | LinkContent():
            return [path]
        case FolderContent(entries=entries):
            below = [name for entry, held in entries.items() for name in _paths(f"{path}/{entry}", held)]
            return [path, *below]
        case UnknownContent() | None:
            return []


def _is_folder(parent: int, name: str) -> bool:
    with suppress(FileNotFoundError):
        return stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode)
    return False


def _read(parent: int, name: str, left: list[int], depth: int) -> Content:
    try:
        fd = os.open(name, LOOK, dir_fd=parent)
    except FileNotFoundError:
        return None
    left[0] -= 1
    try:
        status = os.fstat(fd)
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            return LinkContent(os.readlink(b"", dir_fd=fd).decode("utf-8", "surrogateescape"))
        if stat.S_ISREG(status.st_mode):
            if status.st_size > FILE_BYTES:
                return FileContent(None, mode, owner, (status.st_ino, status.st_ctime_ns))
            # Opened through /proc: by now the name may lead to another file, but the descriptor does not.
            with open(f"/proc/self/fd/{fd}", "rb") as file:
                return FileContent(file.read(FILE_BYTES + 1), mode, owner)
        if not stat.S_ISDIR(status.st_mode):
            return UnknownContent()
        folder = os.open(".", FOLDER, dir_fd=fd)
        try:
            entries: dict[str, Content] = {}
            for entry in names_in(folder):
                if left[0] <= 0 or not depth:
                    return UnknownContent()
                entries[entry] = _read(folder, entry, left, depth - 1)
            return FolderContent(entries, mode, owner)
        finally:
            os.close(folder)
    except OSError:
        return UnknownContent()
    finally:
        os.close(fd)


def _put(parent: int, name: str, content: Content) -> bool:
    match content:
        case None:
            _remove(parent, name)
            return True
        case FileContent(data=None) | UnknownContent():
            return False
        case FileContent() | LinkContent():
            if _is_folder(parent, name):
                _remove(parent, name)
            made = _make_beside(parent, content)
            os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
            return True
        case FolderContent():
            _remove(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
            folder = os.open(name, FOLDER, dir_fd=parent)
            try:
                whole = [_put(folder, entry, held) for entry, held in content.entries.items()]
                give(folder, content.mode, content.owner)
            finally:
                os.close(folder)
            return all(whole)


def _make_beside(parent: int, content: FileContent | LinkContent) -> str:
    """Make it under a temporary name, so that the real name never has partial content."""
    name = partial_name()
    if isinstance(content, LinkContent):
        os.symlink(content.target, name, dir_fd=parent)
        return name
    data = content.data or b""

    def fill(fd: int) -> None:
        with os.fdopen(fd, "wb", closefd=False) as file:
            file.write(data)

    os.close(make_file(parent, name, fill, mode=content.mode, owner=content.owner))
    return name


def _remove(parent: int, name: str) -> None:
    """Remove the entry and all below it, up to `_REMOVED` entries. Raises OSError."""
    remove_all(parent, name, most=_REMOVED)
