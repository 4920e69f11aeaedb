"""A command that should only read is held to it: files are looked at, not verdicts. Real sandboxes, scripted model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pinfold import Agent, Approval
from pinfold.events import (
    ActionAllowed,
    ActionDenied,
    ActionFinished,
    ActionProposed,
    ActionStarted,
    ApprovalDecided,
    ApprovalRequested,
    Event,
    OutputDelta,
)
from pinfold.policy import explain
from pinfold.sandbox import open_session

CHECKOUT = Path(__file__).parents[2]
sys.path.insert(0, str(CHECKOUT))  # the strings are shared with bench/, which no wheel has
families = pytest.importorskip("bench.shell_suite.families")
ground = pytest.importorskip("bench.shell_suite.ground")
bench = pytest.importorskip("bench.shell")

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.safety,
    pytest.mark.skipif(sys.platform != "linux", reason="Landlock is Linux's"),
]
Script = Callable[..., str]
LEVELS = ("namespaces", "landlock")
SHARE = 13
"""Every so many of the strings; `bench/shell.py` tries all of them."""
ATTACKS = (
    "y='a[$(rm -r data)]'; [[ y -eq 1 ]]",
    "xz -ld data/log.xz",
    "bzip2 -td data/log.bz2",
    "echo '-o README.md app.log' | xargs -I{} -L1 sort",
    'awk \'/[/]"/ || 1 { s = "x"; print s > /"/ "new" }\' README.md',
    "tar tfI data/pack.tar.gz 'sh -c \"touch by_tar\"'",
    "git -c core.fsmonitor='touch by_git #' status",
    "python3 -c 'import os; os.chmod(\"README.md\", 0o600)'",
)
"""Found in earlier versions, and said to read by this one too."""
FLAGS = 'python3 -c \'import fcntl, struct; f = open("README.md"); fcntl.ioctl(f, 0x40086602, struct.pack("q", 0x40))\''
"""Not every file system has such flags."""


@pytest.fixture
def made(workspace: Path) -> Path:
    ground.make(workspace)
    return workspace


def calls(*commands: str) -> dict[str, Any]:
    return {"calls": [{"tool": "shell", "args": {"command": command}} for command in commands]}


def agent_of(workspace: Path, model: str, level: str = "namespaces", **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox=level, ephemeral=True, **more)


async def turn(agent: Agent) -> list[Event]:
    return [event async for event in agent.stream("go")]  # pyright: ignore[reportReturnType]


def finished(events: list[Event]) -> list[ActionFinished]:
    return [event for event in events if isinstance(event, ActionFinished)]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["ask", "read-only"])
async def test_what_was_mistaken_for_reading_changes_nothing(made: Path, level: str, mode: Any) -> None:
    before = ground.state(made)
    told = await bench.through_a_session(made, level, mode, (FLAGS, *ATTACKS))
    assert ground.difference(before, ground.state(made)) == []
    assert told.ran == {FLAGS, *ATTACKS} - {text for text in ATTACKS if explain(text)["verdict"] == "ask"}
    assert len(told.ran) >= 6, "they are no test if policy foresees them"
    if mode == "ask":
        assert "`python3` tried to change files" in told.asked[ATTACKS[-1]]


async def test_the_same_strings_change_files_where_they_may(made: Path) -> None:
    """The control."""
    assert await bench.free(made, ATTACKS) == {*ATTACKS}


@pytest.mark.parametrize("level", LEVELS)
async def test_a_share_of_a_thousand_strings_changes_nothing_however_they_are_judged(made: Path, level: str) -> None:
    strings = [text for _, text in families.families()][::SHARE]
    before = ground.state(made)
    told = await bench.through_a_session(made, level, "ask", strings)
    assert len(told.outcomes) == len(strings) >= 100
    alone = await bench.held_to_reading(made, level, strings)
    assert ground.difference(before, ground.state(made)) == []
    assert alone["changed"] == {}
    assert alone["how"]["impossible"] == 0
    print(f"{len(strings)} strings, {len(told.ran)} run by policy's leave, all of them by ours: {alone['how']}")


async def test_what_has_to_write_is_asked_about_and_run_again(made: Path, script: Script) -> None:
    asked: list[Approval] = []

    async def yes(approval: Approval) -> bool:
        asked.append(approval)
        return True

    command = "git branch --list; git tag --list; xz -ld data/log.xz"
    model = script(calls(command, "cat README.md"), {"text": "ok"})
    async with agent_of(made, model, mode="ask", approve=yes) as agent:
        events = await turn(agent)
        assert [one.reason for one in asked] == ["the command tried to change files"]
        assert asked[0].shows.startswith(command)
        assert not (made / "data/log.xz").exists()
        (question,) = (event for event in events if isinstance(event, ApprovalRequested))
        mine = [event for event in events if getattr(event, "id", "") == question.id]
        kinds = [type(event) for event in mine if not isinstance(event, OutputDelta)]
        assert kinds == [
            ActionProposed,
            ActionAllowed,
            ActionStarted,
            ApprovalRequested,
            ApprovalDecided,
            ActionStarted,
            ActionFinished,
        ]
        first, second = (event for event in mine if isinstance(event, ActionStarted))
        assert (first.effect, first.cell, second.effect, second.cell) == ("pure", 1, "once", 2)
        allowed = [event for event in events if isinstance(event, ActionAllowed)]
        assert [one.read_only for one in allowed] == [True, True]
        starts = [event.cell for event in events if isinstance(event, ActionStarted)]
        assert starts == [1, 2, 3], "a command that reads is a step as well"
        await agent.undo()
        await agent.undo()
        assert (made / "data/log.xz").exists()


async def test_after_a_no_the_model_is_told_what_was_tried(made: Path, script: Script) -> None:
    before = ground.state(made)
    model = script(calls("xz -ld data/log.xz"), {"expect": "read-only", "text": "ok"})
    async with agent_of(made, model, mode="ask", approve=_not_now) as agent:
        (end,) = finished(await turn(agent))
    assert end.outcome == "denied"
    assert end.observation.startswith("This was run with all files read-only, and it failed")
    assert "not now" in end.observation
    assert "Permission denied" in end.observation
    assert ground.difference(before, ground.state(made)) == []


async def _not_now(_: Approval) -> str:
    return "not now"


async def test_a_grant_for_the_session_covers_the_same_command_and_no_other(made: Path, script: Script) -> None:
    from pinfold import Decision

    asked: list[str] = []

    async def for_the_session(approval: Approval) -> Decision:
        asked.append(approval.pattern)
        return Decision(allow=True, scope="session")

    more, other = "xz -ld data/log.xz", "xz -ld data/other.xz"
    (made / "data/other.xz").write_bytes((made / "data/log.xz").read_bytes())
    again = "xz -z data/log"
    model = script(calls(more, again, more, other), {"text": "ok"})
    async with agent_of(made, model, mode="ask", approve=for_the_session) as agent:
        events = await turn(agent)
    assert asked == [f"shell: {more}", f"shell: {again}", f"shell: {other}"]
    rules = [event.rule for event in events if isinstance(event, ActionAllowed)]
    assert f"granted: shell: {more}" in rules


async def test_where_it_cannot_be_held_to_reading_it_is_asked_about(made: Path, script: Script, cell: Any) -> None:
    """A process takes 16 layers of Landlock; a cell has used them up."""
    use_up = """
