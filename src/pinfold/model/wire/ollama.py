"""Ollama over its own API: in its OpenAI-compatible one, a request cannot set the context size."""

from __future__ import annotations

import base64
import math
from contextlib import AsyncExitStack
from typing import assert_never

from msgspec.structs import replace

from pinfold.events import (
    ActionId,
    AssistantMessage,
    ContextTooLong,
    Json,
    Reply,
    Request,
    RequestFailed,
    ToolMessage,
    UserMessage,
    plain_json,
)
from pinfold.model.wire.chat_stream import DRAIN_S, StreamedModel, not_a_chat
from pinfold.model.wire.conversation import arguments, conversation, encode_arguments, function, tool_name
from pinfold.model.wire.failures import Refused, too_long_words
from pinfold.model.wire.http import Answer, Patience, Wire
from pinfold.model.wire.payload import as_count, as_list, as_object, as_text, longest_context, objects_in
from pinfold.model.wire.reply_assembler import ReplyAssembler

_ASK_S = 15.0
_LEAST = 4096
_ANSWER = 1024
_MOST_UNTOLD = 32768
_CHARACTERS_A_TOKEN = 3
_MOST_CHARACTERS_A_TOKEN = 12
"""Upper bound for any text except long runs of spaces."""
_TOKENS_AN_IMAGE = 1000
_TOKENS_A_MESSAGE = 8
_OF_THE_REQUEST = ("think", "format", "keep_alive")
"""Settings that are fields of the request itself, not of its `options`."""
_OPTIONS = {"max_tokens": "num_predict"}


class OllamaModel(StreamedModel):
    """One model of one Ollama server. The requested context only grows: every change makes Ollama reload the model."""

    tail_s = DRAIN_S

    def __init__(self, *, name: str, base_url: str, model: str, patience: Patience | None = None) -> None:
        hint = "start Ollama with `ollama serve`"
        super().__init__(name, model, Wire(base_url, patience=patience or Patience(first_s=600), hint=hint))
        self._asked = 0
        self._effective = 0
        self._read_back_for = 0
        self._most: int | None = None
        self._limit = 0
        self._known = False

    @property
    def context(self) -> int | None:
        """Size of the context the model runs with, in tokens; None before the first request."""
        return self._effective or self._asked or None

    async def _answer(self, request: Request, stack: AsyncExitStack) -> Answer:
        await self._learn()
        self._grow(request)
        while True:
            try:
                return await stack.enter_async_context(self._wire.post("api/chat", self._body(request)))
            except ContextTooLong:
                # The estimate was too low; retry with a larger context if the limit allows.
                if self._asked >= self._limit:
                    raise
                self._asked = min(self._asked * 2, self._limit)
            except Refused as refused:
                if not (request.tools and self.takes_tools and refused.takes_no_tools):
                    names = {_OPTIONS.get(name, name): name for name in request.settings}
                    raise self._clearer(refused.because_of(names)) from refused
                self.takes_tools = False

    def _clearer(self, failure: RequestFailed) -> RequestFailed:
        if failure.status == 404 and "not found" in str(failure):
            words = f"ollama has no model {self.model}; `pinfold model pull ollama:{self.model}` fetches it"
            return RequestFailed(words, status=404, request_id=failure.request_id)
        return failure

    async def _learn(self) -> None:
        """Ask the server once for the model's context and capabilities."""
        if self._known:
            return
        try:
            shown = as_object(await self._wire.ask("api/show", {"model": self.model}, limit_s=_ASK_S))
        except Refused as refused:
            if refused.status == 404 and "not found" in refused.words:
                raise self._clearer(refused) from refused
            # Not every server with this API has `api/show`.
            shown = {}
        self._known = True
        self._most = longest_context(shown) or None
        capabilities = as_list(shown.get("capabilities"))
        self.takes_tools = not capabilities or "tools" in capabilities
        # Start from the loaded size: asking for less would make Ollama reload the model.
        self._asked = await self._get_loaded_context()

    async def _get_loaded_context(self) -> int:
        """Return the size of the loaded model's context; 0 if it is not loaded or unknown."""
        try:
            running = await self._wire.ask("api/ps", limit_s=_ASK_S)
        except RequestFailed:
            return 0
        names = (self.model, f"{self.model}:latest")
        for entry in objects_in(running, "models"):
            if entry.get("model") in names or entry.get("name") in names:
                return as_count(entry.get("context_length"))
        return 0

    def _grow(self, request: Request) -> None:
        """Grow the requested context to fit the request. Raises ContextTooLong if it cannot fit."""
        characters, tokens = _size_of(request)
        fixed = as_count(request.settings.get("num_ctx"))
        self._limit = fixed or self._most or _MOST_UNTOLD
        if (fixed or self._most) and characters // _MOST_CHARACTERS_A_TOKEN > self._limit:
            raise ContextTooLong(too_long_words(self._limit, tokens), size=self._limit, needed=tokens)
        needed = tokens + (as_count(request.settings.get("max_tokens")) or _ANSWER)
        size = max(_LEAST, 2 ** math.ceil(math.log2(needed)), self._asked)
        self._asked = fixed or min(size, max(self._limit, self._asked))

    def _to_chunk(self, sent: dict[str, Json]) -> dict[str, Json]:
        if sent.get("done") is not True:
            return {"choices": [{"delta": sent["message"]}]} if as_object(sent.get("message")) else {}
        finish = "length" if sent.get("done_reason") == "length" else "stop"
        usage = {"prompt_tokens": sent.get("prompt_eval_count"), "completion_tokens": sent.get("eval_count")}
        return {"choices": [{"delta": sent.get("message"), "finish_reason": finish}], "usage": usage}

    def _check_whole(self, assembler: ReplyAssembler, answer: Answer) -> None:
        if not assembler.begun:
            raise not_a_chat(answer, "there is no message in it")
        super()._check_whole(assembler, answer)

    async def _complete(self, reply: Reply, request: Request) -> Reply:
        if self._read_back_for != self._asked:
            self._effective = await self._get_loaded_context() or self._asked
            self._read_back_for = self._asked
        tokens, room = _size_of(request)[1], self.context
        if not room or tokens < room:
            return reply
        told = f"the request is about {tokens:,} tokens and {self.model} runs with room for {room:,}"
        return replace(reply, notices=(*reply.notices, f"{told}: Ollama may have left out its oldest part"))

    def _body(self, request: Request) -> dict[str, Json]:
        settings = {name: value for name, value in request.settings.items() if value is not None}
        options = {_OPTIONS.get(name, name): value for name, value in settings.items() if name not in _OF_THE_REQUEST}
        tools = [function(tool) for tool in request.tools]
        return {
            "model": self.model,
            "messages": _messages(request, self.name, native=self.takes_tools),
            "stream": True,
            # An error is better than a conversation that silently lost its beginning.
            "truncate": False,
            "options": {**options, "num_ctx": self._asked},
            **{name: settings[name] for name in _OF_THE_REQUEST if name in settings},
            **({"tools": tools} if tools and self.takes_tools else {}),
        }


