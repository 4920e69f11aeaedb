"""OpenAI's chat completions, which most servers support: llama.cpp, vLLM, LM Studio, OpenRouter."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import assert_never

from msgspec.structs import replace

from pinfold.events import (
    ActionId,
    AssistantMessage,
    Call,
    ContextTooLong,
    Json,
    Reply,
    Request,
    RequestFailed,
    ToolMessage,
    Usage,
    UserMessage,
    plain_json,
)
from pinfold.model.names import ANSWER_FORM
from pinfold.model.wire.chat_stream import StreamedModel
from pinfold.model.wire.conversation import conversation, encode_arguments, function, tool_name, valid_id
from pinfold.model.wire.failures import Refused, one_line
from pinfold.model.wire.http import Answer, Patience, Wire
from pinfold.model.wire.payload import as_list, as_object, as_text, estimate_tokens, objects_in, sendable
from pinfold.text import closest, join_names

_PATH = "chat/completions"
_FORM = "response_format"
_LOOK_S = 5.0
"""Limit for asking which models the server has, after it refused the requested one."""
_NAMED = 5
"""Maximum number of the server's models in an error message."""
_ECHOED = ("reasoning_content", "reasoning")


class OpenAIModel(StreamedModel):
    """One model of one server. A field that the server refuses is not sent again."""

    tail_s = 5.0  # usage may follow the answer

    def __init__(
        self,
        *,
        name: str,
        base_url: str,
        model: str,
        key: str | None = None,
        patience: Patience | None = None,
        takes_tools: bool = True,
        max_tokens_name: str = "max_tokens",
        context: int | None = None,
        key_hint: str = "check the key",
    ) -> None:
        """`base_url` ends before `/chat/completions`; `context` is the model's context in tokens, if known.

        `key_hint` is advice for the error message when the server rejects the key.
        """
        wire = Wire(base_url, patience=patience or Patience(), key=key)
        super().__init__(name, model, wire, takes_tools=takes_tools)
        self.context = context
        self._max_tokens_name = max_tokens_name
        self._asks_for_usage = True
        self._keeps_to_form = True
        self._told_of_estimates = False
        self._key_hint = key_hint

    async def _complete(self, reply: Reply, request: Request) -> Reply:
        """Add estimated usage if the server sends none, so that token limits still apply."""
        if reply.usage != Usage():
            return reply
        told, self._told_of_estimates = self._told_of_estimates, True
        words = f"{self.name} does not say how many tokens it used; they are estimated"
        said = [reply.text, reply.reasoning, *(encode_arguments(call) for call in reply.calls)]
        usage = Usage(
            input_tokens=estimate_tokens(plain_json(sendable(self._body(request)))),
            output_tokens=estimate_tokens("".join(said)),
        )
        return replace(reply, usage=usage, notices=reply.notices if told else (*reply.notices, words))

    async def _answer(self, request: Request, stack: AsyncExitStack) -> Answer:
        while True:
            try:
                return await stack.enter_async_context(self._wire.post(_PATH, self._body(request)))
            except Refused as refused:
                if not self._can_do_without(refused, request):
                    names = {self._field(name): name for name in request.settings}
                    raise await self._add_advice(refused.because_of(names)) from refused
            except ContextTooLong as failure:
                self.context = failure.size or self.context
                raise

    async def _add_advice(self, failure: RequestFailed) -> RequestFailed:
        """Return the failure with advice added, if there is any for it."""
        words = str(failure)
        if failure.status in (401, 403):
            words = words.removesuffix("check the key") + self._key_hint
        elif failure.status in (400, 404) and isinstance(failure, Refused) and failure.knows_no_model:
            words = f"{words.rstrip('.')}; {await self._others()}"
        else:
            return failure
        return RequestFailed(words, status=failure.status, request_id=failure.request_id)

    async def _others(self) -> str:
        """Return a phrase that names models the server does have."""
        try:
            said = await self._wire.ask("models", limit_s=_LOOK_S)
        except RequestFailed:
            said = {}
        known = [as_text(model.get("id")) for model in objects_in(said, "data")]
        prefix = self.name.removesuffix(self.model)
        if near := closest(self.model, known, 0.5):
            return f"did you mean --model {one_line(prefix + near)}?"
        if known:
            return f"the server has {one_line(join_names(known, _NAMED))}"
        return "is the name right? `pinfold model list` shows what is here"

    def _can_do_without(self, refused: Refused, request: Request) -> bool:
        """Remember an optional field that the server refuses. Return True if the request can be sent without it."""
        if self._asks_for_usage and (refused.names("stream_options") or refused.names("include_usage")):
            self._asks_for_usage = False
            return True
        if self.takes_tools and request.tools and refused.takes_no_tools:
            self.takes_tools = False
            return True
        if self._keeps_to_form and ANSWER_FORM in request.settings and refused.names(_FORM):
            self._keeps_to_form = False
            return True
        other = "max_completion_tokens"
        if self._max_tokens_name == "max_tokens" and refused.names("max_tokens") and other in refused.words:
            self._max_tokens_name = other
            return "max_tokens" in request.settings
        return False

    def _body(self, request: Request) -> dict[str, Json]:
        tools = [function(tool) for tool in request.tools] if self.takes_tools else []
        settings = {self._field(name): value for name, value in request.settings.items() if value is not None}
        schema = settings.pop(ANSWER_FORM, None)
        if schema is not None and self._keeps_to_form:
            form = {"name": "answer", "schema": schema, "strict": False}
            settings[_FORM] = {"type": "json_schema", "json_schema": form}
        return {
            **settings,
            "model": self.model,
            "messages": _messages(request, self.name, native=self.takes_tools),
            "stream": True,
            **({"stream_options": {"include_usage": True}} if self._asks_for_usage else {}),
            **({"tools": tools} if tools else {}),
        }

    def _field(self, setting: str) -> str:
        return self._max_tokens_name if setting == "max_tokens" else setting


