"""The HTTP proxy on the host: CONNECT and absolute-form requests over a unix socket, one request per connection.

Its input comes from hostile programs: it refuses everything that it does not understand completely.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.abc
from msgspec import Struct

from pinfold.net.client_hello import UNRECOGNIZED_NAME, Greeting
from pinfold.net.egress import Egress
from pinfold.net.hosts import BadDestination, Destination, NetError, Refused, Unreachable
from pinfold.net.http1 import BadRequest, Head, Line, copy, parse_head, parse_status

_log = logging.getLogger(__name__)
BACKLOG = 128
AGAIN_S = 0.1
"""Wait after `accept` failed, for example because no descriptor is left."""
_HEAR_OUT_S = 1.0
_REASON_BYTES = 300
_NOT_IN_A_LINE = re.compile(r"[^ -~]")
_PHRASES = {400: "Bad Request", 403: "Forbidden", 408: "Request Timeout", 502: "Bad Gateway", 503: "Busy"}


class ProxyLimits(Struct, frozen=True, kw_only=True):
    connections: int = 64
    """The most connections at once, including those that wait for the gate; more are turned away."""
    head_bytes: int = 32 << 10
    handshake_s: float = 20.0
    """Time for a client to send its request."""
    idle_s: float = 300.0
    """How long without a byte in either direction until the connection is cut."""
    report_s: float = 5.0
    """Time between two reports of traffic."""


OnTraffic: TypeAlias = Callable[[Destination, int, int], None]
"""Called with the bytes sent from this machine, counted before they are sent, and the bytes received, since the last
report of the same destination. Must not block."""


class Proxy:
    def __init__(
        self, egress: Egress, *, on_traffic: OnTraffic | None = None, limits: ProxyLimits | None = None
    ) -> None:
        self.egress = egress
        self._on_traffic = on_traffic
        self._limits = limits or ProxyLimits()
        self._live: set[anyio.CancelScope] = set()
        self._moved: dict[Destination, list[int]] = {}
        """Bytes sent and received since the last report."""
        self._met = anyio.Event()
        """Set by a new connection."""

    @asynccontextmanager
    async def listening(self, path: Path) -> AsyncGenerator[None]:
        """Listen on a socket at `path`, in a folder of mode 0700. Raises OSError. Cuts all connections at the end."""
        with _listener(path) as listener:
            async with _side_tasks() as tasks:
                tasks.start_soon(self._accept, listener, tasks)
                tasks.start_soon(self._report)
                yield

    @property
    def live(self) -> int:
        """Open connections, including those that wait for the gate."""
        return len(self._live)

    def close_all(self) -> None:
        """Cut all connections, including waiting ones; new ones are checked as before."""
        for scope in tuple(self._live):
            scope.cancel()

    async def _accept(self, listener: socket.socket, tasks: anyio.abc.TaskGroup) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                peer, _ = await loop.sock_accept(listener)
            except OSError as error:
                _log.warning("a connection could not be accepted: %s", error)
                await anyio.sleep(AGAIN_S)
                continue
            if self.live < self._limits.connections:
                tasks.start_soon(self._attend, peer)
                continue
            with peer, suppress(OSError):
                peer.send(_answer(503, f"more than {self._limits.connections} connections are open"))

    def report(self) -> None:
        """Report the traffic since the last report."""
        while self._moved:
            destination, (sent, received) = self._moved.popitem()
            if self._on_traffic:
                self._on_traffic(destination, sent, received)

    async def _report(self) -> None:
        while True:
            if not self._live:  # many sessions never connect anywhere, and an idle one must not wake the process
                self._met = anyio.Event()
                await self._met.wait()
            await anyio.sleep(self._limits.report_s)
            try:
                self.report()
            except Exception:  # noqa: BLE001 - the caller's own code; uncounted traffic must not flow
                _log.exception("traffic could not be reported")
                self.close_all()

    async def _attend(self, peer: socket.socket) -> None:
        with closing(Line(peer)) as client, anyio.CancelScope() as scope:
            self._live.add(scope)
            self._met.set()
            try:
                await self._converse(client)
            except (OSError, BadRequest):
                pass  # one end is gone, or sent something invalid
            except Exception:  # noqa: BLE001 - other connections go on
                _log.exception("a connection through the proxy failed")
            finally:
                self._live.discard(scope)

    async def _converse(self, client: Line) -> None:
        try:
            with anyio.fail_after(self._limits.handshake_s):
                raw = await client.head(self._limits.head_bytes)
            if raw is None:
                return
            head = parse_head(raw)
            server = await self._connect_upstream(client, head)
        except TimeoutError:
            await client.send(_answer(408, f"no request came within {self._limits.handshake_s:g} s"))
        except NetError as error:
            await client.send(_answer(_status(error), str(error)))
        else:
            if server is not None:
                with closing(Line(server)) as line:
                    try:
                        await self._carry(client, line, head)
                    finally:
                        self.report()

    async def _connect_upstream(self, client: Line, head: Head) -> socket.socket | None:
        """Return a socket to the server; None if the client hung up meanwhile. Raises NetError."""
        async with _side_tasks() as tasks:

            async def give_up_with_client() -> None:
                with suppress(OSError):
                    await client.wait_for_hangup(self._limits.head_bytes)
                tasks.cancel_scope.cancel()

            tasks.start_soon(give_up_with_client)
            return await self.egress.connect(head.destination, head.how)
        return None

    async def _carry(self, client: Line, server: Line, head: Head) -> None:
        with anyio.move_on_after(self._limits.idle_s) as patience:

            def count(sent: int, received: int = 0) -> None:
                moved = self._moved.setdefault(head.destination, [0, 0])
                moved[0] += sent
                moved[1] += received
                patience.deadline = anyio.current_time() + self._limits.idle_s

            back = partial(count, 0)

            if head.how == "tunnel":
                await client.send(b"HTTP/1.1 200 Connection established\r\n\r\n")
                greeted = partial(_pass_greeting, client, server, head.destination, count)
                await _both(greeted, lambda: copy(server, client, back))
            else:
                count(len(head.passed_on))
                await server.send(head.passed_on)
                if head.wants_continue:
                    await client.send(b"HTTP/1.1 100 Continue\r\n\r\n")
                await _both(
                    lambda: self._pass_body(client, server, head, count),
                    lambda: self._pass_answer(server, client, back),
                    cut_by_second=True,
                )

    async def _pass_body(self, client: Line, server: Line, head: Head, count: Callable[[int], None]) -> None:
        """Pass on exactly the announced body; what the client sends after it is dropped."""
        pieces = client.chunks() if head.body == "chunked" else client.exactly(head.body)
        async with aclosing(pieces):
            async for piece in pieces:
                count(len(piece))
                with suppress(OSError):  # the server stopped reading; its answer may say why
                    await server.send(piece)

    async def _pass_answer(self, server: Line, client: Line, count: Callable[[int], None]) -> None:
        try:
            head = await self._answer_head(server, count)
        except (BadRequest, OSError):
            await client.send(_answer(502, "the server's answer could not be read"))
            return
        await client.send(head)
        await copy(server, client, count)

    async def _answer_head(self, server: Line, count: Callable[[int], None]) -> bytes:
        """Return the head of the final answer; interim ones (100, 103) are dropped. Raises BadRequest and OSError."""
        while True:
            status, head = parse_status(await server.head(self._limits.head_bytes) or b"")
            count(len(head))
            if status == 101:
                raise BadRequest("the server switched protocols unasked")
            if status >= 200:
                return head


async def _pass_greeting(client: Line, server: Line, destination: Destination, count: Callable[[int], None]) -> None:
    """As `copy`, but first check the host that the client names. Raises OSError and BadRequest."""
    greeting = Greeting(destination)
    while piece := await client.receive():
        try:
            passed = greeting.pass_on(piece)
        except Refused as error:
            _log.warning("%s", error)
            await client.send(UNRECOGNIZED_NAME if greeting.is_tls else _answer(403, str(error)))
            client.end_sending()
            # A client that is cut off while it still sends would not read the reason.
            with anyio.move_on_after(_HEAR_OUT_S):
                while await client.receive():
                    pass
            raise BadRequest(str(error)) from None
        count(len(passed))
        await server.send(passed)
    server.end_sending()


@asynccontextmanager
async def _side_tasks() -> AsyncGenerator[anyio.abc.TaskGroup]:
    """Open a task group that is cancelled when the body ends. The first error is raised as it is, not in a group."""
    try:
        async with anyio.create_task_group() as tasks:
            yield tasks
            tasks.cancel_scope.cancel()
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


_Job: TypeAlias = Callable[[], Awaitable[None]]


async def _both(first: _Job, second: _Job, *, cut_by_second: bool = False) -> None:
    """Run both until both end, or with `cut_by_second` until the second ends. If one fails, end both and raise."""
    async with _side_tasks() as tasks:
        ended = anyio.Event()

        async def run_first() -> None:
            await first()
            ended.set()

        tasks.start_soon(run_first)
        await second()
        if not cut_by_second:
            await ended.wait()


def _status(error: NetError) -> int:
    if isinstance(error, (Refused, BadDestination)):
        return 403
    return 502 if isinstance(error, Unreachable) else 400


def _answer(status: int, reason: str) -> bytes:
    """Return an HTTP answer. The reason is also in the status line: many programs show no more of a refused tunnel."""
    line = _NOT_IN_A_LINE.sub("?", reason)[:_REASON_BYTES]
    body = f"{line}\n"
    refused = f"X-Pinfold-Refused: {line}\r\n" if status == 403 else ""
    return (
        f"HTTP/1.1 {status} {_PHRASES[status]}: {line}\r\nContent-Type: text/plain; charset=utf-8\r\n{refused}"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n{body}"
    ).encode("ascii")


@contextmanager
def _listener(path: Path) -> Generator[socket.socket]:
    if path.parent.stat().st_mode & 0o077:
        raise PermissionError(f"{path.parent} is open to others; the proxy's socket needs a folder of mode 0700")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.setblocking(False)
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            listener.bind(f"/proc/self/fd/{folder}/{path.name}")  # the kernel takes no more than 108 bytes
        finally:
            os.close(folder)
        path.chmod(0o600)
        listener.listen(BACKLOG)
        try:
            yield listener
        finally:
            path.unlink(missing_ok=True)
