"""What goes to a model and what comes back, free of any provider's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from msgspec import Struct

from pinfold.events.ids import ActionId, BlobId

Json: TypeAlias = Any
"""Whatever `json` can write: checked by the codec, not by the type."""


class Arrow(bytes):
    """A table as an Arrow IPC stream. Code that gets one as a result sees a `pyarrow.Table`."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them."""

    input_tokens: int = 0
    """All of them, those read from a cache included."""
    output_tokens: int = 0
    """Reasoning included."""
    cached_tokens: int = 0
    """Of the input: read from the provider's cache."""
    written_tokens: int = 0
    """Of the input: written to the provider's cache, where that has a price of its own."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            written_tokens=self.written_tokens + other.written_tokens,
        )

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


class Call(Struct, frozen=True, kw_only=True):
    """A tool call as the model wrote it, before anyone judged whether it makes sense."""

    id: ActionId
    tool: str
    args: Json


class Image(Struct, frozen=True, kw_only=True):
    """A picture for the model; its bytes are in the request's `blobs`."""

    mime: str
    blob: BlobId


FILES_TOLD = "[Files in the current folder:"
"""How a message goes on that tells what files there are, up to `]` at its end."""


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    text: str
    images: tuple[Image, ...] = ()


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str
    calls: tuple[Call, ...] = ()
    in_text: bool = False
    """The calls were read out of the text, which is as the model wrote it."""
    echo: Json = None
    """What the provider wants back with this message, as it gave it."""


class ToolMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="tool"):
    """What the model sees of the call `id`."""

    id: ActionId
    text: str


Message: TypeAlias = UserMessage | AssistantMessage | ToolMessage


class ToolSchema(Struct, frozen=True, kw_only=True):
    """A tool as the model is told of it."""

    name: str
    description: str
    parameters: Mapping[str, Json]


class Request(Struct, frozen=True, kw_only=True):
    """One call of a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[ToolSchema, ...] = ()
    settings: Mapping[str, Json] = {}
    blobs: Mapping[BlobId, bytes] = {}
    """The pictures of the messages."""


class Thought(Struct, frozen=True):
    """A piece of a model's reasoning, as it comes."""

    text: str


Finish: TypeAlias = Literal["stop", "length", "filter"]
"""Why a reply ends where it does: it is whole, it hit the limit of tokens, or the provider cut it off."""


class Reply(Struct, frozen=True, kw_only=True):
    """The whole of a model's answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    """In US dollars; None when the price is not known."""
    request_id: str = ""
    reasoning: str = ""
    finish: Finish = "stop"
    in_text: bool = False
    """The calls were read out of the text."""
    correction: str = ""
    """What the model must be told of this reply before it can count, if it has no calls."""
    unreadable: bool = False
    """A call was clearly meant and could not be understood: the text is no answer."""
    from_cache: bool = False
    """Nobody was asked: the same request was answered before."""
    echo: Json = None
    """What the provider wants back with this message."""
    notices: tuple[str, ...] = ()
    """For the user."""
