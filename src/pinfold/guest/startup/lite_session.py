"""A lite session: an init that answers for the session's processes, and the runner, which serves cells.

No namespace ends what a program started. So every process of the session is within a Landlock domain of its own, which
bounds whom its init can signal: a signal to everyone is then one to exactly the session. Where the kernel cannot do that,
the init is the subreaper of whatever the program left behind and ends it one by one.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from contextlib import suppress

from ..cells.runner import seed_generators
from ..kernel import syscalls
from ..kernel.groups import times_out_of_memory
from ..kernel.landlock import restrict_init, restrict_runner
from ..kernel.processes import Freezer, descendants, is_quiet, memory_of_tree, threads_of_user
from ..serve import Server
from .init import FILL_BYTES_PER_S
from .messages import MESSAGE_BYTES, Request, describe_error, read_request, send_answer, wake_on_child_exit
from .privileged_calls import PrivilegedCalls
from .session import default_signals, limit_self

LOOK_AGAIN_S = (0.02, 2.0)
COUNT_AGAIN_S = 0.25
"""Root's processes are bounded by nothing but our counting them."""


def become_session(settings: Request, fds: list[int]) -> None:
    """Never returns."""
    try:
        _run_session(settings, fds)
    except BaseException as error:
        os.write(2, f"the session could not be confined: {describe_error(error)}\n".encode())
    finally:
        os._exit(1)


def _run_session(settings: Request, fds: list[int]) -> None:
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
        room = request["processes"] + threads_of_user(os.getuid())
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
    """The zygote: it has our user and is outside, so being refused is proof that the fence stands."""
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
        self._freezer = Freezer(lambda: {*descendants()}, lambda: self._signal_all(signal.SIGSTOP))

    def run(self, word: socket.socket) -> None:
        """Never returns."""
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        wake = wake_on_child_exit()
        _, fds, _, _ = socket.recv_fds(word, 1, 1)
        word.close()
        poll = select.poll()
        for fd in (self._host.fileno(), self._lifeline, wake, *fds):
            poll.register(fd, select.POLLIN)
        self._reap()
        while True:
            for fd, _ in poll.poll(self._poll_timeout()):
                if fd == wake:
                    with suppress(BlockingIOError):
                        os.read(wake, 64)
                    self._reap()
                elif fd in fds:
                    self._errands.serve(fd)
                elif fd == self._lifeline:
                    self._end(-signal.SIGKILL)
                else:
                    self._handle_message()
            self._check_memory()

    def _handle_message(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 2)
        match message:
            case b"interrupt":
                with suppress(ProcessLookupError):
                    os.killpg(self._runner, signal.SIGINT)
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
            case b"leftovers":  # whether anything can run while no cell does
                others = set(descendants()) - {self._runner}
                self._answer(fds, {"running": bool(others) or not is_quiet(self._runner)})
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
        """Everything first, then the word that it has ended."""
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
        for pid in descendants():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    @property
    def _memory(self) -> int:
        """The limit to watch; 0 where a control group does."""
        return self._limit if self._oom_count is None else 0

    def _poll_timeout(self) -> float | None:
        """Milliseconds until the session must be looked at."""
        if not self._memory and not self._processes:
            return None
        return max(0.0, self._next_look - time.monotonic()) * 1000

    def _check_memory(self) -> None:
        now = time.monotonic()
        if now < self._next_look or not (self._memory or self._processes):
            return
        used, count = memory_of_tree(self._memory or 1 << 62)
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
