"""What a provider wants back with the model's own words: signed thoughts, and signatures on text and calls.

An echo is plain JSON beside the reply, never the reply a second time: of text it says how much, of calls which.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from pinfold.events import AssistantMessage, Json, NotPlain, plain_json

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelResponsePart, TextPart, ThinkingPart, ToolCallPart


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


def echo_of(provider: str, parts: Sequence[ModelResponsePart]) -> Json:
    """What must come back with this reply, or None if nothing but its text and calls."""
    pieces = list(_pieces(parts))
    if not any(piece.is_opaque for piece in pieces):
        return None
    return msgspec.to_builtins(Echo(provider=provider, pieces=pieces))


def _pieces(parts: Sequence[ModelResponsePart]) -> Iterator[Piece]:
    from pydantic_ai.messages import TextPart, ThinkingPart, ToolCallPart

    call = 0
    for part in parts:
        if isinstance(part, TextPart):
            yield Piece(text=len(part.content), id=part.id, details=_plain(part))
        elif isinstance(part, ToolCallPart):
            yield Piece(call=call, id=part.id, details=_plain(part))
            call += 1
        elif isinstance(part, ThinkingPart):
            piece = Piece(thought=part.content, signature=part.signature, id=part.id, details=_plain(part))
            # A thought without a signature is for reading only.
            if piece.is_opaque:
                yield piece


def _plain(part: TextPart | ThinkingPart | ToolCallPart) -> dict[str, Any] | None:
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
