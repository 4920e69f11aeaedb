"""Server-sent events: one line of JSON for each event of a session, resumable by number."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping

import anyio
import anyio.lowlevel
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pinfold.app import Link, OwnerGone, Subscription, background
from pinfold.events import Delta, Entry, Json, encode, entry_line

BEAT = ": waiting\n\n"
BEAT_S = 15.0
"""`BEAT` is sent after this long without other data, so that a lost connection is noticed."""
SLOW_S = 30.0
"""A reader that does not read for this long is cut off; it can resume."""
RETRY_MS = 1000
_TOGETHER = 16_384
"""About how many characters of events are sent in one message."""
_TURN = 8
"""Messages to send before other tasks may run."""
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


class EventStream(Response):
    """Sends `chunks` until they end, or the reader is gone or too slow; during a long pause it sends a comment."""

    def __init__(
        self, chunks: AsyncGenerator[str], headers: Mapping[str, str] | None = None, *, slow_s: float = SLOW_S
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._chunks = chunks
        self._slow_s = slow_s
        self._sent_at = 0.0
        self._is_sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await self._send_all(receive, send)
        finally:
            with anyio.CancelScope(shield=True):  # closed now, not at garbage collection: it holds a subscription
                await self._chunks.aclose()

    async def _send_all(self, receive: Receive, send: Send) -> None:
        async with background() as tasks:
            tasks.start_soon(_wait_until_gone, receive, tasks.cancel_scope)
            tasks.start_soon(self._watch, send, tasks.cancel_scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sent = 0
            async for chunk in self._chunks:
                await self._send(send, chunk)
                sent += 1
                if sent % _TURN == 0:  # stored events come without a wait, so let other tasks run
                    await anyio.lowlevel.checkpoint()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, chunk: str) -> None:
        self._sent_at, self._is_sending = anyio.current_time(), True
        await send({"type": "http.response.body", "body": chunk.encode(), "more_body": True})
        self._is_sending = False

    async def _watch(self, send: Send, scope: anyio.CancelScope) -> None:
        """Watch the whole stream with one timer: a timeout around each message would cost more than the message."""
        while True:
            await anyio.sleep(min(BEAT_S, self._slow_s))
            waited_s = anyio.current_time() - self._sent_at
            if self._is_sending and waited_s >= self._slow_s:
                scope.cancel()
            elif not self._is_sending and waited_s >= BEAT_S:
                with anyio.move_on_after(self._slow_s):
                    await self._send(send, BEAT)


async def _wait_until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def stream_events(link: Link, after: int) -> AsyncGenerator[str]:
    """Yield all events after `after`, stored and future. Deltas have no number, so they are not sent again."""
    yield f"retry: {RETRY_MS}\n\n"
    try:
        async with link.subscribe(after) as feed:
            async for item in feed:
                yield _lines_ready(item, feed)
    except OwnerGone:
        return


def _lines_ready(first: Entry | Delta, feed: AsyncIterator[Entry | Delta]) -> str:
    """Return `first` and all else that is ready, because a message costs much more than another line in it."""
    lines, size, item = list[str](), 0, first
    while item is not None:
        lines.append(sse_line(item))
        size += len(lines[-1])
        item = feed.next_ready() if size < _TOGETHER and isinstance(feed, Subscription) else None
    return "".join(lines)


def sse_data(value: Mapping[str, Json]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"


def sse_line(item: Entry | Delta) -> str:
    if isinstance(item, Entry):
        return f"id: {item.seq}\ndata: {entry_line(item)}\n\n"
    return f"data: {encode(item)}\n\n"
