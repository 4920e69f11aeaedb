"""`/v1/models` and `/v1/embeddings`: the agent in each of its modes, and the user's own models."""

from __future__ import annotations

import base64
import struct
from typing import get_args

import anyio

from pinfold.app.clients import default_embeddings, embed_texts
from pinfold.events import Mode
from pinfold.front.server.endpoints import AnyEndpoint, Call, Endpoint, Nothing, UnknownName
from pinfold.front.server.openai_types import Embedding, EmbeddingList, EmbeddingRequest, ModelList, ModelRecord
from pinfold.front.server.wire import AGENT, mode_of, wire_of

_CREATED = 1_700_000_000
_USUAL = ("builtin", "default")


async def list_models(call: Call[Nothing, Nothing]) -> ModelList:
    names = [AGENT, *(f"{AGENT}-{mode}" for mode in get_args(Mode)), *await wire_of(call.request).models.names()]
    return {"object": "list", "data": [_model(name) for name in names]}


async def get_model(call: Call[Nothing, Nothing]) -> ModelRecord:
    name: str = call.request.path_params["model"]
    await wire_of(call.request).is_agent(name)
    return _model(name)


def _model(name: str) -> ModelRecord:
    return {
        "id": name,
        "object": "model",
        "created": _CREATED,
        "owned_by": "user" if mode_of(name) is None else AGENT,
    }


async def embed(call: Call[Nothing, EmbeddingRequest]) -> EmbeddingList:
    given, wanted = call.body["input"], call.body.get("model") or "builtin"
    told = [given] if isinstance(given, str) else given
    name = default_embeddings() if mode_of(wanted) is not None or wanted in _USUAL else wanted
    if name != default_embeddings() and ":" not in name:
        raise UnknownName(f"no embeddings are called {name!r}; use builtin, openai:MODEL or http://HOST:PORT/v1#MODEL")
    _, vectors = await anyio.to_thread.run_sync(embed_texts, name, told)
    is_packed = call.body.get("encoding_format") == "base64"
    tokens = sum(len(text.encode()) for text in told) // 4
    data: list[Embedding] = [
        {"object": "embedding", "index": place, "embedding": _pack(list(vector)) if is_packed else list(vector)}
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": wanted, "usage": usage}


def _pack(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint("GET", "/v1/models", "Models, as OpenAI lists them", list_models, answer=ModelList),
    Endpoint("GET", "/v1/models/{model:path}", "A model", get_model, answer=ModelRecord),
    Endpoint("POST", "/v1/embeddings", "Texts as vectors", embed, body=EmbeddingRequest, answer=EmbeddingList),
)
