"""`/v1/chat/completions`, `/v1/models` and `/v1/embeddings`, in OpenAI's formats.

A completion is a turn of the agent, or one question to a plain model.
"""

from __future__ import annotations

import base64
import struct
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from secrets import token_hex
from typing import get_args

import anyio
from msgspec import Struct
from starlette.responses import Response

from pinfold.app.clients import Called, Ended, Piece, Said, Thinking, TurnRun, default_embeddings, embed_texts
from pinfold.events import Json, Mode
from pinfold.front.server.endpoints import AnyEndpoint, BadInput, Call, Endpoint, Nothing, UnknownName, json_response
from pinfold.front.server.event_stream import EventStream, sse_data
from pinfold.front.server.gate import error_body, error_response
from pinfold.front.server.openai_types import (
    ChatCompletion,
    ChatRequest,
    ChatUsage,
    Embedding,
    EmbeddingList,
    EmbeddingRequest,
    ModelList,
    ModelRecord,
)
from pinfold.front.server.wire import AGENT, SESSION, Wire, caller_of, failed_status, mode_of, wire_of
from pinfold.front.server.wire_input import WireInput, as_object, read_chat, read_terms


class ChatAnswer(Struct):
    """Collects the pieces of a turn into a message, and tells what each piece adds to it."""

    text: str = ""
    thoughts: str = ""
    calls: list[Called] = []
    end: Ended | None = None
    message: int | None = None

    def add(self, piece: Piece) -> dict[str, Json]:
        """Add a piece and return the delta of a chunk; empty if there is nothing to send."""
        match piece:
            case Said(text=text, message=message):
                if self.message not in (None, message) and self.text:
                    text = f"\n\n{text}"
                self.message = message
                self.text += text
                return {"content": text}
            case Thinking(text=text):
                self.thoughts += text
                return {"reasoning_content": text}
            case Called() as call:
                self.calls = [*self.calls, call]
                return {"tool_calls": [{"index": len(self.calls) - 1, **_tool_call(call)}]}
            case Ended():
                self.end = piece
                return {}

    def finish_reason(self) -> str:
        if self.calls:
            return "tool_calls"
        return "length" if self.end and self.end.status == "incomplete" else "stop"

    def to_message(self) -> dict[str, Json]:
        message: dict[str, Json] = {"role": "assistant", "content": self.text or None, "refusal": None}
        if self.thoughts:
            message["reasoning_content"] = self.thoughts
        if self.calls:
            message["tool_calls"] = [_tool_call(call) for call in self.calls]
        return message


class _Reply(Struct, frozen=True):
    """What every body and chunk of one completion share."""

    wire: Wire
    given: WireInput
    model: str
    pieces: AsyncIterator[Piece]
    run: TurnRun | None
    id: str
    created: int

    def envelope(self, kind: str) -> dict[str, Json]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model, "service_tier": "default"}

    def headers(self) -> dict[str, str]:
        return {SESSION: self.run.place.session} if self.run else {}

    def remember(self, answer: ChatAnswer) -> None:
        if self.run and answer.end and answer.end.status in ("completed", "waiting"):
            self.wire.remember(self.given, self.run.place, answer.calls, answer.text)


async def complete(call: Call[Nothing, ChatRequest]) -> Response:
    body, wire = call.body, wire_of(call.request)
    model = body.get("model") or AGENT
    if body.get("n") not in (None, 1):
        raise BadInput("n must be 1: a turn has one answer", "n")
    given = read_chat(body)
    terms = read_terms(body, given.instructions)
    run = None
    if await wire.is_agent(model):
        run = await wire.begin(given, terms, model=model, caller=caller_of(call.request, body.get("conversation")))
        pieces = run.follow()
    else:
        pieces = wire.models.ask(model, wire.plain_request(given, terms, body), terms)
    reply = _Reply(wire, given, model, pieces, run, f"chatcmpl-{token_hex(12)}", int(time.time()))
    if body.get("stream"):
        counts = bool(as_object(body.get("stream_options")).get("include_usage"))
        return EventStream(_stream(reply, counts=counts), reply.headers())
    return await _whole(reply)


async def _whole(reply: _Reply) -> Response:
    answer = ChatAnswer()
    async for piece in reply.pieces:
        answer.add(piece)
    assert answer.end is not None
    reply.remember(answer)
    if answer.end.status in ("failed", "cancelled"):
        return error_response(answer.end.error, failed_status(answer.end), "TurnFailed", headers=reply.headers())
    choice = {"index": 0, "message": answer.to_message(), "finish_reason": answer.finish_reason(), "logprobs": None}
    body = {**reply.envelope("chat.completion"), "choices": [choice], "usage": _usage(answer.end)}
    return json_response(body, headers=reply.headers())


async def _stream(reply: _Reply, *, counts: bool) -> AsyncGenerator[str]:
    answer = ChatAnswer()
    more: dict[str, Json] = {"usage": None} if counts else {}

    def chunk(delta: Mapping[str, Json], finish: str | None = None) -> str:
        choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
        return sse_data({**reply.envelope("chat.completion.chunk"), "choices": [choice], **more})

    yield chunk({"role": "assistant", "content": "", "refusal": None})
    async for piece in reply.pieces:
        if delta := answer.add(piece):
            yield chunk(delta)
    assert answer.end is not None
    reply.remember(answer)
    if answer.end.status in ("failed", "cancelled"):
        yield sse_data(error_body(answer.end.error, failed_status(answer.end), "TurnFailed"))
    else:
        yield chunk({}, answer.finish_reason())
        if counts:
            yield sse_data({**reply.envelope("chat.completion.chunk"), "choices": [], "usage": _usage(answer.end)})
    yield "data: [DONE]\n\n"


def _tool_call(call: Called) -> dict[str, Json]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def _usage(end: Ended) -> ChatUsage:
    used = end.usage
    return {
        "prompt_tokens": used.input_tokens,
        "completion_tokens": used.output_tokens,
        "total_tokens": used.total,
        "prompt_tokens_details": {"cached_tokens": used.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


# --- models

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
    return {"id": name, "object": "model", "created": _CREATED, "owned_by": "user" if mode_of(name) is None else AGENT}


async def embed(call: Call[Nothing, EmbeddingRequest]) -> EmbeddingList:
    given, wanted = call.body["input"], call.body.get("model") or "builtin"
    texts = [given] if isinstance(given, str) else given
    name = default_embeddings() if mode_of(wanted) is not None or wanted in _USUAL else wanted
    if name != default_embeddings() and ":" not in name:
        raise UnknownName(f"no embeddings are called {name!r}; use builtin, openai:MODEL or http://HOST:PORT/v1#MODEL")
    _, vectors = await anyio.to_thread.run_sync(embed_texts, name, texts)
    is_packed = call.body.get("encoding_format") == "base64"
    tokens = sum(len(text.encode()) for text in texts) // 4
    data: list[Embedding] = [
        {"object": "embedding", "index": place, "embedding": _pack(list(vector)) if is_packed else list(vector)}
        for place, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "data": data, "model": wanted, "usage": usage}


def _pack(vector: list[float]) -> str:
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/chat/completions",
        "A turn, in OpenAI's chat format",
        complete,
        body=ChatRequest,
        answer=ChatCompletion,
        media="text/event-stream",
    ),
    Endpoint("GET", "/v1/models", "Models, as OpenAI lists them", list_models, answer=ModelList),
    Endpoint("GET", "/v1/models/{model:path}", "A model", get_model, answer=ModelRecord),
    Endpoint("POST", "/v1/embeddings", "Embed texts", embed, body=EmbeddingRequest, answer=EmbeddingList),
)
