"""A session's init: attaches mounts, guards files, reaps processes, passes on interrupts, reports the session's end.

It keeps the capability to mount within the session and obeys only the host. It never runs the program's code.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from ..kernel import syscalls
from ..kernel.groups import descendants, memory_in_use, times_out_of_memory
from ..kernel.processes import Freezer, is_quiet, memory_of_all, send_signal
from ..snapshots.copies import BRANCH, COPY_S, FREED, SAVE
from ..snapshots.registry import SnapshotRegistry
from .messages import MESSAGE_BYTES, Events, Request, read_request, send_answer
from .mounts import attach_mounts, guard, mask_in_views, mount_branch_view, open_mount, unmount_branch_view

CAPABILITIES = (2, 19, 21)
"""To search folders, to see what processes use, and to mount; only within the session's own namespaces."""
WRITES_ANY, BINDS_LOW = 1, 10
"""Held until the session begins: to write any file, also while a view is mounted, and to bind the low egress port."""
FILL_BYTES_PER_S = 4 << 30
"""Faster than any program takes memory here; determines when memory must be checked next."""
LOOK_AGAIN_S = (0.02, 2.0)
ROOMY = 0.75
"""The share of the memory limit above which older copies are dropped."""
BACKLOG = 128
RELAY_AGAIN_S = 0.1
"""Pause between two relays, so that a program that kills them cannot keep the init busy."""


class EgressListener:
    """A session's way to the network, seen from inside: a low port on its loopback, which no program inside could bind.

    Forks a relay when a program connects, and a new one if that ends. The constructor needs `BINDS_LOW`.
    """

    def __init__(self, asked: Request, events: Events, relays: set[int]) -> None:
        """`relays`: the set that holds the relay's pid while there is one."""
        self._events = events
        self._relays = relays
        self.again_at: float | None = None
        """When to listen again after a relay has ended."""
        self._path: str = asked["socket"]
        self._filter = bytes.fromhex(asked["filter"])
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", asked["port"]))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)
        self._listen()

    def _listen(self) -> None:
        self.again_at = None
        self._events.watch(self._listener.fileno(), self._open_relay)

    def _open_relay(self) -> None:
        """Fork the relay when the first program connects. From then on the relay accepts connections."""
        self._events.unwatch(self._listener.fileno())
        try:
            relay = syscalls.fork()
        except OSError:  # too many processes at the moment
            self.schedule_listening()
            return
        if relay == 0:
            try:
                from ..tool_calls.egress import run_relay  # imports asyncio, so only when needed

                run_relay(self._listener, self._path, self._filter)
            finally:
                os._exit(0)  # the relay must never go on as an init
        self._relays.add(relay)

    def schedule_listening(self) -> None:
        """Call when the relay has ended."""
        self._relays.clear()
        self.again_at = time.monotonic() + RELAY_AGAIN_S

    def listen_if_due(self) -> None:
        if self.again_at is not None and time.monotonic() >= self.again_at:
            self._listen()


