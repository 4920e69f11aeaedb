"""Decides which requests may reach the server: one outermost check, which refuses what it does not know."""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from time import monotonic
from urllib.parse import parse_qs

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pinfold.front.http_server import bearer_token, content_type, only_value, refuse_source

CODE_S = 60.0
"""How long a login code or a download ticket is valid."""
BODY = 32 << 20
"""Most bytes of one request."""
UPLOAD = 2 << 30
CLIENT = "pinfold.client"
"""Key of the ASGI scope under which the gate stores the client's name."""
TICKET = "ticket"
"""Query parameter of a download that has a ticket instead of a token."""
_KEPT = 1024
_PUBLIC = frozenset(
    {("GET", "/"), ("GET", "/health"), ("GET", "/openapi.json"), ("GET", "/docs"), ("POST", "/api/login")}
)
_ASSETS = "/assets/"
_FORM_TYPES = frozenset({"", "text/plain", "multipart/form-data", "application/x-www-form-urlencoded"})
"""Content types that a page of another site can send without a CORS preflight."""


class OneTimeSecrets:
    """Secrets that are valid once, for a limited time."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def issue(self, purpose: str = "") -> str:
        secret = secrets.token_urlsafe(24)
        self._until[secret] = (self._clock() + CODE_S, purpose)
        while len(self._until) > _KEPT:
            self._until.popitem(last=False)
        return secret

    def redeem(self, secret: str, purpose: str = "") -> bool:
        until, wanted = self._until.pop(secret, (0.0, ""))
        return self._clock() < until and hmac.compare_digest(wanted.encode(), purpose.encode())


class Credentials:
    """The token of API clients, the tokens of web pages, login codes and download tickets.

    A page's token is derived from that of API clients, so that a page stays logged in when the server restarts.
    """

    def __init__(self, token: str, clock: Callable[[], float] = monotonic) -> None:
        self._token = token.encode()
        self.codes = OneTimeSecrets(clock)
        self.tickets = OneTimeSecrets(clock)
        """For downloads; the purpose of a ticket is the path."""

    def log_in(self, code: str) -> str | None:
        """Return a token for a page; None if the code is not valid."""
        return self._page_token(secrets.token_hex(16)) if self.codes.redeem(code) else None

    def name_of(self, token: str) -> str:
        """Return a name for the client with this token that reveals nothing of it; empty if the token is unknown."""
        name = token.partition(".")[0]
        given = token.encode("utf-8", "replace")
        if hmac.compare_digest(given, self._token):
            return "api"
        return (
            f"page {name[:8]}" if hmac.compare_digest(given, self._page_token(name).encode("utf-8", "replace")) else ""
        )

    def _page_token(self, name: str) -> str:
        return f"{name}.{hmac.new(self._token, name.encode('utf-8', 'replace'), 'sha256').hexdigest()}"


class Gate:
    """Refuses requests or passes them on. `hosts` are exact, with port. A refusal repeats nothing of the request."""

    def __init__(self, app: ASGIApp, credentials: Credentials, hosts: Iterable[str]) -> None:
        self.app = app
        self._credentials = credentials
        self._hosts = frozenset(map(str.lower, hosts))
        self._origins = frozenset(f"http://{host}" for host in self._hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "lifespan":
                await self.app(scope, receive, send)
            case "http":
                if refusal := self._judge(scope, Headers(scope=scope)):
                    await refusal(scope, receive, _hardened(send))
                else:
                    await self.app(scope, _limited(scope, receive), _hardened(send))
            case _:  # no websocket is offered
                await receive()
                await send({"type": "websocket.close", "code": 1008})

    def _judge(self, scope: Scope, headers: Headers) -> JSONResponse | None:
        method, path = scope["method"], scope["path"]
        if refusal := refuse_source(headers, self._hosts, self._origins):
            return _refuse(*refusal)
        if only_value(headers, "sec-fetch-site") in ("cross-site", "same-site") and (method, path) != ("GET", "/"):
            return _refuse(403, "requests from other sites are not allowed")
        is_public = (method, path) in _PUBLIC or (method in ("GET", "HEAD") and path.startswith(_ASSETS))
        if not is_public and not self._is_known(scope, headers):
            return _refuse(401, "a bearer token is needed")
        kind = content_type(headers)
        if method not in ("POST", "PUT", "PATCH", "DELETE") or kind == "application/json" or not _has_body(headers):
            return None
        if _takes_form(path) and kind == "multipart/form-data":
            return None
        if method == "PUT" and is_upload(path) and kind not in _FORM_TYPES:
            return None
        return _refuse(415, "send application/json")

    def _is_known(self, scope: Scope, headers: Headers) -> bool:
        token = bearer_token(headers)
        if token is not None:
            scope[CLIENT] = self._credentials.name_of(token)
            return bool(scope[CLIENT])
        tickets = parse_qs(scope["query_string"].decode("latin-1")).get(TICKET, [])
        return (
            scope["method"] == "GET"
            and len(tickets) == 1
            and self._credentials.tickets.redeem(tickets[0], scope["path"])
        )


def _refuse(status: int, words: str) -> JSONResponse:
    return error_response(words, status, "Refused", headers={"www-authenticate": "Bearer"} if status == 401 else None)


_KINDS = {401: "authentication", 403: "permission", 404: "not_found", 409: "conflict", 429: "rate_limit"}


def error_body(message: str, status: int, code: str, param: str | None = None) -> dict[str, dict[str, str | None]]:
    """Return an error in OpenAI's format; `code` is Pinfold's own name for the error."""
    kind = _KINDS.get(status, "server" if status >= 500 else "invalid_request")
    return {"error": {"message": message, "type": f"{kind}_error", "param": param, "code": code}}


def error_response(
    message: str, status: int, code: str, param: str | None = None, headers: Mapping[str, str] | None = None
) -> JSONResponse:
    return JSONResponse(error_body(message, status, code, param), status, headers)


def is_upload(path: str) -> bool:
    return path.startswith("/api/sessions/") and path.split("/")[4:5] == ["files"]


def _takes_form(path: str) -> bool:
    return path == "/v1/files" or (is_upload(path) and path.count("/") == 4)


def _has_body(headers: Headers) -> bool:
    return headers.get("content-length", "0") != "0" or "transfer-encoding" in headers


class BodyTooLarge(Exception):
    """A request has more bytes than allowed."""


def _limited(scope: Scope, receive: Receive) -> Receive:
    most = UPLOAD if is_upload(scope["path"]) or scope["path"] == "/v1/files" else BODY
    taken = 0

    async def receive_within() -> Message:
        nonlocal taken
        message = await receive()
        taken += len(message.get("body", b""))
        if taken > most:
            raise BodyTooLarge(f"the request is too large: at most {most:,} bytes")
        return message

    return receive_within


_HARDENED = {
    b"content-security-policy": b"default-src 'self'; img-src 'self' blob: data:; style-src 'self' 'unsafe-inline'; "
    b"frame-src 'none'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    b"x-dns-prefetch-control": b"off",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"cache-control": b"no-store",
}


def _hardened(send: Send) -> Send:
    async def send_hardened(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = {name.lower(): value for name, value in message.get("headers", [])}
            message = {**message, "headers": list((_HARDENED | given).items())}
        await send(message)

    return send_hardened
