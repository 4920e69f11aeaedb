"""`/v1/models` and `/v1/embeddings`: the agent in each of its modes, and the user's own models."""

from __future__ import annotations

import base64
import struct
from typing import cast, get_args

import anyio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pinfold.app.clients import default_embeddings, embed_texts
from pinfold.events import Json, Mode
from pinfold.front.server.wire import AGENT, UnknownName, mode_of, read_body, told_errors, wire_of
from pinfold.front.server.wire_input import BadRequest

_CREATED = 1_700_000_000
_TEXTS = 2048
_USUAL = ("builtin", "default")


def routes() -> list[Route]:
    return [
        Route("/v1/models", told_errors(list_models), methods=["GET"]),
        Route("/v1/models/{model:path}", told_errors(get_model), methods=["GET"]),
        Route("/v1/embeddings", told_errors(embed), methods=["POST"]),
    ]


async def list_models(request: Request) -> Response:
    names = [AGENT, *(f"{AGENT}-{mode}" for mode in get_args(Mode)), *await wire_of(request).models.names()]
    return JSONResponse({"object": "list", "data": [_model(name) for name in names]})


async def get_model(request: Request) -> Response:
    name: str = request.path_params["model"]
    await wire_of(request).is_agent(name)
    return JSONResponse(_model(name))


def _model(name: str) -> dict[str, Json]:
    return {
        "id": name,
        "object": "model",
        "created": _CREATED,
        "owned_by": "user" if mode_of(name) is None else AGENT,
    }


async def embed(request: Request) -> Response:
    body = await read_body(request)
    given, wanted = body.get("input"), str(body.get("model") or "builtin")
    texts = [given] if isinstance(given, str) else given
    is_texts = isinstance(texts, list) and all(isinstance(one, str) for one in cast("list[Json]", texts))
    if not is_texts or not 0 < len(cast("list[str]", texts)) <= _TEXTS:
        raise BadRequest(f"input must be a text or a list of up to {_TEXTS} texts; tokens are not taken", "input")
    told = cast("list[str]", texts)
    name = default_embeddings() if mode_of(wanted) is not None or wanted in _USUAL else wanted
    if name != default_embeddings() and ":" not in name:
        raise UnknownName(f"no embeddings are called {name!r}; use builtin, openai:MODEL or http://HOST:PORT/v1#MODEL")
    _, vectors = await anyio.to_thread.run_sync(embed_texts, name, told)
    is_packed = body.get("encoding_format") == "base64"
    tokens = sum(len(text.encode()) for text in told) // 4
    data = [
        {"object": "embedding", "index": place, "embedding": _pack(list(vector)) if is_packed else list(vector)}
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return JSONResponse({"object": "list", "data": data, "model": wanted, "usage": usage})


def _pack(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
