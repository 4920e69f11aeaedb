"""What tests say to a model, and how they listen."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pinfold.events import (
    ActionId,
    AssistantMessage,
    BlobId,
    Call,
    Image,
    Message,
    Reply,
    Request,
    Thought,
    ToolMessage,
    ToolSchema,
    UserMessage,
)
from pinfold.model.wire.ollama import OllamaModel
from pinfold.model.wire.openai import OpenAIModel

HELLO = Request(system="Be brief.", messages=(UserMessage(text="hello"),))
PYTHON = ToolSchema(
    name="python",
    description="Run code.",
    parameters={"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
)
WITH_TOOLS = Request(system="Be brief.", messages=(UserMessage(text="hello"),), tools=(PYTHON,))


def compatible(url: str, **more: Any) -> OpenAIModel:
    return OpenAIModel(name="test:tiny", base_url=f"{url}/v1", model="tiny", **more)


def ollama(url: str, **more: Any) -> OllamaModel:
    return OllamaModel(name="ollama:tiny", base_url=url, model="tiny", **more)


async def pieces(model: OpenAIModel | OllamaModel, request: Request = HELLO) -> tuple[list[str | Thought], Reply]:
    try:
        *shown, last = [piece async for piece in model.stream(request)]
    finally:
        await model.aclose()
    assert isinstance(last, Reply)
    return [piece for piece in shown if not isinstance(piece, Reply)], last


async def reply(model: OpenAIModel | OllamaModel, request: Request = HELLO) -> Reply:
    return (await pieces(model, request))[1]


def called(reply: Reply) -> list[tuple[str, Any]]:
    return [(call.tool, call.args) for call in reply.calls]


def asking(*messages: Message, **more: Any) -> Request:
    return Request(system="", messages=messages, **more)


def user(text: str, *images: tuple[str, str]) -> UserMessage:
    return UserMessage(text=text, images=tuple(Image(mime=mime, blob=BlobId(blob)) for mime, blob in images))


def assistant(text: str, calls: Iterable[tuple[str, str, Any]] = (), **more: Any) -> AssistantMessage:
    return AssistantMessage(
        text=text, calls=tuple(Call(id=ActionId(id_), tool=tool, args=args) for id_, tool, args in calls), **more
    )


def tool(id_: str, text: str) -> ToolMessage:
    return ToolMessage(id=ActionId(id_), text=text)
