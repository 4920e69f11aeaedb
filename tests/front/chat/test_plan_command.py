"""/plan and /notebook in a real session: shown, changed by the user, saved; a locked plan undoes what changes files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.app.test_session_tools import Script, seen, turn

from pinfold import Agent
from pinfold.events import ActionFinished, Configure, Plan, PlanTask

pytestmark = pytest.mark.integration


async def test_a_cell_that_changes_files_is_undone_until_the_plan_is_agreed(
    workspace: Path, script: Script, cell: Any
) -> None:
    model = script(
        cell("x = 1\nopen('made.txt', 'w').write('x')"),
        cell("y = 2\nprint(y)"),
        cell("open('made.txt', 'w').write('x')"),
    )
    async with Agent(model=model, workspace=workspace, sandbox="namespaces", max_steps=2) as agent:
        live = agent._require_open()  # pyright: ignore[reportPrivateUsage]
        await live.submit(Configure(plan=Plan(tasks=(PlanTask(text="write"),), locked=True)))
        events = await turn(agent)
        ends = [event for event in events if isinstance(event, ActionFinished)]
        assert (ends[0].outcome, ends[0].rolled_back) == ("denied", True)
        assert "made.txt" in ends[0].observation
        assert not (workspace / "made.txt").exists()
        assert seen(events)[-1].strip() == "2"
        await live.submit(Configure(plan=Plan(state="executing")))
        await turn(agent)
    assert (workspace / "made.txt").read_text() == "x"
