"""A task goes on without what is down, and its answer names it: the whole product, the real sandbox."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pinfold import Agent, tool
from pinfold.events import ActionFinished, ModelFailed

pytestmark = pytest.mark.integration
FETCH = "import urllib.request\nurllib.request.urlopen('http://example.com')"


@tool(effect="pure")
def rates(currency: str) -> float:
    """Today's rate of a currency."""
    raise ConnectionError(f"no rate of {currency}: the service is down")


def fall_back_to(tmp_path: Path, model: str) -> None:
    config = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f"[models]\nfallback = [{json.dumps(model)}]\n", encoding="utf-8")


async def test_an_answer_names_the_model_the_tool_and_the_network_it_did_without(
    tmp_path: Path, workspace: Path, script: Any, cell: Any
) -> None:
    down = script({"error": "no such key", "status": 401}, name="down.jsonl")
    second = script(
        {"calls": [{"tool": "rates", "args": {"currency": "EUR"}}]},
        cell(FETCH),
        {
            "expect": "[example.com:80 was not reached: code wants example.com:80, and no user can be asked]",
            "text": "About 1.1, from memory.",
        },
        name="second.jsonl",
    )
    fall_back_to(tmp_path, second)
    async with Agent(model=down, workspace=workspace, tools=[rates]) as agent:
        result = await agent.run("What is a euro worth?")
    assert result.without == (
        f"{down} (no such key)",
        "the tool rates (ConnectionError: no rate of EUR: the service is down)",
        "the network (refused: example.com:80)",
    )
    assert result.text.startswith("About 1.1, from memory.")
    assert all(what in result.text for what in result.without)


async def test_with_everything_there_nothing_is_named(tmp_path: Path, workspace: Path, script: Any, cell: Any) -> None:
    works = script(cell("1 + 1"), {"text": "2"})
    fall_back_to(tmp_path, script({"text": "not asked"}, name="second.jsonl"))
    async with Agent(model=works, workspace=workspace, tools=[rates]) as agent:
        events = [event async for event in agent.stream("1 + 1?")]
    assert not any(isinstance(event, ModelFailed) for event in events)
    assert [event.lacked for event in events if isinstance(event, ActionFinished)] == [""]
    assert (events[-1].text, events[-1].without) == ("2", ())  # type: ignore[union-attr]
