"""What was lately sent to clients over HTTP, so that one whose connection broke can have the rest. Bounded, and each its own."""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from mcp.server.streamable_http import EventCallback, EventMessage, EventStore
from mcp.types import JSONRPCMessage

EVENTS = 4096
BYTES = 32 << 20
RETRY_MS = 500
"""After which a client whose stream ended asks again."""
_whose: ContextVar[str] = ContextVar("whose", default="")


@contextmanager
def on_behalf(session: str) -> Generator[None]:
    """The SDK calls streams by the number of a request, which is the same for many clients: this tells them apart."""
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
