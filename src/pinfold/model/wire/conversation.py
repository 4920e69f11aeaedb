"""Brings a request's messages into an order and form that servers accept. Pure and deterministic.

`conversation` does what every server needs. `normalize_request` adds what strict providers need: valid text, the user
first, alternating turns of user and model, and a limited number of pictures of supported kinds.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Call,
    Image,
    Json,
    Message,
    NotPlain,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
    plain_json,
)
from pinfold.model.wire.payload import as_object, sendable
from pinfold.text import NO_OUTPUT

NO_RESULT = "(no result: it was interrupted)"
GO_ON = "(go on)"
_NAME = r"[A-Za-z_][A-Za-z0-9_-]{0,63}"
_ID = r"[A-Za-z0-9_-]{1,64}"


class Pictures(Struct, frozen=True, kw_only=True):
    """The pictures a provider accepts."""

    kinds: tuple[str, ...]
    most: int
    """Maximum in one request; the newest are kept."""


NO_PICTURES = Pictures(kinds=(), most=0)
ANY_PICTURES = Pictures(kinds=("image/jpeg", "image/png", "image/webp", "image/gif"), most=20)


def conversation(messages: Sequence[Message], *, native: bool) -> list[Message]:
    """Drop empty messages and results without a call; put every result right after its call.

    Calls that were written as text stay text, as do their results. If the model has no `native` calls, all become text.
    """
    return list(join_turns(_without_empty(_inline_calls(_pair_results(messages), native=native))))


def normalize_request(request: Request, pictures: Pictures = ANY_PICTURES) -> Request:
    """Return the request in the form strict providers accept. Names and ids stay as they are: see `valid_name`."""
    limited = _limit_pictures(request.messages, pictures, request.blobs)
    messages = [_make_legible(message) for message in conversation(limited, native=True)]
    if not messages or not isinstance(messages[0], UserMessage):
        messages = [UserMessage(text=GO_ON), *messages]
    tools = [
        replace(tool, description=sendable(tool.description), parameters=sendable(tool.parameters))
        for tool in request.tools
    ]
    return replace(request, system=sendable(request.system), messages=tuple(messages), tools=tuple(tools))


def _make_legible(message: Message) -> Message:
    """Replace NUL and halves of characters, which JSON over HTTP cannot carry."""
    if isinstance(message, AssistantMessage):
        calls = tuple(replace(call, args=sendable(call.args)) for call in message.calls)
        message = replace(message, calls=calls)
    return replace(message, text=sendable(message.text))


def _pair_results(messages: Sequence[Message]) -> Iterator[Message]:
    # A stack per id with the first result on top: an id that was used twice has two results.
    results: dict[ActionId, list[str]] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.setdefault(message.id, []).append(message.text)
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        yield message
        for call in message.calls if isinstance(message, AssistantMessage) else ():
            known = results.get(call.id)
            text = known.pop() if known else NO_RESULT
            yield ToolMessage(id=call.id, text=text if text.strip() else NO_OUTPUT)


def _inline_calls(messages: Iterable[Message], *, native: bool) -> Iterator[Message]:
    in_text: dict[ActionId, str] = {}
    for message in messages:
        match message:
            case AssistantMessage(calls=calls) if calls:
                inline = message.in_text or not native
                in_text = {call.id: call.tool for call in calls} if inline else {}
                as_written = message.in_text and message.text.strip()
                text = message.text if as_written else _in_words(message)
                yield AssistantMessage(text=text) if inline else message
            case AssistantMessage(in_text=True):
                yield replace(message, in_text=False)
            case ToolMessage(id=id_, text=text) if id_ in in_text:
                yield UserMessage(text=f"Output of {in_text[id_]}:\n{text}")
            case _:
                yield message


def _in_words(message: AssistantMessage) -> str:
    calls = [f'<tool name="{call.tool}">{encode_arguments(call)}</tool>' for call in message.calls]
    return "\n".join([*([message.text] if message.text else []), *calls])


def _without_empty(messages: Iterable[Message]) -> Iterator[Message]:
    for message in messages:
        has_more = message.calls if isinstance(message, AssistantMessage) else getattr(message, "images", ())
        if message.text.strip() or has_more:
            yield message


def join_turns(messages: Iterable[Message]) -> Iterator[Message]:
    """Join neighbouring messages of one role: many chat templates require alternating roles."""
    last: Message | None = None
    for message in messages:
        match last, message:
            case UserMessage(), UserMessage():
                text = join_texts(last.text, message.text)
                last = UserMessage(text=text, images=last.images + message.images)
            case AssistantMessage(calls=()), AssistantMessage():
                last = replace(message, text=join_texts(last.text, message.text))
            case _:
                if last is not None:
                    yield last
                last = message
    if last is not None:
        yield last


def join_texts(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _limit_pictures(
    messages: Sequence[Message], pictures: Pictures, blobs: Mapping[BlobId, bytes]
) -> tuple[Message, ...]:
    """Keep the pictures that can be sent; add a line to the text of a message that loses some."""
    left = pictures.most
    made: list[Message] = []
    for message in reversed(messages):
        if not isinstance(message, UserMessage) or not message.images:
            made.append(message)
            continue
        kept: list[Image] = []
        for image in reversed(message.images):
            if left > 0 and image.mime in pictures.kinds and image.blob in blobs:
                kept.insert(0, image)
                left -= 1
        missing = len(message.images) - len(kept)
        note = f"[{missing} picture{'s' * (missing > 1)} left out]" if missing else ""
        made.append(replace(message, text=join_texts(message.text, note), images=tuple(kept)))
    return tuple(reversed(made))


def arguments(call: Call) -> dict[str, Json]:
    """Return the arguments as an object, which servers require, even if the model wrote another value."""
    args: Json = call.args
    return sendable(as_object(args) if isinstance(args, dict) else {"input": args})


def encode_arguments(call: Call) -> str:
    """Return the arguments as JSON text."""
    try:
        return plain_json(arguments(call))
    except (NotPlain, RecursionError):
        return '{"input": "(cannot be written as JSON)"}'


def function(tool: ToolSchema) -> dict[str, Json]:
    """Describe a tool in the form servers expect."""
    described = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": described}


def tool_name(call: Call) -> str:
    """Return a tool name that servers accept, even if the model invented it."""
    return re.sub(r"[^A-Za-z0-9_-]", "_", call.tool)[:64] or "unnamed"


def valid_name(name: str) -> str:
    """Return `name` in a form every provider accepts. Different names stay different."""
    if re.fullmatch(_NAME, name):
        return name
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:54].lstrip("-0123456789")
    return f"{stem or 'tool'}_{_digest(name, 8)}"


def valid_id(id_: str, length: int | None = None) -> str:
    """Return a call id in a form every provider accepts; `length` is its exact length, if the server fixes one."""
    if length is not None:
        return id_ if len(id_) == length and id_.isascii() and id_.isalnum() else _digest(id_, length)
    return id_ if re.fullmatch(_ID, id_) else f"a_{_digest(id_, 24)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
