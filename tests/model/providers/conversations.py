"""Requests, and what comes of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from tests.model.providers.loopback import Answer, Asked, Loopback

from pinfold.events import (
    AssistantMessage,
    Message,
    Reply,
    Request,
    RequestFailed,
    Thought,
    ToolMessage,
    ToolSchema,
    UserMessage,
    parse_json,
    plain_json,
)
from pinfold.model.providers import DirectModel

Serve = Callable[[Callable[[Asked], Answer]], Loopback]
Ask = Callable[..., DirectModel]

PYTHON = ToolSchema(
    name="python",
    description="Run Python.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
SYSTEM = "You are careful and brief. " * 20


def request(*messages: Message, tools: tuple[ToolSchema, ...] = (PYTHON,), **more: Any) -> Request:
    return Request(system=SYSTEM, messages=messages, tools=tools, **more)


HELLO = request(UserMessage(text="hello"))


async def pieces(model: DirectModel, asked: Request) -> list[str | Thought | Reply]:
    return [piece async for piece in model.stream(asked)]


async def reply(model: DirectModel, asked: Request = HELLO) -> Reply:
    *_, last = await pieces(model, asked)
    assert isinstance(last, Reply)
    return last


def went_on(asked: Request, reply: Reply, *results: str) -> Request:
    """The request after this reply, with what came of its calls; the echo has been through the log."""
    said = AssistantMessage(text=reply.text, calls=reply.calls, echo=parse_json(plain_json(reply.echo)))
    told = [ToolMessage(id=call.id, text=text) for call, text in zip(reply.calls, results, strict=True)]
    return Request(
        system=asked.system,
        messages=(*asked.messages, said, *told),
        tools=asked.tools,
        settings=asked.settings,
        blobs=asked.blobs,
    )


async def failed(model: DirectModel, asked: Request = HELLO) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await reply(model, asked)
    return caught.value
