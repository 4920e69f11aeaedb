"""Relays a session's network traffic between a port of its loopback and the host's proxy, and can do nothing else.

The proxy decides which hosts may be reached.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import socket
from contextlib import suppress

from ..kernel import syscalls

PAIRS = 64
"""The most connections at once; more wait to be accepted."""
PIECE_BYTES = 1 << 18
IDLE_S = 60.0
"""How long without a connection until the relay ends."""
LINGER_S = 5.0
"""How long to go on reading from a client after the proxy is done, so that the client gets to read why."""
CLOSED = (
    b"HTTP/1.1 503 Unavailable: the way out of this sandbox is closed\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 41\r\nConnection: close\r\n\r\nthe way out of this sandbox is closed now\n"
)


def run_relay(listener: socket.socket, path: str, program: bytes) -> None:
    """Run the relay until it is idle. Needs a process of its own."""
    try:
        _confine(listener)
        loop = asyncio.new_event_loop()  # makes a socket pair, which the filter refuses
        syscalls.seccomp(program)
        loop.run_until_complete(_relay(listener, path))
    except BaseException:
        with suppress(OSError):  # a client that has connected must not wait for an answer
            listener.accept()[0].close()


def _confine(listener: socket.socket) -> None:
    """Allow no files, programs, processes or network sockets, which the session's own rules do not all forbid."""
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
        scoped = syscalls.ABSTRACT_SOCKETS | syscalls.SIGNALS
        syscalls.Landlock(abi, scoped=scoped, network=syscalls.TCP).restrict()


async def _relay(listener: socket.socket, path: str) -> None:
    """Accept connections until there has been none for a while."""
    loop = asyncio.get_running_loop()
    pairs: set[asyncio.Task[None]] = set()
    while True:
        try:
            client, _ = await asyncio.wait_for(loop.sock_accept(listener), IDLE_S)
        except TimeoutError:
            if not pairs:
                return
            continue
        pair = loop.create_task(_connect(client, path))
        pairs.add(pair)
        pair.add_done_callback(pairs.discard)
        while len(pairs) >= PAIRS:
            await asyncio.wait(pairs, return_when=asyncio.FIRST_COMPLETED)


async def _connect(client: socket.socket, path: str) -> None:
    """Carry bytes both ways until the proxy has sent all; then go on reading from the client for a while."""
    with client, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as proxy:
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        proxy.setblocking(False)
        try:
            proxy.connect(path)
        except OSError:
            out = asyncio.create_task(_carry(client, None))
            with suppress(OSError):
                await asyncio.get_running_loop().sock_sendall(client, CLOSED)
                client.shutdown(socket.SHUT_WR)
        else:
            out = asyncio.create_task(_carry(client, proxy))
            await _carry(proxy, client)
        await asyncio.wait([out], timeout=LINGER_S)
        out.cancel()


async def _carry(source: socket.socket, sink: socket.socket | None) -> None:
    """Copy all bytes and the end of the stream. Without a `sink`, or once that is closed, only read."""
    loop = asyncio.get_running_loop()
    with suppress(OSError):
        while data := await loop.sock_recv(source, PIECE_BYTES):
            if sink is not None:
                try:
                    await loop.sock_sendall(sink, data)
                except OSError:
                    sink = None
    if sink is not None:
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
