"""Calls that Landlock does not judge, done by a session's init for the program: modes, owners and times of files; signals.

What the program asked for is copied once, looked up once, and done to exactly what was found. So nothing it changes in
the meantime, in its memory or among its files, makes a difference.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress

from ..kernel.processes import descendants, groups_of

RECEIVE, SEND = 0xC0502100, 0xC0182101
NOTICE = struct.Struct("=QII iIQ6Q")
ANSWER = struct.Struct("=QqiI")
GO_ON = 1
"""The kernel does the call itself."""
AT_FDCWD, AT_SYMLINK_NOFOLLOW, AT_EMPTY_PATH = -100, 0x100, 0x1000
SET_ID = 0o6000
TIME_NOW, TIME_OMIT = (1 << 30) - 1, (1 << 30) - 2
PATH_BYTES = 4096
_X86 = os.uname().machine == "x86_64"
_NAMES = {
    **({90: "chmod", 92: "chown", 94: "lchown", 132: "utime", 235: "utimes", 261: "futimesat"} if _X86 else {}),
    91 if _X86 else 52: "fchmod",
    268 if _X86 else 53: "fchmodat",
    452: "fchmodat2",
    93 if _X86 else 55: "fchown",
    260 if _X86 else 54: "fchownat",
    280 if _X86 else 88: "utimensat",
    62 if _X86 else 129: "kill",
    200 if _X86 else 130: "tkill",
    234 if _X86 else 131: "tgkill",
    129 if _X86 else 138: "rt_sigqueueinfo",
    297 if _X86 else 240: "rt_tgsigqueueinfo",
}


class PrivilegedCalls:
    def __init__(self, writable: list[str], folder: str) -> None:
        """Files below these may be changed."""
        self._places = [os.path.realpath(path) for path in (*writable, folder)]

    def serve(self, listener: int) -> None:
        """Answer the one that waits."""
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(listener, RECEIVE, notice)
        except OSError:  # it was interrupted, or is gone
            return
        id_, pid, _, number, _, _, *arguments = NOTICE.unpack(notice)
        failure, flags = 0, 0
        try:
            flags = self._perform(_NAMES.get(number, ""), pid, arguments)
        except OSError as error:
            failure = error.errno or errno.EPERM
        except (ValueError, struct.error):
            failure = errno.EINVAL
        with suppress(OSError):
            fcntl.ioctl(listener, SEND, ANSWER.pack(id_, 0, -failure, flags))

    def _perform(self, name: str, pid: int, args: list[int]) -> int:
        caller = _Caller(pid)
        match name:
            case "chmod":
                self._chmod(caller, AT_FDCWD, args[0], args[1])
            case "fchmod":
                self._chmod(caller, args[0], 0, args[1], AT_EMPTY_PATH)
            case "fchmodat":
                self._chmod(caller, args[0], args[1], args[2])
            case "fchmodat2":
                self._chmod(caller, args[0], args[1], args[2], args[3])
            case "chown" | "lchown":
                flags = AT_SYMLINK_NOFOLLOW if name == "lchown" else 0
                self._chown(caller, AT_FDCWD, args[0], args[1:3], flags)
            case "fchown":
                self._chown(caller, args[0], 0, args[1:3], AT_EMPTY_PATH)
            case "fchownat":
                self._chown(caller, args[0], args[1], args[2:4], args[4])
            case "utimensat":
                flags = args[3] | (0 if args[1] else AT_EMPTY_PATH)
                self._utime(caller, args[0], args[1], flags, caller.times(args[2], 1))
            case "futimesat":
                flags = 0 if args[1] else AT_EMPTY_PATH
                self._utime(caller, args[0], args[1], flags, caller.times(args[2], 1000))
            case "utimes":
                self._utime(caller, AT_FDCWD, args[0], 0, caller.times(args[1], 1000))
            case "kill" | "tkill" | "tgkill" | "rt_sigqueueinfo" | "rt_tgsigqueueinfo":
                return _check_signal(_to_signed(args[0]), thread=name == "tkill")
            case _:
                raise OSError(errno.EPERM, "refused")
        return 0

    def _chmod(self, caller: _Caller, folder: int, path: int, mode: int, flags: int = 0) -> None:
        if mode & SET_ID:
            raise OSError(errno.EPERM, "set-id")
        with self._open_target(caller, folder, path, flags) as place:
            os.chmod(place, mode & 0o1777)

    def _chown(self, caller: _Caller, folder: int, path: int, ids: list[int], flags: int) -> None:
        with self._open_target(caller, folder, path, flags) as place:
            os.chown(place, _to_signed(ids[0]), _to_signed(ids[1]))

    def _utime(self, caller: _Caller, folder: int, path: int, flags: int, times: tuple[int, int] | None) -> None:
        with self._open_target(caller, folder, path, flags) as place:
            if times is None:
                os.utime(place)
                return
            now = os.stat(place)
            accessed, changed = times
            accessed = now.st_atime_ns if accessed == -1 else accessed
            os.utime(place, ns=(accessed, now.st_mtime_ns if changed == -1 else changed))

    @contextmanager
    def _open_target(self, caller: _Caller, folder: int, path: int, flags: int) -> Generator[str]:
        """A file that was looked up, whatever becomes of its name."""
        fd = caller.open(_to_signed(folder), caller.text(path) if path else b"", flags)
        try:
            where = os.readlink(f"/proc/self/fd/{fd}")
            if not any(where == place or where.startswith(place + "/") for place in self._places):
                raise OSError(errno.EPERM, "not the session's to change")
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)


class _Caller:
    """The thread that waits, as seen from outside."""

    def __init__(self, pid: int) -> None:
        self._proc = f"/proc/{pid}"

    def open(self, folder: int, path: bytes, flags: int) -> int:
        how = os.O_PATH | os.O_CLOEXEC
        if not path:
            if folder == AT_FDCWD or not flags & AT_EMPTY_PATH:
                raise OSError(errno.ENOENT, "no path")
            return os.open(f"{self._proc}/fd/{folder}", how)
        if flags & AT_SYMLINK_NOFOLLOW:
            how |= os.O_NOFOLLOW
        start = os.open(f"{self._proc}/cwd" if folder == AT_FDCWD else f"{self._proc}/fd/{folder}", how)
        try:
            return os.open(path, how, dir_fd=start)
        finally:
            os.close(start)

    def text(self, address: int) -> bytes:
        """May end at the end of a page: the next one need not be there."""
        found = b""
        while len(found) < PATH_BYTES and b"\0" not in found:
            here = address + len(found)
            found += self._read(here, 4096 - here % 4096)
        return found.partition(b"\0")[0]

    def times(self, address: int, nanoseconds: int) -> tuple[int, int] | None:
        """Of access and change, in nanoseconds; -1 for one to leave as it is, None where the caller gave none: now."""
        if not address:
            return None
        seconds = struct.unpack("=4q", self._read(address, 32))
        special = {TIME_OMIT: -1, TIME_NOW: time.time_ns()} if nanoseconds == 1 else {}
        accessed, changed = (
            special.get(part, whole * 1_000_000_000 + part * nanoseconds) for whole, part in (seconds[:2], seconds[2:])
        )
        return accessed, changed

    def _read(self, address: int, size: int) -> bytes:
        fd = os.open(f"{self._proc}/mem", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, address)
        finally:
            os.close(fd)


def _check_signal(target: int, *, thread: bool) -> int:
    """Whether it is the session's own; the kernel then sends it."""
    if target == 0:
        return GO_ON
    family = descendants()
    if target < -1:
        allowed = -target in groups_of(family)
    else:
        allowed = target in family or (thread and any(os.path.exists(f"/proc/{pid}/task/{target}") for pid in family))
    if not allowed:
        raise OSError(errno.EPERM, "not a process of the session's")
    return GO_ON


def _to_signed(number: int) -> int:
    """The low half, as the kernel reads an int."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number
