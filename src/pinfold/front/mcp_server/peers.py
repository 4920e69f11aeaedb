"""A client as the servers behind us see it: what they ask and tell goes to it as it is."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias, cast

from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import METHOD_NOT_FOUND
from pydantic import BaseModel, ConfigDict

Context: TypeAlias = ServerRequestContext[Any, Any]
_TO_ALL = (
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/updated",
    "notifications/elicitation/complete",
)
"""What no request leads to."""


class _Message(BaseModel):
    method: str
    params: dict[str, Any] | None = None


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class ClientPeer:
    def __init__(self) -> None:
        self._under_way: list[Context] = []
        self._last: Context | None = None

    @contextmanager
    def track_request(self, context: Context) -> Generator[None]:
        """What is asked meanwhile most likely belongs to this request; the protocol does not say."""
        self._under_way.append(context)
        self._last = context
        try:
            yield
        finally:
            self._under_way.remove(context)

    def remember_context(self, context: Context) -> None:
        self._last = context

    async def on_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        context = self._under_way[-1] if self._under_way else None
        if context is None or not context.session.can_send_request:
            raise MCPError(code=METHOD_NOT_FOUND, message=f"the client cannot be asked for {method} now")
        answer = await context.session.send_request(
            cast("Any", _message(method, params)),
            _Anything,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
        return answer.model_dump(by_alias=True, mode="json")

    async def on_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        message = cast("Any", _message(method, params))
        context = self._under_way[-1] if self._under_way else None
        if context is not None and method not in _TO_ALL:
            await context.session.send_notification(message, related_request_id=context.request_id)
        elif self._last is not None:
            await self._last.session.send_notification(message)

    async def on_resumed(self) -> None:
        """A server that lets a client come again for the rest may do so here as well."""
        for context in self._under_way:
            if context.close_sse_stream is not None:
                await context.close_sse_stream()


class RequestPeer:
    """For a line that one request has to itself: all that comes over it belongs there."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def on_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        del params
        raise MCPError(code=METHOD_NOT_FOUND, message=f"a client of this version is not asked for {method}")

    async def on_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        message = cast("Any", _message(method, params))
        await self._context.session.send_notification(message, related_request_id=self._context.request_id)

    async def on_resumed(self) -> None:
        """There is no coming again in this version."""


class NoClientPeer:
    """For looking at a server before any client is there."""

    async def on_request(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        del params
        raise MCPError(code=METHOD_NOT_FOUND, message=f"nobody can be asked for {method}")

    async def on_notification(self, method: str, params: Mapping[str, Any] | None) -> None:
        del method, params

    async def on_resumed(self) -> None:
        """Nobody waits."""


def _message(method: str, params: Mapping[str, Any] | None) -> _Message:
    return _Message(method=method, params=None if params is None else dict(params))
