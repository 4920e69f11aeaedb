"""Sessions that go on and go back, through `Agent`: what the model is told of it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from pinfold import Agent, PinfoldError, tool
from pinfold.app import SessionStore, read_session
from pinfold.events import SessionOpened

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def agent_of(workspace: Path, model: str, **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox="namespaces", **more)


async def test_the_model_is_told_which_variables_came_back_and_which_are_lost(
    workspace: Path, script: Any, cell: Any
) -> None:
    first = script(cell("import socket\ns = socket.socket()\nitems = [1, 2]\n!true"), {"text": "set"})
    async with agent_of(workspace, first) as agent:
        await agent.run("set")
    second = script(
        {"expect": "[The session was reopened. Restored: socket, items. Lost: s (", "text": "seen"},
        cell("print(items)"),
        {"expect": "[1, 2]", "text": "there"},
    )
    async with agent_of(workspace, second, session=agent.session_id) as again:
        assert (await again.run("what is left?")).text == "seen"
        assert (await again.run("show them")).text == "there"
    with read_session(SessionStore().folder_of(agent.session_id), agent.session_id) as (log, _):
        opened = [entry.event for entry in log.read() if isinstance(entry.event, SessionOpened)]
    assert opened[1].restored == ("socket", "items")
    assert [it.split(" ")[0] for it in opened[1].lost] == ["s"]


async def test_undo_from_python_names_what_stays_and_tells_the_model(workspace: Path, script: Any, cell: Any) -> None:
    sent: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send a text.

        Args:
            text: What to send.
        """
        sent.append(text)
        return "sent"

    model = script(
        cell("items = [1]"),
        cell("items.append(2)\nopen('made.txt', 'w').close()"),
        {"calls": [{"tool": "send", "args": {"text": "hello"}}]},
        {"text": "done"},
        {"expect": "The user undid cell 2: variables and workspace files are as after cell 1.", "text": "told"},
        cell("print(items)"),
        {"expect": "[1]\n", "text": "back"},
    )
    async with agent_of(workspace, model, tools=[send]) as agent:
        await agent.run("go")
        gone = await agent.undo()
        assert (gone.to, gone.undone, gone.effects) == (1, (2,), ('send {"text":"hello"}',))
        assert not (workspace / "made.txt").exists()
        assert (await agent.run("what happened?")).text == "told"
        assert (await agent.run("show")).text == "back"
        with pytest.raises(PinfoldError, match="nothing was undone"):
            await agent.redo()
    assert sent == ["hello"]


async def test_a_cell_that_was_rolled_back_is_no_cell_to_undo(workspace: Path, script: Any, cell: Any) -> None:
    model = script(cell("items = [1]"), cell("import os\nos._exit(1)"), {"text": "done"})
    async with agent_of(workspace, model) as agent:
        await agent.run("go")
        assert (await agent.undo()).undone == (1,)


async def test_an_ephemeral_session_is_undone_as_any_and_leaves_nothing(
    workspace: Path, script: Any, cell: Any
) -> None:
    model = script(cell("items = [1]"), cell("items.append(2)"), {"text": "done"}, cell("items"), {"text": "x"})
    async with agent_of(workspace, model, ephemeral=True) as agent:
        await agent.run("go")
        await agent.undo()
        await agent.redo()
        await agent.undo(to=0)