import ctypes, struct
call = ctypes.CDLL(None, use_errno=True).syscall
for _ in range(16):
    ruleset = call(444, struct.pack("=Q", 1 << 11), 8, 0)
    call(446, ruleset, 0)
"""
    model = script(calls("cat README.md"), cell(use_up), calls("cat README.md"), {"text": "ok"})
    async with agent_of(made, model, mode="ask") as agent:
        events = await turn(agent)
    first, _, last = finished(events)
    assert (first.outcome, last.outcome) == ("ok", "denied")
    asked = [event.reason for event in events if isinstance(event, ApprovalRequested)]
    assert asked == ["this system cannot run the command read-only, so it may change files"]


async def test_what_a_cell_calls_for_is_held_to_reading_too(made: Path, script: Script, cell: Any) -> None:
    before = ground.state(made)
    code = (
        "from _pinfold_guest.calls import call\n"
        "print(call('shell', command='head -1 README.md')['stdout'])\n"
        "call('shell', command='xz -ld data/log.xz')"
    )
    async with agent_of(made, script(cell(code), {"text": "ok"}), mode="ask") as agent:
        ends = finished(await turn(agent))
    assert [end.outcome for end in ends] == ["ok", "denied", "error"]
    assert ends[-1].observation.startswith("one\n")
    assert ground.difference(before, ground.state(made)) == []


async def test_a_job_in_the_background_is_a_step_and_is_held_to_reading(made: Path, script: Script) -> None:
    waiting = "tail -f app.log; y='a[$(touch late)]'; [[ y -eq 1 ]] &"
    model = script(calls(waiting, "sleep 60 &"), {"text": "ok"})
    async with agent_of(made, model, mode="ask") as agent:
        events = await turn(agent)
        assert [event.cell for event in events if isinstance(event, ActionStarted)] == [1, 2]
        assert all("runs in the background" in end.observation for end in finished(events))
        assert (await agent.undo()).undone == (2,)
    assert not (made / "late").exists()


async def test_in_auto_nothing_is_held_back(made: Path, script: Script) -> None:
    async with agent_of(made, script(calls(ATTACKS[0]), {"text": "ok"}), mode="auto") as agent:
        events = await turn(agent)
    assert not (made / "data").exists()
    assert not any(isinstance(event, ApprovalRequested | ActionDenied) for event in events)


@pytest.mark.parametrize("level", LEVELS)
async def test_what_cannot_be_read_is_not_taken_for_a_need_to_write(made: Path, level: str) -> None:
    if level == "namespaces":  # landlock takes no workspace with secrets
        (made / ".env").write_text("KEY=1\n")
    (made / "closed").write_text("x")
    (made / "closed").chmod(0)
    wanted = {
        "cat closed": "kept",
        "grep -r nothing .": "kept",
        "find /proc/1 -name x; false": "kept",
        "dmesg": "kept",
        "kill -9 1": "kept",
        "./README.md": "kept",
        "cat nothing": "kept",
        "echo x > new": "refused",
        "touch README.md": "refused",
        "chmod 600 README.md": "refused",
        "git commit -qm x --allow-empty": "refused",
        "rm README.md; true": "kept",
    }
    async with open_session(workspace=made, sandbox=level) as session:
        found = {
            command: (await session.command(["/bin/bash", "-c", command], timeout_s=20, read_only=True)).read_only
            for command in wanted
        }
    assert found == wanted
