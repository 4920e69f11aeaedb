"""The MCP server: over standard streams for one client, over HTTP for several.

HTTP requests are checked for token, host and origin. Recent events are kept for clients that reconnect.
"""

from __future__ import annotations

import hmac
import os
import secrets
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import anyio
import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.stdio import stdio_server
from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, JSONRPCMessage, ListToolsResult, PaginatedRequestParams
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pinfold import __version__
from pinfold.app import ConfigError, background
from pinfold.app.clients import ClientSessions
from pinfold.front.http_server import (
    Address,
    HttpServer,
    bearer_token,
    content_type,
    has_port,
    only_value,
    refuse_source,
)
from pinfold.front.mcp_server.calls import Calls, Context
from pinfold.front.mcp_server.exports import ExportingServer, Exports
from pinfold.front.mcp_server.session_view import SessionView
from pinfold.front.signals import stop_signals

PATH = "/mcp"
PORT = 8484
_BODY = 16 << 20
"""Most bytes of one request: the largest file in base64, and some room."""
_CLIENTS = 256
_WAITING = 128
_LEAVE_S = 2
"""How long open streams may take to end."""
SESSION = "mcp-session-id"
_REMEMBERED = 4096
EVENTS = 4096
BYTES = 32 << 20
_RETRY_MS = 500
"""How long a client waits before it reconnects after its stream ended."""
_INSTRUCTIONS = (
    "Python in a persistent, isolated session whose steps can be undone. Data stays in the session: print what you need to "
    "see. Without `session`, each connection has a session of its own; if your connections do not last, pass the "
    "`session` that the first result names."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the server offers to clients."""

    client_sessions: ClientSessions
    with_agent: bool = False
    exports: tuple[str, ...] = ()
    """Names of the user's MCP servers to export; `*` for all."""
    plain_names: bool = False


async def _make_server(offer: Offer) -> tuple[Server[Any], Callable[[str], Awaitable[None]]]:
    """Return the server, and a callback for when a client has gone."""
    calls = Calls(offer.client_sessions, with_agent=offer.with_agent)

    async def list_tools(_: Context, __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=calls.tools)

    async def call_tool(context: Context, params: CallToolRequestParams) -> CallToolResult:
        return await calls.call(context, params.name, params.arguments or {})

    server = ExportingServer(
        "pinfold",
        version=__version__,
        title="Pinfold",
        instructions=_INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
    server.middleware.append(SessionView(offer.client_sessions))
    if not offer.exports:
        return server, calls.forget
    exports = Exports(offer.client_sessions, calls, offer.exports, plain=offer.plain_names)
    await exports.start_servers()
    exports.install(server)

    async def forget(client: str) -> None:
        exports.forget(client)
        await calls.forget(client)

    return server, forget


async def serve_stdio(offer: Offer) -> None:
    """Serve until the client closes standard input or a signal arrives."""
    async with background() as tasks, offer.client_sessions:
        server, _ = await _make_server(offer)
        tasks.start_soon(_leave_on_signal, offer.client_sessions)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())


async def _leave_on_signal(client_sessions: ClientSessions) -> None:
    with anyio.open_signal_receiver(*stop_signals()) as signals:
        await anext(signals)
        await client_sessions.end()
        # A thread of the SDK waits for the client's next line and cannot be woken.
        os._exit(0)


async def serve_http(offer: Offer, place: Address, token: str, on_ready: Callable[[str], None]) -> None:
    """Serve until a signal arrives. `on_ready` gets the address."""
    listener = _listener(place)
    port = listener.getsockname()[1]
    hosts = place.hosts(port)
    async with offer.client_sessions:
        server, forget = await _make_server(offer)
        app = server.streamable_http_app(
            streamable_http_path=PATH,
            max_request_body_size=_BODY,
            max_sessions=_CLIENTS,
            event_store=RecentEvents(),
            retry_interval=_RETRY_MS,
            # The guard has already checked the host and origin, more strictly.
            transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
        )
        origins = {*(f"http://{host}" for host in hosts), *place.origins}
        guard = Guard(app, token=token, hosts=hosts, origins=origins, on_gone=forget)
        config = uvicorn.Config(
            guard, ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=_LEAVE_S, server_header=False
        )
        http = HttpServer(config)
        async with background() as tasks:
            tasks.start_soon(http.stop_on_signal)
            listener.listen(_WAITING)
            on_ready(f"{place.url(port)}{PATH}")
            await http.serve(sockets=[listener])


def _listener(place: Address) -> socket.socket:
    try:
        return place.bind()
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {place.host}:{place.port}: {error.strerror}; use another address with --http HOST:PORT"
        ) from error