def _messages(request: Request, model: str, *, native: bool) -> list[dict[str, Json]]:
    sent: list[dict[str, Json]] = []
    if request.system.strip():
        sent.append({"role": "system", "content": request.system})
    tools: dict[ActionId, str] = {}
    for message in conversation(request.messages, native=native):
        match message:
            case UserMessage():
                pictures = [request.blobs[image.blob] for image in message.images if image.blob in request.blobs]
                images = {"images": [base64.b64encode(data).decode() for data in pictures]} if pictures else {}
                sent.append({"role": "user", "content": message.text, **images})
            case ToolMessage():
                sent.append({"role": "tool", "content": message.text, "tool_name": tools[message.id]})
            case AssistantMessage():
                tools |= {call.id: tool_name(call) for call in message.calls}
                sent.append(_assistant(message, model))
            case _:
                assert_never(message)
    return sent


def _assistant(message: AssistantMessage, model: str) -> dict[str, Json]:
    echo = as_object(message.echo)
    thinking = as_text(echo.get("thinking")) if echo.get("model") == model else ""
    calls = [{"function": {"name": tool_name(call), "arguments": arguments(call)}} for call in message.calls]
    return {
        "role": "assistant",
        "content": message.text,
        **({"tool_calls": calls} if calls else {}),
        **({"thinking": thinking} if thinking and calls else {}),
    }


def _size_of(request: Request) -> tuple[int, int]:
    """Return the number of characters, and an estimate of the tokens including pictures."""
    characters = len(request.system) + sum(len(plain_json(function(tool))) for tool in request.tools)
    images = 0
    for message in request.messages:
        characters += len(message.text)
        if isinstance(message, AssistantMessage):
            characters += sum(len(encode_arguments(call)) for call in message.calls)
        if isinstance(message, UserMessage):
            images += len(message.images)
    tokens = math.ceil(characters / _CHARACTERS_A_TOKEN) + images * _TOKENS_AN_IMAGE
    return characters, tokens + (len(request.messages) + 1) * _TOKENS_A_MESSAGE
