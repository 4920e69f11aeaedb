"""The OpenAI-compatible HTTP application. Independent of the backend that runs the model."""

from __future__ import annotations

import hmac
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Protocol

import msgspec

from pinfold.events import Json, PinfoldError, plain_json
from pinfold.model.local.server.openai_format import (
    Body,
    Chunk,
    Refusal,
    check_body,
    check_prompt,
    extract_calls,
    extract_calls_from_reply,
    in_words,
    tools_in,
    user_texts_in,
)
from pinfold.model.wire.payload import as_object

if TYPE_CHECKING:
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def context(self) -> int | None: ...

    @property
    def tells_tools(self) -> bool:
        """True if the model's template describes tools and the model was trained to use them."""
        ...

    def chunks(self, body: Body) -> AsyncGenerator[Chunk]:
        """Yield a reply in chunks. Raises Refusal before the first one."""
        ...

    async def answer(self, body: Body) -> Chunk:
        """Return a complete reply. Raises Refusal."""
        ...

    async def embed(self, body: Body) -> Json:
        """Return embeddings of texts. Raises Refusal."""
        ...

    async def aclose(self) -> None: ...


_BODY_BYTES = 64 << 20


def endpoint(backend: Backend, key: str | None) -> Starlette:
    """Build the application; with a `key`, every request must carry it."""
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    async def health(_request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(_request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_describe_model(backend)]})

    async def model(request: Request) -> Response:
        if (name := request.path_params["name"]) != backend.name:
            raise Refusal(f"there is no model {name!r}; this is {backend.name}", status=404, code="model_not_found")
        return JSONResponse(_describe_model(backend))

    async def embeddings(request: Request) -> Response:
        return JSONResponse(await backend.embed(as_object(await _body(request))))

    async def chat(request: Request) -> Response:
        return await _respond(backend, check_body(await _body(request)))

    async def completions(request: Request) -> Response:
        return await _respond(backend, check_prompt(await _body(request)))

    def route(path: str, method: str, handler: Callable[[Request], Awaitable[Response]]) -> Route:
        async def handle(request: Request) -> Response:
            try:
                _admit(request, key)
                return await handler(request)
            except PinfoldError as error:
                return JSONResponse(_error(error), status_code=_status(error))

        return Route(f"/v1/{path}", handle, methods=[method])

    return Starlette(
        routes=[
            Route("/health", health),
            route("models", "GET", models),
            route("models/{name:path}", "GET", model),
            route("chat/completions", "POST", chat),
            route("completions", "POST", completions),
            route("embeddings", "POST", embeddings),
        ]
    )


def _admit(request: Request, key: str | None) -> None:
    if key is None:
        # Web pages in the user's browser can reach this server too; browsers always send their origin.
        if "origin" in request.headers:
            raise Refusal("web pages may use a model only if it is served with a key", status=403)
        return
    given = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    if not hmac.compare_digest(given.encode(), key.encode()):
        raise Refusal("wrong key", status=401, code="invalid_api_key")


async def _body(request: Request) -> Json:
    data = bytearray()
    async for piece in request.stream():
        data += piece
        if len(data) > _BODY_BYTES:
            raise Refusal(f"the request is over {_BODY_BYTES >> 20} MB", status=413)
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Refusal(f"the request is not JSON: {error}") from error


async def _respond(backend: Backend, body: Body) -> Response:
    from starlette.responses import JSONResponse, StreamingResponse

    tools, quoted = tools_in(body), user_texts_in(body)
    sent = in_words(body) if tools and not backend.tells_tools else body
    if not body.get("stream"):
        answer = await backend.answer(sent)
        return JSONResponse(extract_calls_from_reply(answer, tools, quoted) if tools else answer)
    chunks = backend.chunks(sent)
    if tools:
        chunks = extract_calls(chunks, tools, quoted)
    # Wait for the first chunk: only then is it known that there is no error.
    first = await anext(chunks, None)
    return StreamingResponse(_events(first, chunks), media_type="text/event-stream")


async def _events(first: Chunk | None, rest: AsyncGenerator[Chunk]) -> AsyncGenerator[str]:
    async with aclosing(rest):
        try:
            if first is not None:
                yield f"data: {plain_json(first)}\n\n"
            async for chunk in rest:
                yield f"data: {plain_json(chunk)}\n\n"
        except PinfoldError as error:
            yield f"data: {plain_json(_error(error))}\n\n"
        yield "data: [DONE]\n\n"


def _describe_model(backend: Backend) -> Json:
    size = {"max_model_len": backend.context} if backend.context else {}
    return {"id": backend.name, "object": "model", "created": int(time.time()), "owned_by": "pinfold", **size}


def _error(error: PinfoldError) -> dict[str, Json]:
    code = error.code if isinstance(error, Refusal) else ""
    kind = "invalid_request_error" if _status(error) < 500 else "server_error"
    return {"error": {"message": str(error), "type": kind, "code": code or None}}


def _status(error: PinfoldError) -> int:
    return error.status if isinstance(error, Refusal) else 503
