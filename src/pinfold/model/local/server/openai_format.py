"""OpenAI's request and response formats for a served model. Pure: nothing here calls a model."""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from typing import TypeAlias

from pinfold.events import (
    AssistantMessage,
    Call,
    Json,
    Message,
    PinfoldError,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
    new_action_id,
    plain_json,
)
from pinfold.model.protocol import put_tools_in_prompt
from pinfold.model.protocol.reply_parser import parse_reply
from pinfold.model.wire.payload import as_list, as_object, as_text, objects_in
from pinfold.model.wire.reply_assembler import arguments_in

Body = Mapping[str, Json]
"""Body of a request: with `messages` for a chat, with `prompt` for a text completion."""
_COMPLETION_TOKENS = 16
"""OpenAI's default for text completions."""
_ONLY: Body = {"echo": False, "suffix": "", "best_of": 1}


class Refusal(PinfoldError):
    """An error whose status and message are sent to the client."""

    def __init__(self, message: str, *, status: int = 400, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def check_body(body: Json) -> Body:
    """Check a chat request. Raises Refusal."""
    given = as_object(body)
    messages = as_list(given.get("messages"))
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise Refusal("messages must be a list of at least one message, each with role and content")
    for message in map(as_object, messages):
        if message.get("role") not in ("system", "developer", "user", "assistant", "tool"):
            raise Refusal(f"there is no role {message.get('role')!r}")
        text_of(message)
    return given


def check_prompt(body: Json) -> Body:
    """Check a text completion request. Raises Refusal."""
    given = as_object(body)
    match given.get("prompt"):
        case str(prompt) | [str(prompt)]:
            pass
        case _:
            raise Refusal("prompt must be one text")
    for name, value in _ONLY.items():
        if given.get(name) not in (None, value):
            raise Refusal(f"{name} is not supported; leave it out")
    kept = {name: value for name, value in given.items() if name not in ("messages", "tools", *_ONLY)}
    return {"max_tokens": _COMPLETION_TOKENS, **kept, "prompt": prompt}


def text_of(message: Body) -> str:
    """Return the message's content as text. Raises Refusal for pictures and other content."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = [as_object(part) for part in as_list(content)]
    if not all(part.get("type") in ("text", "input_text") for part in parts):
        raise Refusal("this model reads text only")
    return "".join(as_text(part.get("text")) for part in parts)


def tools_in(body: Body) -> tuple[ToolSchema, ...]:
    """The tools the model may call."""
    if body.get("tool_choice") == "none":
        return ()
    functions = [as_object(tool.get("function")) for tool in objects_in(body, "tools")]
    return tuple(
        ToolSchema(
            name=as_text(function.get("name")),
            description=as_text(function.get("description")),
            parameters=as_object(function.get("parameters")),
        )
        for function in functions
        if as_text(function.get("name"))
    )


def user_texts_in(body: Body) -> tuple[str, ...]:
    """Return what the user wrote: a reply that repeats it is not a call."""
    return tuple(text_of(message) for message in objects_in(body, "messages") if message.get("role") == "user")


def in_words(body: Body) -> Body:
    """Move the tools into the system prompt, for a model whose template does not describe them."""
    request = put_tools_in_prompt(request_in(body), style="small")
    sent: list[Json] = [{"role": "system", "content": request.system}] if request.system else []
    for message in request.messages:
        role = "user" if isinstance(message, UserMessage) else "assistant"
        sent.append({"role": role, "content": message.text})
    kept = {name: value for name, value in body.items() if name not in ("tools", "tool_choice", "messages")}
    return {**kept, "messages": sent}


def request_in(body: Body) -> Request:
    system: list[str] = []
    messages: list[Message] = []
    ids: dict[str, Call] = {}
    for message in objects_in(body, "messages"):
        match message.get("role"):
            case "system" | "developer":
                system.append(text_of(message))
            case "assistant":
                calls = _calls(message, ids)
                messages.append(AssistantMessage(text=text_of(message), calls=calls))
            case "tool":
                call = ids.get(as_text(message.get("tool_call_id")))
                # Keep a result that names no known call: without it the model would call again.
                messages.append(ToolMessage(id=call.id if call else new_action_id(), text=text_of(message)))
            case _:
                messages.append(UserMessage(text=text_of(message)))
    return Request(system="\n\n".join(system), messages=tuple(messages), tools=tools_in(body))


def _calls(message: Body, ids: dict[str, Call]) -> tuple[Call, ...]:
    calls: list[Call] = []
    for given in objects_in(message, "tool_calls"):
        function = as_object(given.get("function"))
        written = function.get("arguments")
        args = arguments_in(written)[0] if isinstance(written, str) else written
        call = Call(id=new_action_id(), tool=as_text(function.get("name")), args=args)
        ids[as_text(given.get("id"))] = call
        calls.append(call)
    return tuple(calls)


Chunk: TypeAlias = dict[str, Json]
_MARKS = re.compile(r"[`~<{\[]")
"""Characters a call may begin with."""


class CallExtractor:
    """Handles one choice of a reply. Passes text on as it arrives; holds back text that may be a call until the end."""

    def __init__(self, tools: Sequence[ToolSchema], quoted: Sequence[str]) -> None:
        self._tools = tools
        self._quoted = quoted
        names = "|".join(re.escape(tool.name) for tool in tools)
        self._called = re.compile(rf"^[ \t]*(?:{names})[ \t]*\(", re.MULTILINE)
        self._text = ""
        self._sent = 0
        self._line = 0
        """Start of the last line; nothing before it looks like a call."""
        self._held: int | None = None
        """Start of the text held back as a possible call."""
        self.is_native = False
        """True if the server itself has parsed a call."""

    def text(self, piece: str) -> str:
        """Add a piece; return the text that can be passed on now."""
        self._text += piece
        return self._up_to(self._safe())

    def end(self) -> tuple[str, list[Json]]:
        """Return the rest of the text, or the calls parsed from the whole text."""
        calls = () if self.is_native else parse_reply(self._text, self._tools, quoted=self._quoted).calls
        if not calls:
            return self._up_to(len(self._text)), []
        return "", [
            {
                "id": f"call_{secrets.token_hex(12)}",
                "type": "function",
                "function": {"name": call.tool, "arguments": plain_json(call.args)},
            }
            for call in calls
        ]

    def _up_to(self, end: int) -> str:
        said = self._text[self._sent : end]
        self._sent = max(self._sent, end)
        return said

    def _safe(self) -> int:
        if self._held is not None:
            return self._held
        found = (pattern.search(self._text, self._line) for pattern in (_MARKS, self._called))
        if starts := [match.start() for match in found if match]:
            self._held = min(starts)
            return self._held
        self._line = self._text.rfind("\n") + 1
        begun = self._text[self._line :].strip()
        may_become = begun and any(tool.name.startswith(begun) for tool in self._tools)
        return self._line if may_become else len(self._text)


async def extract_calls(
    chunks: AsyncGenerator[Chunk], tools: Sequence[ToolSchema], quoted: Sequence[str]
) -> AsyncGenerator[Chunk]:
    """Turn calls written as text into tool calls, in the chunks of a streamed reply."""
    choices: dict[int, CallExtractor] = {}
    async with aclosing(chunks):
        async for chunk in chunks:
            passed: list[Json] = []
            for choice in objects_in(chunk, "choices"):
                number = choice.get("index")
                sifter = choices.setdefault(number if isinstance(number, int) else 0, CallExtractor(tools, quoted))
                passed.append(_extract_from_choice(choice, sifter))
            yield {**chunk, "choices": passed}


def _extract_from_choice(choice: dict[str, Json], sifter: CallExtractor) -> Json:
    delta = dict(as_object(choice.get("delta")))
    sifter.is_native = sifter.is_native or bool(delta.get("tool_calls"))
    if isinstance(delta.get("content"), str):
        delta["content"] = sifter.text(as_text(delta["content"]))
    if choice.get("finish_reason") is None:
        return {**choice, "delta": delta}
    rest, calls = sifter.end()
    if rest:
        delta["content"] = as_text(delta.get("content")) + rest
    if calls:
        delta["tool_calls"] = [{"index": at, **as_object(call)} for at, call in enumerate(calls)]
        choice = {**choice, "finish_reason": "tool_calls"}
    return {**choice, "delta": delta}


def extract_calls_from_reply(answer: Chunk, tools: Sequence[ToolSchema], quoted: Sequence[str]) -> Chunk:
    """Turn calls written as text into tool calls, in a reply that was not streamed."""
    choices: list[Json] = []
    for choice in objects_in(answer, "choices"):
        message = as_object(choice.get("message"))
        sifter = CallExtractor(tools, quoted)
        sifter.is_native = bool(message.get("tool_calls"))
        said = sifter.text(as_text(message.get("content")))
        _, calls = sifter.end()
        called = {**message, "content": said.strip() or None, "tool_calls": calls}
        choices.append({**choice, "message": called, "finish_reason": "tool_calls"} if calls else choice)
    return {**answer, "choices": choices}
