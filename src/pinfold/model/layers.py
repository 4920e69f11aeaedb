"""Models that wrap another model, keep its name and close it, and add one thing: the cost of replies, or a cache of
replies to deterministic requests."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, suppress
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import msgspec
from anyio import to_thread
from msgspec.structs import replace

from pinfold.events import (
    AssistantMessage,
    BadEvent,
    Call,
    Json,
    NotPlain,
    Reply,
    Request,
    Thought,
    ToolMessage,
    Usage,
    convert,
    new_action_id,
    parse_json,
    plain_json,
)

Pieces: TypeAlias = AsyncIterator[str | Thought | Reply]


class AnyModel(Protocol):
    """A model that may or may not have `aclose`."""

    @property
    def name(self) -> str: ...

    def stream(self, request: Request) -> Pieces:
        """Yield text and reasoning as they arrive, then the complete reply. Raises RequestFailed."""
        ...


class Model(AnyModel, Protocol):
    async def aclose(self) -> None: ...


class Layer:
    def __init__(self, model: AnyModel) -> None:
        self.model = model

    @property
    def name(self) -> str:
        return self.model.name

    @property
    def context(self) -> int | None:
        """Size of the model's context in tokens, if known."""
        return getattr(self.model, "context", None)

    def pieces(self, request: Request) -> AbstractAsyncContextManager[AsyncGenerator[str | Thought | Reply]]:
        """Stream the wrapped model's output. Leaving the context early ends the stream."""
        return aclosing(cast("AsyncGenerator[str | Thought | Reply]", self.model.stream(request)))

    async def aclose(self) -> None:
        """Close the wrapped model, if it has `aclose`."""
        close = getattr(self.model, "aclose", None)
        if close is not None:
            await close()


_PRICE_LIST_NAMES = {"google-vertex": "google", "gemini": "google", "bedrock": "aws", "xai": "x-ai"}
"""Providers that the price list calls by another name."""


def cost_of(provider: str, model: str, usage: Usage) -> float | None:
    """Return the cost in US dollars, or None if the price is not known.

    The first call imports the price list, half a second of CPU: call it in a worker thread.
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
        price = calc_price(counted, model, provider_id=_PRICE_LIST_NAMES.get(provider, provider))
    except (LookupError, ValueError):
        # No such provider or model, or token counts that contradict each other.
        return None
    # A price of 0 means that the model is listed without prices or no tokens were counted: unknown, not free.
    return float(price.total_price) or None


def context_of(provider: str, model: str) -> int | None:
    """Return the size of the model's context in tokens, if known. Imports the price list, as `cost_of` does."""
    from genai_prices.data_snapshot import get_snapshot

    try:
        return (
            get_snapshot()
            .find_provider_model(model, None, _PRICE_LIST_NAMES.get(provider, provider), None)[1]
            .context_window
        )
    except (LookupError, ValueError):
        return None


class PriceLayer(Layer):
    """Adds the cost to each reply."""

    def __init__(self, model: AnyModel, provider: str | None, id_: str) -> None:
        """`id_` is the provider's name for the model. Without a provider it runs on this machine and costs nothing."""
        super().__init__(model)
        self._provider = provider
        self._id = id_
        self._context: int | None = None
        """The size in the price list; None until the first reply looks it up."""

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


MOST = 2_000
"""Maximum number of cached replies; the least recently used are deleted first."""
_LARGEST = 1 << 20


class ReplyCache(Layer):
    """Caches replies to deterministic requests on disk, so that the same request is not paid for twice. Bounded."""

    def __init__(self, model: AnyModel, folder: Path, *, at: str = "", most: int = MOST) -> None:
        super().__init__(model)
        self._who = f"{model.name} {at}"
        """Includes the address: two servers may use one name for different models."""
        self._folder = folder
        self._most = most

    async def stream(self, request: Request) -> Pieces:
        settings = request.settings
        is_deterministic = settings.get("temperature") == 0 or settings.get("seed") is not None
        key = key_of(self._who, request) if is_deterministic else None
        if key and (known := self._look_up(key)):
            yield known.text
            yield known
            return
        async with self.pieces(request) as pieces:
            async for piece in pieces:
                if key and isinstance(piece, Reply) and piece.finish == "stop":
                    self._remember(key, piece)
                yield piece

    def _look_up(self, key: str) -> Reply | None:
        path = self._folder / key
        try:
            reply = convert(parse_json(path.read_bytes()), Reply)
            os.utime(path)
        except (OSError, BadEvent, msgspec.MsgspecError, UnicodeError):
            return None
        calls = tuple(Call(id=new_action_id(), tool=call.tool, args=call.args) for call in reply.calls)
        return replace(reply, calls=calls, usage=Usage(), cost=0.0, from_cache=True, notices=())

    def _remember(self, key: str, reply: Reply) -> None:
        # A reply that cannot be cached is still returned.
        with suppress(OSError, NotPlain):
            data = plain_json(reply).encode()
            if len(data) > _LARGEST:
                return
            for folder in (*reversed(self._folder.parents), self._folder):  # `parents=True` would ignore the mode
                folder.mkdir(mode=0o700, exist_ok=True)
            descriptor, partial = tempfile.mkstemp(dir=self._folder, prefix=".")
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            Path(partial).replace(self._folder / key)
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        kept = [entry for entry in os.scandir(self._folder) if not entry.name.startswith(".")]
        if len(kept) > self._most:
            # A tenth at once, so that not every reply has to sort the whole folder.
            oldest = sorted(kept, key=lambda entry: entry.stat().st_mtime)
            for entry in oldest[: len(kept) - self._most + self._most // 10]:
                Path(entry.path).unlink(missing_ok=True)


def key_of(who: str, request: Request) -> str:
    """Hash everything the model would be sent. Call ids are replaced by their order of appearance."""
    numbers: dict[str, str] = {}

    def number(id_: str) -> str:
        return numbers.setdefault(id_, str(len(numbers)))

    messages: list[Json] = []
    for message in request.messages:
        match message:
            case AssistantMessage(calls=calls):
                known = [{"id": number(call.id), "tool": call.tool, "args": call.args} for call in calls]
                messages.append({"role": "assistant", "text": message.text, "calls": known})
            case ToolMessage(id=id_, text=text):
                messages.append({"role": "tool", "id": number(id_), "text": text})
            case _:
                messages.append(message)
    whole = [who, request.system, messages, request.tools, dict(request.settings)]
    return hashlib.sha256(plain_json(whole).encode()).hexdigest()
