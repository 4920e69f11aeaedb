"""/agents: the sub-agents of a session, and all that one did."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.front.chat.headless_chat import cell, saying, talking

from pinfold.app.paths import config_dir

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


async def test_each_has_a_line_and_agents_shows_all_that_one_did(workspace: Path, tmp_path: Path) -> None:
    code = {"calls": [{"tool": "python", "args": {"code": "total = sum(rows)"}}], "usage": {"input_tokens": 40}}
    script = tmp_path / "clerk.jsonl"
    script.write_text("".join(f"{json.dumps(one)}\n" for one in (code, {"text": "It is 6."})), encoding="utf-8")
    described = config_dir() / "agents" / "clerk.md"
    described.parent.mkdir(parents=True)
    described.write_text(f"---\nname: clerk\nmodel: scripted:{script}\n---\nYou add up.\n", encoding="utf-8")
    starts = "rows = [1, 2, 3]\nr = agents.run('add up', agent='clerk')\nr.status"
    async with talking(workspace, cell(starts), saying("6")) as (chat, _):
        assert await chat.type("/agents") == "/agents: no sub-agent has run; code starts one with agents.run(...)\n"
        await chat.turn("go")
        assert "clerk: done, 2 steps, 40 tokens" in await chat.type("/agents")
        assert "no sub-agent is called 'nobody'; /agents lists them" in await chat.type("/agents nobody")
        whole = await chat.type("/agents clerk")
        assert "You are the sub-agent clerk" in whole
        assert "total = sum(rows)" in whole
        assert "It is 6." in whole
        assert "```" not in whole  # it is shown as the chat shows everything
