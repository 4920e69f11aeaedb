"""Opens, makes, moves and removes below one folder: never through a link, never out of it, even if paths are swapped meanwhile.

The kernel resolves every path (openat2) from a descriptor of the folder that is held: below it, and through folders only.
Then only single names are used, in the folder that was opened.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import secrets
import signal
import stat
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple, TypeAlias

SET_ID = stat.S_ISUID | stat.S_ISGID
_OPENAT2 = 437
"""The same on every machine."""
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Also where a link is on the way: what it leads to is not ours."""
_PARTIAL = ".pinfold-"
_F_SETSIG = 10
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_TELLS_OF_MAPS = {0xEF53, 0x58465342, 0x9123683E}
"""ext4, xfs, btrfs: a write through a shared map shows in a file's times once its pages are clean."""


class Changed(OSError):
    """It was changed after we last looked."""


class Stamp(NamedTuple):
    """By which it is seen that a file is as it was, without reading it."""

    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int
    mode: int

    @staticmethod
    def of(status: os.stat_result) -> Stamp:
        return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_mode)

    @property
    def thing(self) -> Thing:
        return self[:3]


Thing: TypeAlias = tuple[int, int, int]
"""Inode, size and time of writing: a renamed file keeps these."""

_LIBC = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class SafeFolder:
    """Paths are relative to the folder; "" is the folder itself. Whatever fails raises OSError."""

    def __init__(self, folder: Path, *, one_file_system: bool = True) -> None:
        self._resolve = _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS | (_NO_XDEV if one_file_system else 0)
        self._folder = folder
        self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._opened_up: dict[str, int] = {}

    def close(self) -> None:
        os.close(self._fd)

    @property
    def is_there(self) -> bool:
        """Whether it is still the folder it was."""
        try:
            return os.path.samestat(self._folder.stat(), os.fstat(self._fd))
        except OSError:
            return False

    @property
    def tells_of_maps(self) -> bool:
        return self.file_system in _TELLS_OF_MAPS

    @property
    def file_system(self) -> int:
        """The number of its kind, as statfs(2) has them; 0: not known."""
        kind = ctypes.create_string_buffer(256)
        known = _LIBC.fstatfs(self._fd, kind) == 0
        return int.from_bytes(kind.raw[: ctypes.sizeof(ctypes.c_long)], "little") if known else 0

    @contextmanager
    def open_below(self, path: str, flags: int = os.O_PATH) -> Generator[int]:
        """Not followed if it is a link itself, which only O_PATH opens."""
        how = _How(flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, self._resolve)
        name = os.fsencode(path or ".")
        fd = _LIBC.syscall(_OPENAT2, self._fd, name, ctypes.byref(how), ctypes.sizeof(how))
        if fd < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
        try:
            yield fd
        finally:
            os.close(fd)

    def status(self, path: str) -> os.stat_result | None:
        """None: it is not there."""
        try:
            with self.open_below(path) as fd:
                return os.fstat(fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    @contextmanager
    def place(self, path: str, *, writable: bool = False) -> Generator[tuple[int, str]]:
        """The folder a path's last name is in, and that name. A folder that must be written is opened up until `finish`."""
        folder, _, name = path.rpartition("/")
        with self.open_below(folder, os.O_PATH | os.O_DIRECTORY) as fd:
            if writable and (mode := stat.S_IMODE(os.fstat(fd).st_mode)) & 0o300 != 0o300:
                self._opened_up.setdefault(folder, mode)
                chmod(fd, mode | 0o700)
            yield fd, name

    def finish(self) -> None:
        """Folders that were opened up are as before; what is gone or no folder any more is passed over."""
        for folder, mode in self._opened_up.items():
            with suppress(OSError), self.open_below(folder, os.O_PATH | os.O_DIRECTORY) as fd:
                chmod(fd, mode)
        self._opened_up.clear()

    def put_file(
        self,
        path: str,
        fill: Callable[[int], None],
        *,
        mode: int,
        owner: tuple[int, int],
        mtime_ns: int,
        was: Stamp | None,
    ) -> Stamp:
        """Takes the place of what is there, if that is still as it `was`, in one step. Without set-id bits."""
        with self.place(path, writable=True) as (folder, name):
            partial = partial_name()
            made = make_file(folder, partial, fill, mode=mode & ~SET_ID, owner=owner, mtime_ns=mtime_ns)
            try:
                _replace(folder, partial, name, was)
                return Stamp.of(os.fstat(made))
            finally:
                os.close(made)

    def put_link(self, path: str, target: str, owner: tuple[int, int], *, was: Stamp | None) -> None:
        with self.place(path, writable=True) as (folder, name):
            partial = partial_name()
            os.symlink(target, partial, dir_fd=folder)
            _replace(folder, partial, name, was, owner)

    def make_folder(self, path: str) -> None:
        with self.place(path, writable=True) as (folder, name):
            os.mkdir(name, 0o700, dir_fd=folder)

    def give(self, path: str, mode: int, owner: tuple[int, int], *, is_folder: bool) -> None:
        """Mode and owner, to what is of the same kind. No file gets set-id bits: a session may have it mapped for writing."""
        with self.open_below(path) as fd:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode) != is_folder or stat.S_ISLNK(status.st_mode):
                raise Changed(0, "it is something else now", path)
            with suppress(PermissionError):
                os.chown(f"/proc/self/fd/{fd}", *owner)
            chmod(fd, mode if is_folder else mode & ~SET_ID)
        self._opened_up.pop(path, None)

    def move(self, path: str, to: str, *, was: Stamp | None) -> Stamp:
        """To a name that is free. Checked afterwards as well: if it was swapped on the way it is moved back."""
        with self.place(path, writable=True) as (folder, name), self.place(to, writable=True) as (other, new):
            _check(folder, name, was)
            _check(other, new, None)
            os.rename(name, new, src_dir_fd=folder, dst_dir_fd=other)
            moved = Stamp.of(os.stat(new, dir_fd=other, follow_symlinks=False))
            if was and moved.inode != was.inode:
                os.rename(new, name, src_dir_fd=other, dst_dir_fd=folder)
                raise Changed(0, "it was replaced meanwhile", path)
            return moved

    def remove(self, path: str, *, was: Stamp | None) -> None:
        with self.place(path, writable=True) as (folder, name):
            _check(folder, name, was)
            os.unlink(name, dir_fd=folder)

    def remove_folder(self, path: str) -> None:
        """Only an empty one."""
        with self.place(path, writable=True) as (folder, name):
            os.rmdir(name, dir_fd=folder)
        self._opened_up.pop(path, None)

    def remove_all(self, path: str) -> None:
        """A folder with all that is in it, however much and deep."""
        with self.place(path, writable=True) as (folder, name):
            remove_all(folder, name)

    def let_read(self, path: str) -> None:
        with self.open_below(path) as fd:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                chmod(fd, stat.S_IMODE(status.st_mode) | 0o400)


