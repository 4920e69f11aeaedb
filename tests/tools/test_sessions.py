"""Tools as an agent has them: told, repaired, bounded, and given to code as values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from pinfold import Agent, tool

pytestmark = [pytest.mark.integration, pytest.mark.installed]


@tool(effect="pure")
def rows(count: int, path: str = ".") -> dict[str, Any]:
    """Make rows."""
    return {"path": path, "rows": [{"n": n} for n in range(count)], "none": None}


@tool(effect="pure", max_output=300)
def long() -> str:
    """A long text."""
    return "x" * 1000


async def test_code_gets_values_and_the_model_sees_text_up_to_the_tools_own_bound(
    workspace: Path, script: Any, cell: Any
) -> None:
    code = (
        "from _pinfold_guest.calls import call\n"
        "made = call('rows', count='3', file_path='p')\n"
        "print(type(made).__name__, made['path'], sum(row['n'] for row in made['rows']), made['none'])\n"
        "print(len(call('long')))"
    )
    model = script(
        cell(code),
        {"expect": "dict p 3 None\n1000", "calls": [{"tool": "Rows", "args": {"count": 1, "filename": "q"}}]},
        {"expect": '{"path":"q","rows":[{"n":0}],"none":null}', "calls": [{"tool": "long", "args": "{}"}]},
        {"expect": "[... 700 of 1,000 characters left out; all of it: read_file(", "text": "seen"},
    )
    async with Agent(model=model, workspace=workspace, sandbox="unsafe-local", tools=[rows, long]) as agent:
        assert (await agent.run("go")).text == "seen"
