"""A model around another: the same name, the same end, and something of its own in between."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Protocol, TypeAlias, cast

from anyio import to_thread
from msgspec.structs import replace

from pinfold.events import Reply, Request, Thought, Usage

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
        """Tokens it can take, if known."""
        return getattr(self.model, "context", None)

    def pieces(self, request: Request) -> AbstractAsyncContextManager[AsyncGenerator[str | Thought | Reply]]:
        """What the model inside says; leaving early ends it."""
        return aclosing(cast("AsyncGenerator[str | Thought | Reply]", self.model.stream(request)))

    async def aclose(self) -> None:
        """Close what the model inside holds, if it holds anything."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()


_ALSO = {"google-vertex": "google", "gemini": "google", "bedrock": "aws", "xai": "x-ai"}


def cost_of(provider: str, model: str, usage: Usage) -> float | None:
    """In US dollars, or None when the price is not known.

    Imports the list of prices when it is first called, half a second of CPU: call it in a worker thread.
    """
    from genai_prices import Usage as Priced
    from genai_prices import calc_price

    counted = Priced(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cache_read_tokens=usage.cached_tokens,
        cache_write_tokens=usage.written_tokens,
    )
    try:
        price = calc_price(counted, model, provider_id=_ALSO.get(provider, provider))
    except (LookupError, ValueError):
        # No such provider or model; or counts that contradict each other.
        return None
    # A model that is listed without prices, or a provider that counted nothing, would come out as free.
    return float(price.total_price) or None


def context_of(provider: str, model: str) -> int | None:
    """Tokens the model can take, if that is known. Imports as `cost_of` does."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return get_snapshot().find_provider_model(model, None, _ALSO.get(provider, provider), None)[1].context_window
    except (LookupError, ValueError):
        return None


class PriceLayer(Layer):
    """A model whose replies say what they cost."""

    def __init__(self, model: Inner, provider: str | None, id_: str) -> None:
        """`id_` is what the provider calls it; without a provider it runs on this machine, for nothing."""
        super().__init__(model)
        self._provider = provider
        self._id = id_
        self._context: int | None = None
        """As listed; once it was looked up."""

    @property
    def context(self) -> int | None:
        return super().context or self._context

    async def stream(self, request: Request) -> Pieces:
        async with self.pieces(request) as pieces:
            async for piece in pieces:
                yield await self._add_cost(piece) if isinstance(piece, Reply) else piece

    async def _add_cost(self, reply: Reply) -> Reply:
        if self._provider is None:
            return replace(reply, cost=0.0)
        cost = await to_thread.run_sync(cost_of, self._provider, self._id, reply.usage)
        self._context = self._context or await to_thread.run_sync(context_of, self._provider, self._id)
        return replace(reply, cost=cost)