def parse_address(text: str, names: Iterable[str], origins: Iterable[str]) -> Address:
    """Parse `HOST:PORT`, `PORT` or `HOST`. Raises ConfigError."""
    host, _, port = text.rpartition(":") if has_port(text) else (text, "", str(PORT))
    host = host.removeprefix("[").removesuffix("]")
    host = "127.0.0.1" if host in ("", "localhost") else host
    if int(port) > 65535:
        raise ConfigError(f"{text!r} is not an address: give HOST:PORT, such as 127.0.0.1:{PORT}")
    return Address(host=host, port=int(port), names=tuple(names), origins=tuple(origins))


class Guard:
    """Checks every request. `hosts` and `origins` are exact, with port. A refusal repeats nothing of the request."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str,
        hosts: Iterable[str],
        origins: Iterable[str],
        on_gone: Callable[[str], Awaitable[None]],
    ) -> None:
        self._app = app
        self._token = token.encode()
        self._hosts = frozenset(map(str.lower, hosts))
        self._origins = frozenset(map(str.lower, origins))
        self._on_gone = on_gone
        """Called with the protocol session that a client has ended."""
        self._clients: dict[str, str] = {}
        """Protocol session -> the client under which its events are kept."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = Headers(scope=scope)
        if refusal := self._refusal(scope["method"], headers):
            await refusal(scope, receive, send)
            return
        session = only_value(headers, SESSION)
        # The request that opens a session has no session id yet.
        client = self._clients.get(session) or secrets.token_hex(8)

        async def send_and_note(message: Message) -> None:
            begins = message["type"] == "http.response.start" and not session
            if begins and (opened := only_value(Headers(raw=message.get("headers", [])), SESSION)):
                self._clients[opened] = client
                if len(self._clients) > _REMEMBERED:  # clients that left without notice
                    del self._clients[next(iter(self._clients))]
            await send(message)

        _client.set(client)
        await self._app(scope, receive, send_and_note)
        if scope["method"] == "DELETE" and session:
            self._clients.pop(session, None)
            await self._on_gone(session)

    def _refusal(self, method: str, headers: Headers) -> PlainTextResponse | None:
        if refusal := refuse_source(headers, self._hosts, self._origins):
            return _refuse(*refusal)
        token = bearer_token(headers)
        if token is None or not hmac.compare_digest(token.encode("utf-8", "replace"), self._token):
            return _refuse(401, "a bearer token is needed", {"www-authenticate": "Bearer"})
        if method == "POST" and content_type(headers) != "application/json":
            return _refuse(415, "send application/json")
        return None


def _refuse(status: int, words: str, more: Mapping[str, str] | None = None) -> PlainTextResponse:
    return PlainTextResponse(words, status, headers={"connection": "close", **(more or {})})


_client: ContextVar[str] = ContextVar("client", default="")
"""Tells clients apart, because the SDK names streams by request number, which several clients may use."""


@dataclass(frozen=True, slots=True)
class _Sent:
    id: str
    client: str
    stream: str
    message: JSONRPCMessage | None
    size: int


class RecentEvents(EventStore):
    def __init__(self) -> None:
        self._kept: deque[_Sent] = deque()
        self._held = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        size = len(message.model_dump_json(by_alias=True, exclude_unset=True)) if message else 0
        sent = _Sent(secrets.token_hex(12), _client.get(), stream_id, message, size)
        self._kept.append(sent)
        self._held += size
        while len(self._kept) > EVENTS or self._held > BYTES:
            self._held -= self._kept.popleft().size
        return sent.id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        kept = tuple(self._kept)
        last = next((at for at, one in enumerate(kept) if one.id == last_event_id), None)
        if last is None or kept[last].client != _client.get():
            return None
        found = kept[last]
        for one in kept[last + 1 :]:
            if (one.client, one.stream) == (found.client, found.stream) and one.message is not None:
                await send_callback(EventMessage(one.message, one.id))
        return found.stream
