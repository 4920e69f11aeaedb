"""A lite session: an init that manages the session's processes, and the runner, which serves cells.

There is no namespace whose end would end all processes. Instead every process of the session is in one Landlock domain,
which limits whom the init can signal: a signal to everyone then reaches exactly the session. Where the kernel cannot do
that, the init is the subreaper of the processes that the program leaves behind, and ends them one by one.

The init performs calls that Landlock does not cover (modes, owners and times of files; signals). It copies the
arguments once, looks the file up once, and acts on exactly that file, so changes that the program makes meanwhile, in
its memory or its files, have no effect.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import socket
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import partial

from ..cells.runner import seed_generators
from ..kernel import processes, syscalls
from ..kernel.groups import times_out_of_memory
from ..kernel.landlock import restrict_init, restrict_runner
from ..serve import Server
from .init import FILL_BYTES_PER_S
from .messages import MESSAGE_BYTES, Events, Request, read_request, send_answer
from .session import default_signals, limit_self

RECEIVE, SEND = 0xC0502100, 0xC0182101
NOTICE = struct.Struct("=QII iIQ6Q")
ANSWER = struct.Struct("=QqiI")
GO_ON = 1
"""The flag that lets the kernel perform the call itself."""
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
        """Allow changes to files below `writable` and `folder`."""
        self._places = [os.path.realpath(path) for path in (*writable, folder)]

    def serve(self, listener: int) -> None:
        """Answer the thread that waits."""
        notice = bytearray(NOTICE.size)
        try:
            fcntl.ioctl(listener, RECEIVE, notice)
        except OSError:  # the caller was interrupted or is gone
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
        """Look a file up and yield a path that leads to exactly that file, even if its name changes."""
        fd = caller.open(_to_signed(folder), caller.text(path) if path else b"", flags)
        try:
            where = os.readlink(f"/proc/self/fd/{fd}")
            if not any(where == place or where.startswith(place + "/") for place in self._places):
                raise OSError(errno.EPERM, "not the session's to change")
            yield f"/proc/self/fd/{fd}"
        finally:
            os.close(fd)


class _Caller:
    """The waiting thread: its open files and memory, read through /proc."""

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
        """Read a NUL-terminated string. Reads page by page, because the next page may not be mapped."""
        found = b""
        while len(found) < PATH_BYTES and b"\0" not in found:
            here = address + len(found)
            found += self._read(here, 4096 - here % 4096)
        return found.partition(b"\0")[0]

    def times(self, address: int, nanoseconds: int) -> tuple[int, int] | None:
        """Return access and change time in nanoseconds, -1 for "leave as is". None if the caller gave none: use now."""
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
    """Return `GO_ON`, so that the kernel sends the signal, if the target is in the session. Raises OSError if not."""
    if target == 0:
        return GO_ON
    family = processes.descendants()
    if target < -1:
        allowed = -target in processes.groups_of(family)
    else:
        allowed = target in family or (thread and any(os.path.exists(f"/proc/{pid}/task/{target}") for pid in family))
    if not allowed:
        raise OSError(errno.EPERM, "not a process of the session's")
    return GO_ON


def _to_signed(number: int) -> int:
    """Return the low 32 bits as a signed number, as the kernel reads an int."""
    number &= 0xFFFFFFFF
    return number - (1 << 32) if number & 0x80000000 else number


LOOK_AGAIN_S = (0.02, 2.0)
COUNT_AGAIN_S = 0.25
"""How often to count root's processes, which no kernel limit applies to."""


def run_session(settings: Request, fds: list[int]) -> None:
    sheet, gate, channel, stdout, stderr, control = fds
    request = read_request(sheet)
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    syscalls.close_all_but(gate, channel, control, settings["lifeline"])
    if not os.read(gate, 1):
        os._exit(0)
    os.close(gate)
    syscalls.prctl(syscalls.PR_SET_CHILD_SUBREAPER, 1)
    zygote = os.getppid()
    bounded = restrict_init(settings) and not _can_signal(zygote)
    if request["limits"].pop("NPROC", 0) and os.getuid():
        room = request["processes"] + processes.threads_of_user(os.getuid())
        request["limits"]["NPROC"] = room
    ours, theirs = socket.socketpair()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    runner = os.fork()
    if runner:
        os.close(channel)
        theirs.close()
        init = _Init(runner, control, settings, request, bounded=bounded)
        init.run(ours)
    for fd in (control, settings["lifeline"]):
        os.close(fd)
    ours.close()
    _run_runner(settings, request, channel, theirs)


