"""Requests to a model without a session: titles and other small questions of clients."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import cast

from msgspec.structs import replace

from pinfold.app.clients.turn_reader import Called, Ended, Piece, Said, Thinking
from pinfold.app.config.layers import load_config
from pinfold.app.models.local_models import list_model_names, models_here, reachable_models
from pinfold.app.models.session_models import CallOptions, SpendingLedger, is_usable, select_models
from pinfold.app.session.answers import AnswerForm
from pinfold.app.session.options import CallerTerms
from pinfold.engine import Model
from pinfold.events import AssistantMessage, PinfoldError, Reply, Request, RequestFailed, Thought, UserMessage
from pinfold.model.embeddings import embeddings_named


class PlainModels:
    """The user's models by name."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}

    async def names(self) -> list[str]:
        """Return the models usable now, including those that servers on this machine list."""
        calling = _calling()
        there = await reachable_models()
        found = [server.name_of(model) for server in there.servers for model in server.models]
        names = dict.fromkeys([*list_model_names(), *found])
        return [name for name in names if not name.endswith(":") and _is_here(name) and is_usable(name, calling)]

    def has(self, name: str) -> bool:
        return name in self._models or (_is_here(name) and is_usable(name, _calling()))

    async def ask(self, name: str, request: Request, terms: CallerTerms) -> AsyncGenerator[Piece]:
        """Yield the answer. If a required tool call is missing, ask once more before anything is yielded."""
        if not terms.must_call:
            async for piece in self._stream(name, request, terms):
                yield piece
            return
        pieces = [piece async for piece in self._stream(name, request, terms)]
        if _has_no_call(pieces):
            said = "".join(piece.text for piece in pieces if isinstance(piece, Said))
            messages = (*request.messages, AssistantMessage(text=said), UserMessage(text=f"[{terms.demand}.]"))
            pieces = [piece async for piece in self._stream(name, replace(request, messages=messages), terms)]
            if _has_no_call(pieces):
                pieces = [Ended(status="failed", error=f"{terms.demand}. {name} did not.")]
        for piece in pieces:
            yield piece

    async def _stream(self, name: str, request: Request, terms: CallerTerms) -> AsyncGenerator[Piece]:
        model = self._models.get(name)
        if model is None:
            model = self._models[name] = select_models(name, "", (), _calling()).model
        stream = cast("AsyncGenerator[str | Thought | Reply]", model.stream(request))
        streamed = ""
        try:
            async with aclosing(stream):
                async for piece in stream:
                    match piece:
                        case Thought(text=text):
                            yield Thinking(text=text)
                        case Reply() as reply:
                            if reply.text.startswith(streamed) and (rest := reply.text[len(streamed) :]):
                                yield Said(text=rest, message=0)
                            SpendingLedger().add(reply.usage, reply.cost)
                            for call in reply.calls[:1] if terms.one_call else reply.calls:
                                yield Called(id=call.id, name=call.tool, arguments=json.dumps(call.args))
                            status = (
                                "waiting" if reply.calls else "incomplete" if reply.finish == "length" else "completed"
                            )
                            yield Ended(status=status, usage=reply.usage, at=int(time.time()))
                            return
                        case text:
                            streamed += text
                            yield Said(text=text, message=0)
        except PinfoldError as error:
            is_temporary = isinstance(error, RequestFailed) and error.retryable
            yield Ended(status="failed", error=str(error), temporary=is_temporary)
            return
        yield Ended(status="failed", error="the reply broke off", temporary=True)


def _has_no_call(pieces: Sequence[Piece]) -> bool:
    """True if the reply ended normally without a tool call."""
    last = pieces[-1]
    return isinstance(last, Ended) and last.status in ("completed", "incomplete")


def _is_here(name: str) -> bool:
    """False if the weights would have to be downloaded first; a request never downloads."""
    return all(one.path for one in models_here().inside if one.weights.name == name)


def describe_form(schema: Mapping[str, object]) -> str:
    """Describe the schema of an answer to the model."""
    return AnswerForm(schema).describe_schema()


def embed_texts(name: str, texts: Sequence[str]) -> tuple[str, Sequence[Sequence[float]]]:
    """Return the embedder's name and a vector for each text. Blocks. Raises PinfoldError."""
    embedder = embeddings_named(name, _calling().access())
    return embedder.name, embedder.embed(texts)


def default_embeddings() -> str:
    return load_config().config.memory.embeddings or "builtin"


def _calling() -> CallOptions:
    loaded = load_config()
    return CallOptions.of(loaded.config, loaded.keys())
