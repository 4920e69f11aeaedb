"""What a client asks of a served model, in OpenAI's words. Pure: nothing here asks a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
)
from pinfold.model.protocol import put_tools_in_prompt
from pinfold.model.wire.payload import a_list, a_text, an_object
from pinfold.model.wire.reply_assembler import arguments_in

Body = Mapping[str, Json]
"""Of a request: a chat has `messages`, a text to go on with is a `prompt`."""
_COMPLETION_TOKENS = 16
"""Where the client does not say how many, as OpenAI has it."""
_ONLY: Body = {"echo": False, "suffix": "", "best_of": 1}


class Refusal(PinfoldError):
    """The client gets this status and these words."""

    def __init__(self, message: str, *, status: int = 400, code: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def check_body(body: Json) -> Body:
    """A request that can be answered, or Refusal."""
    given = an_object(body)
    messages = a_list(given.get("messages"))
    if not messages or not all(isinstance(message, dict) for message in messages):
        raise Refusal("messages must be a list of at least one message, each with role and content")
    for message in map(an_object, messages):
        if message.get("role") not in ("system", "developer", "user", "assistant", "tool"):
            raise Refusal(f"there is no role {message.get('role')!r}")
        text_of(message)
    return given


def check_prompt(body: Json) -> Body:
    """A request to go on with a text, or Refusal."""
    given = an_object(body)
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
    """Its content as text. Raises Refusal for pictures and the like."""
    content = message.get("content")
    if content is None or isinstance(content, str):
        return content or ""
    parts = [an_object(part) for part in a_list(content)]
    if not all(part.get("type") in ("text", "input_text") for part in parts):
        raise Refusal("this model reads text only")
    return "".join(a_text(part.get("text")) for part in parts)


def tools_in(body: Body) -> tuple[ToolSchema, ...]:
    """The tools the model may call."""
    if body.get("tool_choice") == "none":
        return ()
    functions = [an_object(an_object(tool).get("function")) for tool in a_list(body.get("tools"))]
    return tuple(
        ToolSchema(
            name=a_text(function.get("name")),
            description=a_text(function.get("description")),
            parameters=an_object(function.get("parameters")),
        )
        for function in functions
        if a_text(function.get("name"))
    )


def user_texts_in(body: Body) -> tuple[str, ...]:
    """What the user wrote: repeated, it is no call."""
    return tuple(text_of(message) for message in _messages(body) if message.get("role") == "user")


def in_words(body: Body) -> Body:
    """The same without tools, for a model whose template does not tell of them: the system prompt does."""
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
    for message in _messages(body):
        match message.get("role"):
            case "system" | "developer":
                system.append(text_of(message))
            case "assistant":
                calls = _calls(message, ids)
                messages.append(AssistantMessage(text=text_of(message), calls=calls))
            case "tool":
                call = ids.get(a_text(message.get("tool_call_id")))
                # A result that names no call is told all the same: without it the model would call again.
                messages.append(ToolMessage(id=call.id if call else new_action_id(), text=text_of(message)))
            case _:
                messages.append(UserMessage(text=text_of(message)))
    return Request(system="\n\n".join(system), messages=tuple(messages), tools=tools_in(body))


def _messages(body: Body) -> Sequence[Body]:
    return [an_object(message) for message in a_list(body.get("messages"))]


def _calls(message: Body, ids: dict[str, Call]) -> tuple[Call, ...]:
    calls: list[Call] = []
    for given in map(an_object, a_list(message.get("tool_calls"))):
        function = an_object(given.get("function"))
        written = function.get("arguments")
        args = arguments_in(written)[0] if isinstance(written, str) else written
        call = Call(id=new_action_id(), tool=a_text(function.get("name")), args=args)
        ids[a_text(given.get("id"))] = call
        calls.append(call)
    return tuple(calls)
