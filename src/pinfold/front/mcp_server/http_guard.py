"""Checks HTTP requests: token, host, origin. Keeps recent events for clients that reconnect."""

from __future__ import annotations

import hmac
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Iterable, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeAlias

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

SESSION = "mcp-session-id"
_BEARER = "bearer "
_REMEMBERED = 4096


class Guard:
    """`hosts` and `origins` are exact, with their port. A refusal repeats nothing of the request."""

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
        """Called with the protocol session that a client has ended."""
        self._whose: dict[str, str] = {}
        """Protocol session -> the key under which its events are kept."""

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
        # The request that opens a session does not know its id yet.
        whose = self._whose.get(session) or secrets.token_hex(8)

        async def send_and_note(message: Message) -> None:
            begins = message["type"] == "http.response.start" and not session
            opened = _Headers(message.get("headers", ())).only(SESSION) if begins else None
            if opened:
                self._whose[opened] = whose
                if len(self._whose) > _REMEMBERED:  # clients that left without notice
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
            return 421, "unknown host name"
        if origins and (len(origins) > 1 or origins[0].lower() not in self._origins):
            return 403, "requests from other sites are not allowed"
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
        """None if it is missing or given twice."""
        values = self.every(name)
        return values[0] if len(values) == 1 else None


async def _refuse(send: Send, status: int, words: str) -> None:
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"connection", b"close")]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": words.encode()})


EVENTS = 4096
BYTES = 32 << 20
RETRY_MS = 500
"""When a client whose stream ended reconnects."""
_whose: ContextVar[str] = ContextVar("whose", default="")


@contextmanager
def on_behalf(session: str) -> Generator[None]:
    """The SDK names streams by request number, which clients share: this tells clients apart."""
    token = _whose.set(session)
    try:
        yield
    finally:
        _whose.reset(token)


@dataclass(frozen=True, slots=True)
class _Sent:
    id: str
    whose: str
    stream: str
    message: JSONRPCMessage | None
    size: int


class RecentEvents(EventStore):
    def __init__(self, events: int = EVENTS, size: int = BYTES) -> None:
        self._most = events
        self._size = size
        self._kept: deque[_Sent] = deque()
        self._held = 0

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        size = len(message.model_dump_json(by_alias=True, exclude_unset=True)) if message else 0
        sent = _Sent(secrets.token_hex(12), _whose.get(), stream_id, message, size)
        self._kept.append(sent)
        self._held += size
        while len(self._kept) > self._most or self._held > self._size:
            self._held -= self._kept.popleft().size
        return sent.id

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        kept = tuple(self._kept)
        last = next((at for at, one in enumerate(kept) if one.id == last_event_id), None)
        if last is None or kept[last].whose != _whose.get():
            return None
        found = kept[last]
        for one in kept[last + 1 :]:
            if (one.whose, one.stream) == (found.whose, found.stream) and one.message is not None:
                await send_callback(EventMessage(one.message, one.id))
        return found.stream
