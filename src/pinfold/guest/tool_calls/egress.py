"""The way out of a session, seen from inside: a port of its loopback that leads to the proxy on the host.

The init holds the port, which no program inside could take. When a program connects, a relay is forked from it
that carries bytes and can do nothing else; one that is ended is made again. The proxy decides which hosts may be reached.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import time
from contextlib import suppress

from ..kernel import syscalls
from ..startup.messages import Request

BACKLOG = 128
AGAIN_S = 0.1
"""Between two relays: a program that ends them must not keep the init busy."""
PAIRS = 64
"""Connections at once; more wait to be accepted."""
PIECE_BYTES = 1 << 18
IDLE_S = 60.0
"""Without a connection; then the relay ends."""
LINGER_S = 5.0
"""For a client that goes on talking after the other end is done: it must get to read why."""
TCP, ABSTRACT_SOCKETS, SIGNALS = 0b11, 1, 2
CLOSED = (
    b"HTTP/1.1 503 Unavailable: the way out of this sandbox is closed\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 41\r\nConnection: close\r\n\r\nthe way out of this sandbox is closed now\n"
)


class EgressListener:
    """The init's side. Made with the power to bind a low port."""

    def __init__(self, asked: Request) -> None:
        self.relay = 0
        """Its process, if there is one."""
        self.again_at: float | None = None
        """When to listen again after one has ended."""
        self._path: str = asked["socket"]
        self._filter = bytes.fromhex(asked["filter"])
        self._listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self._listener.bind(("127.0.0.1", asked["port"]))
        self._listener.listen(BACKLOG)
        self._listener.setblocking(False)

    def fileno(self) -> int:
        return self._listener.fileno()

    def open_relay(self) -> None:
        """A program waits to be connected."""
        try:
            self.relay = syscalls.fork()
        except OSError:  # no room for another process now
            self.schedule_listening()
            return
        if self.relay == 0:
            _run_relay(self._listener, self._path, self._filter)

    def schedule_listening(self) -> None:
        """There is no relay any more."""
        self.relay = 0
        self.again_at = time.monotonic() + AGAIN_S

    def is_due(self) -> bool:
        """Whether to listen again from now on."""
        if self.again_at is None or time.monotonic() < self.again_at:
            return False
        self.again_at = None
        return True


def _run_relay(listener: socket.socket, path: str, program: bytes) -> None:
    """Never returns."""
    try:
        _confine(listener, program)
        Relay(listener, path).run()
    except BaseException:
        with suppress(OSError):  # it must not wait for one that will never come
            listener.accept()[0].close()
    finally:
        os._exit(0)


