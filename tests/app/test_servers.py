"""Tools as code: the package `servers` in real sessions, each call judged and on record."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.app.test_session_tools import Asked, Script, agent_of, seen, turn

from pinfold import Agent, tool
from pinfold.app import Options, open_session
from pinfold.app.session.catalogue import Catalogue
from pinfold.events import (
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalRequested,
    CallTool,
    SessionOpened,
    new_session_id,
)
from pinfold.tools import Registry

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
SEEDS = """
import asyncio
import sys
sys.path.append('/mnt')

async def main():
    from servers.filesystem import list_directory
    result = await list_directory("/mnt/datasets")
    for entry in result['entries']:
        print(f"{entry['name']}")

import asyncio
asyncio.run(main())
"""
done: list[Any] = []


@tool(effect="pure")
def double(n: int) -> int:
    """Twice as much. Nothing else."""
    return 2 * n


@tool(effect="once")
async def post(text: str, to: list[str] | None = None) -> dict[str, Any]:
    """Post a message."""
    done.append((text, to))
    return {"id": len(done), "raw": b"\0\xff"}


@tool(effect="pure")
def broken() -> None:
    """Always fails."""
    raise RuntimeError("the mill is broken")


@pytest.fixture(autouse=True)
def nothing_done() -> None:
    done.clear()


async def observed(agent: Agent) -> str:
    return seen(await turn(agent))[-1]


async def test_the_cell_of_the_token_efficient_seed_runs_as_it_is(
    workspace: Path, tmp_path: Path, script: Script, cell: Any
) -> None:
    data = tmp_path / "car_price_prediction_.csv"
    data.write_text("a\n1\n")
    async with agent_of(workspace, script(cell(SEEDS)), data=[data]) as agent:
        assert await observed(agent) == "car_price_prediction_.csv\n"


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("from servers.tools import double\ndouble(21)", "42"),
        ("import servers\nservers.tools.double(n=21)", "42"),
        ("from servers.tools import double\nawait double(21)", "42"),
        ("import asyncio\nfrom servers.tools import *\nawait asyncio.gather(double(1), double(2))", "[2, 4]"),
        ("import servers\n[name for name in dir(servers) if name in ('tools', 'search', 'web')]", "['search', 'tools', 'web']"),
        ("import servers.tools\ndir(servers.tools)", "['broken', 'double', 'post']"),
        ("import servers\nservers.search('twice as much')", "tools.double(n: int) -> int  # Twice as much"),
        ("from servers.tools import post\npost('hi')['raw']", "b'\\x00\\xff'"),
        ("from servers.system import calculator\ncalculator('6 * 7')", "'42'"),
    ],
)  # fmt: skip
async def test_tools_are_functions_of_modules(
    workspace: Path, script: Script, cell: Any, code: str, value: str
) -> None:
    async with agent_of(workspace, script(cell(code)), tools=[double, post, broken]) as agent:
        assert (await observed(agent)).splitlines()[0] == value


async def test_the_modules_are_files_to_read_too_and_stay_what_the_host_says(
    workspace: Path, script: Script, cell: Any
) -> None:
    code = """
import os, sys
print(sorted(os.listdir('/mnt/servers')))
print('def double(n: int) -> int:' in open('/mnt/servers/tools.py').read())
sys.path.append('/mnt')
from servers.tools import double
print(double(21), double.__module__)
try:
    open('/mnt/servers/tools.py', 'a')
except OSError as error:
    print(error.strerror)
