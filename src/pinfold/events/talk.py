"""What goes to a model and what comes back, free of any provider's format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from pinfold.events.ids import ActionId

Json: TypeAlias = Any
"""Whatever `json` can write: checked by the codec, not by the type."""


class Usage(Struct, frozen=True, kw_only=True):
    """Tokens as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
        )

    @property
    def total(self) -> int:
        return self.input_tokens + self.output_tokens


class Call(Struct, frozen=True, kw_only=True):
    """A tool call as the model wrote it, before anyone judged whether it makes sense."""

    id: ActionId
    tool: str
    args: Json


class UserMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="user"):
    text: str


class AssistantMessage(Struct, frozen=True, kw_only=True, tag_field="role", tag="assistant"):
    text: str
    calls: tuple[Call, ...] = ()


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


class Reply(Struct, frozen=True, kw_only=True):
    """The whole of a model's answer."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    usage: Usage = Usage()
    cost: float | None = None
    """In US dollars; None when the price is not known."""
    request_id: str = ""
