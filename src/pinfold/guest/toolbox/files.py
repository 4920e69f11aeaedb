"""Reads and writes files of the workspace by relative path. Paths that leave it are refused, if possible by openat2."""

from __future__ import annotations

import errno
import os
import stat
import sys

OPENAT2 = 437
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_BENEATH = 0x08
READ_BYTES = 1 << 20
TRIES = 100


class Refused(Exception):
    """A request was refused; the message is shown by the host."""


class Files:
    """Files of the folder where the guest started, even if the program changes its working folder."""

    def __init__(self, root: str) -> None:
        self.root = root

    def put(self, path: str, data: bytes) -> None:
        parts = _parts(path)
        try:
            for depth in range(1, len(parts)):
                self._make_folder(parts[:depth])
            fd = self._open(parts, os.O_WRONLY | os.O_CREAT)
            try:
                _check_regular(fd, path)
                os.ftruncate(fd, 0)
                view = memoryview(data)
                while view:
                    view = view[os.write(fd, view) :]
            finally:
                os.close(fd)
        except OSError as error:
            raise Refused(_why(path, error)) from error

    def get(self, path: str, limit: int) -> bytes:
        parts = _parts(path)
        try:
            fd = self._open(parts, os.O_RDONLY)
            try:
                size = _check_regular(fd, path)
                if size > limit:
                    raise Refused(f"{path!r} has {size} bytes; the limit is {limit}")
                return _read(fd, path, limit)
            finally:
                os.close(fd)
        except OSError as error:
            raise Refused(_why(path, error)) from error

    def _make_folder(self, parts: list[str]) -> None:
        parent = self._open(parts[:-1], os.O_RDONLY | os.O_DIRECTORY) if parts[:-1] else self._open_root()
        try:
            os.mkdir(parts[-1], dir_fd=parent)
        except FileExistsError:
            pass
        finally:
            os.close(parent)

    def _open_root(self) -> int:
        return os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def _open(self, parts: list[str], flags: int) -> int:
        # Nonblocking: opening a FIFO must fail or return, not wait for a process at its other end.
        flags |= os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        relative = "/".join(parts)
        if sys.platform == "linux":
            root = self._open_root()
            try:
                return _openat2(root, relative, flags)
            except OSError as error:
                if error.errno not in (errno.ENOSYS, errno.EPERM):
                    raise
            finally:
                os.close(root)
        return self._open_checked(relative, flags)

    def _open_checked(self, relative: str, flags: int) -> int:
        """Open without openat2: resolve the path first, then open the result, which must not be a link."""
        root = os.path.realpath(self.root)
        target = os.path.realpath(f"{root}/{relative}")
        if target != root and not target.startswith(f"{root}/"):
            raise OSError(errno.EXDEV, "leaves the workspace")
        return os.open(target, flags | os.O_NOFOLLOW, 0o666)


def _parts(path: str) -> list[str]:
    if not path or path.startswith("/") or "\0" in path:
        raise Refused(f"{path!r} is not a path relative to the workspace")
    parts = [part for part in path.split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        raise Refused(f"{path!r} leaves the workspace or names no file")
    return parts


def _openat2(root: int, relative: str, flags: int) -> int:
    # Does not use `kernel.syscalls`: the host also runs this file alone, as a program outside the package.
    import ctypes
    import struct

    how = struct.pack("=QQQ", flags, 0o666 if flags & os.O_CREAT else 0, RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    arguments = (ctypes.c_int(root), os.fsencode(relative), how, ctypes.c_size_t(len(how)))
    for _ in range(TRIES):
        fd = libc.syscall(ctypes.c_long(OPENAT2), *arguments)
        if fd >= 0:
            return fd
        # EAGAIN: something was renamed during the lookup, so it must be repeated.
        if ctypes.get_errno() not in (errno.EAGAIN, errno.EINTR):
            break
    code = ctypes.get_errno()
    raise OSError(code, os.strerror(code))


def _check_regular(fd: int, path: str) -> int:
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        raise Refused(f"{path!r} is not a regular file")
    return status.st_size


def _read(fd: int, path: str, limit: int) -> bytes:
    content = bytearray()
    while chunk := os.read(fd, READ_BYTES):
        content += chunk
        if len(content) > limit:
            raise Refused(f"{path!r} has more than {limit} bytes, the limit")
    return bytes(content)


def _why(path: str, error: OSError) -> str:
    if error.errno in (errno.EXDEV, errno.ELOOP):
        return f"{path!r} leads out of the workspace"
    return f"{path!r}: {os.strerror(error.errno or errno.EIO)}"
