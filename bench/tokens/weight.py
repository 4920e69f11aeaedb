"""What a request and a reply weigh in tokens, for Pinfold and for those it is compared with.

A chat is counted as the text that a provider puts before its model: the declarations of the tools as compact JSON, the
system prompt, and each message with what marks its role. Ids of calls are left out on all sides: no two providers treat
them alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import assert_never

from bench.tokens.o200k import tokens

from pinfold.events import (
    AssistantMessage,
    Call,
    Message,
    Reply,
    Request,
    ToolMessage,
    ToolSchema,
    UserMessage,
    plain_json,
)

MARKS = 4
"""Tokens that tell where a message begins and ends, and who speaks."""


@dataclass(frozen=True, slots=True)
class Weight:
    """Tokens of a conversation: what was read, over all calls of the model, and what was written."""

    input: int = 0
    output: int = 0
    cached: int = 0
    """Of the input: what was a byte-exact beginning of the call before."""
    calls: int = 0
    """Of the model."""
    later: int = 0
    """Of the input: all that was not sent with the first call."""

    @property
    def total(self) -> int:
        return self.input + self.output

    def __add__(self, other: Weight) -> Weight:
        return Weight(
            self.input + other.input,
            self.output + other.output,
            self.cached + other.cached,
            self.calls + other.calls,
            self.later + other.later,
        )


def tokens_of_lines(block: str, times: int) -> int:
    """Exactly those of a block of lines that is repeated.

    A line break that a letter or a digit follows always ends a piece of text (no alternative of the pattern matches both),
    and what is merged stays within a piece. So counts add up at such places.
    """
    if times > 1 and not (block.endswith("\n") and block[:1].isalnum()):
        raise ValueError("only blocks of whole lines that begin with a letter or a digit add up")
    return tokens(block) * times


def tool_text(schema: ToolSchema) -> str:
    function = {"name": schema.name, "description": schema.description, "parameters": schema.parameters}
    return plain_json({"type": "function", "function": function})


def call_text(call: Call) -> str:
    return plain_json({"name": call.tool, "arguments": call.args})


def pieces(request: Request) -> list[str]:
    """Everything that is sent, in the order providers cache it."""
    return [*map(tool_text, request.tools), request.system, *(_message(message) for message in request.messages)]


def _message(message: Message) -> str:
    match message:
        case UserMessage(text=text) | ToolMessage(text=text):
            return text
        case AssistantMessage(text=text, calls=calls):
            return text + "".join(map(call_text, calls))
        case _:
            assert_never(message)


def weigh_reply(reply: Reply) -> int:
    return tokens(reply.text + "".join(map(call_text, reply.calls)))


def weigh(exchanges: Iterable[tuple[Request, int]]) -> Weight:
    """Requests in their order, each with the tokens of its reply."""
    whole, before = Weight(), list[str]()
    for request, said in exchanges:
        sent = pieces(request)
        sizes = [tokens(piece) for piece in sent]
        marks = MARKS * (1 + len(request.messages))
        cached = sum(sizes[: _common_length(before, sent)])
        read = sum(sizes) + marks
        whole += Weight(input=read, output=said, cached=cached, calls=1, later=read if before else 0)
        before = sent
    return whole


def _common_length(before: Sequence[str], after: Sequence[str]) -> int:
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            return place
    return min(len(before), len(after))
