"""`pinfold serve`: combines routes, gate and uvicorn, and shuts down without losing a session."""

from __future__ import annotations

import errno
import json
import logging
import resource
import socket
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic

import msgspec
import uvicorn
from msgspec import Struct
from msgspec.structs import replace
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pinfold.app import ConfigError, background
from pinfold.app.clients import ServedSessions
from pinfold.front.http_server import Address, HttpServer
from pinfold.front.server import agui, contents_api, openai_chat, openai_files, openai_responses, openapi, sessions_api
from pinfold.front.server.endpoints import AnyEndpoint, Call, Endpoint, Input, Nothing, routes_of
from pinfold.front.server.event_stream import SLOW_S
from pinfold.front.server.gate import CLIENT, Credentials, Gate, error_response

access_log = logging.getLogger("pinfold.access")
ASSETS = Path(__file__).parent / "assets"
_WAITING = 1024
_LEAVE_S = 3
"""How long open streams may take to end."""
_KEEP_S = 75
"""How long an idle connection stays open: longer than clients keep theirs, so that no request meets a closing one."""
_DESCRIPTORS = 65_536
_TRIED = 50


# --- logging in and downloads


class Login(Input, kw_only=True, frozen=True):
    code: str


class Token(Struct, frozen=True):
    token: str


class Code(Struct, frozen=True):
    code: str


class TicketRequest(Input, kw_only=True, frozen=True):
    path: str


class Ticket(Struct, frozen=True):
    ticket: str


async def log_in(call: Call[Nothing, Login]) -> Token | Response:
    if token := call.credentials.log_in(call.body.code):
        return Token(token)
    words = "this code was used already or is older than a minute; open the address that `pinfold serve` prints"
    return error_response(words, 403, "LoginRefused")


async def issue_code(call: Call[Nothing, Nothing]) -> Code:
    return Code(call.credentials.codes.issue())


async def issue_ticket(call: Call[Nothing, TicketRequest]) -> Ticket:
    return Ticket(call.credentials.tickets.issue(call.body.path))


ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint(
        "POST", "/api/login", "Exchange a login code for a token", log_in, body=Login, answer=Token, is_public=True
    ),
    Endpoint("POST", "/api/codes", "Issue a login code, valid once, for a page", issue_code, answer=Code),
    Endpoint(
        "POST", "/api/tickets", "Issue a ticket for one download", issue_ticket, body=TicketRequest, answer=Ticket
    ),
    *sessions_api.ENDPOINTS,
    *contents_api.ENDPOINTS,
    *openai_chat.ENDPOINTS,
    *openai_responses.ENDPOINTS,
    *openai_files.ENDPOINTS,
    *agui.ENDPOINTS,
)


# --- pages


async def asset(request: Request) -> Response:
    path = ASSETS / request.path_params.get("name", "index.html")
    if path.parent != ASSETS or not path.is_file():
        raise HTTPException(404)
    return FileResponse(path)


async def health(_: Request) -> Response:
    return JSONResponse({"status": "ok"})


@cache
def _description() -> bytes:
    return msgspec.json.encode(openapi.describe(ENDPOINTS))


async def describe(_: Request) -> Response:
    return Response(_description(), media_type="application/json")


async def describe_page(_: Request) -> Response:
    return HTMLResponse(openapi.to_page(ENDPOINTS))


async def explain_refusal(_: Request, error: Exception) -> Response:
    """Answer a request for an unknown path, or with a method that the path does not take."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = ", ".join(sorted((error.headers or {})["Allow"].split(", ")))
        return error_response(f"this path takes {allowed}", 405, "MethodNotAllowed", headers={"allow": allowed})
    words = "there is nothing at this path; GET /docs lists the paths"
    return error_response(words, error.status_code, "NotFound", headers=error.headers)


def make_app(sessions: ServedSessions, credentials: Credentials, hosts: set[str]) -> Gate:
    """Build the app behind the gate; nothing is served without the gate."""
    routes: list[BaseRoute] = [
        Route("/", asset),
        Route("/assets/{name}", asset),
        Route("/health", health),
        Route("/openapi.json", describe),
        Route("/docs", describe_page),
        *routes_of(ENDPOINTS),
    ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: explain_refusal})
    app.state.sessions = sessions
    app.state.credentials = credentials
    return Gate(AccessLog(app), credentials, hosts)


class AccessLog:
    """Logs one line of JSON for each request, with nothing of its query, headers or body."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = monotonic(), 0

        async def note_status(message: Message) -> None:
            nonlocal status
            status = message.get("status", status)
            await send(message)

        try:
            await self.app(scope, receive, note_status)
        finally:
            line = {
                "method": scope["method"],
                "path": scope["path"],
                "status": status,
                "ms": round((monotonic() - began) * 1000, 1),
                "client": scope.get(CLIENT, ""),
            }
            access_log.info("%s", json.dumps(line))


# --- serving


class Started(Struct, frozen=True):
    url: str
    code: str
    notice: str


async def serve(sessions: ServedSessions, address: Address, token: str, on_ready: Callable[[Started], None]) -> None:
    """Serve until a signal arrives. Every session can be resumed afterwards."""
    raise_descriptor_limit()
    listener = listen(address)
    port = listener.getsockname()[1]
    credentials = Credentials(token)
    http = HttpServer(
        uvicorn.Config(
            make_app(sessions, credentials, address.hosts(port)),
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=_KEEP_S,
            timeout_graceful_shutdown=_LEAVE_S,
        )
    )
    async with sessions.held() as notice, background() as tasks:
        tasks.start_soon(http.stop_on_signal)
        listener.listen(_WAITING)
        on_ready(Started(address.url(port), credentials.codes.issue(), notice))
        await http.serve(sockets=[listener])


def raise_descriptor_limit() -> None:
    """Raise the limit: every reader and session takes descriptors, and the default is meant for select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def listen(address: Address) -> socket.socket:
    """Return a bound socket. Raises ConfigError, which names a free port if this one is taken."""
    try:
        listener = address.bind()
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            free = _find_free_port(address)
            words = f"port {address.port} is taken; --port {free} is free" if free else f"port {address.port} is taken"
            raise ConfigError(words) from error
        raise ConfigError(f"cannot listen on {address.host}:{address.port}: {error.strerror}") from error
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # else data for a stalled reader is kept until it disconnects
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(2000 * SLOW_S))
    return listener


def _find_free_port(address: Address) -> int | None:
    for port in range(address.port + 1, min(address.port + _TRIED, 65536)):
        with suppress(OSError), replace(address, port=port).bind():
            return port
    return None