"""
    files = "['agents.py', 'data.py', 'filesystem.py', 'memory.py', 'project.py', 'skills.py', 'system.py', 'tools.py', 'web.py']"
    model = script(cell(code), {"expect": f"{files}\nTrue\n42 servers.tools\nRead-only file system", "text": "ok"})
    async with agent_of(workspace, model, tools=[double]) as agent:
        assert (await agent.run("go")).text == "ok"


async def test_help_tells_how_to_call(workspace: Path, script: Script, cell: Any) -> None:
    code = "from servers.tools import post\nhelp(post)"
    async with agent_of(workspace, script(cell(code)), tools=[post]) as agent:
        told = await observed(agent)
    assert "post(text: str, to: list[str] = ...)" in told
    assert "Post a message." in told


@pytest.mark.parametrize(
    ("code", "end"),
    [
        ("from servers.tools import broken\nbroken()", "    broken()\nToolFailed: broken failed: RuntimeError: the mill is broken\n"),
        ("from servers.nothing import x", "ModuleNotFoundError: no server is called 'nothing'; there are system, filesystem, data, web, agents, memory, skills, project, tools\n"),
        ("from servers.tools import double\ndouble('x')", "ToolFailed: wrong arguments for double: 'n' should be a valid integer, unable to parse string as an integer, not \"x\"\n"),
        ("import servers\nservers.tools.halve(2)", "AttributeError: module 'servers.tools' has no attribute 'halve'\n"),
    ],
)  # fmt: skip
async def test_what_goes_wrong_is_an_exception_in_the_cell(
    workspace: Path, script: Script, cell: Any, code: str, end: str
) -> None:
    async with agent_of(workspace, script(cell(code)), tools=[double, broken]) as agent:
        told = await observed(agent)
    assert told.endswith(end), told
    assert "_call(" not in told


async def test_each_call_is_an_action_of_its_cell_on_record(workspace: Path, script: Script, cell: Any) -> None:
    code = "from servers.tools import double, post\nfor n in range(3): double(n)\npost('x')"
    async with agent_of(workspace, script(cell(code)), tools=[double, post]) as agent:
        events = await turn(agent)
    proposed = [event for event in events if isinstance(event, ActionProposed)]
    cells, calls = proposed[:1], proposed[1:]
    assert [(one.by, one.parent, one.action) for one in calls] == [
        *(("cell", cells[0].id, CallTool(tool="double", args={"n": n})) for n in range(3)),
        ("cell", cells[0].id, CallTool(tool="post", args={"text": "x"})),
    ]
    ends = {event.id: event for event in events if isinstance(event, ActionFinished)}
    assert [ends[one.id].observation for one in calls[:3]] == ["0", "2", "4"]
    started = [event.effect for event in events if isinstance(event, ActionStarted)]
    assert sorted(started) == ["once", "once", "pure", "pure", "pure"]


async def test_calls_of_an_undone_cell_stay_on_record(workspace: Path, script: Script, cell: Any) -> None:
    code = "from servers.tools import post\nx = post('sent')"
    async with agent_of(workspace, script(cell(code), {"text": "ok"}), tools=[post]) as agent:
        before = await turn(agent)
        rewound = await agent.undo()
    assert rewound.effects == ('post {"text":"sent"}',)
    assert any(isinstance(event, ActionProposed) and event.by == "cell" for event in before)


async def test_calls_side_by_side_that_need_a_yes_are_one_question(workspace: Path, script: Script, cell: Any) -> None:
    """The tool is the user's own file's, so that it is not handed over in person."""
    code = (
        "import asyncio\nfrom servers.filesystem import write_file\n"
        "await asyncio.gather(*(write_file(f'{n}.txt', str(n)) for n in range(5)))\nNone"
    )
    asked = Asked(True)
    async with agent_of(workspace, script(cell(code)), mode="ask", approve=asked) as agent:
        events = await turn(agent)
    assert len([event for event in events if isinstance(event, ApprovalRequested)]) == 1
    assert [(workspace / f"{n}.txt").read_text() for n in range(5)] == list("01234")


async def test_tools_that_are_not_parallel_safe_run_one_after_the_other(
    workspace: Path, script: Script, cell: Any
) -> None:
    open_now, most, all_open = 0, {"serial": 0, "beside": 0}, anyio.Event()

    async def work(name: str) -> str:
        nonlocal open_now
        open_now += 1
        most[name] = max(most[name], open_now)
        if open_now == 4:
            all_open.set()
        with anyio.move_on_after(20 if name == "beside" else 0.05):
            await all_open.wait()
        open_now -= 1
        return name

    @tool(effect="once")
    async def serial() -> str:
        """One at a time."""
        return await work("serial")

    @tool(effect="once", parallel_safe=True)
    async def beside() -> str:
        """Side by side."""
        return await work("beside")

    code = (
        "import asyncio\nfrom servers.tools import serial, beside\n"
        "await asyncio.gather(*(serial() for _ in range(4)))\nawait asyncio.gather(*(beside() for _ in range(4)))\nNone"
    )
    async with agent_of(workspace, script(cell(code)), tools=[serial, beside]) as agent:
        await turn(agent)
    assert most == {"serial": 1, "beside": 4}


async def test_a_package_of_the_users_own_goes_first(workspace: Path, script: Script, cell: Any) -> None:
    (workspace / "servers").mkdir()
    (workspace / "servers" / "mine.py").write_text("x = 'of the user'")
    code = "from servers.mine import x\nfrom servers.tools import double\nprint(x, double(4))"
    async with agent_of(workspace, script(cell(code)), tools=[double]) as agent:
        assert (await observed(agent)).startswith("of the user 8\n")
    (workspace / "servers" / "__init__.py").write_text("y = 'all of it'")
    code = "from servers import y\nprint(y)"
    async with agent_of(workspace, script(cell(code)), tools=[double]) as agent:
        assert (await observed(agent)).startswith("all of it\n")


async def test_a_function_that_was_imported_is_there_when_the_session_comes_back(
    workspace: Path, script: Script, cell: Any
) -> None:
    first = script(cell("from servers.tools import double\nimport servers\nn = 4"), {"text": "ok"})
    async with Agent(model=first, workspace=workspace, sandbox="namespaces", tools=[double]) as agent:
        await turn(agent)
        session = agent.session_id
    again = script(cell("double(n), servers.tools.double(1)"), {"text": "ok"})
    async with Agent(model=again, workspace=workspace, sandbox="namespaces", tools=[double], session=session) as agent:
        assert (await observed(agent)).startswith("(8, 2)")


async def test_a_cell_that_ends_with_calls_in_flight_leaves_the_record_whole(
    workspace: Path, script: Script, cell: Any
) -> None:
    code = (
        "import asyncio\nfrom servers.tools import post, broken\n"
        "await asyncio.gather(*(post(str(n)) for n in range(20)), broken(), *(post(str(n)) for n in range(20)))"
    )
    model = script(*(cell(f"{code}  # {n}") for n in range(3)), {"text": "ok"})
    async with Agent(model=model, workspace=workspace, sandbox="namespaces", tools=[post, broken]) as agent:
        events = await turn(agent)
    cells = [one for one in events if isinstance(one, ActionProposed) and one.by == "model"]
    ends = {event.id: event for event in events if isinstance(event, ActionFinished)}
    assert ["the mill is broken" in ends[one.id].observation for one in cells] == [True] * 3
    assert {one.id for one in events if isinstance(one, ActionProposed)} == ends.keys()


def test_code_calls_tools_under_a_plain_asyncio_loop(workspace: Path, script: Script, cell: Any) -> None:
    """Which tells anyio nothing outside of a task."""
    code = "from servers.tools import double\nprint(double(n=4), double(n=5))"

    async def main() -> str:
        async with agent_of(workspace, script(cell(code)), tools=[double]) as agent:
            return await observed(agent)

    assert "8 10" in asyncio.run(asyncio.wait_for(main(), 60))


@pytest.mark.parametrize(("sandbox", "told"), [("namespaces", True), ("landlock", False)])
async def test_only_where_code_can_call_is_the_model_told_so(
    workspace: Path, script: Script, sandbox: str, told: bool
) -> None:
    options = Options(workspace=workspace, model=script({"text": "done"}), sandbox=sandbox)
    async with open_session(None, new_session_id(), options) as live:
        (opened,) = [entry.event for entry in live.log.read() if isinstance(entry.event, SessionOpened)]
    assert ("servers" in opened.prompt) == told


def test_calls_that_come_side_by_side_write_the_modules_one_after_the_other(tmp_path: Path) -> None:
    def write(catalogue: Catalogue) -> None:
        catalogue.write(tmp_path, False)

    with ThreadPoolExecutor(8) as threads:
        for _ in range(40):
            list(threads.map(write, [Catalogue(Registry([double]))] * 8))
    assert [path.name for path in tmp_path.iterdir()] == ["tools.py"]
