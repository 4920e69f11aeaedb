"""Server-sent events: one line of JSON for each event of a session, resumable by number."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

import anyio
import anyio.lowlevel
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from pinfold.app import Link, OwnerGone, background
from pinfold.events import Delta, Entry, encode, entry_line

BEAT = ": waiting\n\n"
BEAT_S = 15.0
"""This comment is sent when nothing else was for this long, so that a lost connection is noticed."""
SLOW_S = 30.0
"""A reader that takes nothing for this long is cut off; it can resume."""
RETRY_MS = 1000
_TURN = 50
"""Events sent in one go."""
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}


class EventStream(Response):
    """Sends the lines of `chunks` until they end, or the reader is gone or too slow."""

    def __init__(
        self, chunks: AsyncGenerator[str], headers: Mapping[str, str] | None = None, *, slow_s: float = SLOW_S
    ) -> None:
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]
        self._chunks = chunks
        self._slow_s = slow_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await self._send_all(receive, send)
        finally:
            with anyio.CancelScope(shield=True):  # now, not when it is collected: it holds a subscription
                await self._chunks.aclose()

    async def _send_all(self, receive: Receive, send: Send) -> None:
        async with background() as tasks:
            tasks.start_soon(_wait_until_gone, receive, tasks.cancel_scope)
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            sent = 0
            async for chunk in self._chunks:
                if not await self._send_in_time(send, chunk):
                    return
                sent += 1
                if sent % _TURN == 0:  # what is stored comes without a wait: others have their turn too
                    await anyio.lowlevel.checkpoint()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_in_time(self, send: Send, chunk: str) -> bool:
        message: Message = {"type": "http.response.body", "body": chunk.encode(), "more_body": True}
        with anyio.move_on_after(self._slow_s):
            await send(message)
            return True
        return False


async def _wait_until_gone(receive: Receive, scope: anyio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()


async def stream_events(link: Link, after: int) -> AsyncGenerator[str]:
    """All events after this one, then all that come. Deltas have no number: who resumes gets the whole instead."""
    yield f"retry: {RETRY_MS}\n\n"
    try:
        async with link.subscribe(after) as feed:
            items = aiter(feed)
            while True:
                item: Entry | Delta | None = None
                with anyio.move_on_after(BEAT_S):
                    item = await anext(items)
                yield BEAT if item is None else sse_line(item)
    except (StopAsyncIteration, OwnerGone):
        return


def sse_line(item: Entry | Delta) -> str:
    if isinstance(item, Entry):
        return f"id: {item.seq}\ndata: {entry_line(item)}\n\n"
    return f"data: {encode(item)}\n\n"
