"""A session's init: puts its mounts in, guards its files, reaps, passes on interrupts, and reports the end.

It keeps the power to mount within the session and hears only the host. It never runs the program's code.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from ..kernel.groups import descendants, memory_in_use, times_out_of_memory
from ..kernel.memory import memory_of_all
from ..kernel.process_tree import is_quiet
from ..kernel.syscalls import (
    ATTR_RDONLY,
    PR_SET_DUMPABLE,
    limit_capabilities,
    prctl,
    set_capabilities,
    set_mount_attributes,
)
from ..snapshots.copies import SAVE
from ..snapshots.freezer import Freezer
from ..snapshots.registry import SnapshotRegistry
from ..tool_calls.egress import EgressListener
from .requests import MESSAGE_BYTES, Request, read_request
from .session_mounts import attach_mounts, guard, open_mount

CAPABILITIES = (2, 19, 21)
"""To search folders, to see what processes use, to mount: within the session's own namespaces, no further."""
WRITES_ANY, BINDS_LOW = 1, 10
"""Until the session begins: a view writes its files with the power it was mounted with; the way out has a low port."""
FILL_BYTES_PER_S = 4 << 30
"""Faster than programs take memory here; how soon to look again follows from it."""
LOOK_AGAIN_S = (0.02, 2.0)
ROOMY = 0.75
"""Of the limit: above it older copies go."""


