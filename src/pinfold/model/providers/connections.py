"""Closes the connection of an answer that nobody listens to any more, where an SDK leaves that to the garbage collector."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

import anyio

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response

T = TypeVar("T")
_CLOSING_S = 2.0
_answers: ContextVar[list[Response] | None] = ContextVar("answers", default=None)


def make_watched_client() -> AsyncClient:
    """For an SDK; its answers are closed by `closed_after`."""
    from pydantic_ai.models import create_async_httpx2_client

    client = create_async_httpx2_client()
    hooks = client.event_hooks
    client.event_hooks = {**hooks, "response": [*hooks["response"], _remember]}
    return client


async def _remember(response: Response) -> None:
    if (answers := _answers.get()) is not None:
        answers.append(response)


@asynccontextmanager
async def close_answers_after(opening: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
    """As `opening`; when it is left, the answers it began to read are closed."""
    answers: list[Response] = []
    async with AsyncExitStack() as stack:
        stack.push_async_callback(_close, answers)
        token = _answers.set(answers)
        try:
            opened = await stack.enter_async_context(opening)
        finally:
            _answers.reset(token)
        yield opened


async def _close(answers: list[Response]) -> None:
    # Shielded: being cancelled is the usual reason to be here.
    with anyio.move_on_after(_CLOSING_S, shield=True):
        for answer in answers:
            await answer.aclose()
