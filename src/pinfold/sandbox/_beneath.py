"""Reads, writes and removes below one folder, never through a link, whatever a session has put there or swaps meanwhile."""

from __future__ import annotations

import os
import secrets
import stat
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TypeAlias

from msgspec import Struct

FILE_BYTES = 4 << 20
"""Of one file that is remembered; of a larger one only that it is there."""
FOLDER_ENTRIES = 2000
FOLDER_DEPTH = 32
_TICK_NS = 20_000_000
"""Longer than the kernel's clock for files stands still."""
_REMOVED = 200_000
"""Entries that are removed before it is given up: something inside keeps making more."""
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


class File(Struct, frozen=True):
    data: bytes | None
    """None when it is too large to be remembered."""
    mode: int
    owner: tuple[int, int]
    stamp: tuple[int, int] | None = None
    """Of one that is too large: its inode and when it last changed."""


class Folder(Struct, frozen=True):
    entries: Mapping[str, Content]
    mode: int
    owner: tuple[int, int]


class Link(Struct, frozen=True):
    target: str


class Odd(Struct, frozen=True):
    """A pipe, a socket, a device, or more than is remembered."""


Content: TypeAlias = File | Folder | Link | Odd | None
"""None: it is not there."""
_Sign: TypeAlias = tuple[str, int, int]
"""A path, its inode, and when that last changed."""


class Below:
    """Paths are relative to `top`, without `..`."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._fd = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._signs: dict[str, list[_Sign]] = {}

    def close(self) -> None:
        os.close(self._fd)

    def read(self, path: str) -> Content:
        """Also remembers how to tell without reading that it is still the same."""
        long_ago = time.time_ns() - _TICK_NS
        content = self._read(path)
        signs = [_sign(f"{self._top}/{name}") for name in _paths(path, content)]
        # Of what changed just now, the next change could bear the same time.
        if signs and all(sign[2] < long_ago for sign in signs):
            self._signs[path] = signs
        else:
            self._signs.pop(path, None)
        return content

    def is_untouched(self, path: str) -> bool:
        """Surely as when it was last read; False says nothing."""
        signs = self._signs.get(path)
        return signs is not None and all(_sign(sign[0]) == sign for sign in signs)

    def is_shared(self, path: str) -> bool:
        """Whether it is, or holds, a file that has another name."""
        for name in _paths(path, self._read(path)):
            status = os.lstat(f"{self._top}/{name}")
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                return True
        return False

    def _read(self, path: str) -> Content:
        try:
            parent, name = self._parent(path)
        except FileNotFoundError:
            return None
        except NotADirectoryError as error:
            # Git would follow a link on the way; a file in the way leads nowhere.
            return Odd() if os.path.islink(f"/proc/self/fd/{self._fd}/{error.filename2}") else None  # noqa: PTH114
        except OSError:
            return Odd()
        try:
            return _read(parent, name, [FOLDER_ENTRIES], FOLDER_DEPTH)
        finally:
            os.close(parent)

    def put_back(self, path: str, content: Content) -> bool:
        """Whether it now is as `content` says. A link on the way to it is removed: none was there before."""
        if isinstance(content, Odd):
            return False
        if self._placed(path, content, clear=True):
            return True
        parts = path.split("/")
        above = ["/".join([self._top, *parts[:count]]) for count in range(len(parts))]
        # A session may close a folder around what it has put there.
        opened = [folder for folder in above if open_up(folder)]
        return bool(opened) and self._placed(path, content, clear=True)

    def write(self, path: str, content: File) -> bool:
        """Whether it is now so. Folders on the way are made; nothing else that is in the way is touched."""
        return self._placed(path, content, clear=False)

    def _placed(self, path: str, content: Content, *, clear: bool) -> bool:
        try:
            parent, name = self._parent(path, clear=clear, make=content is not None)
        except FileNotFoundError:
            return content is None
        except OSError:
            return False
        try:
            return _put(parent, name, content)
        except OSError:
            return False
        finally:
            os.close(parent)

    def rename(self, moved: str, path: str) -> bool:
        """Puts a folder that was put aside back in its place."""
        try:
            source, name = self._parent(moved)
            try:
                parent, target = self._parent(path)
                try:
                    _remove(parent, target)
                    os.rename(name, target, src_dir_fd=source, dst_dir_fd=parent)
                finally:
                    os.close(parent)
            finally:
                os.close(source)
        except OSError:
            return False
        return True

    def _parent(self, path: str, *, clear: bool = False, make: bool = False) -> tuple[int, str]:
        """The folder a path's last part is in."""
        *folders, name = path.split("/")
        here = os.open(".", _FOLDER, dir_fd=self._fd)
        try:
            for depth, folder in enumerate(folders, 1):
                if clear:
                    _only_a_folder(here, folder)
                if make:
                    with suppress(FileExistsError):
                        os.mkdir(folder, 0o755, dir_fd=here)
                try:
                    below = os.open(folder, _FOLDER, dir_fd=here)
                except NotADirectoryError as error:
                    error.filename2 = "/".join(folders[:depth])
                    raise
                os.close(here)
                here = below
        except BaseException:
            os.close(here)
            raise
        return here, name