def partial_name() -> str:
    """For what is not yet where it belongs."""
    return f"{_PARTIAL}{secrets.token_hex(8)}"


def is_partial(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_PARTIAL)


def reopen(fd: int) -> int:
    """For reading, what was opened as a path: the name may mean something else by now, the descriptor does not."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def is_open_for_writing(fd: int) -> bool:
    """By any process, a shared map included: the kernel grants a read lease only if there is none."""
    try:
        # Who opens it in this moment waits until the lease is given back below, and we are sent a signal: one that
        # is ignored, in place of SIGIO, which kills.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return True  # it is, or this file system has no leases
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def make_file(
    folder: int,
    name: str,
    fill: Callable[[int], None],
    *,
    mode: int,
    owner: tuple[int, int],
    mtime_ns: int | None = None,
) -> int:
    """A new file, whole and closed, so that nothing tells of writing under its later name. Returns a descriptor of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    with ExitStack() as on_failure:
        on_failure.callback(_remove, folder, name)
        try:
            fill(fd)
            give(fd, mode, owner)
            if mtime_ns is not None:
                os.utime(fd, ns=(mtime_ns, mtime_ns))
            made = os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC)
        finally:
            os.close(fd)
        on_failure.pop_all()
    return made


def _replace(folder: int, partial: str, name: str, was: Stamp | None, owner: tuple[int, int] | None = None) -> None:
    """`partial` takes the place of `name`, if that is still as it `was`; else it is removed."""
    with ExitStack() as on_failure:
        on_failure.callback(_remove, folder, partial)
        if owner:
            with suppress(PermissionError):
                os.chown(partial, *owner, dir_fd=folder, follow_symlinks=False)
        _check(folder, name, was)
        os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
        on_failure.pop_all()


