"""A model behind a provider's SDK. The SDK is imported in its own thread when the model is first needed."""

from __future__ import annotations

import threading
import warnings
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from anyio import to_thread
from msgspec.structs import replace

from pinfold.events import Reply, Request, Thought
from pinfold.model.errors import ModelError
from pinfold.model.layers import cost_of
from pinfold.model.names import DIRECT, key_variables
from pinfold.model.wire.conversation import normalize_request
from pinfold.model.wire.http import Patience
from pinfold.text import first_line

if TYPE_CHECKING:
    from httpx2 import Response

    from pinfold.model.providers.sdk_messages import SdkModel

T = TypeVar("T")
_CLOSING_S = 2.0
_answers: ContextVar[list[Response] | None] = ContextVar("answers", default=None)


async def _remember(response: Response) -> None:
    if (answers := _answers.get()) is not None:
        answers.append(response)


@asynccontextmanager
async def close_answers_after(opening: AbstractAsyncContextManager[T]) -> AsyncGenerator[T]:
    """Enter `opening`; on exit, also close the HTTP responses it left open."""
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
    # Shielded: cancellation is the usual reason for this call.
    with anyio.move_on_after(_CLOSING_S, shield=True):
        for answer in answers:
            await answer.aclose()


PATIENCE = Patience(first_s=600.0, idle_s=300.0)
"""Reasoning models may take minutes before their first text. The SDK sets its own connection timeout."""


@dataclass(eq=False)
class DirectModel:
    """One model of one provider, with its connections. Without a key or an address, the SDK finds its own."""

    provider: str
    model: str
    _: KW_ONLY
    name: str
    key: str | None = None
    base_url: str | None = None
    patience: Patience = PATIENCE

    def __post_init__(self) -> None:
        self._provider = DIRECT[self.provider]
        self._loading: Future[SdkModel] | None = None
        self._open = AsyncExitStack()
        self._opening = anyio.Lock()
        self._entered: SdkModel | None = None
        self._said: set[str] = set()
        """Settings already reported as unsupported: each is reported once, not with every reply."""

    def warm(self) -> None:
        """Start to import the SDK in a thread; it takes seconds of CPU. The first request waits until it is done."""
        if self._loading is None:
            self._loading = Future()
            # Not a daemon: a thread killed inside the SDK's extension modules would crash the process at exit.
            threading.Thread(target=self._load, args=(self._loading,), name=f"load {self.name}").start()

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        """Yield text and reasoning as they arrive, then the complete reply. Raises RequestFailed."""
        model = await self._ready()
        # These import pydantic-ai, which is loaded by now.
        from pydantic_ai.direct import model_request_stream

        from pinfold.model.providers.failures import FailureContext, failure
        from pinfold.model.providers.sdk_messages import (
            encode_messages,
            encode_settings,
            encode_tools,
            original_names,
            piece_of,
            reply_of,
        )

        provider = self._provider
        try:
            clean = normalize_request(request, provider.pictures)
            settings, left_out = encode_settings(clean.settings, model, provider, self.patience)
            opening = model_request_stream(
                model,
                [*encode_messages(clean, model, provider)],
                model_settings=settings,
                model_request_parameters=encode_tools(clean),
                instrument=False,
            )
            async with close_answers_after(opening) as stream:
                async for event in stream:
                    if (piece := piece_of(event)) is not None:
                        yield piece
            response = stream.get()
        except Exception as error:
            variables = " or ".join(key_variables(provider.name))
            asked = FailureContext(self.key, variables, settings=tuple(request.settings), patience=self.patience)
            raise failure(error, asked) from error
        new = [setting for setting in left_out if setting not in self._said]
        self._said.update(new)
        notices = tuple(f"{provider.name} has no setting {setting!r}; it was left out" for setting in new)
        reply = reply_of(response, provider=provider.name, tools=original_names(clean), notices=notices)
        cost = await to_thread.run_sync(cost_of, provider.name, self.model, reply.usage)
        yield replace(reply, cost=cost)

    async def aclose(self) -> None:
        self._loading = self._entered = None
        await self._open.aclose()

    async def _ready(self) -> SdkModel:
        self.warm()
        assert self._loading is not None
        # Abandoned when cancelled: an interrupt must not wait for an import.
        model = await to_thread.run_sync(self._loading.result, abandon_on_cancel=True)
        async with self._opening:
            if self._entered is None:
                self._entered = await self._open.enter_async_context(model)
        return model

    def _load(self, loading: Future[SdkModel]) -> None:
        try:
            loading.set_result(self._make_model())
        except BaseException as error:  # noqa: BLE001 - handed to the request that waits for it
            said = first_line(str(error)) or type(error).__name__
            failed = ModelError(f"{self._provider.name}: its SDK cannot be used: {said}")
            failed.__cause__ = error
            loading.set_exception(failed)

    def _make_model(self) -> SdkModel:
        # Compiling files of Google's SDK would print these warnings on the terminal.
        warnings.filterwarnings("ignore", ".*invalid escape sequence", module=".*genai")
        import_module("pydantic_ai.direct")
        from pydantic_ai.models import create_async_httpx2_client, infer_model
        from pydantic_ai.providers import infer_provider_class

        options = {"api_key": self.key, "base_url": self.base_url}
        given: dict[str, object] = {option: value for option, value in options.items() if value}
        if self._provider.forgets_connections:
            given["http_client"] = client = create_async_httpx2_client()
            hooks = client.event_hooks
            client.event_hooks = {**hooks, "response": [*hooks["response"], _remember]}
            self._open.push_async_callback(client.aclose)
        make_provider = cast("Callable[..., Any]", infer_provider_class(self._provider.inner))
        return infer_model(f"{self._provider.inner}:{self.model}", lambda _: make_provider(**given))
