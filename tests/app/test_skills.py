"""Skills in real sessions: what the model is told of them, and functions that become tools. Real sandbox, scripted model."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from skills_ref import validate
from tests.app.test_memory_tools import calls
from tests.app.test_session_tools import Asked, Script, seen, turn

from pinfold import Agent, Approval, TurnError
from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.skills import find_skills, install_skill, skills_folder, trust_skill
from pinfold.app.trust.workspace_trust import trust
from pinfold.events import Event, Noticed, Reply, Request, RequestFailed, SessionOpened, Thought, convert
from pinfold.model import ScriptedModel
from pinfold.model.protocol import TextCallLayer
from pinfold.model.scripted import KeptReply

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

RSI = '''\
import math

UNUSED = print


def calculate_rsi(prices: list[float], period: int = 14) -> list[float]:
    """Calculate Relative Strength Index for price data."""
    deltas = [prices[i] - prices[i - 1] for i in range(1, len(prices))]
    gains = [d if d > 0 else 0 for d in deltas]
    losses = [-d if d < 0 else 0 for d in deltas]
    avg_gain = sum(gains[:period]) / period
    avg_loss = sum(losses[:period]) / period
    rs = avg_gain / avg_loss if avg_loss != 0 else 0
    rsi = 100 - (100 / (1 + rs))
    return [rsi]
'''
CALL = {"prices": [100, 102, 101, 103, 105], "period": 14}
PROMOTE = {"file_path": "rsi_calculator.py", "function_name": "calculate_rsi", "tool_name": "calculate_rsi"}


def agent_of(workspace: Path, model: Any, **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox="namespaces", ephemeral=True, **more)


def skill_text(
    name: str, description: str = "Fill PDF forms. Use when a PDF has fields.", body: str = "Do it so."
) -> bytes:
    return f"---\nname: {name}\ndescription: {description}\n---\n\n{body}\n".encode()


class StrictModel(ScriptedModel):
    """Refuses a native call of a tool that it was not offered, as providers do. `offered`: the names, by request."""

    def __init__(self, *replies: dict[str, Any]) -> None:
        self.replies = [convert(reply, KeptReply) for reply in replies]
        super().__init__(self.replies)
        self.offered: list[dict[str, str]] = []

    async def stream(self, request: Request) -> AsyncIterator[str | Thought | Reply]:
        kept = self.replies[len(self.offered)]
        self.offered.append({one.name: one.description for one in request.tools})
        if unknown := [call.tool for call in kept.calls if call.tool not in self.offered[-1]]:
            raise RequestFailed(f"{unknown[0]} is not among the tools", status=400)
        async for piece in super().stream(request):
            yield piece


def strict(*replies: dict[str, Any]) -> tuple[StrictModel, TextCallLayer]:
    """A model that may call natively and in its text."""
    model = StrictModel(*replies, {"text": "done"})
    return model, TextCallLayer(model, when="unless-native")


async def test_a_promoted_function_is_a_tool_at_once_and_in_the_next_session_in_all_three_forms(
    workspace: Path, cell: Any
) -> None:
    asked = Asked(True)
    in_text = {"text": f'<tool name="calculate_rsi">{json.dumps(CALL)}</tool>'}
    native, in_code = (
        calls("calculate_rsi", **CALL),
        cell("from servers.skills import calculate_rsi as f\nf(prices=[1.0, 2.0, 1.5])"),
    )
    model, wrapped = strict(
        {"text": f"```python\nopen('rsi_calculator.py', 'w').write({RSI!r})\n```"},
        {"text": "```python\nfrom rsi_calculator import *\ncalculate_rsi([100, 102, 101, 103, 105], 14)\n```"},
        {"text": f'<tool name="promote_skill">{json.dumps(PROMOTE)}</tool>'},
        in_text,
        native,
        in_code,
    )  # fmt: skip
    async with agent_of(workspace, wrapped, approve=asked) as agent:
        results = seen(await turn(agent))
    assert results[2].startswith("calculate_rsi is a tool now")
    assert [results[3], results[4], results[-1].strip()] == ["[85.71428571428571]"] * 2 + ["[66.66666666666666]"]
    (approval,) = asked.approvals
    assert "def calculate_rsi(prices: list[float], period: int = 14)" in approval.shows
    assert "UNUSED" not in approval.shows
    assert "import math" not in approval.shows
    assert ["calculate_rsi" in one for one in model.offered] == [False] * 3 + [True] * 4
    model, wrapped = strict(in_text, native, in_code)
    async with agent_of(workspace, wrapped, approve=asked) as agent:
        results = seen(await turn(agent))
        told = await prompt_of(agent)
    assert [results[0], results[1], results[-1].strip()] == ["[85.71428571428571]"] * 2 + ["[66.66666666666666]"]
    assert len(asked.approvals) == 1
    assert [one.get("calculate_rsi") for one in model.offered] == [
        "Calculate Relative Strength Index for price data."
    ] * 4
    assert "(`from servers.skills import NAME`): calculate_rsi.\n" in told
    assert validate(skills_folder() / "calculate-rsi") == []
    model, wrapped = strict(calls("no_such_tool"))
    async with agent_of(workspace, wrapped, tools_off=["calculate_rsi"]) as agent:
        with pytest.raises(TurnError, match="no_such_tool is not among the tools"):
            await agent.run("go")
        assert "calculate_rsi" not in await prompt_of(agent)
    assert "calculate_rsi" not in model.offered[0]


async def test_the_text_form_of_the_first_design_calls_a_promoted_tool(workspace: Path) -> None:
    """`<tool name="...">` for the promotion and for the tool that comes of it."""
    (workspace / "rsi_calculator.py").write_text(RSI)
    promote = json.dumps({**PROMOTE, "examples": [CALL]})
    replies = [
        f'<tool name="promote_skill">{promote}</tool>',
        f'<tool name="calculate_rsi">{json.dumps(CALL)}</tool>',
        "ok",
    ]
    model = TextCallLayer(ScriptedModel([KeptReply(text=text) for text in replies]))
    async with agent_of(workspace, model, approve=Asked(True)) as agent:
        events = await turn(agent)
    assert seen(events)[1] == "[85.71428571428571]"


async def test_nothing_is_kept_without_a_persons_yes(workspace: Path, script: Script) -> None:
    (workspace / "rsi_calculator.py").write_text(RSI)
    promote = calls("promote_skill", **PROMOTE, examples=[CALL])
    for more in ({}, {"mode": "full"}, {"approve": Asked(False)}, {"mode": "read-only", "approve": Asked(True)}):
        async with agent_of(workspace, script(promote), **more) as agent:
            (said,) = seen(await turn(agent))
        assert said.startswith("This was not run: ")
        assert len(said.splitlines()) == 1
    assert not skills_folder().exists()
    async with agent_of(workspace, script(promote), approve=Asked(True)) as agent:
        (said,) = seen(await turn(agent))
    assert said.startswith("calculate_rsi is a tool now")


async def test_what_is_kept_is_what_was_shown_though_the_file_changes_meanwhile(
    workspace: Path, script: Script
) -> None:
    file = workspace / "rsi_calculator.py"
    file.write_text(RSI)
    shown: list[str] = []

    async def approve(approval: Approval) -> bool:
        shown.append(approval.shows)
        if len(shown) == 1:
            file.write_text(RSI.replace("return [rsi]", "return [rsi, 1.0]"))
        return True

    async with agent_of(
        workspace, script(calls("promote_skill", **PROMOTE, examples=[CALL])), approve=approve
    ) as agent:
        await turn(agent)
    assert ["return [rsi, 1.0]" in one for one in shown] == [False, True]
    assert "return [rsi, 1.0]" in (skills_folder() / "calculate-rsi/scripts/calculate_rsi.py").read_text()


async def test_a_change_of_a_promoted_file_takes_the_tool_away_until_it_is_trusted_again(
    workspace: Path, script: Script
) -> None:
    (workspace / "rsi_calculator.py").write_text(RSI)
    async with agent_of(
        workspace, script(calls("promote_skill", **PROMOTE, examples=[CALL])), approve=Asked(True)
    ) as agent:
        await turn(agent)
    source = skills_folder() / "calculate-rsi/scripts/calculate_rsi.py"
    source.write_text(source.read_text().replace("return [rsi]", "return [0.0]"))
    (skill,) = find_skills(None)
    assert skill.state == "changed"
    async with agent_of(workspace, script(calls("calculate_rsi", **CALL))) as agent:
        (said,) = seen(await turn(agent))
        assert "calculate_rsi" not in await prompt_of(agent)
    assert "no tool is called 'calculate_rsi'" in said
    trust_skill(skill)
    async with agent_of(workspace, script(calls("calculate_rsi", **CALL))) as agent:
        assert seen(await turn(agent)) == ["[0.0]"]


async def prompt_of(agent: Agent) -> str:
    """What the model was told first."""
    return next(event.prompt for event in events_of(agent) if isinstance(event, SessionOpened))


def events_of(agent: Agent) -> list[Event]:
    """All of the session."""
    live = agent._live  # pyright: ignore[reportPrivateUsage]
    assert live
    return [entry.event for entry in live.log.read()]


def put_skill(workspace: Path, name: str = "pdf-forms", **more: bytes) -> Path:
    folder = workspace / ".agents/skills" / name
    (folder / "scripts").mkdir(parents=True)
    (folder / "SKILL.md").write_bytes(skill_text(name))
    (folder / "scripts/fill.py").write_text("print('filled')\n")
    for path, data in more.items():
        (folder / path).write_bytes(data)
    return folder


async def test_a_project_skill_is_seen_by_the_model_only_while_trusted(
    workspace: Path, script: Script, cell: Any
) -> None:
    folder = put_skill(workspace)
    read = calls("read_skill", name="pdf-forms")
    run = cell(
        "import subprocess, sys; subprocess.run([sys.executable, '/mnt/skills/pdf-forms/scripts/fill.py']).returncode"
    )

    async def told() -> tuple[str, list[str]]:
        async with agent_of(workspace, script(read, run)) as agent:
            events = await turn(agent)
            return await prompt_of(agent), seen(events)

    prompt, (first, second) = await told()
    assert "pdf-forms" not in prompt
    assert "no skill is called 'pdf-forms'" in first
    assert "filled" not in second
    trust(read_project_files(workspace))
    prompt, (first, second) = await told()
    assert "- pdf-forms: Fill PDF forms. Use when a PDF has fields.\n" in prompt
    assert "Do it so." not in prompt
    assert first == "Do it so.\n\n[Its other files: scripts/fill.py]"
    assert "filled" in second
    (folder / "scripts/fill.py").write_text("print('other')\n")
    prompt, (first, second) = await told()
    assert "pdf-forms" not in prompt
    assert "no skill is called 'pdf-forms'" in first


async def test_files_of_a_skill_cannot_be_changed_by_code(workspace: Path, script: Script, cell: Any) -> None:
    install_skill("pdf-forms", {"SKILL.md": skill_text("pdf-forms"), "references/a.md": b"before"})
    code = "p = '/mnt/skills/pdf-forms/references/a.md'\nprint(open(p).read())\nopen(p, 'w').write('after')"
    async with agent_of(workspace, script(cell(code))) as agent:
        (said,) = seen(await turn(agent))
    assert "before" in said
    assert "Read-only file system" in said
    assert (skills_folder() / "pdf-forms/references/a.md").read_bytes() == b"before"


async def test_a_project_adds_words_and_never_a_tool(workspace: Path, script: Script) -> None:
    folder = workspace / ".agents/skills/evil"
    (folder / "scripts").mkdir(parents=True)
    metadata = "metadata:\n  pinfold-tool: evil\n"
    (folder / "SKILL.md").write_text(f"---\nname: evil\ndescription: x\n{metadata}allowed-tools: shell\n---\nRun it.\n")
    (folder / "scripts/evil.py").write_text('def evil(x: int) -> int:\n    """Does."""\n    return x\n')
    trust(read_project_files(workspace))
    model = script(calls("evil", x=1), calls("read_skill", name="evil"), calls("shell", command="touch made"))
    async with agent_of(workspace, model, mode="ask", approve=Asked(False)) as agent:
        first, second, third = seen(await turn(agent))
    assert "no tool is called 'evil'" in first
    assert "[It uses only: shell]" in second
    assert third.startswith("This was not run")  # `allowed-tools` allows nothing
    assert not (workspace / "made").exists()


async def test_a_broken_skill_is_one_line_and_the_others_work(workspace: Path, script: Script) -> None:
    install_skill("good", {"SKILL.md": skill_text("good")})
    (skills_folder() / "bad").mkdir()
    (skills_folder() / "bad/SKILL.md").write_text("---\nname: [\n")
    async with agent_of(workspace, script(calls("read_skill", name="good"))) as agent:
        events = await turn(agent)
        notices = [event.text for event in events_of(agent) if isinstance(event, Noticed)]
    assert seen(events) == ["Do it so."]
    (notice,) = [one for one in notices if "skill" in one]
    assert notice.startswith("the skill bad is ignored: bad/SKILL.md: it must begin with")


async def test_the_lite_sandbox_reads_skills_as_files_and_calls_functions_as_tools(
    workspace: Path, script: Script, cell: Any
) -> None:
    install_skill("pdf-forms", {"SKILL.md": skill_text("pdf-forms")})
    (workspace / "rsi_calculator.py").write_text(RSI)
    look = cell("import os\nprint(open(os.environ['PINFOLD_SITE'] + '/.skills/pdf-forms/SKILL.md').read())")
    model = script(look, calls("promote_skill", **PROMOTE, examples=[CALL]), calls("calculate_rsi", **CALL))
    async with Agent(
        model=model, workspace=workspace, sandbox="landlock", ephemeral=True, approve=Asked(True)
    ) as agent:
        text, _, result = seen(await turn(agent))
        told = await prompt_of(agent)
    assert "Do it so." in text
    assert "/.skills/NAME/SKILL.md" in told
    assert result == "[85.71428571428571]"
