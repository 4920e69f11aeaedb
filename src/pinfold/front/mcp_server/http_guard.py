"""Stands before the HTTP server: only who has the token, asks for this host, and is no page of another site gets in."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, TypeAlias

from pinfold.front.mcp_server.event_replay import on_behalf

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION = "mcp-session-id"
_BEARER = "bearer "
_REMEMBERED = 4096


class Guard:
    """`hosts` and `origins` are exact, with their port. Nothing of a request that is refused is answered back."""

    def __init__(
        self,
        app: App,
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
        """Told the session of the protocol's that a client has ended."""
        self._whose: dict[str, str] = {}
        """By the same: under what is kept for it to be sent again."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = _Headers(scope["headers"])
        if refusal := self._refusal(scope["method"], headers):
            await _refuse(send, *refusal)
            return
        session = headers.only(SESSION) or ""
        # A session is opened by a request that does not know its name yet.
        whose = self._whose.get(session) or secrets.token_hex(8)

        async def send_and_note(message: Message) -> None:
            begins = message["type"] == "http.response.start" and not session
            opened = _Headers(message.get("headers", ())).only(SESSION) if begins else None
            if opened:
                self._whose[opened] = whose
                if len(self._whose) > _REMEMBERED:  # clients that left without a word
                    del self._whose[next(iter(self._whose))]
            await send(message)

        with on_behalf(whose):
            await self._app(scope, receive, send_and_note)
        if scope["method"] == "DELETE" and session:
            self._whose.pop(session, None)
            await self._on_gone(session)

    def _refusal(self, method: str, headers: _Headers) -> tuple[int, str] | None:
        host, origins = headers.only("host"), headers.every("origin")
        if host is None or host.lower() not in self._hosts:
            return 421, "this server is not asked for by that name"
        if origins and (len(origins) > 1 or origins[0].lower() not in self._origins):
            return 403, "pages of other sites may not ask this server"
        given = headers.only("authorization") or ""
        if given[: len(_BEARER)].lower() != _BEARER or not hmac.compare_digest(
            given[len(_BEARER) :].encode("utf-8", "replace"), self._token
        ):
            return 401, "a bearer token is needed"
        kind = (headers.only("content-type") or "").partition(";")[0].strip().lower()
        if method == "POST" and kind != "application/json":
            return 415, "send application/json"
        return None


class _Headers:
    def __init__(self, raw: Iterable[tuple[bytes, bytes]]) -> None:
        self._raw = tuple((name.lower(), value) for name, value in raw)

    def every(self, name: str) -> list[str]:
        return [value.decode("latin-1") for known, value in self._raw if known == name.encode()]

    def only(self, name: str) -> str | None:
        """None also of one that is there twice: which of them counts is not ours to guess."""
        values = self.every(name)
        return values[0] if len(values) == 1 else None


async def _refuse(send: Send, status: int, words: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words.encode()})
