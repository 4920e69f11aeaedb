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
from collections.abc import Generator
from contextlib import contextmanager, suppress

from .groups import was_out_of_memory
from .kernel import MS_BIND, MS_REC, PR_SET_DUMPABLE, drop_capabilities, mount, open_without_links, prctl
from .memory import memory_of_all
from .requests import MESSAGE_BYTES, Request, read_request
from .root import hang, open_root, read_only, shut_root

EMPTY = "/etc/empty"
CAPABILITIES = (2, 19, 21)
"""To search folders, to see what processes use, to mount: within the session's own namespaces, no further."""
FILL_BYTES_PER_S = 4 << 30
"""Faster than programs take memory here; how soon to look again follows from it."""
LOOK_AGAIN_S = (0.02, 2.0)


class Init:
    def __init__(self, runner: int, control: int, begin: int) -> None:
        self._runner = runner
        self._host = socket.socket(fileno=control)
        self._begin = begin
        self._oom_count: int | None = None
        self._memory = 0
        self._over = False
        self._next_look = 0.0

    def live(self) -> None:
        """Never returns."""
        prctl(PR_SET_DUMPABLE, 0)
        drop_capabilities(CAPABILITIES)
        wake, wake_in = os.pipe()
        for fd in (wake, wake_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _only_wake)
        poll = select.poll()
        poll.register(self._host, select.POLLIN)
        poll.register(wake, select.POLLIN)
        self._rehearse()
        self._reap()
        while True:
            for fd, _ in poll.poll(self._patience()):
                if fd == wake:
                    with suppress(BlockingIOError):
                        os.read(wake, 64)
                    self._reap()
                else:
                    self._hear()
            self._look()

    def _rehearse(self) -> None:
        """Memory shared with the zygote is copied when it is first touched: now rather than while a host waits."""
        attach({"mounts": []}, [])
        guard({"masked": [], "pinned": [], "protected": []})
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs:
            socket.send_fds(ours, [json.dumps({"a": [1]}).encode()], [1])
            message, fds, _, _ = socket.recv_fds(theirs, MESSAGE_BYTES, 64)
            json.loads(message)
            os.close(fds[0])

    def _hear(self) -> None:
        message, fds, _, _ = socket.recv_fds(self._host, MESSAGE_BYTES, 64)
        match message:
            case b"interrupt":
                with suppress(ProcessLookupError):
                    os.killpg(self._runner, signal.SIGINT)
            case b"count":
                self._oom_count = fds[0]
            case b"begin":
                self._start(read_request(fds[0]), fds[1:])
                os.close(fds[0])
            case b"guard":
                self._guard(*fds)
            case _:
                os._exit(0)  # the host is gone

    def _start(self, request: Request, trees: list[int]) -> None:
        try:
            writable = attach(request, trees)
            guard(request)
        except OSError as error:
            os.write(2, f"the session could not begin: {error.filename}: {error.strerror}\n".encode())
            os._exit(1)
        self._memory = request["memory"]
        words = {name: request[name] for name in ("workspace", "limits", "environment")}
        with open(self._begin, "wb") as runner:
            runner.write(json.dumps({**words, "writable": writable}).encode())

    def _guard(self, paper: int, reply: int) -> None:
        """Files that need guarding now; the host waits for the answer."""
        with socket.socket(fileno=reply) as host:
            try:
                guard(read_request(paper))
                answer: Request = {}
            except OSError as error:
                answer = {"error": f"{error.filename}: {error.strerror}"}
            os.close(paper)
            host.send(json.dumps(answer).encode())

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == self._runner:
                self._report(os.waitstatus_to_exitcode(status))

    def _report(self, code: int) -> None:
        if self._oom_count is not None:
            self._over = was_out_of_memory(self._oom_count)
        with suppress(OSError):
            self._host.send(json.dumps({"code": code, "out_of_memory": self._over}).encode())
        os._exit(0)

    def _patience(self) -> float | None:
        """Milliseconds until memory must be looked at."""
        if self._oom_count is not None or not self._memory:
            return None
        return max(0.0, self._next_look - time.monotonic()) * 1000

    def _look(self) -> None:
        if self._oom_count is not None or not self._memory or time.monotonic() < self._next_look:
            return
        used = memory_of_all(self._memory)
        if used > self._memory:
            self._over = True
            os.kill(-1, signal.SIGKILL)
        soonest, latest = LOOK_AGAIN_S
        self._next_look = time.monotonic() + min(
            latest, max(soonest, (self._memory - used) / FILL_BYTES_PER_S)
        )


def attach(request: Request, trees: list[int]) -> list[str]:
    """Hang the mounts in; returns those the program may write to."""
    open_root()
    try:
        for item, tree in zip(request["mounts"], trees, strict=True):
            hang(item["path"], tree, is_folder=item["folder"])
    finally:
        shut_root()
    return [item["path"] for item in request["mounts"] if item["writable"]]


def guard(request: Request) -> None:
    """Hide what is masked behind an empty file, hold what is pinned in its place, make what is protected read-only."""
    for path, device, inode in request["masked"]:
        with _found(path) as place:
            seen = os.stat(place)
            if (seen.st_dev, seen.st_ino) != (device, inode):
                raise OSError(0, "it changed while the session began", path)
            mount(EMPTY, place, None, MS_BIND)
    for path in request["pinned"]:
        with _found(path) as place:
            mount(place, place, None, MS_BIND)
    for path in request["protected"]:
        with _found(path) as place:
            mount(place, place, None, MS_BIND | MS_REC)
        with _found(path) as place:
            read_only(place)


@contextmanager
def _found(path: str) -> Generator[str]:
    """A name for what is there now, whatever the program does to the path: no link on the way is followed."""
    fd = open_without_links(path)
    try:
        yield f"/proc/self/fd/{fd}"
    finally:
        os.close(fd)


def _only_wake(_number: int, _frame: object) -> None:
    """A handler there must be, or the wake-up descriptor is not written to."""
