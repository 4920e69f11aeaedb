"""MCP servers in a session: pinned, judged, held back, asked for the user. Real servers, real sandbox, scripted model."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold import Agent, Approval, Decision
from pinfold.app.errors import ConfigError
from pinfold.app.mcp.files import user_file
from pinfold.app.mcp.pins import FilePins
from pinfold.events import (
    ActionDenied,
    ActionFinished,
    ActionProposed,
    ApprovalRequested,
    CallTool,
    Event,
    Noticed,
    Usage,
)

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
Script = Callable[..., str]
NOTES = Path(__file__).parent / "servers" / "notes.py"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the server keeps its notes."""
    made = tmp_path / "notes"
    made.mkdir()
    return made


def entry(folder: Path, **more: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(NOTES), str(folder)], **more}


def configured(folder: Path, **more: Any) -> None:
    """As the user's own file has it."""
    user_file().parent.mkdir(parents=True, exist_ok=True)
    user_file().write_text(json.dumps({"mcpServers": {"notes": entry(folder, **more)}}), encoding="utf-8")
    user_file().chmod(0o600)


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": name, "args": args}]}


def agent_of(workspace: Path, model: str, **more: Any) -> Agent:
    return Agent(**{"model": model, "workspace": workspace, "sandbox": "namespaces", "ephemeral": True, **more})


class Asked:
    """Answers each question in turn, the last answer for all that follow."""

    def __init__(self, *answers: bool | str | Decision) -> None:
        self.answers = list(answers)
        self.approvals: list[Approval] = []

    async def __call__(self, approval: Approval) -> bool | str | Decision:
        self.approvals.append(approval)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


async def turn(agent: Agent, prompt: str = "go") -> list[Event]:
    return [event async for event in agent.stream(prompt)]  # pyright: ignore[reportReturnType]


def seen(events: list[Event]) -> list[str]:
    return [event.observation for event in events if isinstance(event, ActionFinished)]


def kept(folder: Path) -> list[str]:
    file = folder / "notes.txt"
    return file.read_text("utf-8").splitlines() if file.exists() else []


def starts(folder: Path) -> int:
    file = folder / "starts.txt"
    return len(file.read_text("utf-8").splitlines()) if file.exists() else 0


async def pinned(workspace: Path, script: Script, folder: Path) -> None:
    """A first session has seen the server."""
    model = script(calls("notes.look"), {"text": "done"}, name="pin.jsonl")
    async with agent_of(workspace, model, mode="full") as agent:
        assert (await agent.run("go")).text == "done"


async def test_a_server_that_is_named_is_not_started_before_it_is_used(
    workspace: Path, script: Script, folder: Path
) -> None:
    configured(folder)
    async with agent_of(workspace, script({"text": "hello"})) as agent:
        assert (await agent.run("hi")).text == "hello"
    assert starts(folder) == 0


async def test_what_was_seen_once_is_offered_without_starting_the_server(
    workspace: Path, script: Script, folder: Path
) -> None:
    configured(folder)
    cell = {"calls": [{"tool": "python", "args": {"code": CALL.format("a")}}]}
    model = script(cell, {"text": "done"})
    async with agent_of(workspace, model, mode="full") as agent:
        first = await turn(agent)
    assert "no tool is called" in seen(first)[-1]
    # An import is what connects; here the pins of another session stand for it.
    await seen_once(folder)
    assert starts(folder) == 1
    model = script({"text": "nothing yet"}, cell, {"text": "done"}, name="again.jsonl")
    async with agent_of(workspace, model, mode="full") as agent:
        assert (await agent.run("hi")).text == "nothing yet"
        assert starts(folder) == 1
        events = await turn(agent)
    assert seen(events)[-1] == "kept a\n"
    assert (kept(folder), starts(folder)) == (["a"], 2)


CALL = "from _pinfold_guest.calls import call\nprint(call('notes.note', text='{}'))"


async def seen_once(folder: Path) -> None:
    """The user's own look at the server, as `pinfold mcp add` has it."""
    from pinfold.app.mcp.looking import looked_at
    from pinfold.app.mcp.files import users_own

    found = await looked_at(users_own().specs)
    assert [one.problem for one in found] == [""]
