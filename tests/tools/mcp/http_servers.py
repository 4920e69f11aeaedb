"""Real HTTP on loopback: a server that keeps the protocol, one that does not, and one that lets people sign in."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import anyio
import anyio.lowlevel
import httpx2
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from tests.tools.mcp.doubles import WITHIN_S, Somebody

TOOL: dict[str, Any] = {"type": "object", "properties": {}}


@asynccontextmanager
async def serving(app: Any, port: int = 0) -> AsyncGenerator[str]:
    """The app's address, for as long as the context lasts."""
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        with anyio.fail_after(WITHIN_S):
            while not server.started:
                await anyio.sleep(0.01)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True


@dataclass
class Odd:
    """Speaks the older protocol at `/mcp`, by hand; each tool breaks another rule of HTTP."""

    names: tuple[str, ...] = (
        *("fine", "huge", "flood", "squeezed", "broken", "teapot", "html", "accepted", "away", "nearby", "resumed"),
        *("never_ending", "hang"),
    )
    requests: list[tuple[str, dict[str, str]]] = field(default_factory=list[tuple[str, dict[str, str]]])
    leads_to: str = ""
    forgets: int = 0
    """Sessions that it will say it has forgotten."""
    says: str = ""
    """Of each of its tools."""
    called: list[str] = field(default_factory=list[str])
    sessions: int = 0
    clings: bool = False
    """It does not let a session end."""

    @property
    def app(self) -> Starlette:
        paths = ("/mcp", "/elsewhere")
        return Starlette(routes=[Route(path, self.answer, methods=["GET", "POST", "DELETE"]) for path in paths])

    async def answer(self, request: Request) -> Response:
        self.requests.append((f"{request.method} {request.url.path}", dict(request.headers)))
        if request.method == "GET":
            return self._get(request)
        if request.method == "DELETE":
            if self.clings:
                await anyio.sleep_forever()
            return Response(status_code=200)
        message = json.loads(await request.body())
        if "id" not in message:
            return Response(status_code=202)
        if self.forgets and "mcp-session-id" in request.headers:
            self.forgets -= 1
            return Response(status_code=404)
        match message["method"]:
            case "initialize":
                self.sessions += 1
                info = {"name": "odd", "version": "0"}
                result: dict[str, Any] = {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": info,
                }
                return self._json(message, result, {"mcp-session-id": f"s{self.sessions}"})
            case "tools/list":
                return self._json(
                    message,
                    {"tools": [{"name": name, "description": self.says, "inputSchema": TOOL} for name in self.names]},
                )
            case "tools/call":
                return await self._call(message, request)
            case _:
                return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})

    async def _call(self, message: Any, request: Request) -> Response:  # noqa: C901 - one case for each rule
        name = message["params"]["name"]
        self.called.append(name)
        text = {"content": [{"type": "text", "text": name}]}
        match name:
            case "huge":
                return self._json(message, {"content": [{"type": "text", "text": "y" * 3_000_000}]})
            case "flood":
                return StreamingResponse(_flood(), media_type="text/event-stream")
            case "never_ending":
                return StreamingResponse(_endless(), media_type="application/json")
            case "squeezed":
                return Response(b"x", headers={"content-encoding": "gzip", "content-type": "application/json"})
            case "broken":
                return StreamingResponse(_broken(), media_type="application/json")
            case "teapot":
                return Response("short and stout", status_code=500)
            case "html":
                return Response("<p>Sign in</p>", media_type="text/html")
            case "accepted":
                return Response(status_code=202)
            case "away" if request.url.path == "/mcp":
                return RedirectResponse(self.leads_to, status_code=307)
            case "nearby" if request.url.path == "/mcp":
                return RedirectResponse("/elsewhere", status_code=307)
            case "resumed":
                return StreamingResponse(_cut_short(), media_type="text/event-stream")
            case "hang":
                await anyio.sleep_forever()
                return Response()
            case _:
                return self._json(message, text)

    def _get(self, request: Request) -> Response:
        if request.headers.get("last-event-id") != "e1":
            return Response(status_code=405)
        result = {"jsonrpc": "2.0", "id": 0, "result": {"content": [{"type": "text", "text": "resumed"}]}}
        return Response(f"id: e2\ndata: {json.dumps(result)}\n\n", media_type="text/event-stream")

    @staticmethod
    def _json(message: Any, result: Any, headers: dict[str, str] | None = None) -> Response:
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], "result": result}, headers=headers)


async def _flood() -> AsyncIterator[bytes]:
    params = {"level": "info", "data": "x"}
    event = json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
    while True:
        await anyio.lowlevel.checkpoint()
        yield f"data: {event}\n\n".encode() * 100


async def _endless() -> AsyncIterator[bytes]:
    while True:
        await anyio.lowlevel.checkpoint()
        yield b"[" * 65536


async def _broken() -> AsyncIterator[bytes]:
    yield b'{"jsonrpc": "2.0", '
    raise ConnectionResetError


async def _cut_short() -> AsyncIterator[bytes]:
    yield b"id: e1\nretry: 10\ndata:\n\n"


