"""MCP clients: identity, progress, approvals, and messages from exported servers."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

import anyio
from mcp.server import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp.types import METHOD_NOT_FOUND
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from pinfold.app import Approval, Approve, Decision, background
from pinfold.events import Json
from pinfold.text import cap_text, presentable_line

Context: TypeAlias = ServerRequestContext[Any, Any]
STDIO = "stdio"
_EVERY_S = 0.2
"""Shortest time between two progress reports."""
_LINE = 200
_SHOWN = 20_000
"""Most characters of a question; a request that needs more is denied."""
_ANSWER_S = 600.0
"""How long a client may take to answer a question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    key: str
    """Identifies the client; empty if clients cannot be has_news apart."""
    name: str
    context: Context

    @property
    def approve(self) -> Approve | None:
        """None if the client cannot be asked during a call."""
        has = self.context.session.client_capabilities
        if has is None or has.elicitation is None or not self.context.session.can_send_request:
            return None
        return self._approve

    async def _approve(self, approval: Approval) -> Decision:
        if approval.question:
            answer = await self._elicit(cap_text(approval.reason, _SHOWN), "answer", approval.options)
            return Decision(allow=answer is not None, words=answer or "the user gave no answer")
        said = [f"Pinfold asks: {approval.reason}", approval.shows]
        choices = ["allow", "deny"]
        if approval.pattern:
            choices.insert(1, "allow in this session")
            said.append(f'"allow in this session" covers: {approval.pattern}')
        words = "\n\n".join(filter(None, said))
        if len(words) > _SHOWN:
            why = (
                f"it takes {len(words):,} characters to show what it would do, and a client is shown {_SHOWN:,} at most"
            )
            return Decision(allow=False, words=f"{why}; do it in smaller steps")
        match await self._elicit(words, "decision", choices):
            case "allow":
                return Decision(allow=True)
            case "allow in this session":
                return Decision(allow=True, scope="session")
            case _:
                return Decision(allow=False, words="the user said no")

    async def _elicit(self, message: str, name: str, choices: Sequence[str]) -> str | None:
        field = {"type": "string", "title": name.capitalize(), **({"enum": list(choices)} if choices else {})}
        schema: dict[str, Json] = {"type": "object", "properties": {name: field}, "required": [name]}
        session, request = self.context.session, self.context.request_id
        try:
            with anyio.fail_after(_ANSWER_S):
                result = await session.elicit_form(message, schema, related_request_id=request)
        except (MCPError, TimeoutError):
            return None
        value = (result.content or {}).get(name) if result.action == "accept" else None
        return value if isinstance(value, str) else None


def client_of(context: Context) -> Client:
    request, about = context.request, context.session.client_params
    # Over HTTP without a protocol session, requests cannot be related to each other.
    key = request.headers.get("mcp-session-id", "") if isinstance(request, Request) else STDIO
    name = presentable_line(about.client_info.name)[:60] if about else "a client"
    return Client(key=key, name=name, context=context)


@asynccontextmanager
async def progress(context: Context) -> AsyncGenerator[Callable[[str], None]]:
    """Yield a function for text, whose last line is reported to the client at intervals if it asked for progress."""
    if not (context.meta and "progress_token" in context.meta):
        yield lambda _: None
        return
    last, has_news = "", anyio.Event()

    def say(text: str) -> None:
        nonlocal last
        lines = text.strip().splitlines()
        last = presentable_line(lines[-1])[:_LINE] if lines else last
        has_news.set()

    async def report() -> None:
        nonlocal has_news
        count = 0
        while True:
            await has_news.wait()
            has_news, count = anyio.Event(), count + 1
            await context.session.report_progress(count, None, last)
            await anyio.sleep(_EVERY_S)

    async with background() as tasks:
        tasks.start_soon(report)
        yield say


_TO_ALL = (
    "notifications/tools/list_changed",
    "notifications/resources/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/updated",
    "notifications/elicitation/complete",
)
"""Notifications that belong to no request."""


class _Message(BaseModel):
    method: str
    params: dict[str, Json] | None = None


class _Anything(BaseModel):
    model_config = ConfigDict(extra="allow")


class ClientPeer:
    def __init__(self) -> None:
        self._open_requests: list[Context] = []
        self._last: Context | None = None

    @contextmanager
    def track_request(self, context: Context) -> Generator[None]:
        """Relate to this request what a server sends meanwhile, because the protocol does not name the request."""
        self._open_requests.append(context)
        self._last = context
        try:
            yield
        finally:
            self._open_requests.remove(context)

    async def on_request(self, method: str, params: Mapping[str, Json] | None) -> dict[str, Json]:
        context = self._open_requests[-1] if self._open_requests else None
        if context is None or not context.session.can_send_request:
            raise MCPError(code=METHOD_NOT_FOUND, message=f"the client cannot be asked for {method} now")
        answer = await context.session.send_request(
            _message(method, params),
            _Anything,
            metadata=ServerMessageMetadata(related_request_id=context.request_id),
        )
        return answer.model_dump(by_alias=True, mode="json")

    async def on_notification(self, method: str, params: Mapping[str, Json] | None) -> None:
        message = _message(method, params)
        context = self._open_requests[-1] if self._open_requests else None
        if context is not None and method not in _TO_ALL:
            await context.session.send_notification(message, related_request_id=context.request_id)
        elif self._last is not None:
            await self._last.session.send_notification(message)

    async def on_resumed(self) -> None:
        """End the client's streams for it to resume, because a server did so with its own."""
        for context in self._open_requests:
            if context.close_sse_stream is not None:
                await context.close_sse_stream()


class RequestPeer:
    """The peer of a connection that serves one request or, without `context`, only inspects a server."""

    def __init__(self, context: Context | None = None) -> None:
        self._context = context

    async def on_request(self, method: str, params: Mapping[str, Json] | None) -> dict[str, Json]:
        del params
        raise MCPError(code=METHOD_NOT_FOUND, message=f"the client cannot be asked for {method}")

    async def on_notification(self, method: str, params: Mapping[str, Json] | None) -> None:
        if self._context is not None:
            message = _message(method, params)
            await self._context.session.send_notification(message, related_request_id=self._context.request_id)

    async def on_resumed(self) -> None:
        """Do nothing: this version of the protocol has no resumption."""


def _message(method: str, params: Mapping[str, Json] | None) -> Any:
    return _Message(method=method, params=None if params is None else dict(params))