def open_up(path: str) -> bool:
    """Make a folder that its owner has closed readable and writable for its owner. Whether that was needed, and done."""
    try:
        fd = os.open(path, _LOOK | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{fd}", mode | 0o700)  # noqa: PTH101
            return True
    except OSError:
        pass
    finally:
        os.close(fd)
    return False


def entries_of(folder: str) -> list[os.DirEntry[str]]:
    """None of a folder that is not there or cannot be looked into."""
    try:
        with os.scandir(folder) as inside:
            return list(inside)
    except OSError:
        return []


def link_target(path: str) -> str | None:
    """Where it leads; None if it is no link."""
    try:
        return os.readlink(path)  # noqa: PTH115 - no Path on the fast path
    except OSError:
        return None


def _sign(path: str) -> _Sign:
    try:
        status = os.lstat(path)
    except OSError:
        return path, 0, 0
    return path, status.st_ino, status.st_ctime_ns


def _paths(path: str, content: Content) -> list[str]:
    match content:
        case File() | Link():
            return [path]
        case Folder(entries=entries):
            below = [name for entry, held in entries.items() for name in _paths(f"{path}/{entry}", held)]
            return [path, *below]
        case Odd() | None:
            return []


def _only_a_folder(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        if not stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            os.unlink(name, dir_fd=parent)


def _read(parent: int, name: str, left: list[int], depth: int) -> Content:
    try:
        fd = os.open(name, _LOOK, dir_fd=parent)
    except FileNotFoundError:
        return None
    left[0] -= 1
    try:
        status = os.fstat(fd)
        mode, owner = stat.S_IMODE(status.st_mode), (status.st_uid, status.st_gid)
        if stat.S_ISLNK(status.st_mode):
            return Link(os.readlink(b"", dir_fd=fd).decode("utf-8", "surrogateescape"))
        if stat.S_ISREG(status.st_mode):
            if status.st_size > FILE_BYTES:
                return File(None, mode, owner, (status.st_ino, status.st_ctime_ns))
            # Through /proc: the name may be something else by now, the descriptor is not.
            with open(f"/proc/self/fd/{fd}", "rb") as file:  # noqa: PTH123
                return File(file.read(FILE_BYTES + 1), mode, owner)
        if not stat.S_ISDIR(status.st_mode):
            return Odd()
        folder = os.open(".", _FOLDER, dir_fd=fd)
        try:
            entries: dict[str, Content] = {}
            for entry in _names(folder):
                if left[0] <= 0 or not depth:
                    return Odd()
                entries[entry] = _read(folder, entry, left, depth - 1)
            return Folder(entries, mode, owner)
        finally:
            os.close(folder)
    except OSError:
        return Odd()
    finally:
        os.close(fd)


def _put(parent: int, name: str, content: Content) -> bool:
    match content:
        case None:
            _remove(parent, name)
            return True
        case File(data=None) | Odd():
            return False
        case File() | Link():
            _clear_folder(parent, name)
            made = _made(parent, content)
            os.rename(made, name, src_dir_fd=parent, dst_dir_fd=parent)
            return True
        case Folder():
            _remove(parent, name)
            os.mkdir(name, 0o700, dir_fd=parent)
            folder = os.open(name, _FOLDER, dir_fd=parent)
            try:
                whole = [_put(folder, entry, held) for entry, held in content.entries.items()]
                _give(folder, content)
            finally:
                os.close(folder)
            return all(whole)


def _made(parent: int, content: File | Link) -> str:
    """Under a name of its own, so that the true name is never half there."""
    name = f".pinfold-{secrets.token_hex(8)}"
    if isinstance(content, Link):
        os.symlink(content.target, name, dir_fd=parent)
        return name
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=parent)
    try:
        with os.fdopen(os.dup(fd), "wb") as file:
            file.write(content.data or b"")
        _give(fd, content)
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
    finally:
        os.close(fd)
    return name


def _give(fd: int, content: File | Folder) -> None:
    with suppress(PermissionError):  # ours already, unless we are root
        os.fchown(fd, *content.owner)
    os.fchmod(fd, content.mode)


def _clear_folder(parent: int, name: str) -> None:
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            _remove(parent, name)


def _remove(parent: int, name: str) -> None:
    """Unless there is no end of it. Raises OSError."""
    remove_all(parent, name, most=_REMOVED)


def remove_all(parent: int, name: str, *, most: int | None = None) -> None:
    """However deep: what lies below is moved up, so that two descriptors are enough. Raises OSError."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        folder = _entered(parent, name)
        try:
            _empty(folder, most)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)


def _empty(folder: int, most: int | None) -> None:
    removed = 0
    while names := _names(folder):
        for name in names:
            removed += 1
            if most is not None and removed > most:
                raise OSError(0, "there is no end of it")
            with suppress(FileNotFoundError):
                try:
                    os.unlink(name, dir_fd=folder)
                except (IsADirectoryError, PermissionError):
                    _lift(folder, name)


def _lift(folder: int, name: str) -> None:
    below = _entered(folder, name)
    try:
        for inner in _names(below):
            try:
                os.unlink(inner, dir_fd=below)
            except (IsADirectoryError, PermissionError):
                os.close(_entered(below, inner))
                os.rename(inner, secrets.token_hex(8), src_dir_fd=below, dst_dir_fd=folder)
    finally:
        os.close(below)
    with suppress(OSError):  # something was made in it meanwhile: the next round finds it
        os.rmdir(name, dir_fd=folder)


def _entered(parent: int, name: str) -> int:
    """A folder, opened and made ours to change."""
    fd = os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=parent)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
            os.chmod(f"/proc/self/fd/{fd}", 0o700)  # noqa: PTH101
        return os.open(".", _FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def _names(folder: int) -> list[str]:
    with os.scandir(folder) as inside:
        return sorted(entry.name for entry in inside)