@dataclass
class House401:
    """An MCP server that wants a token, and the authorisation server that gives one, in one house."""

    grants: list[str] = field(default_factory=list[str])
    scopes: list[str] = field(default_factory=list[str])
    visits: list[str] = field(default_factory=list[str])
    shown: list[str] = field(default_factory=list[str])
    """Tokens that were brought, good or not."""
    authorised: list[str] = field(default_factory=list[str])
    clients: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    codes: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    good: set[str] = field(default_factory=set[str])
    lifetime_s: int = 3600
    refuses: bool = False
    issuer: str = ""
    metadata: dict[str, Any] = field(default_factory=dict[str, Any])
    """Of the authorisation server, in place of what is true."""
    resource: str = ""
    """For which its metadata says it is."""
    brings: dict[str, str] = field(default_factory=dict[str, str])
    """What a browser brings back besides."""
    sends_on: str = ""
    """Where requests for tokens and registrations are redirected to."""
    heard: list[str] = field(default_factory=list[str])
    """Bodies of what was posted to it, whatever it was for."""
    odd: Odd = field(default_factory=Odd)

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/mcp", self._guarded, methods=["GET", "POST", "DELETE"]),
                Route("/.well-known/oauth-protected-resource/mcp", self._resource),
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._authorize),
                Route("/token", self._token, methods=["POST"]),
                Route("/{path:path}", self._hear, methods=["POST", "GET"]),
            ]
        )

    async def _hear(self, request: Request) -> Response:
        self.heard.append(f"{request.url} {(await request.body()).decode()}")
        return Response(status_code=404)

    async def _guarded(self, request: Request) -> Response:
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        self.shown.append(token)
        if token not in self.good:
            where = f"{_base(request)}/.well-known/oauth-protected-resource/mcp"
            challenge = f'Bearer resource_metadata="{where}"'
            return Response(status_code=401, headers={"www-authenticate": challenge})
        self.authorised.append(token)
        return await self.odd.answer(request)

    async def _resource(self, request: Request) -> Response:
        base = _base(request)
        return JSONResponse(
            {"resource": self.resource or f"{base}/mcp", "authorization_servers": [self.issuer or base]}
        )

    async def _metadata(self, request: Request) -> Response:
        base = _base(request)
        return JSONResponse(
            {
                "issuer": base,
                "authorization_endpoint": f"{base}/authorize",
                "token_endpoint": f"{base}/token",
                "registration_endpoint": f"{base}/register",
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
                "code_challenge_methods_supported": ["S256"],
                "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
                **self.metadata,
            }
        )

    async def _register(self, request: Request) -> Response:
        self.heard.append((await request.body()).decode())
        wanted = json.loads(await request.body())
        client = {**wanted, "client_id": f"client-{len(self.clients) + 1}"}
        self.clients[client["client_id"]] = client
        return JSONResponse(client, status_code=201)

    async def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        self.visits.append(str(request.url))
        known = self.clients.get(asked["client_id"], {}).get("redirect_uris", [])
        if asked["redirect_uri"] not in known:
            return Response("no such client", status_code=400)
        code = secrets.token_urlsafe(8)
        self.codes[code] = asked
        back = {"error": "access_denied"} if self.refuses else {"code": code}
        return RedirectResponse(
            f"{asked['redirect_uri']}?{urlencode({**back, 'state': asked['state'], **self.brings})}", status_code=302
        )

    async def _token(self, request: Request) -> Response:
        self.heard.append((await request.body()).decode())
        if self.sends_on:
            return RedirectResponse(self.sends_on, status_code=307)
        form = dict((await request.form()).items())
        grant = str(form["grant_type"])
        match grant:
            case "authorization_code":
                asked = self.codes.pop(str(form["code"]), None)
                digest = hashlib.sha256(str(form["code_verifier"]).encode()).digest()
                challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
                if (
                    asked is None
                    or asked["code_challenge"] != challenge
                    or asked["redirect_uri"] != form["redirect_uri"]
                ):
                    return JSONResponse({"error": "invalid_grant"}, status_code=400)
            case "refresh_token":
                if not str(form["refresh_token"]).startswith("refresh-"):
                    return JSONResponse({"error": "invalid_grant"}, status_code=400)
            case _:
                sent = request.headers.get("authorization", "")
                if sent != "Basic " + base64.b64encode(b"me:s3cret").decode():
                    return JSONResponse({"error": "invalid_client"}, status_code=401)
        self.grants.append(grant)
        token = f"access-{len(self.grants)}"
        self.good.add(token)
        return JSONResponse(
            {
                "access_token": token,
                "token_type": "Bearer",
                "expires_in": self.lifetime_s,
                **({} if grant == "client_credentials" else {"refresh_token": f"refresh-{len(self.grants)}"}),
            }
        )


def _base(request: Request) -> str:
    return f"http://{request.headers['host']}"


@dataclass
class Browser(Somebody):
    """Somebody who agrees, and a browser that follows where the page leads."""

    agrees: bool = True
    shown: list[str] = field(default_factory=list[str])

    async def open_page(self, server: str, url: str, why: str) -> bool:
        self.asked.append((server, url, why))
        if self.agrees:
            async with httpx2.AsyncClient(follow_redirects=True) as client:
                self.shown.append((await client.get(url)).text)
        return self.agrees
