"""A model that has no tool calls of its own, or may have none, made to look like one that has."""

from __future__ import annotations

from typing import Literal, TypeAlias

from msgspec.structs import replace

from pinfold.events import AssistantMessage, Reply, Request, UserMessage
from pinfold.model.layers import Inner, Layer, Pieces
from pinfold.model.protocol.tool_prompts import Style, add_fence_hint, keep_text_calls, put_tools_in_prompt

When: TypeAlias = Literal["always", "unless-native"]
"""Whether calls are read out of the text: in any case, or until the model has called natively once."""


class InText(Layer):
    """The model inside, with its calls read out of what it says."""

    def __init__(self, model: Inner, *, style: Style = "full", when: When = "always") -> None:
        super().__init__(model)
        self.style: Style = style
        self.when: When = when
        self.calls_natively = False
        """It has been seen to: what it writes in fences is not for us any more."""

    async def stream(self, request: Request) -> Pieces:
        """The pieces as they come, then the reply with its calls."""
        begun = prefill_of(request)
        async with self.pieces(self._prepare_request(request)) as pieces:
            async for piece in pieces:
                match piece:
                    case Reply():
                        yield self._parse_calls(piece, request)
                    case str() if begun:
                        yield join_prefill(begun, piece)
                        begun = ""
                    case _:
                        yield piece

    def _prepare_request(self, request: Request) -> Request:
        if self.when == "always":
            return put_tools_in_prompt(request, style=self.style)
        spoken = keep_text_calls(request)
        return spoken if self.calls_natively else add_fence_hint(spoken)

    def _parse_calls(self, reply: Reply, request: Request) -> Reply:
        is_native = bool(reply.calls) or reply.unreadable  # or cut off within a native call, which the wire has told
        self.calls_natively = self.calls_natively or is_native
        if is_native or (self.calls_natively and self.when == "unless-native"):
            return reply
        from pinfold.model.protocol.reply_parser import parse_reply

        user = [message.text for message in request.messages if isinstance(message, UserMessage)]
        text = join_prefill(prefill_of(request), reply.text)
        reading = parse_reply(text, request.tools, quoted=user, finish=reply.finish)
        return replace(
            reply,
            text=text,
            calls=reading.calls,
            in_text=bool(reading.calls),
            correction=reading.correction,
            unreadable=reading.unreadable,
        )


def prefill_of(request: Request) -> str:
    """What was put into the model's mouth for it to go on with."""
    match request.messages:
        case (*_, AssistantMessage(text=text, calls=())):
            return text
        case _:
            return ""


def join_prefill(begun: str, text: str) -> str:
    """The whole of what was said. A server that did not go on began anew."""
    return text if not begun or text.startswith(begun.rstrip()) else begun + text
