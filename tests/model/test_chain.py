"""How a model is put together: which protocol, which price, by its name alone."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from pinfold.events import Reply, Request, Usage
from pinfold.model import Access, model_named
from pinfold.model.layers import PriceLayer, ReplyCache
from pinfold.model.protocol import TextCallLayer
from pinfold.model.small_model_prompts import SmallModelLayer

pytestmark = pytest.mark.unit
KEYS = {"OPENAI_API_KEY": "k"}


@pytest.mark.parametrize(
    ("name", "layers"),
    [
        ("gpt-5", [PriceLayer]),
        ("http://127.0.0.1:1/v1#m", [TextCallLayer]),
        ("ollama:qwen2.5-coder:1.5b", [SmallModelLayer, TextCallLayer, PriceLayer]),
        ("ollama:qwen2.5-coder:32b", [TextCallLayer, PriceLayer]),
    ],
)
def test_a_model_has_the_layers_its_name_calls_for(name: str, layers: list[type]) -> None:
    assert layers_of(model_named(name, access=Access(keys=KEYS))) == layers


def test_replies_are_remembered_where_there_is_a_place_and_the_protocol_can_be_said(tmp_path: Path) -> None:
    model = model_named("gpt-5", access=Access(keys=KEYS, replies=tmp_path, protocol="text", profile="small"))
    assert layers_of(model) == [SmallModelLayer, ReplyCache, TextCallLayer, PriceLayer]
    native = model_named("http://127.0.0.1:1/v1#m", access=Access(protocol="native"))
    assert layers_of(native) == []


def layers_of(model: object) -> list[type]:
    """From the outside in, without the wire."""
    found: list[type] = []
    while (inner := getattr(model, "_model", None) or getattr(model, "model", None)) and hasattr(inner, "stream"):
        found.append(type(model))
        model = inner
    return found


class Spending:
    name = "spending"

    async def stream(self, request: object) -> AsyncGenerator[str | Reply]:  # noqa: ARG002
        yield Reply(text="ok", usage=Usage(input_tokens=1_000_000, output_tokens=1_000_000))

    async def aclose(self) -> None:
        pass


@pytest.mark.parametrize(
    ("provider", "model", "known"),
    [("openai", "gpt-4o-mini", True), ("openai", "no-such-model", False), (None, "any", True)],
)
async def test_a_price_is_known_or_said_to_be_unknown(provider: str | None, model: str, known: bool) -> None:
    pieces = [piece async for piece in PriceLayer(Spending(), provider, model).stream(Request(system="", messages=()))]
    reply = pieces[-1]
    assert isinstance(reply, Reply)
    assert (reply.cost is not None) == known
    assert reply.cost == 0.0 if provider is None else reply.cost != 0.0