def _can_signal(pid: int) -> bool:
    """Try a signal to the zygote: same user, but outside the domain, so a refusal proves that the limit works."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return False
    except ProcessLookupError:
        pass
    return True


class _Init:
    def __init__(self, runner: int, control: int, settings: Request, request: Request, *, bounded: bool) -> None:
        self._runner = runner
        self._host = socket.socket(fileno=control)
        self._lifeline: int = settings["lifeline"]
        self._limit: int = request["memory"]
        self._processes: int = 0 if os.getuid() else request["processes"]
        self._bounded = bounded
        self._oom_count: int | None = None
        self._over = False
        self._next_look = 0.0
        self._errands = PrivilegedCalls(settings["writable"], request["folder"])
        self._freezer = processes.Freezer(lambda: {*processes.descendants()}, lambda: self._signal_all(signal.SIGSTOP))

    def run(self, word: socket.socket) -> None:
        """Run until the session ends. Never returns."""
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        _, fds, _, _ = socket.recv_fds(word, 1, 1)
        word.close()
        events = Events()
        events.watch_children(self._reap)
        events.watch(self._host.fileno(), self._handle_message)
        events.watch(self._lifeline, lambda: self._end(-signal.SIGKILL))
        for fd in fds:  # empty if the runner has ended already
            events.watch(fd, partial(self._errands.serve, fd))
        self._reap()
        while True:
            events.handle_next(self._poll_timeout())
            self._check_memory()

    def _handle_message(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 2)
        match message:
            case b"interrupt":
                processes.send_signal(-self._runner, signal.SIGINT)
            case b"count":
                self._oom_count = fds[0]
            case b"reap":
                self._reap()
                self._answer(fds, {})
            case b"freeze":
                self._answer(fds, {"frozen": self._freezer.freeze()})
            case b"thaw":
                self._freezer.thaw()
                self._answer(fds, {})
            case b"leftovers":  # asks if any process can run while no cell does
                others = set(processes.descendants()) - {self._runner}
                self._answer(fds, {"running": bool(others) or not processes.is_quiet(self._runner)})
            case _:
                self._end(-signal.SIGKILL)

    @staticmethod
    def _answer(fds: list[int], words: Request) -> None:
        paper, reply = fds
        os.close(paper)
        send_answer(reply, words)

    def _reap(self) -> None:
        with suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                if pid == self._runner:
                    self._end(os.waitstatus_to_exitcode(status))

    def _end(self, code: int) -> None:
        """End every process of the session, then report the end to the host."""
        with suppress(ChildProcessError):
            while True:
                self._signal_all(signal.SIGKILL)
                os.waitpid(-1, 0)
        if self._oom_count is not None:
            self._over = self._over or times_out_of_memory(self._oom_count) > 0
        with suppress(OSError):
            self._host.send(json.dumps({"code": code, "out_of_memory": self._over}).encode())
        os._exit(0)

    def _signal_all(self, number: int) -> None:
        with suppress(ProcessLookupError):
            if self._bounded:
                os.kill(-1, number)
                return
        for pid in processes.descendants():
            processes.send_signal(pid, number)

    @property
    def _memory(self) -> int:
        """The memory limit to enforce here; 0 if a control group does."""
        return self._limit if self._oom_count is None else 0

    def _poll_timeout(self) -> float:
        """Return the seconds until the next check; -1 if there is none."""
        if not self._memory and not self._processes:
            return -1
        return max(0.0, self._next_look - time.monotonic())

    def _check_memory(self) -> None:
        now = time.monotonic()
        if now < self._next_look or not (self._memory or self._processes):
            return
        used, count = processes.memory_of_tree(self._memory or 1 << 62)
        if self._memory and used > self._memory:
            self._over = True
            self._signal_all(signal.SIGKILL)
        elif self._processes and count > self._processes:
            self._signal_all(signal.SIGKILL)
        soonest, latest = LOOK_AGAIN_S
        latest = COUNT_AGAIN_S if self._processes else latest
        room_s = (self._memory - used) / FILL_BYTES_PER_S if self._memory else latest
        self._next_look = now + min(latest, max(soonest, room_s))


def _run_runner(settings: Request, request: Request, channel: int, word: socket.socket) -> None:
    os.setsid()
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)
    os.environ.clear()
    os.environ.update({**request["environment"], "HOME": request["folder"], "TMPDIR": request["folder"]})
    default_signals()
    seed_generators()
    for name, limit in request["limits"].items():
        limit_self(name, limit)
    os.chdir(settings["workspace"])
    restrict_runner(settings, request["folder"])
    listener = syscalls.seccomp(bytes.fromhex(settings["filter"]), listen=True)
    socket.send_fds(word, [b"1"], [listener])
    os.close(listener)
    word.close()
    Server(channel).serve()
    os._exit(0)
