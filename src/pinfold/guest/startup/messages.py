"""Messages between host, launchers, zygotes and inits, and their event loop. Only the trusted host sends requests."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

MESSAGE_BYTES = 1 << 16
Request = dict[str, Any]


def read_request(fd: int) -> Request:
    """Read a request, which is JSON in a file of its own."""
    return json.loads(os.pread(fd, os.fstat(fd).st_size, 0))


def send_answer(reply: int, words: Request, fds: Sequence[int] = ()) -> None:
    """Send an answer and close `reply`."""
    with socket.socket(fileno=reply) as peer, suppress(OSError):  # the peer no longer waits
        socket.send_fds(peer, [json.dumps(words).encode()], fds)


def describe_error(error: BaseException, what: str = "") -> str:
    name = getattr(error, "filename", None) or what or type(error).__name__
    return f"{name}: {getattr(error, 'strerror', None) or error}"


class Events:
    """An event loop: file descriptors, each with the function to call when it is readable."""

    def __init__(self) -> None:
        self._poll = select.epoll()
        self._handlers: dict[int, Callable[[], None]] = {}

    def watch(self, fd: int, handler: Callable[[], None]) -> None:
        self._handlers[fd] = handler
        self._poll.register(fd, select.EPOLLIN)

    def watch_children(self, handler: Callable[[], None]) -> None:
        """Call `handler` when a child has ended."""
        wake, wake_in = os.pipe()
        for fd in (wake, wake_in):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)  # without a handler the pipe gets no byte

        def on_wake() -> None:
            with suppress(BlockingIOError):
                os.read(wake, 64)
            handler()

        self.watch(wake, on_wake)

    def unwatch(self, fd: int) -> None:
        if self._handlers.pop(fd, None):
            self._poll.unregister(fd)

    def handle_next(self, timeout_s: float) -> None:
        # One event at a time: a descriptor that is closed and reused must not get an event of the old one.
        for fd, _ in self._poll.poll(timeout_s, 1):
            self._handlers[fd]()


def serve_host(fd: int, name: str, serve: Callable[[socket.socket, Request], None]) -> None:
    """Read the settings that the host sends first, and serve the host until it is gone. Reports failures to it."""
    host = socket.socket(fileno=fd)
    os.set_inheritable(host.fileno(), False)
    settings = json.loads(host.recv(1 << 20))
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    try:
        serve(host, settings)
    except OSError as error:
        with suppress(OSError):  # the host is gone
            host.send(json.dumps({"error": describe_error(error, name)}).encode())
        sys.exit(1)
