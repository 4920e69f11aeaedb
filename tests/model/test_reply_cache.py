"""Remembered replies: only of deterministic requests, only for the same request, and never too many."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinfold.events import AssistantMessage, Call, Json, Reply, Request, ToolMessage, Usage, UserMessage, new_action_id
from pinfold.model.layers import ReplyCache

pytestmark = pytest.mark.unit


class Counting:
    """Answers with the number of the request."""

    name = "counting"

    def __init__(self) -> None:
        self.asked = 0

    async def stream(self, request: Request) -> AsyncGenerator[str | Reply]:  # noqa: ARG002
        self.asked += 1
        call = Call(id=new_action_id(), tool="python", args={"code": "1"})
        yield Reply(text=str(self.asked), calls=(call,), usage=Usage(input_tokens=5), cost=0.5)

    async def aclose(self) -> None:
        pass


def question(text: str = "q", **settings: Json) -> Request:
    """As in two sessions: the same, but for the ids."""
    id_ = new_action_id()
    messages = (
        UserMessage(text=text),
        AssistantMessage(text="", calls=(Call(id=id_, tool="python", args={"code": "2"}),)),
        ToolMessage(id=id_, text="2"),
    )
    return Request(system="s", messages=messages, settings=settings)


async def asked(model: ReplyCache, request: Request) -> Reply:
    pieces = [piece async for piece in model.stream(request)]
    assert isinstance(pieces[-1], Reply)
    return pieces[-1]


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"temperature": 0.0}, {"seed": 7}])
async def test_the_same_request_is_answered_from_memory(tmp_path: Path, settings: dict[str, Json]) -> None:
    inner = Counting()
    first = await asked(ReplyCache(inner, tmp_path), question(**settings))
    again = await asked(ReplyCache(inner, tmp_path), question(**settings))
    assert inner.asked == 1
    assert (first.text, first.from_cache) == ("1", False)
    assert (again.text, again.from_cache, again.usage, again.cost) == ("1", True, Usage(), 0.0)
    assert again.calls[0].id != first.calls[0].id


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"temperature": None}])
async def test_what_may_come_out_otherwise_is_asked_again(tmp_path: Path, settings: dict[str, Json]) -> None:
    inner = Counting()
    for _ in range(2):
        await asked(ReplyCache(inner, tmp_path), question(**settings))
    assert inner.asked == 2


async def test_another_request_or_another_server_is_asked(tmp_path: Path) -> None:
    inner = Counting()
    model = ReplyCache(inner, tmp_path)
    for request in (question(temperature=0), question("r", temperature=0), question(temperature=0, seed=1)):
        await asked(model, request)
    await asked(ReplyCache(inner, tmp_path, at="http://other"), question(temperature=0))
    assert inner.asked == 4


async def test_the_oldest_are_forgotten(tmp_path: Path) -> None:
    model = ReplyCache(Counting(), tmp_path, most=10)
    for number in range(25):
        await asked(model, question(str(number), temperature=0))
    assert len(kept(tmp_path)) <= 10


async def test_a_damaged_memory_is_as_good_as_none(tmp_path: Path) -> None:
    inner = Counting()
    await asked(ReplyCache(inner, tmp_path), question(temperature=0))
    for path in kept(tmp_path):
        path.write_bytes(b'{"text": "\xff')
    assert (await asked(ReplyCache(inner, tmp_path), question(temperature=0))).text == "2"


def kept(folder: Path) -> list[Path]:
    return list(folder.iterdir())
