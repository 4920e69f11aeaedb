"""From what the SDK streams to our pieces and our reply. Importing this imports pydantic-ai."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import msgspec
from pydantic_ai import messages as sdk
from pydantic_ai.usage import RequestUsage

from pinfold.events import (
    AssistantMessage,
    BadEvent,
    Call,
    Finish,
    Json,
    NotPlain,
    Reply,
    RequestFailed,
    Thought,
    Usage,
    new_action_id,
    plain_json,
)
from pinfold.model.wire.payload import parse_payload


class Piece(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A part of a reply, in its place. One of the first three says which."""

    thought: str | None = None
    text: int | None = None
    """So many characters of the reply's text."""
    call: int | None = None
    """The call with this index."""
    signature: str | None = None
    id: str | None = None
    details: dict[str, Any] | None = None

    @property
    def is_opaque(self) -> bool:
        """It holds something that only its provider can read."""
        return bool(self.signature or self.id or self.details)


class Echo(msgspec.Struct, frozen=True, kw_only=True):
    provider: str
    pieces: list[Piece]


def echo_of(provider: str, parts: Sequence[sdk.ModelResponsePart]) -> Json:
    """What must come back with this reply, or None if nothing but its text and calls."""
    pieces = list(_pieces(parts))
    if not any(piece.is_opaque for piece in pieces):
        return None
    return msgspec.to_builtins(Echo(provider=provider, pieces=pieces))


def _pieces(parts: Sequence[sdk.ModelResponsePart]) -> Iterator[Piece]:
    call = 0
    for part in parts:
        if isinstance(part, sdk.TextPart):
            yield Piece(text=len(part.content), id=part.id, details=_plain(part))
        elif isinstance(part, sdk.ToolCallPart):
            yield Piece(call=call, id=part.id, details=_plain(part))
            call += 1
        elif isinstance(part, sdk.ThinkingPart):
            piece = Piece(thought=part.content, signature=part.signature, id=part.id, details=_plain(part))
            # A thought without a signature is for reading only.
            if piece.is_opaque:
                yield piece


def _plain(part: sdk.TextPart | sdk.ThinkingPart | sdk.ToolCallPart) -> dict[str, Any] | None:
    try:
        plain_json(part.provider_details)
    except NotPlain:
        return None
    return part.provider_details or None


def pieces_of(provider: str, message: AssistantMessage) -> list[Piece]:
    """How to send this message: as its echo says, if that is from this provider, and as far as it still fits."""
    pieces = _read_echo(provider, message.echo)
    texts = sum(piece.text or 0 for piece in pieces)
    calls = [piece.call for piece in pieces if piece.call is not None]
    if pieces and texts == len(message.text) and calls == list(range(len(message.calls))):
        return pieces
    thoughts = [piece for piece in pieces if piece.thought is not None]
    words = [Piece(text=len(message.text))] if message.text else []
    return [*thoughts, *words, *(Piece(call=index) for index in range(len(message.calls)))]


def _read_echo(provider: str, echo: Json) -> list[Piece]:
    try:
        read = msgspec.convert(echo, Echo)
    except msgspec.ValidationError:
        return []
    return read.pieces if read.provider == provider else []


_FINISHES: Mapping[str, Finish] = {"length": "length", "content_filter": "filter"}


def piece_of(event: sdk.ModelResponseStreamEvent) -> str | Thought | None:
    """What there is to show of an event."""
    match event:
        case (
            sdk.PartStartEvent(part=sdk.TextPart(content=text))
            | sdk.PartDeltaEvent(delta=sdk.TextPartDelta(content_delta=text))
        ):
            return text or None
        case (
            sdk.PartStartEvent(part=sdk.ThinkingPart(content=text))
            | sdk.PartDeltaEvent(delta=sdk.ThinkingPartDelta(content_delta=text))
        ):
            return Thought(text) if text else None
        case _:
            return None


def reply_of(
    response: sdk.ModelResponse, *, provider: str, tools: Mapping[str, str], notices: tuple[str, ...]
) -> Reply:
    """The whole of it; `tools` are our names by those that were sent. Raises RequestFailed if it is not whole."""
    details = response.provider_details or {}
    request_id = response.provider_response_id or ""
    _check_whole(response, details, request_id)
    texts = [part.content for part in response.parts if isinstance(part, sdk.TextPart)]
    thoughts = [part.content for part in response.parts if isinstance(part, sdk.ThinkingPart)]
    calls = [part for part in response.parts if isinstance(part, sdk.ToolCallPart)]
    if any(isinstance(part, sdk.FilePart) for part in response.parts):
        notices += ("the model made a picture, which cannot be shown yet",)
    finish = _FINISHES.get(response.finish_reason or "", "stop")
    if finish == "filter":
        notices += (f"{provider} cut the reply off: {_reason(details)}",)
    return Reply(
        text="".join(texts),
        calls=tuple(
            Call(id=new_action_id(), tool=tools.get(part.tool_name, part.tool_name), args=_args(part.args))
            for part in calls
        ),
        usage=usage_of(response.usage),
        request_id=request_id,
        reasoning="".join(thoughts),
        finish=finish,
        echo=echo_of(provider, response.parts),
        notices=notices,
    )


def usage_of(usage: RequestUsage) -> Usage:
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        cached_tokens=usage.cache_read_tokens,
        written_tokens=usage.cache_write_tokens,
    )


def _check_whole(response: sdk.ModelResponse, details: Mapping[str, Any], request_id: str) -> None:
    reason = details.get("finish_reason")
    if response.finish_reason is None and not reason:
        raise RequestFailed("the reply broke off", request_id=request_id)
    if response.finish_reason == "error":
        raise RequestFailed(f"the model broke its reply off: {reason}", request_id=request_id)


def _reason(details: Mapping[str, Any]) -> str:
    """In the provider's words, as many as it gives."""
    names = ("refusal", "block_reason_message", "refusal_category", "block_reason", "finish_reason")
    return next((str(details[name]) for name in names if details.get(name)), "no reason given")


def _args(args: object) -> Json:
    """The arguments of a call; what is not a JSON object of bearable depth stays as the model wrote it."""
    if not args:
        return {}
    text = args if isinstance(args, str) else plain_json(args)
    try:
        read = parse_payload(text)
    except BadEvent:
        return text
    return cast("dict[str, Any]", read) if isinstance(read, dict) else text
