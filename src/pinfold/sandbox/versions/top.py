"""Opens, makes, moves and removes below one folder: never through a link, never out of it, whoever swaps what meanwhile.

The kernel resolves every path (openat2) from a descriptor of the workspace that is held: below it, through folders only, on
one file system. Then only single names are used, in the folder that was opened.
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
from contextlib import contextmanager, suppress
from pathlib import Path

from pinfold.sandbox._beneath import remove_all
from pinfold.sandbox._syscalls import X86_64
from pinfold.sandbox.versions.entries import SET_ID, File, Folder, Link, Stamp, mode_of, name_of

_OPENAT2 = X86_64["openat2"]
"""The same on every machine."""
_NO_XDEV, _NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x01, 0x02, 0x04, 0x08
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""Also where a link is on the way: what it leads to is not ours."""
_PARTIAL = ".pinfold-"
_F_SETSIG = 10
_TELLS_OF_MAPS = {0xEF53, 0x58465342, 0x9123683E}
"""ext4, xfs, btrfs: a write through a shared map shows in a file's times once its pages are clean."""


class Changed(OSError):
    """Somebody changed it after we last looked."""


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


class Top:
    """Paths are relative to the workspace; "" is the workspace itself. Whatever fails raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._folder = folder
        self._fd = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._opened_up: dict[str, int] = {}

    def close(self) -> None:
        os.close(self._fd)

    @property
    def is_there(self) -> bool:
        """Whether the workspace is still the folder it was."""
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
        known = self._libc.fstatfs(self._fd, kind) == 0
        return int.from_bytes(kind.raw[: ctypes.sizeof(ctypes.c_long)], "little") if known else 0

    @contextmanager
    def opened(self, path: str, flags: int = os.O_PATH) -> Generator[int]:
        """Not followed if it is a link itself, which only O_PATH opens."""
        how = _How(
            flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0, _BENEATH | _NO_MAGICLINKS | _NO_SYMLINKS | _NO_XDEV
        )
        name = os.fsencode(path or ".")
        fd = self._libc.syscall(_OPENAT2, self._fd, name, ctypes.byref(how), ctypes.sizeof(how))
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
            with self.opened(path) as fd:
                return os.fstat(fd)
        except OSError as error:
            if error.errno in _ABSENT:
                return None
            raise

    @contextmanager
    def place(self, path: str, *, writable: bool = False) -> Generator[tuple[int, str]]:
        """The folder a path's last name is in, and that name. A folder that must be written is opened up until `finish`."""
        folder, _, name = path.rpartition("/")
        with self.opened(folder, os.O_PATH | os.O_DIRECTORY) as fd:
            if writable and (mode := mode_of(os.fstat(fd))) & 0o300 != 0o300:
                self._opened_up.setdefault(folder, mode)
                _chmod(fd, mode | 0o700)
            yield fd, name

    def finish(self) -> None:
        """Folders that were opened up are as before; what is gone or no folder any more is passed over."""
        for folder, mode in self._opened_up.items():
            with suppress(OSError), self.opened(folder, os.O_PATH | os.O_DIRECTORY) as fd:
                _chmod(fd, mode)
        self._opened_up.clear()

    # Making

    def put_file(self, path: str, entry: File, fill: Callable[[int], None], *, was: Stamp | None) -> Stamp:
        """Takes the place of what is there, if that is still as it `was`, in one step."""
        with self.place(path, writable=True) as (folder, name):
            partial = partial_name()
            made = _made(folder, partial, entry, fill)
            try:
                _check(folder, name, was)
                os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
                return Stamp.of(os.fstat(made))
            except BaseException:
                with suppress(OSError):
                    os.unlink(partial, dir_fd=folder)
                raise
            finally:
                os.close(made)

    def put_link(self, path: str, entry: Link, *, was: Stamp | None) -> None:
        with self.place(path, writable=True) as (folder, name):
            partial = partial_name()
            os.symlink(entry.target, partial, dir_fd=folder)
            try:
                with suppress(PermissionError):
                    os.chown(partial, *entry.owner, dir_fd=folder, follow_symlinks=False)
                _check(folder, name, was)
                os.rename(partial, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(partial, dir_fd=folder)
                raise

    def make_folder(self, path: str) -> None:
        with self.place(path, writable=True) as (folder, name):
            os.mkdir(name, 0o700, dir_fd=folder)

    def give(self, path: str, entry: File | Folder) -> None:
        """Mode and owner, to what is of the same kind. No file gets set-id bits: a session may have it mapped for writing."""
        with self.opened(path) as fd:
            status = os.fstat(fd)
            if stat.S_ISDIR(status.st_mode) != isinstance(entry, Folder) or stat.S_ISLNK(status.st_mode):
                raise Changed(0, "it is something else now", path)
            with suppress(PermissionError):
                os.chown(f"/proc/self/fd/{fd}", *entry.owner)
            _chmod(fd, entry.mode if isinstance(entry, Folder) else entry.mode & ~SET_ID)
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
        with self.opened(path) as fd:
            status = os.fstat(fd)
            if stat.S_ISREG(status.st_mode):
                _chmod(fd, mode_of(status) | 0o400)


def partial_name() -> str:
    """For what is not yet where it belongs."""
    return f"{_PARTIAL}{secrets.token_hex(8)}"


def is_partial(path: str) -> bool:
    return name_of(path).startswith(_PARTIAL)


def name_aside(path: str) -> str:
    """Beside it, for what must make way."""
    return f"{path}.undone-{secrets.token_hex(4)}"


def reopened(fd: int) -> int:
    """For reading, what was opened as a path: the name may mean something else by now, the descriptor does not."""
    return os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_CLOEXEC)


def is_open_for_writing(fd: int) -> bool:
    """By anybody, a shared map included: only where nobody has it so does the kernel grant a read lease."""
    try:
        # Who opens it in this moment waits until the lease is given back below, and we are sent a signal: one that
        # is ignored, in place of SIGIO, which kills.
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGURG)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return True  # it is, or this file system has no leases
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _made(folder: int, name: str, entry: File, fill: Callable[[int], None]) -> int:
    """A new file, whole and closed, so that nothing tells of writing under its later name. Returns a descriptor of it."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600, dir_fd=folder)
    try:
        fill(fd)
        _give(fd, entry)
        return os.open(f"/proc/self/fd/{fd}", os.O_PATH | os.O_CLOEXEC)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=folder)
        raise
    finally:
        os.close(fd)


def _check(folder: int, name: str, was: Stamp | None) -> None:
    try:
        now = Stamp.of(os.stat(name, dir_fd=folder, follow_symlinks=False))
    except FileNotFoundError:
        now = None
    if now != was:
        raise Changed(0, "it was changed meanwhile", name)


def _give(fd: int, entry: File) -> None:
    with suppress(PermissionError):  # ours already, unless we are root
        os.fchown(fd, *entry.owner)
    os.fchmod(fd, entry.mode & ~SET_ID)
    os.utime(fd, ns=(entry.mtime_ns, entry.mtime_ns))


def _chmod(fd: int, mode: int) -> None:
    os.chmod(f"/proc/self/fd/{fd}", mode)  # noqa: PTH101
