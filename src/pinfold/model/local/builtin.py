"""A model that is already inside: its weights, what runs them and the process they run in are seen to on demand."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import anyio
import msgspec

from pinfold.events import Reply, Request, RequestFailed, Thought, Usage
from pinfold.model.layers import Layer, Pieces
from pinfold.model.local.model_host import Host, Served, Spec
from pinfold.model.local.runtime import runtime
from pinfold.model.local.weights import Pulling, pull, weights_at, weights_named
from pinfold.model.wire.http import Patience
from pinfold.model.wire.openai import OpenAIModel

_MEASURED = 8
"""Tokens of which fewer say nothing of a pace."""
_PATIENCE = Patience(connect_s=5, first_s=900, idle_s=300)
"""A small machine reads ten tokens a second when others are busy on it."""


@dataclass(kw_only=True, eq=False)
class BuiltinModel:
    """`builtin` and its like, by name. It has no tool calls of its own: calls are read out of its text."""

    name: str = "builtin"
    folder: Path
    """Pinfold's folder for data."""
    state: Path
    """For what may be lost."""
    uv: Path | None
    """Installs the runtime where it is missing."""
    notice: Callable[[str], None]
    """Gets what takes long, for the user."""
    linger_s: float = 10.0

    def __post_init__(self) -> None:
        self._weights = weights_named(self.name)
        self._host: Host | None = None
        self._talking: OpenAIModel | None = None
        self._alone = anyio.Lock()

    @property
    def context(self) -> int:
        """How many tokens it has room for, as it runs."""
        return (self._talking and self._talking.context) or self._weights.context

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        """Pieces as they come, then the whole reply. Raises RequestFailed, or ModelError for what is missing."""
        talking = await self.warm()
        began, first = time.monotonic(), None
        try:
            async with aclosing(talking.stream(request)) as pieces:
                async for piece in pieces:
                    if isinstance(piece, Reply):
                        news = self._news(piece.usage, (first or began) - began, time.monotonic() - began)
                        yield msgspec.structs.replace(piece, cost=0.0, notices=(*piece.notices, *news))
                    else:
                        first = first or time.monotonic()
                        yield piece
        except RequestFailed as failure:
            if self._host is None or self._host.is_running():
                raise
            await self._forget()
            words = f"the process that runs {self.name} ended; it is started again when it is asked"
            raise RequestFailed(words) from failure

    def _news(self, usage: Usage, reading_s: float, took_s: float) -> tuple[str, ...]:
        """Once for a user: what to expect of such a model, and its pace as it was just measured."""
        fresh, written = usage.input_tokens - usage.cached_tokens, usage.output_tokens
        if min(fresh, written) < _MEASURED or not 0 < reading_s < took_s:
            return ()
        try:
            (self.state / "told-builtin").touch(exist_ok=False)
        except OSError:
            return ()
        pace = f"reads about {fresh / reading_s:,.0f} and writes about {written / (took_s - reading_s):,.0f}"
        says = (
            f"{self.name} {pace} tokens a second on this machine, as just measured. It is good for short questions "
            "about tables and files, and often wrong: read the code before you rely on a figure. For longer work use a larger "
            "model: `pinfold model list` shows what can be had."
        )
        return (says,)

    async def aclose(self) -> None:
        await self._forget()
        if self._host is not None:
            self._host.release()
            self._host = None

    async def warm(self) -> OpenAIModel:
        """Loaded, started if need be. Raises RequestFailed, or ModelError for what is missing."""
        async with self._alone:
            if self._host is not None and not self._host.is_running():
                await self._forget()
            if self._talking is None:
                self._host = self._host or await self._make_host()
                self._talking = self._make_client(await self._host.ready())
            return self._talking

    async def _make_host(self) -> Host:
        folder, weights = self.folder / "models", self._weights
        path = weights_at(weights, folder)
        if path is None:
            self.notice(f"fetching {weights.title} ({weights.megabytes}), once")
            path = await pull(weights, folder, _tell_quarters(self.notice))
        found = await runtime(self.folder / "runtimes", self.uv, self.notice)
        spec = Spec(model=path, alias=self.name, context=weights.context, runtime=found, linger_s=self.linger_s)
        return Host(spec, self.state)

    def _make_client(self, served: Served) -> OpenAIModel:
        return OpenAIModel(
            name=self.name,
            base_url=f"{served.url}/v1",
            model=self.name,
            key=served.key,
            patience=_PATIENCE,
            takes_tools=False,
            context=served.context,
        )

    async def _forget(self) -> None:
        talking, self._talking = self._talking, None
        if talking is not None:
            await talking.aclose()


class Repeatable(Layer):
    """A user's seed gives the same reply again: nothing is reused of prompts that were read before.

    What is reused was reckoned in other portions and differs by a hair: enough for other words.
    """

    async def stream(self, request: Request) -> Pieces:
        if request.settings.get("seed") is not None:
            request = msgspec.structs.replace(request, settings={"cache_prompt": False, **request.settings})
        async with self.pieces(request) as pieces:
            async for piece in pieces:
                yield piece


def _tell_quarters(notice: Callable[[str], None]) -> Callable[[Pulling], None]:
    """Tells how far a pull is, four times."""
    told = 0

    def tell(pulling: Pulling) -> None:
        nonlocal told
        quarter = 4 * pulling.done // pulling.total if pulling.total else 0
        if quarter > told:
            told = quarter
            notice(f"fetched {25 * quarter} %")

    return tell
