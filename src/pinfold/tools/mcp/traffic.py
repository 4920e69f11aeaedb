"""Counts the messages of one server: a flood ends its connection, and nothing else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import anyio
import mcp_types as types
from anyio.abc import ObjectReceiveStream, ObjectSendStream
from mcp.shared.message import SessionMessage

from pinfold.tools.mcp.limits import Limits

Streams: TypeAlias = tuple[Any, Any]
"""What a transport of the SDK gives: one to read messages from, one to write them to. The SDK has no public type for them."""


class Over:
    """The end of one connection, and why."""

    def __init__(self) -> None:
        self.event = anyio.Event()
        self.why = ""
        self.status = 0
        """The last HTTP status that was no good, which the SDK does not tell."""

    def end(self, why: str) -> None:
        """The first reason is kept."""
        if not self.event.is_set():
            self.why = why
            self.event.set()


class Watch:
    def __init__(self, over: Over, limits: Limits) -> None:
        self.over = over
        self.limits = limits
        self.on_resume: Callable[[], Awaitable[None]] | None = None
        """Called when a stream that the server ended is resumed."""
        self._asked: set[str] = set()
        self._since = -1e9
        self._count = 0
        self._bytes = 0

    def goes_out(self, message: types.JSONRPCMessage) -> None:
        if isinstance(message, types.JSONRPCRequest):
            self._asked.add(str(message.id))

    def comes_in(self, message: types.JSONRPCMessage | Exception | None, size: int = 0) -> bool:
        """False once there is too much. The first answer to each of our requests is free; everything else counts."""
        if isinstance(message, types.JSONRPCResponse | types.JSONRPCError) and str(message.id) in self._asked:
            self._asked.discard(str(message.id))
            return True
        now = anyio.current_time()
        if now - self._since > self.limits.window_s:
            self._since, self._count, self._bytes = now, 0, 0
        self._count += 1
        self._bytes += size
        for count, most, what in (
            (self._count, self.limits.unasked, "messages"),
            (self._bytes, self.limits.unasked_bytes, "bytes"),
        ):
            if count > most:
                self.over.end(f"it sent more than {most:,} {what} in {self.limits.window_s:g} s that nobody asked for")
        return not self.over.event.is_set()


class WatchedReading(ObjectReceiveStream[SessionMessage | Exception]):
    """Ends as a stream does when the watch has seen enough."""

    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    @property
    def last_context(self) -> Any:
        return getattr(self._inner, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        try:
            item: SessionMessage | Exception = await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._watch.over.end("the server ended the connection")
            raise
        if not self._watch.comes_in(item if isinstance(item, Exception) else item.message):
            raise anyio.EndOfStream
        return item

    async def aclose(self) -> None:
        await self._inner.aclose()


class WatchedWriting(ObjectSendStream[SessionMessage]):
    def __init__(self, inner: Any, watch: Watch) -> None:
        self._inner = inner
        self._watch = watch

    async def send(self, item: SessionMessage) -> None:
        self._watch.goes_out(item.message)
        await self._inner.send(item)

    async def aclose(self) -> None:
        await self._inner.aclose()
