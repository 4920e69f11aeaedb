"""The MCP server: over standard streams for one client, over HTTP for several."""

from __future__ import annotations

import ipaddress
import os
import signal
import socket
from collections.abc import Awaitable, Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams

from pinfold import __version__
from pinfold.app import ConfigError, background
from pinfold.app.clients import ClientSessions
from pinfold.front.mcp_server.calls import Calls, Context
from pinfold.front.mcp_server.exports import ExportingServer, Exports
from pinfold.front.mcp_server.http_guard import RETRY_MS, App, Guard, RecentEvents

PATH = "/mcp"
PORT = 8484
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BODY = 16 << 20
"""Bytes of one request: the largest file in base64, and some."""
_CLIENTS = 256
_WAITING = 128
_LEAVE_S = 2
"""How long open streams may take to end."""
_ABOUT = (
    "Python in a persistent, isolated session whose steps can be undone. Data stays in the session: print what you need to "
    "see. Without `session` each connection has a session of its own; where there is no connection that lasts, pass on "
    "the `session` that the first result names."
)


def make_server(calls: Calls) -> ExportingServer:
    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=calls.tools)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        return await calls.call(context, params.name, params.arguments or {})

    return ExportingServer(
        "pinfold",
        version=__version__,
        title="Pinfold",
        instructions=_ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What is offered."""

    offering: ClientSessions
    with_agent: bool = False
    exports: tuple[str, ...] = ()
    """Servers of the user's, by name; `*` for all."""
    plain_names: bool = False


async def _make_offered_server(offer: Offer) -> tuple[Server[Any], Callable[[str], Awaitable[None]]]:
    """The server, and what to call when a client has gone."""
    calls = Calls(offer.offering, with_agent=offer.with_agent)
    if not offer.exports:
        return make_server(calls), calls.forget
    exports = Exports(offer.offering, calls, offer.exports, plain=offer.plain_names)
    await exports.look()
    server = make_server(calls)
    exports.install(server)

    async def forget(client: str) -> None:
        exports.forget(client)
        await calls.forget(client)

    return server, forget


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes standard input, or a signal."""
    offering = offer.offering
    async with background() as tasks, offering:
        server, _ = await _make_offered_server(offer)
        tasks.start_soon(_leave_on_signal, offering)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


async def _leave_on_signal(offering: ClientSessions) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async for _ in signals:
            await offering.end()
            # A thread of the SDK waits for the client's next line and cannot be woken.
            os._exit(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    """Where to listen, and under which names."""

    host: str
    port: int
    names: tuple[str, ...] = ()
    """More valid values of `Host`, each NAME or NAME:PORT."""
    origins: tuple[str, ...] = ()
    """Origins of web pages that may send requests."""

    def hosts(self, port: int) -> set[str]:
        ours = {self.host, "localhost", "127.0.0.1", "::1"} if is_loopback(self.host) else {self.host}
        named = {name if _has_port(name) else f"{name}:{port}" for name in self.names}
        return {f"[{one}]:{port}" if ":" in one else f"{one}:{port}" for one in ours} | named


async def serve_http(offer: Offer, place: ListenAddress, token: str, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal. `on_ready` gets the address."""
    listener = _listener(place)
    port = listener.getsockname()[1]
    hosts = place.hosts(port)
    async with offer.offering:
        server, forget = await _make_offered_server(offer)
        app: App = server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=_BODY,
            max_sessions=_CLIENTS,
            event_store=RecentEvents(),
            retry_interval=RETRY_MS,
            # The guard has checked them already, more strictly.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        origins = {*(f"http://{host}" for host in hosts), *place.origins}
        guard = Guard(app, token=token, hosts=hosts, origins=origins, on_gone=forget)
        config = uvicorn.Config(
            guard, ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=_LEAVE_S, server_header=False
        )
        http = _Server(config)
        async with background() as tasks:
            tasks.start_soon(_stop_on_signal, http)
            listener.listen(_WAITING)
            on_ready(f"http://{_format_host(place.host)}:{port}{PATH}")
            await http.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """Ignores signals: uvicorn would end the process before sessions are closed."""

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


async def _stop_on_signal(server: uvicorn.Server) -> None:
    with anyio.open_signal_receiver(*_SIGNALS) as signals:
        async for _ in signals:
            server.should_exit = True


def _listener(place: ListenAddress) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((place.host, place.port))
    except OSError as error:
        raise ConfigError(
            f"cannot listen at {place.host}:{place.port}: {error.strerror}; name another with --http HOST:PORT"
        ) from error
    return listener


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _has_port(name: str) -> bool:
    return name.rpartition(":")[2].isdigit() and not name.endswith("]")


def _format_host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def parse_address(text: str, names: Iterable[str], origins: Iterable[str]) -> ListenAddress:
    """From `HOST:PORT`, `PORT` or `HOST`. Raises ConfigError."""
    host, _, port = text.rpartition(":") if _has_port(text) else (text, "", str(PORT))
    if text.isdigit():
        host, port = "127.0.0.1", text
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if host == "localhost":
        host = "127.0.0.1"
    if int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address: give HOST:PORT, such as 127.0.0.1:{PORT}")
    return ListenAddress(host=host, port=int(port), names=tuple(names), origins=tuple(origins))
