"""Sub-agents: forks of a live session that bring back variables and files, whatever becomes of them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pinfold.app.session.live_session import LiveSession, open_session
from pinfold.app.session.options import Options
from pinfold.events import ActionFinished, Entry, Execute, SessionId, new_action_id

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Script = Callable[..., str]
Cell = Callable[..., dict[str, Any]]


@asynccontextmanager
async def opened(workspace: Path, folder: Path | None = None, **options: Any) -> AsyncGenerator[LiveSession]:
    given = Options(workspace=workspace, sandbox="namespaces", mode="auto", **options)
    async with open_session(folder, SessionId("s_parent"), given) as live:
        yield live


async def run(live: LiveSession, code: str) -> ActionFinished:
    execute = Execute(id=new_action_id(), code=code)
    async with live.subscribe(live.log.seq) as feed:
        await live.submit(execute)
        async for item in feed:
            if isinstance(item, Entry) and isinstance(item.event, ActionFinished) and item.event.id == execute.id:
                return item.event
    raise AssertionError


async def test_a_sub_agent_has_the_variables_of_the_running_cell_and_brings_back_variables_and_files(
    workspace: Path, script: Script, cell: Cell
) -> None:
    model = script(
        cell("total = sum(rows) + here\nopen('made.txt', 'w').write(str(total))"), {"text": "the total is 11"}
    )
    async with opened(workspace) as live:
        await run(live, "rows = [1, 2, 3]")
        done = await run(live, f"here = 5\nr = agents.run('add up', keep=['total'], model={model!r})\nr")
        assert done.outcome == "ok", done.error
        assert (await run(live, "r.status, r.answer, r.variables, r.files, r.conflicts")).value == (
            "('done', 'the total is 11', {'total': 11}, ['made.txt'], [])"
        )
        assert (await run(live, "'total' in globals()")).value == "False"
    assert (workspace / "made.txt").read_text() == "11"