def _remove(folder: int, name: str) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _check(folder: int, name: str, was: Stamp | None) -> None:
    try:
        now = Stamp.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        now = None
    if now != was:
        raise Changed(0, "it was changed meanwhile", name)


def give(fd: int, mode: int, owner: tuple[int, int]) -> None:
    with suppress(PermissionError):  # ours already, unless we are root
        os.fchown(fd, *owner)
    os.fchmod(fd, mode)


def chmod(fd: int, mode: int) -> None:
    """Of what was opened as a path."""
    os.chmod(f"/proc/self/fd/{fd}", mode)


def open_up(path: str) -> bool:
    """Make a folder that its owner has closed readable and writable for its owner. Whether that was needed, and done."""
    try:
        fd = os.open(path, LOOK | os.O_DIRECTORY)
    except OSError:
        return False
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        if mode & 0o700 != 0o700:
            chmod(fd, mode | 0o700)
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


def lstat(path: str) -> os.stat_result | None:
    """None: it is not there, or out of reach."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def read_plain(path: str, most: int, *, flags: int = 0) -> bytes | None:
    """The beginning of a plain file; None for all else that a session can put there: a folder, a pipe, nothing."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except (OSError, ValueError):
        return None
    try:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            return None
        with os.fdopen(fd, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(fd)


def read_text(path: str, most: int) -> str:
    """As `read_plain`, empty for all else. A zero, with which no path goes on, ends a line."""
    return (read_plain(path, most) or b"").decode("utf-8", "replace").replace("\0", "\n")


def link_target(path: str) -> str | None:
    """Where it leads; None if it is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def remove_all(parent: int, name: str, *, most: int | None = None) -> None:
    """However deep: what lies below is moved up, so that two descriptors are enough. Raises OSError."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        return
    except (IsADirectoryError, PermissionError):
        folder = _enter_folder(parent, name)
        try:
            _empty(folder, most)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=parent)


def _empty(folder: int, most: int | None) -> None:
    removed = 0
    while names := names_in(folder):
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
    below = _enter_folder(folder, name)
    try:
        for inner in names_in(below):
            try:
                os.unlink(inner, dir_fd=below)
            except (IsADirectoryError, PermissionError):
                os.close(_enter_folder(below, inner))
                os.rename(inner, secrets.token_hex(8), src_dir_fd=below, dst_dir_fd=folder)
    finally:
        os.close(below)
    with suppress(OSError):  # something was made in it meanwhile: the next round finds it
        os.rmdir(name, dir_fd=folder)


def _enter_folder(parent: int, name: str) -> int:
    """A folder, opened and made ours to change."""
    fd = os.open(name, LOOK | os.O_DIRECTORY, dir_fd=parent)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
            chmod(fd, 0o700)
        return os.open(".", FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def names_in(folder: int) -> list[str]:
    """Of an open one, in order."""
    with os.scandir(folder) as inside:
        return sorted(entry.name for entry in inside)
