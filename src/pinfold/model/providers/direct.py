"""A model behind a provider's SDK. The SDK is imported in a thread of its own, when the model is first needed."""

from __future__ import annotations

import threading
import warnings
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from contextvars import ContextVar
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar, cast

import anyio
from anyio import to_thread
from msgspec.structs import replace

from pinfold.events import Reply, Request, Thought
from pinfold.model.errors import ModelError, UnknownModel
from pinfold.model.layers import cost_of
from pinfold.model.providers.provider_registry import (
    Key,
    Provider,
    check_address,
    check_installed,
    find_key,
    provider_named,
)
from pinfold.model.wire.conversation import normalize_request
from pinfold.model.wire.http import Patience
from pinfold.text import first_line

if TYPE_CHECKING:
    from httpx2 import AsyncClient, Response
    from pydantic_ai.models import Model

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


PATIENCE = Patience(first_s=600.0, idle_s=300.0)
"""Models that think before they speak take minutes. How long to wait for a connection is the SDK's affair."""


def direct(
    provider: str,
    model: str,
    *,
    name: str,
    key: str | None = None,
    base_url: str | None = None,
    patience: Patience = PATIENCE,
) -> DirectModel:
    """The provider's model. Says at once what is missing: the extra, a key; imports nothing of weight."""
    known = provider_named(provider)
    if not model:
        raise UnknownModel(f"{provider}: which model? e.g. {provider}:NAME")
    check_installed(known)
    check_address(known, base_url)
    return DirectModel(known, model, name=name, key=find_key(known, key), base_url=base_url, patience=patience)


class DirectModel:
    """One model of one provider, with the connections to it."""

    def __init__(
        self, provider: Provider, model: str, *, name: str, key: Key, base_url: str | None, patience: Patience
    ) -> None:
        self.name = name
        self._provider = provider
        self._model = model
        self._key = key
        self._base_url = base_url
        self._patience = patience
        self._loading: Future[Model[Any]] | None = None
        self._open = AsyncExitStack()
        self._opening = anyio.Lock()
        self._entered: Model[Any] | None = None
        self._said: set[str] = set()

    def warm(self) -> None:
        """Begin to import the SDK: seconds of CPU, in a thread. The first request waits for what is left of it."""
        if self._loading is None:
            self._loading = Future()
            # Not a daemon: a thread that is cut off inside the SDK's own extension modules takes the process down.
            threading.Thread(target=self._load, args=(self._loading,), name=f"load {self.name}").start()

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        """Pieces of text and of thoughts as they come, then the whole reply. Raises RequestFailed."""
        model = await self._ready()
        # These import pydantic-ai, which is loaded by now.
        from pydantic_ai.direct import model_request_stream

        from pinfold.model.providers.failures import FailureContext, failure
        from pinfold.model.providers.request_encoder import encode_request, original_names
        from pinfold.model.providers.stream_decoder import piece_of, reply_of

        context = FailureContext(
            key=self._key, base_url=self._base_url, settings=tuple(request.settings), patience=self._patience
        )
        try:
            clean = normalize_request(request, self._provider.pictures)
            asking = encode_request(clean, model=model, provider=self._provider, patience=self._patience)
            opening = model_request_stream(
                model,
                asking.messages,
                model_settings=asking.settings,
                model_request_parameters=asking.parameters,
                instrument=False,
            )
            async with close_answers_after(opening) as stream:
                async for event in stream:
                    if (piece := piece_of(event)) is not None:
                        yield piece
            response = stream.get()
        except Exception as error:
            raise failure(error, context) from error
        reply = reply_of(
            response, provider=self._provider.name, tools=original_names(clean), notices=self._notices(asking.left_out)
        )
        cost = await to_thread.run_sync(cost_of, self._provider.name, self._model, reply.usage)
        yield replace(reply, cost=cost)

    async def aclose(self) -> None:
        self._loading = self._entered = None
        await self._open.aclose()

    async def _ready(self) -> Model[Any]:
        self.warm()
        assert self._loading is not None
        # Abandoned when cancelled: an interrupt must not wait for an import.
        model = await to_thread.run_sync(self._loading.result, abandon_on_cancel=True)
        async with self._opening:
            if self._entered is None:
                self._entered = await self._open.enter_async_context(model)
        return model

    def _load(self, loading: Future[Model[Any]]) -> None:
        try:
            loading.set_result(self._make_model())
        except BaseException as error:  # noqa: BLE001 - handed to the request that waits for it
            loading.set_exception(self._not_loaded(error))

    def _make_model(self) -> Model[Any]:
        # Files of Google's SDK say so on the terminal when they are compiled.
        warnings.filterwarnings("ignore", ".*invalid escape sequence", module=".*genai")
        import_module("pydantic_ai.direct")
        from pydantic_ai.models import infer_model
        from pydantic_ai.providers import infer_provider_class

        options = {"api_key": self._key.value, "base_url": self._base_url}
        given: dict[str, Any] = {option: value for option, value in options.items() if value}
        if self._provider.forgets_connections:
            given["http_client"] = client = make_watched_client()
            self._open.push_async_callback(client.aclose)
        provider = cast("Callable[..., Any]", infer_provider_class(self._provider.inner))
        return infer_model(f"{self._provider.inner}:{self._model}", lambda _: provider(**given))

    def _not_loaded(self, error: BaseException) -> ModelError:
        said = first_line(str(error)) or type(error).__name__
        failed = ModelError(f"{self._provider.name}: its SDK cannot be used: {said}")
        failed.__cause__ = error
        return failed

    def _notices(self, left_out: tuple[str, ...]) -> tuple[str, ...]:
        """Once for each setting, not with every reply."""
        new = [name for name in left_out if name not in self._said]
        self._said |= set(new)
        return tuple(f"{self._provider.name} has no setting {name!r}; it was left out" for name in new)