class Init:
    def __init__(self, runner: int, control: int, begin: int, line: socket.socket) -> None:
        self._runner = runner
        """What answers cells; 0 when it has ended and the host has not said yet what is to be woken in its place."""
        self._candidate = 0
        """A copy that was woken and is not the runner yet."""
        self._state = 0
        """The cell whose state that one is."""
        self._branches: set[int] = set()
        self._savers: set[int] = set()
        self._kept = SnapshotRegistry(line, runner)
        self._freezer = Freezer(self._kept.list_processes, lambda: os.kill(-1, signal.SIGSTOP))
        self._way_out: EgressListener | None = None
        self._poll = select.poll()
        self._places: list[str] = []
        """Mounts the program may write to."""
        self._closing = False
        self._host = socket.socket(fileno=control)
        self._begin = begin
        self._oom_count: int | None = None
        self._oom_times = 0
        self._used = -1
        """Tells how much memory the session's control group uses, where it has one."""
        self._memory = 0
        self._over = False
        self._next_look = 0.0
        self._requests: dict[bytes, Callable[..., None]] = {
            b"guard": self._guard,
            b"wake": self._wake,
            b"take": self._promote_candidate,
            b"since": self._end_since,
            b"save": self._save,
            b"unsave": self._end_savers,
            b"expect": self._expect,
            b"forget": self._forget,
            b"branch": self._branch,
            b"signal": self._signal_branch,
            b"adopt": self._adopt,
            b"reap": self._reap_now,
            b"freeze": self._freeze,
            b"thaw": self._thaw,
            b"leftovers": self._report_leftovers,
        }

    def run(self) -> None:
        """Never returns."""
        prctl(PR_SET_DUMPABLE, 0)
        limit_capabilities(CAPABILITIES)
        set_capabilities((WRITES_ANY, BINDS_LOW, *CAPABILITIES))
        wake, wake_in = os.pipe()
        for fd in (wake, wake_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _ignore_signal)
        for source in (self._host, wake, self._kept.line):
            self._poll.register(source, select.POLLIN)
        self._reap()
        while True:
            for fd, _ in self._poll.poll(self._poll_timeout()):
                if fd == wake:
                    with suppress(BlockingIOError):
                        os.read(wake, 64)
                    self._reap()
                elif fd == self._kept.line.fileno():
                    if not self._kept.accept_all():  # nobody is left to say anything, which poll would tell for ever
                        self._poll.unregister(fd)
                elif self._way_out is not None and fd == self._way_out.fileno():
                    self._start_relay(self._way_out)
                else:
                    self._handle_message()
            self._check_memory()

    def _handle_message(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 64)
        match message:
            case b"interrupt":
                self._interrupt_group()
            case b"end":
                self._end_runner()
            case b"close":
                self._closing = True
                if not self._runner:
                    os._exit(0)
            case b"count":
                self._oom_count, self._used = fds
            case b"begin":
                self._start(read_request(fds[0]), fds[1:])
                os.close(fds[0])
            case _:
                handler = self._requests.get(message)
                if handler is None:
                    os._exit(0)  # the host is gone
                handler(*fds)

    def _start(self, request: Request, trees: list[int]) -> None:
        try:
            writable = attach_mounts(request, trees)
            if request.get("egress"):
                self._way_out = EgressListener(request["egress"])
                self._poll.register(self._way_out, select.POLLIN)
            set_capabilities(CAPABILITIES)
            guard(request)
        except OSError as error:
            os.write(2, f"the session could not begin: {error.filename}: {error.strerror}\n".encode())
            os._exit(1)
        self._memory = request["memory"]
        self._places = [*writable, *request["pinned"]] if writable else []
        words = {name: request[name] for name in ("workspace", "limits", "environment")}
        with open(self._begin, "wb") as runner:
            runner.write(json.dumps({**words, "writable": writable}).encode())

    def _start_relay(self, way_out: EgressListener) -> None:
        """Somebody wants out: from now on a relay listens."""
        self._poll.unregister(way_out)
        way_out.open_relay()
        self._kept.reserved = self._relays

    @property
    def _relays(self) -> set[int]:
        return {self._way_out.relay} - {0} if self._way_out is not None else set()

    def _guard(self, paper: int, reply: int) -> None:
        """Files that need guarding now; the host waits for the answer."""
        request = read_request(paper)
        answer: Request = {}
        for kind in ("masked", "pinned", "protected"):
            for item in request[kind]:
                try:  # each alone: one that is gone must not stop the others
                    guard({"masked": [], "pinned": [], "protected": [], kind: [item]})
                except OSError as error:
                    answer = {"error": f"{error.filename}: {error.strerror}"}
        os.close(paper)
        _answer(reply, answer)

    def _report_leftovers(self, paper: int, reply: int) -> None:
        """Whether anything but copies can run while no cell does."""
        os.close(paper)
        self._reap()
        self._kept.accept_all()
        ours = {os.getpid(), self._runner} | self._processes_to_keep() | self._kept.pids
        others = self._kept.list_processes() - ours
        _answer(reply, {"running": bool(others) or not is_quiet(self._runner)})

    def _expect(self, paper: int, reply: int) -> None:
        """The host will have the runner leave a copy of this state."""
        self._kept.expect(read_request(paper)["cell"])
        os.close(paper)
        _answer(reply, {})

    def _forget(self, paper: int, reply: int) -> None:
        """States that nobody can go to any more."""
        self._kept.accept_all()
        self._kept.keep_only({0, *read_request(paper)["known"]})
        os.close(paper)
        _answer(reply, {})

    def _branch(self, paper: int, reply: int, *given: int) -> None:
        """Wake a copy to live beside the runner. Meanwhile nobody may write to the workspace: it is one for all of them."""
        self._kept.accept_all()
        answer, pidfd = {}, []
        try:
            if not self._branches:
                self._lock_places()
            copy = self._kept.wake(read_request(paper)["cells"], list(given))
            if copy:
                pidfd = [os.pidfd_open(copy.pid)]
                self._branches.add(copy.pid)
                answer = {"cell": copy.cell, "pid": copy.pid, "threads": copy.threads}
        except OSError as error:
            answer = {"error": f"{error.filename or 'the workspace'}: {error.strerror}"}
        if not self._branches:
            self._unlock_places()
        _answer(reply, answer, pidfd)
        for fd in (paper, *given, *pidfd):
            os.close(fd)

    def _signal_branch(self, paper: int) -> None:
        request = read_request(paper)
        os.close(paper)
        if request["pid"] in self._branches:
            with suppress(ProcessLookupError):
                os.killpg(request["pid"], request["signal"])

    def _adopt(self, paper: int, reply: int) -> None:
        """A branch is the runner from now on; everything else ends."""
        self._kept.accept_all()
        self._runner = self._kept.runner = read_request(paper)["pid"]
        os.close(paper)
        self._branches.clear()
        self._kept.end_all_but({self._runner} | self._relays)
        self._unlock_places()
        _answer(reply, {})

    def _reap_now(self, paper: int, reply: int) -> None:
        """Whoever hears the answer knows that what has ended is known here."""
        os.close(paper)
        self._reap()
        _answer(reply, {})

    def _freeze(self, paper: int, reply: int) -> None:
        """Stop all of the program's processes until `thaw`; copies stand still anyway, and stay so."""
        os.close(paper)
        self._kept.accept_all()
        _answer(reply, {"frozen": self._freezer.freeze()})

    def _thaw(self, paper: int, reply: int) -> None:
        os.close(paper)
        self._freezer.thaw()
        _answer(reply, {})

    def _lock_places(self) -> None:
        """Raises OSError where something is open for writing; then all is as it was."""
        for path in self._places:
            try:
                with open_mount(path) as tree:
                    set_mount_attributes(tree, ATTR_RDONLY)
            except OSError as error:
                self._unlock_places()
                raise OSError(error.errno, "a file there is open for writing", path) from error

    def _unlock_places(self) -> None:
        for path in self._places:
            with open_mount(path) as tree:
                set_mount_attributes(tree, 0, cleared=ATTR_RDONLY)

    def _interrupt_group(self) -> None:
        if self._runner:
            with suppress(ProcessLookupError):
                os.killpg(self._runner, signal.SIGINT)

    def _end_runner(self) -> None:
        """What it started ends once it is known to have ended: a copy that it has just left is still in its group."""
        if self._runner:
            with suppress(ProcessLookupError):
                os.kill(self._runner, signal.SIGKILL)

    def _wake(self, paper: int, reply: int, *given: int) -> None:
        """Wake a copy, beside what runs: should it not come to life, nothing is lost. If asked, only one without threads."""
        self._kept.accept_all()
        request = read_request(paper)
        self._kept.keep_only({0, *request["known"]})
        if self._candidate:
            with suppress(ProcessLookupError):
                os.kill(self._candidate, signal.SIGKILL)
        copy = self._kept.last_of(request["cells"])
        is_wanted = copy is not None and not (copy.threads and request["whole"])
        if is_wanted:
            copy = self._kept.wake(request["cells"], list(given))
        for fd in (paper, *given):
            os.close(fd)
        self._candidate = copy.pid if copy and is_wanted else 0
        self._state = copy.cell if copy else 0
        answer = {"cell": copy.cell, "threads": copy.threads, "woken": is_wanted} if copy else {}
        _answer(reply, answer)

    def _promote_candidate(self, paper: int, reply: int) -> None:
        """The woken copy is the runner from now on, and all that the other one started ends."""
        os.close(paper)
        self._kept.accept_all()  # the copy it has left in its own place must be known by now
        self._runner = self._kept.runner = self._candidate
        self._candidate = 0
        self._kept.end_all_but({self._runner} | self._processes_to_keep())
        self._kept.hold_after(self._state)
        _answer(reply, {})

    def _end_since(self, paper: int, reply: int) -> None:
        """End what was started since a process got this number; the runner stays, and what is not its doing."""
        self._kept.accept_all()
        first = read_request(paper)["pid"]
        os.close(paper)
        _answer(reply, {"ended": self._kept.end_from(first, {self._runner} | self._processes_to_keep())})

    def _save(self, paper: int, reply: int, given: int) -> None:
        """Have a copy tell `given` what its variables are made of; another of the same state takes its place."""
        self._kept.accept_all()
        request = read_request(paper)
        copy = self._kept.last_of(request["cells"])
        if copy and copy.cell not in request["known"]:
            copy = self._kept.wake(request["cells"], [given], SAVE)
            if copy:
                self._savers.add(copy.pid)
                self._kept.await_snapshot(copy.cell)
        os.close(paper)
        os.close(given)
        _answer(reply, {"cell": copy.cell} if copy else {})

    def _end_savers(self, paper: int, reply: int) -> None:
        os.close(paper)
        self._drop_savers()
        _answer(reply, {})

    def _drop_savers(self) -> bool:
        """Whether there were any."""
        savers, self._savers = self._savers, set()
        for pid in savers:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return bool(savers)

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._kept.accept_all()  # what it said last
            was_copy = self._kept.forget_process(pid)
            if pid == self._runner:
                self._on_runner_exit(os.waitstatus_to_exitcode(status))
            elif pid == self._candidate:
                self._candidate = 0
            elif self._way_out is not None and pid == self._way_out.relay:
                self._way_out.schedule_listening()
                self._kept.reserved = set()
            elif pid in self._branches:
                self._branches.discard(pid)
                if not self._branches:
                    self._unlock_places()
            elif pid in self._savers:
                self._savers.discard(pid)
                self._is_killed_for_memory()  # that one was meant, not the next
            elif was_copy:
                self._is_killed_for_memory()  # the same

    def _on_runner_exit(self, code: int) -> None:
        """The runner has. With it ends what it started; the host decides which state is woken, if there is one."""
        self._runner = 0
        self._over = self._over or self._is_killed_for_memory()
        self._kept.accept_all()
        cells = [] if self._closing else self._kept.cells
        if cells:
            self._kept.end_all_but(self._processes_to_keep())
        report = {"code": code, "out_of_memory": self._over, "cells": cells}
        self._over = False
        with suppress(OSError):
            self._host.send(json.dumps(report).encode())
        if not cells:
            os._exit(0)

    def _processes_to_keep(self) -> set[int]:
        """Branches, with what they have started, savers, a relay, and a copy that is about to be the runner."""
        theirs = {one for pid in self._branches for one in descendants(pid)}
        return self._branches | theirs | self._savers | self._relays | ({self._candidate} - {0})

    def _is_killed_for_memory(self) -> bool:
        """Whether the kernel has ended a process for it since this was asked last."""
        if self._oom_count is None:
            return False
        before, self._oom_times = self._oom_times, times_out_of_memory(self._oom_count)
        return self._oom_times > before

    @property
    def _watches_memory(self) -> bool:
        """A control group bounds the session by itself; but older copies must make room before anything is ended."""
        is_bounded = self._oom_count is not None
        return bool(self._memory) and (not is_bounded or len(self._kept.cells) > 1 or bool(self._savers))

    def _poll_timeout(self) -> float | None:
        """Milliseconds until there is something to look at."""
        looks = [self._next_look] if self._watches_memory else []
        if self._way_out is not None and self._way_out.again_at is not None:
            looks.append(self._way_out.again_at)
        return max(0.0, min(looks) - time.monotonic()) * 1000 if looks else None

    def _check_memory(self) -> None:
        if self._way_out is not None and self._way_out.is_due():
            self._poll.register(self._way_out, select.POLLIN)
        if not self._watches_memory or time.monotonic() < self._next_look:
            return
        if self._oom_count is None:
            used, enough = memory_of_all(self._memory), self._memory
        else:
            used, enough = memory_in_use(self._used), int(self._memory * ROOMY)
        makes_room = used > enough and (self._drop_savers() or self._kept.drop_oldest())
        if used > enough and not makes_room and self._oom_count is None:
            self._over = True
            self._kept.end_all_but(self._relays)
            self._branches.clear()
            self._unlock_places()
            if self._runner:
                self._on_runner_exit(-signal.SIGKILL)
        soonest, latest = LOOK_AGAIN_S
        self._next_look = time.monotonic() + min(latest, max(soonest, (enough - used) / FILL_BYTES_PER_S))


def _answer(reply: int, words: Request, fds: list[int] | None = None) -> None:
    with socket.socket(fileno=reply) as host, suppress(OSError):  # it no longer waits
        socket.send_fds(host, [json.dumps(words).encode()], fds or [])


def _ignore_signal(_number: int, _frame: object) -> None:
    """A handler there must be, or the wake-up descriptor is not written to."""