def _confine(listener: socket.socket, program: bytes) -> None:
    """No files, no programs, no processes, no sockets of the network's: the session's own rules are wider."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    syscalls.close_all_but(listener.fileno())
    for kind, most in (("CORE", 0), ("FSIZE", 0), ("MEMLOCK", 0), ("NPROC", 0), ("NOFILE", 2 * PAIRS + 16)):
        number = getattr(resource, f"RLIMIT_{kind}")
        resource.setrlimit(number, (most, most))
    syscalls.drop_capabilities()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    abi = syscalls.landlock_abi()
    if abi:
        scoped = ABSTRACT_SOCKETS | SIGNALS if abi >= 6 else 0
        syscalls.Landlock(syscalls.all_file_rights(abi), scoped=scoped, network=TCP if abi >= 4 else 0).restrict()
    syscalls.seccomp(program)


class _Flow:
    """Bytes from one end to the other, as fast as both can."""

    def __init__(self, source: socket.socket | None, sink: socket.socket | None, held: bytes = b"") -> None:
        """Without `source` what is `held` is all there is; without `sink` all of it is thrown away."""
        self._source = source
        self._sink = sink
        self.held = held
        self.is_done = False
        """All of it has gone, and its end too."""

    @property
    def reads(self) -> bool:
        return self._source is not None and not self.held

    def move(self) -> None:
        """As far as it goes without waiting."""
        if self.reads:
            self._take()
        if self.held:
            self._give()
        if not self.held and self._source is None and not self.is_done:
            self.is_done = True
            if self._sink is not None:
                with suppress(OSError):
                    self._sink.shutdown(socket.SHUT_WR)

    def _take(self) -> None:
        assert self._source is not None
        try:
            self.held = self._source.recv(PIECE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.held = b""
        if not self.held:
            self._source = None

    def _give(self) -> None:
        try:
            sent = self._sink.send(self.held) if self._sink is not None else len(self.held)
            self.held = self.held[sent:]
        except BlockingIOError:
            return
        except OSError:  # it hears no more; what still comes must be read all the same
            self._sink, self.held = None, b""


class _Connection:
    def __init__(self, client: socket.socket, server: socket.socket | None) -> None:
        self.ends = {client.fileno(): client}
        self.out = _Flow(client, server)
        self.back = _Flow(server, client, b"" if server is not None else CLOSED)
        self.until: float | None = None
        self._client = client.fileno()
        if server is not None:
            self.ends[server.fileno()] = server

    def move(self) -> None:
        self.out.move()
        self.back.move()
        if self.back.is_done and self.until is None:
            self.until = time.monotonic() + LINGER_S

    def is_over(self) -> bool:
        is_late = self.until is not None and time.monotonic() >= self.until
        return self.back.is_done and (self.out.is_done or is_late)

    def poll_events(self, fd: int) -> int:
        """What to wait for at this end."""
        reads, writes = (self.out, self.back) if fd == self._client else (self.back, self.out)
        return (select.EPOLLIN if reads.reads else 0) | (select.EPOLLOUT if writes.held else 0)


class Relay:
    def __init__(self, listener: socket.socket, path: str) -> None:
        self._listener = listener
        self._path = path
        self._events = select.epoll()
        self._pairs: dict[int, _Connection] = {}
        """By either end."""
        self._watched: dict[int, int] = {}

    def run(self) -> None:
        """Until it has had no connection for a while."""
        used_at = time.monotonic()
        while self._pairs or time.monotonic() - used_at < IDLE_S:
            accepts = len(self._pairs) < 2 * PAIRS
            self._watch(self._listener.fileno(), select.EPOLLIN if accepts else 0)
            ready = [fd for fd, _ in self._events.poll(self._poll_timeout())]
            if self._listener.fileno() in ready:
                self._accept()
            for pair in {id(pair): pair for fd in ready if (pair := self._pairs.get(fd))}.values():
                pair.move()
                self._update(pair)
            for pair in list(self._pairs.values()):
                if pair.until is not None and pair.is_over():
                    self._close(pair)
            if self._pairs:
                used_at = time.monotonic()

    def _poll_timeout(self) -> float:
        """Seconds."""
        ends = [pair.until for pair in self._pairs.values() if pair.until is not None]
        return max(0.0, min([*ends, time.monotonic() + IDLE_S]) - time.monotonic())

    def _accept(self) -> None:
        try:
            client, _ = self._listener.accept()
        except OSError:  # it did not wait
            return
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.setblocking(False)
        try:
            server.connect(self._path)
        except OSError:
            server.close()
        pair = _Connection(client, server if server.fileno() >= 0 else None)
        self._pairs.update(dict.fromkeys(pair.ends, pair))
        pair.move()
        self._update(pair)

    def _update(self, pair: _Connection) -> None:
        if pair.is_over():
            self._close(pair)
            return
        for fd in pair.ends:
            self._watch(fd, pair.poll_events(fd))

    def _close(self, pair: _Connection) -> None:
        for fd, end in pair.ends.items():
            if self._pairs.pop(fd, None):
                self._watch(fd, 0)
                end.close()

    def _watch(self, fd: int, wanted: int) -> None:
        """An end of which nothing is wanted is not watched at all: that it hung up would be told for ever."""
        before = self._watched.get(fd, 0)
        if wanted == before:
            return
        if not wanted:
            self._events.unregister(fd)
        elif before:
            self._events.modify(fd, wanted)
        else:
            self._events.register(fd, wanted)
        self._watched[fd] = wanted