class Init:
    def __init__(self, runner: int, control: int, begin: int, line: socket.socket) -> None:
        self._runner = runner
        """The process that runs cells; 0 after it has ended, until the host says which copy to wake instead."""
        self._candidate = 0
        """A copy that was woken and is not the runner yet."""
        self._state = 0
        """The cell whose state the candidate has."""
        self._branches: dict[int, str] = {}
        """By pid: the mount point of the branch's own files; empty if it has none."""
        self._before_branches: set[int] = set()
        """The processes that ran before the first branch."""
        self._held: tuple[int, ...] = ()
        """Capabilities to enable only while a view is mounted; none if the session can write nothing."""
        self._savers: set[int] = set()
        self._kept = SnapshotRegistry(line, runner)
        self._freezer = Freezer(self._kept.list_processes, lambda: os.kill(-1, signal.SIGSTOP))
        self._way_out: EgressListener | None = None
        self._events = Events()
        self._workspace = ""
        self._places: list[str] = []
        """The mounts that the program may write to."""
        self._closing = False
        self._host = socket.socket(fileno=control)
        self._begin = begin
        self._oom_count: int | None = None
        self._oom_times = 0
        self._used = -1
        """The descriptor of the control group's memory statistics; -1 without a group."""
        self._memory = 0
        self._over = False
        self._next_look = 0.0
        self._requests: dict[bytes, Callable[[Request], Request | None]] = {
            b"guard": self._guard,
            b"wake": self._wake,
            b"take": self._promote_candidate,
            b"since": self._end_since,
            b"save": self._save,
            b"unsave": lambda _: self._drop_savers(),
            b"expect": lambda request: self._kept.expect(request["cell"]),
            b"forget": lambda request: self._kept.keep_only({0, *request["known"]}),
            b"branch": self._branch,
            b"adopt": self._adopt,
            b"reap": lambda _: self._reap(),
            b"freeze": lambda _: {"frozen": self._freezer.freeze()},
            b"thaw": lambda _: self._freezer.thaw(),
            b"leftovers": self._report_leftovers,
        }

    def run(self) -> None:
        """Run until the session ends. Never returns."""
        syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
        syscalls.limit_capabilities(CAPABILITIES)
        syscalls.set_capabilities((WRITES_ANY, BINDS_LOW, *CAPABILITIES))
        self._events.watch(self._host.fileno(), self._handle_message)
        self._events.watch_children(self._reap)
        self._events.watch(self._kept.line.fileno(), self._accept_copies)
        self._reap()
        while True:
            self._events.handle_next(self._poll_timeout())
            self._check_memory()

    def _accept_copies(self) -> None:
        if not self._kept.accept_all():  # all writers are gone, so the line would stay readable
            self._events.unwatch(self._kept.line.fileno())

    def _handle_message(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 64)
        match message:
            case b"interrupt" if self._runner:
                send_signal(-self._runner, signal.SIGINT)
            case b"end" if self._runner:
                # Not its process group, which may still hold a copy it has just left. `_on_runner_exit` ends the rest.
                send_signal(self._runner, signal.SIGKILL)
            case b"interrupt" | b"end":
                pass  # the runner has ended already
            case b"close":
                self._closing = True
                if not self._runner:
                    os._exit(0)
            case b"count":
                self._oom_count, self._used = fds
            case b"begin":
                self._start(read_request(fds[0]), fds[1:])
                os.close(fds[0])
            case b"signal":
                request = read_request(fds[0])
                os.close(fds[0])
                if request["pid"] in self._branches:
                    send_signal(-request["pid"], request["signal"])
            case _ if message in self._requests:
                self._handle_request(self._requests[message], *fds)
            case _:
                os._exit(0)  # the host is gone

    def _handle_request(
        self, handler: Callable[[Request], Request | None], paper: int, reply: int, *given: int
    ) -> None:
        """Answer a request of the host, which waits. Descriptors are in the `fds` of the request and the answer."""
        self._kept.accept_all()
        answer = handler({**read_request(paper), "fds": given}) or {}
        sent: list[int] = answer.pop("fds", [])
        for fd in (paper, *given):
            os.close(fd)
        send_answer(reply, answer, sent)
        for fd in sent:
            os.close(fd)

    def _start(self, request: Request, trees: list[int]) -> None:
        try:
            writable = attach_mounts(request, trees)
            if request.get("egress"):
                self._way_out = EgressListener(request["egress"], self._events, self._kept.reserved)
            self._held = (WRITES_ANY,) if writable else ()
            syscalls.set_capabilities(CAPABILITIES, held=self._held)
            guard(request)
        except OSError as error:
            os.write(2, f"the session could not begin: {error.filename}: {error.strerror}\n".encode())
            os._exit(1)
        self._memory, self._workspace = request["memory"], request["workspace"]
        self._places = [*writable, *request["pinned"]] if writable else []
        words = {name: request[name] for name in ("workspace", "limits", "environment")}
        with open(self._begin, "wb") as runner:
            runner.write(json.dumps({**words, "writable": writable}).encode())

    def _guard(self, request: Request) -> Request:
        """Guard the files that need it now."""
        answer: Request = {}
        for kind in ("masked", "pinned", "protected"):
            for item in request[kind]:
                try:  # one by one, so that a missing file does not stop the others
                    guard({"masked": [], "pinned": [], "protected": [], kind: [item]})
                except OSError as error:
                    answer = {"error": f"{error.filename}: {error.strerror}"}
        for path, _, inode in request["masked"]:
            mask_in_views(self._branches.values(), self._workspace, path, inode)
        return answer

    def _report_leftovers(self, _: Request) -> Request:
        """Report whether any process other than copies can run while no cell does."""
        self._reap()
        self._kept.accept_all()
        ours = {os.getpid(), self._runner} | self._processes_to_keep() | self._kept.pids
        others = self._kept.list_processes() - ours
        return {"running": bool(others) or not is_quiet(self._runner)}

    def _branch(self, request: Request) -> Request:
        """Wake a copy to run alongside the runner. The workspace is read-only meanwhile, because all of them share it.

        `now`: the copy is of a running cell and about to be reported. `view`: where to mount the branch's own files.
        """
        answer: Request = {}
        view, given, place = request["view"], list[int](), ""
        try:
            if not self._branches:
                self._lock_places()
                self._before_branches = self._kept.list_processes()
            if request["now"]:
                self._kept.await_snapshot(request["cells"][0], COPY_S)
            if view and self._kept.last_of(request["cells"]):
                place, given = view["place"], self._mount_view(view)
            copy = self._kept.wake(request["cells"], [*request["fds"], *given[:1]], BRANCH if request["now"] else FREED)
            if copy:
                pidfd = os.pidfd_open(copy.pid)
                self._branches[copy.pid] = place
                answer = {"cell": copy.cell, "pid": copy.pid, "threads": copy.threads, "fds": [pidfd, *given[1:]]}
        except OSError as error:
            answer = {"error": f"{error.filename or 'the workspace'}: {error.strerror}"}
        for fd in given if "cell" not in answer else given[:1]:
            os.close(fd)
        if not answer.get("cell") and place and place not in self._branches.values():
            unmount_branch_view(place)
        if not self._branches:
            self._unlock_places()
        return answer

    def _mount_view(self, view: Request) -> list[int]:
        # Until the secrets in the view are masked, running processes could read them. What the host froze stays frozen.
        freezer = Freezer(self._kept.list_processes, lambda: os.kill(-1, signal.SIGSTOP))
        with freezer.hold_still(view["workspace"]):
            syscalls.set_capabilities((WRITES_ANY, *CAPABILITIES))
            try:
                return [*mount_branch_view(view)]
            finally:
                syscalls.set_capabilities(CAPABILITIES, held=self._held)

    def _adopt(self, request: Request) -> None:
        """Make a branch the runner and end everything else."""
        self._runner = self._kept.runner = request["pid"]
        self._forget_branches()
        self._kept.end_all_but({self._runner} | self._kept.reserved)
        self._unlock_places()

    def _forget_branches(self) -> None:
        for place in self._branches.values():
            unmount_branch_view(place)
        self._branches = {}

    def _lock_places(self) -> None:
        """Make the places read-only. Raises OSError if a file is open for writing, and then undoes what it did."""
        for path in self._places:
            try:
                with open_mount(path) as tree:
                    syscalls.set_mount_attributes(tree, syscalls.ATTR_RDONLY)
            except OSError as error:
                self._unlock_places()
                raise OSError(error.errno, "a file there is open for writing", path) from error

    def _unlock_places(self) -> None:
        for path in self._places:
            with open_mount(path) as tree:
                syscalls.set_mount_attributes(tree, 0, cleared=syscalls.ATTR_RDONLY)

    def _wake(self, request: Request) -> Request:
        """Wake a copy while the runner keeps running, so that nothing is lost if the copy fails.

        With `whole`, wakes only a copy that lacks no threads.
        """
        self._kept.keep_only({0, *request["known"]})
        if self._candidate:
            send_signal(self._candidate, signal.SIGKILL)
        copy = self._kept.last_of(request["cells"])
        is_wanted = copy is not None and not (copy.threads and request["whole"])
        if is_wanted:
            copy = self._kept.wake(request["cells"], request["fds"])
        self._candidate = copy.pid if copy and is_wanted else 0
        self._state = copy.cell if copy else 0
        return {"cell": copy.cell, "threads": copy.threads, "woken": is_wanted} if copy else {}

    def _promote_candidate(self, _: Request) -> None:
        """Make the woken copy the runner, and end all that the old runner started.

        The copy that it left in its place is already registered.
        """
        self._runner = self._kept.runner = self._candidate
        self._candidate = 0
        self._kept.end_all_but({self._runner} | self._processes_to_keep())
        self._kept.hold_after(self._state)

    def _end_since(self, request: Request) -> Request:
        """End the processes started since the one with this pid, except the runner and those it did not start."""
        return {"ended": self._kept.end_from(request["pid"], {self._runner} | self._processes_to_keep())}

    def _save(self, request: Request) -> Request:
        """Have a copy send its variables to the host. It leaves another copy of the same state in its place."""
        copy = self._kept.last_of(request["cells"])
        if copy and copy.cell not in request["known"]:
            copy = self._kept.wake(request["cells"], request["fds"], SAVE)
            if copy:
                self._savers.add(copy.pid)
                self._kept.await_snapshot(copy.cell)
        return {"cell": copy.cell} if copy else {}

    def _drop_savers(self) -> None:
        for pid in self._savers:
            send_signal(pid, signal.SIGKILL)
        self._savers = set()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self._kept.accept_all()  # its last messages
            was_copy = self._kept.forget_process(pid)
            if pid == self._runner:
                self._on_runner_exit(os.waitstatus_to_exitcode(status))
            elif pid == self._candidate:
                self._candidate = 0
            elif self._way_out is not None and pid in self._kept.reserved:
                self._way_out.schedule_listening()
            elif pid in self._branches:
                unmount_branch_view(self._branches.pop(pid))
                if not self._branches:
                    # The workspace becomes writable again, so end what branches have left running.
                    self._kept.end_orphans(self._before_branches | self._processes_to_keep() | {self._runner})
                    self._unlock_places()
            elif pid in self._savers:
                self._savers.discard(pid)
                self._is_killed_for_memory()  # updates the count, so that this kill is not blamed on the next process
            elif was_copy:
                self._is_killed_for_memory()  # for the same reason

    def _on_runner_exit(self, code: int) -> None:
        """Handle the runner's end: end what it started and report to the host, which decides which state to wake."""
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
        """Return branches with their descendants, savers, the relay, and the copy that is about to be the runner."""
        theirs = {one for pid in self._branches for one in descendants(pid)}
        return {*self._branches} | theirs | self._savers | self._kept.reserved | ({self._candidate} - {0})

    def _is_killed_for_memory(self) -> bool:
        """Return True if the kernel has killed a process for lack of memory since the last call."""
        if self._oom_count is None:
            return False
        before, self._oom_times = self._oom_times, times_out_of_memory(self._oom_count)
        return self._oom_times > before

    @property
    def _watches_memory(self) -> bool:
        """True if memory must be checked here: even with a control group, older copies must be dropped in time."""
        is_bounded = self._oom_count is not None
        return bool(self._memory) and (not is_bounded or len(self._kept.cells) > 1 or bool(self._savers))

    def _poll_timeout(self) -> float:
        """Return the seconds until the next check; -1 if there is none."""
        looks = [self._next_look] if self._watches_memory else []
        if self._way_out is not None and self._way_out.again_at is not None:
            looks.append(self._way_out.again_at)
        return max(0.0, min(looks) - time.monotonic()) if looks else -1

    def _check_memory(self) -> None:
        if self._way_out is not None:
            self._way_out.listen_if_due()
        if not self._watches_memory or time.monotonic() < self._next_look:
            return
        if self._oom_count is None:
            used, enough = memory_of_all(self._memory), self._memory
        else:
            used, enough = memory_in_use(self._used), int(self._memory * ROOMY)
        had_savers = bool(self._savers)
        if used > enough:
            self._drop_savers()
        if used > enough and not had_savers and not self._kept.drop_oldest() and self._oom_count is None:
            self._over = True
            self._kept.end_all_but(self._kept.reserved)
            self._forget_branches()
            self._unlock_places()
            if self._runner:
                self._on_runner_exit(-signal.SIGKILL)
        soonest, latest = LOOK_AGAIN_S
        self._next_look = time.monotonic() + min(latest, max(soonest, (enough - used) / FILL_BYTES_PER_S))
