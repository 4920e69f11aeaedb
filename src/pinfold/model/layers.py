"""A model around another: the same name, the same end, and something of its own in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol, TypeAlias, cast

from pinfold.events import Reply, Request, Thought

Pieces: TypeAlias = AsyncIterator[str | Thought | Reply]


class Inner(Protocol):
    """Any model, whether it holds something open or not."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> Pieces: ...


class Layer:
    def __init__(self, model: Inner) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context(self) -> int | None:
        """Tokens it can take, if anybody says."""
        return getattr(self.model, "context", None)

    def pieces(self, request: Request) -> AbstractAsyncContextManager[AsyncGenerator[str | Thought | Reply]]:
        """What the model inside says; leaving early ends it."""
        return aclosing(cast("AsyncGenerator[str | Thought | Reply]", self.model.stream(request)))

    async def aclose(self) -> None:
        """Close what the model inside holds, if it holds anything."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()