def _messages(request: Request, model: str, *, native: bool) -> list[dict[str, Json]]:
    sent: list[dict[str, Json]] = []
    if request.system.strip():
        sent.append({"role": "system", "content": request.system})
    ids: dict[ActionId, str] = {}
    for message in conversation(request.messages, native=native):
        match message:
            case UserMessage():
                sent.append({"role": "user", "content": _content(message, request)})
            case ToolMessage():
                sent.append({"role": "tool", "tool_call_id": ids[message.id], "content": message.text})
            case AssistantMessage():
                echo = as_object(message.echo)
                # Ids and reasoning from another model mean nothing to this one.
                echo = echo if echo.get("model") == model else {}
                ids |= _ids(message.calls, echo, taken=set(ids.values()))
                sent.append(_assistant(message, echo, ids))
            case _:
                assert_never(message)
    return sent


def _assistant(message: AssistantMessage, echo: Mapping[str, Json], ids: Mapping[ActionId, str]) -> dict[str, Json]:
    if not message.calls:
        return {"role": "assistant", "content": message.text}
    extra = as_list(echo.get("extra"))
    calls: list[dict[str, Json]] = [
        {
            "id": ids[call.id],
            "type": "function",
            "function": {"name": tool_name(call), "arguments": encode_arguments(call)},
            **({"extra_content": extra[place]} if place < len(extra) and extra[place] else {}),
        }
        for place, call in enumerate(message.calls)
    ]
    thoughts = {key: echo[key] for key in _ECHOED if echo.get(key)}
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls, **thoughts}


def _ids(calls: Sequence[Call], echo: Mapping[str, Json], taken: set[str]) -> dict[ActionId, str]:
    """Return the server's own ids if they are unique, else made-up ids of nine characters, which all servers accept."""
    given = [as_text(id_) for id_ in as_list(echo.get("ids"))]
    if len(given) == len(calls) == len(set(given) - taken - {""}):
        return {call.id: id_ for call, id_ in zip(calls, given, strict=True)}
    return {call.id: valid_id(call.id, 9) for call in calls}


def _content(message: UserMessage, request: Request) -> Json:
    if not message.images:
        return message.text
    parts: list[Json] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    for image in message.images:
        if (data := request.blobs.get(image.blob)) is None:
            parts.append({"type": "text", "text": "(a picture that is gone)"})
            continue
        url = f"data:{image.mime};base64,{base64.b64encode(data).decode()}"
        parts.append({"type": "image_url", "image_url": {"url": url}})
    return parts
