"""Makes a conversation acceptable to providers that are strict about it. Pure: the same messages give the same messages.

What strict providers want: text that is text, none of it empty; turns of user and model in alternation, the user
first; the result of every call directly after it, and no other results; pictures of kinds they know, not too many.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from msgspec.structs import replace

from pinfold.events import ActionId, AssistantMessage, BlobId, Call, Image, Message, Request, ToolMessage, UserMessage
from pinfold.model.wire.payload import sendable
from pinfold.text import NO_OUTPUT

NO_RESULT = "(no result: it was cut off)"
GO_ON = "(go on)"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Pictures:
    """What a provider takes of them."""

    kinds: tuple[str, ...]
    most: int
    """In one request; the newest count."""


NO_PICTURES = Pictures(kinds=(), most=0)
ANY_PICTURES = Pictures(kinds=("image/jpeg", "image/png", "image/webp", "image/gif"), most=20)


def normalize_request(request: Request, pictures: Pictures = ANY_PICTURES) -> Request:
    """The same request, as strict providers take it; names and ids are left to whoever can translate them back."""
    messages = legible_messages(inline_text_calls(request.messages))
    messages = pair_results(limit_pictures(messages, pictures, request.blobs))
    messages = alternate_roles(fill_empty_messages(messages))
    tools = tuple(
        replace(tool, description=legible(tool.description), parameters=sendable(tool.parameters))
        for tool in request.tools
    )
    return replace(request, system=legible(request.system), messages=messages, tools=tools)


# Text that is text


def legible(text: str) -> str:
    """`text` without NUL and without halves of characters, which no JSON over HTTP can carry."""
    return cast("str", sendable(text))


def legible_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    return tuple(_legible_message(message) for message in messages)


def _legible_message(message: Message) -> Message:
    if isinstance(message, AssistantMessage):
        calls = tuple(replace(call, args=sendable(call.args)) for call in message.calls)
        return replace(message, text=legible(message.text), calls=calls)
    return replace(message, text=legible(message.text))


# Calls and their results


def inline_text_calls(messages: Iterable[Message]) -> tuple[Message, ...]:
    """Calls that were read out of a text stay in that text, and their results become what the user says next."""
    in_text: dict[ActionId, str] = {}
    made: list[Message] = []
    for message in messages:
        if isinstance(message, AssistantMessage) and message.in_text:
            in_text |= {call.id: call.tool for call in message.calls}
            made.append(replace(message, calls=(), in_text=False, echo=None))
        elif isinstance(message, ToolMessage) and message.id in in_text:
            output = message.text if message.text.strip() else NO_OUTPUT
            made.append(UserMessage(text=f"Output of {in_text[message.id]}:\n{output}"))
        else:
            made.append(message)
    return tuple(made)


def pair_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Every call with its result directly after it, in the order of the calls; results without a call are dropped."""
    # A stack for each id, the first result on top: an id that was used twice has two results.
    results: dict[ActionId, list[ToolMessage]] = {}
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            results.setdefault(message.id, []).append(message)
    made: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            continue
        made.append(message)
        if isinstance(message, AssistantMessage):
            made += [_result(call, results) for call in message.calls]
    return tuple(made)


def _result(call: Call, results: Mapping[ActionId, list[ToolMessage]]) -> ToolMessage:
    known = results.get(call.id)
    return known.pop() if known else ToolMessage(id=call.id, text=NO_RESULT)


# Nothing empty, and in turns


def fill_empty_messages(messages: Iterable[Message]) -> tuple[Message, ...]:
    """No message without content: it says that it has none, or is left out."""
    made: list[Message] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            made.append(message if message.text.strip() else replace(message, text=NO_OUTPUT))
        elif message.text.strip() or (message.calls if isinstance(message, AssistantMessage) else message.images):
            made.append(message)
    return tuple(made)


def alternate_roles(messages: Iterable[Message]) -> tuple[Message, ...]:
    """The user first, then in turns; neighbours of one role become one message. A result counts as the user's turn."""
    made: list[Message] = []
    for message in messages:
        last = made[-1] if made else None
        if last is None and not isinstance(message, UserMessage):
            made.append(UserMessage(text=GO_ON))
        if isinstance(message, UserMessage) and isinstance(last, UserMessage):
            made[-1] = _both(last, message)
        elif isinstance(message, AssistantMessage) and isinstance(last, AssistantMessage):
            made[-1] = _one_reply(last, message)
        else:
            made.append(message)
    return tuple(made) or (UserMessage(text=GO_ON),)


def _both(first: UserMessage, second: UserMessage) -> UserMessage:
    text = "\n\n".join(text for text in (first.text, second.text) if text.strip())
    return UserMessage(text=text, images=first.images + second.images)


def _one_reply(first: AssistantMessage, second: AssistantMessage) -> AssistantMessage:
    # The first has no calls, else results would stand between them.
    return replace(second, text="\n\n".join(text for text in (first.text, second.text) if text.strip()))


# Pictures


def limit_pictures(
    messages: Sequence[Message], pictures: Pictures, blobs: Mapping[BlobId, bytes]
) -> tuple[Message, ...]:
    """The pictures that can be sent; in place of every other stands a line that says so."""
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
        text = "\n\n".join(part for part in (message.text, note) if part)
        made.append(replace(message, text=text, images=tuple(kept)))
    return tuple(reversed(made))


# Names


def valid_name(name: str) -> str:
    """`name` as every provider takes it. Another name never gives the same, and the same name always does."""
    if _NAME.fullmatch(name):
        return name
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:54].lstrip("-0123456789")
    return f"{stem or 'tool'}_{_digest(name, 8)}"


def valid_id(id_: str, length: int | None = None) -> str:
    """The same for the id of a call; `length` is how many letters and digits it must have, where that is fixed."""
    if length is not None:
        return id_ if len(id_) == length and id_.isascii() and id_.isalnum() else _digest(id_, length)
    return id_ if _ID.fullmatch(id_) else f"a_{_digest(id_, 24)}"


def _digest(text: str, length: int) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:length]
