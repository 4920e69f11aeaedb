"""Opens, creates, moves and removes files below one folder without following links, even if paths are swapped.

The kernel resolves every path with openat2 from an open descriptor of the folder, and never leaves the folder or
follows a link. After that only single names are used, relative to the folder that was opened.
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
"""System call number, the same on every architecture."""
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Includes a link on the way: what it leads to does not count as inside the folder."""
_PARTIAL = ".pinfold-"
_F_SETSIG = 10
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_TELLS_OF_MAPS = {0xEF53, 0x58465342, 0x9123683E}
"""ext4, xfs, btrfs: a write through a shared mapping updates the file's times once its pages are clean."""


class Changed(OSError):
    """The file was changed after it was last checked."""


class Stamp(NamedTuple):
    """Metadata that shows whether a file has changed, without reading it."""

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
"""Inode, size and modification time, which a renamed file keeps."""

_LIBC = ctypes.CDLL(None, use_errno=True)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class SafeFolder:
    """File access below one folder. Paths are relative to it; "" is the folder itself. Failures raise OSError."""

    def __init__(self, folder: Path, *, one_file_system: bool = True) -> None:
        self._resolve = _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS | (_NO_XDEV if one_file_system else 0)
        self._path = str(folder)
        self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._opened_up: dict[str, int] = {}

    def close(self) -> None:
        os.close(self._fd)

    @property
    def is_there(self) -> bool:
        """True if the path still leads to the same folder."""
        try:
            return os.path.samestat(os.stat(self._path), os.fstat(self._fd))
        except OSError:
            return False

    @property
    def tells_of_maps(self) -> bool:
        return self.file_system in _TELLS_OF_MAPS

    @property
    def file_system(self) -> int:
        """The type number of its file system, as in statfs(2); 0 if unknown."""
        kind = ctypes.create_string_buffer(256)
        known = _LIBC.fstatfs(self._fd, kind) == 0
        return int.from_bytes(kind.raw[: ctypes.sizeof(ctypes.c_long)], "little") if known else 0

    @contextmanager
    def open_below(self, path: str, flags: int = os.O_PATH) -> Generator[int]:
        """Open a path below the folder. A link is not followed; the link itself can be opened only with O_PATH."""
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
        """Return its status; None if it does not exist."""
        try:
            with self.open_below(path) as fd:
                return os.fstat(fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    @contextmanager
    def place(self, path: str, *, writable: bool = False) -> Generator[tuple[int, str]]:
        """Open the parent folder of a path; yield it and the last name. `writable` adds permissions until `finish`."""
        folder, _, name = path.rpartition("/")
        with self.open_below(folder, os.O_PATH | os.O_DIRECTORY) as fd:
            if writable and (mode := stat.S_IMODE(os.fstat(fd).st_mode)) & 0o300 != 0o300:
                self._opened_up.setdefault(folder, mode)
                chmod(fd, mode | 0o700)
            yield fd, name

    def finish(self) -> None:
        """Restore the modes that `place` changed. Folders that are gone or replaced are skipped."""
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
        """Write a file atomically, if what it replaces is still as it `was`. Set-id bits are dropped."""
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
        """Set mode and owner, if the kind is unchanged. No set-id bits for files: a session may have them mapped."""
        with self.open_below(path) as fd:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode) != is_folder or stat.S_ISLNK(status.st_mode):
                raise Changed(0, "it is something else now", path)
            with suppress(PermissionError):
                os.chown(f"/proc/self/fd/{fd}", *owner)
            chmod(fd, mode if is_folder else mode & ~SET_ID)
        self._opened_up.pop(path, None)

    def move(self, path: str, to: str, *, was: Stamp | None) -> Stamp:
        """Move to a free name. If the file was swapped meanwhile, move it back and raise Changed."""
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
        """Remove an empty folder."""
        with self.place(path, writable=True) as (folder, name):
            os.rmdir(name, dir_fd=folder)
        self._opened_up.pop(path, None)

    def remove_all(self, path: str) -> None:
        """Remove a folder with all that is in it, however large and deep."""
        with self.place(path, writable=True) as (folder, name):
            remove_all(folder, name)

    def let_read(self, path: str) -> None:
        with self.open_below(path) as fd:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                chmod(fd, stat.S_IMODE(status.st_mode) | 0o400)


def partial_name() -> str:
    """Return a temporary name for a file until it is moved to its place."""
    return f"{_PARTIAL}{secrets.token_hex(8)}"


def is_partial(path: str) -> bool:
    return path.rpartition("/")[2].startswith(_PARTIAL)


def reopen(fd: int) -> int:
    """Open for reading what was opened with O_PATH. Its name may mean another file by now; the descriptor does not."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def is_open_for_writing(fd: int) -> bool:
    """Return True if any process has it open for writing or mapped shared. Then the kernel grants no read lease."""
    try:
        # A process that opens the file now waits until the lease is released below, and this process gets a signal:
        # SIGURG, which is ignored, instead of SIGIO, which kills.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return True  # open for writing, or the file system has no leases
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
    """Create a complete, closed file, so that inotify reports no write under its later name. Returns an O_PATH fd."""
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
    """Rename `partial` to `name`, if that is still as it `was`; otherwise remove `partial`."""
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
    with suppress(PermissionError):  # only root can change the owner; for others it is right already
        os.fchown(fd, *owner)
    os.fchmod(fd, mode)


def chmod(fd: int, mode: int) -> None:
    """Change the mode of what was opened with O_PATH."""
    os.chmod(f"/proc/self/fd/{fd}", mode)


def grant_owner_access(path: str) -> bool:
    """Give the owner full access to a folder. Returns True if the mode had to be changed and was."""
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
    """Return the entries of a folder; none if it does not exist or cannot be read."""
    try:
        with os.scandir(folder) as inside:
            return list(inside)
    except OSError:
        return []


def lstat(path: str) -> os.stat_result | None:
    """Return its status; None if it does not exist or cannot be reached."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def read_plain(path: str, most: int, *, flags: int = 0) -> bytes | None:
    """Return up to `most` bytes of a regular file; None for anything else: a folder, a pipe, nothing."""
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
    """Like `read_plain`, as text, empty for anything else. NUL, which no path contains, becomes a line end."""
    return (read_plain(path, most) or b"").decode("utf-8", "replace").replace("\0", "\n")


def link_target(path: str) -> str | None:
    """Return the target of a link; None if it is no link."""
    try:
        return os.readlink(path)
    except OSError:
        return None


def remove_all(parent: int, name: str, *, most: int | None = None) -> None:
    """Remove a file or tree. Subfolders are moved up, so that two descriptors do for any depth. Raises OSError."""
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
    with suppress(OSError):  # something was created in it meanwhile; the next round removes it
        os.rmdir(name, dir_fd=folder)


def _enter_folder(parent: int, name: str) -> int:
    """Open a folder, after giving its owner full access."""
    fd = os.open(name, LOOK | os.O_DIRECTORY, dir_fd=parent)
    try:
        if stat.S_IMODE(os.fstat(fd).st_mode) & 0o700 != 0o700:
            chmod(fd, 0o700)
        return os.open(".", FOLDER, dir_fd=fd)
    finally:
        os.close(fd)


def names_in(folder: int) -> list[str]:
    """Return the sorted names in an open folder."""
    with os.scandir(folder) as inside:
        return sorted(entry.name for entry in inside)
