"""`Agent`, the public face, with the real sandbox room and a scripted model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from pinfold import Agent, Approval, PinfoldError, tool
from pinfold.events import ActionFinished, CallTool, Deny, Request, RunCell, TextDelta, TurnInterrupted
from pinfold.hooks import TokenTracker

pytestmark = [pytest.mark.integration, pytest.mark.installed]


def agent_of(workspace: Path, model: str, **more: Any) -> Agent:
    return Agent(model=model, workspace=workspace, sandbox="unsafe-local", **more)


def calls(name: str, **args: Any) -> dict[str, Any]:
    return {"calls": [{"tool": name, "args": args}]}


async def test_a_session_remembers_from_run_to_run(workspace: Path, script: Any, cell: Any) -> None:
    model = script(cell("x = 3"), {"text": "set"}, cell("print('x is', x)"), {"expect": "x is 3", "text": "seen"})
    async with agent_of(workspace, model) as agent:
        assert (await agent.run("set x")).text == "set"
        assert (await agent.run("show x")).text == "seen"


async def test_stream_gives_deltas_and_events_in_order(workspace: Path, script: Any) -> None:
    async with agent_of(workspace, script({"text": "a rather long answer, in pieces"})) as agent:
        events = [event async for event in agent.stream("talk")]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "a rather long answer, in pieces"
    assert [type(e).__name__ for e in events if not isinstance(e, TextDelta)] == [
        "UserSpoke",
        "ModelCalled",
        "ModelReplied",
        "TurnEnded",
    ]


async def test_leaving_a_stream_early_interrupts_the_turn(workspace: Path, script: Any, cell: Any) -> None:
    model = script(cell("while True: pass"), {"text": "never"}, {"expect": "interrupted", "text": "told"})
    async with agent_of(workspace, model) as agent:
        stream = agent.stream("go")
        async for event in stream:
            if type(event).__name__ == "ActionStarted":
                break
        await stream.aclose()
        with anyio.fail_after(50):
            assert (await agent.run("and?")).text == "never"


async def test_a_failed_turn_raises_with_its_reason(workspace: Path, script: Any, cell: Any) -> None:
    model = script(*[cell("1")] * 3)
    async with agent_of(workspace, model, max_steps=2) as agent:
        with pytest.raises(PinfoldError, match="stopped after 2 steps"):
            await agent.run("loop")


async def test_a_tool_given_to_the_agent_is_granted(workspace: Path, script: Any) -> None:
    sent: list[str] = []

    @tool
    def send(to: str) -> str:
        """Send a letter."""
        sent.append(to)
        return "sent"

    async with agent_of(workspace, script(calls("send", to="Ann"), {"text": "ok"}), tools=[send]) as agent:
        await agent.run("write to Ann")
    assert sent == ["Ann"]


async def test_a_mode_the_sandbox_cannot_keep_is_refused(workspace: Path, script: Any) -> None:
    with pytest.raises(PinfoldError, match="unsafe-local cannot keep the workspace read-only"):
        async with agent_of(workspace, script({"text": "x"}), mode="read-only"):
            pass


async def test_a_saved_agent_goes_on_elsewhere(
    workspace: Path, script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with agent_of(workspace, script({"text": "the word is heron"})) as agent:
        await agent.run("remember a word")
        bundle = agent.save(tmp_path / "heron.pinfold")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "other"))
    model = script({"expect": "the word is heron", "text": "heron"}, name="other.jsonl")
    async with Agent.load(bundle, model=model, workspace=workspace, sandbox="unsafe-local") as agent:
        assert (await agent.run("which word?")).text == "heron"


async def test_an_ephemeral_agent_can_be_saved_while_it_lives(workspace: Path, script: Any, tmp_path: Path) -> None:
    agent = agent_of(workspace, script({"text": "hi"}), ephemeral=True)
    async with agent:
        await agent.run("hello")
        agent.save(tmp_path / "e.pinfold")
    with pytest.raises(PinfoldError, match="gone once it is closed"):
        agent.save(tmp_path / "late.pinfold")
    assert not list((tmp_path / "xdg" / "data").rglob("*.sqlite"))


async def test_hooks_watch_deny_and_rewrite(workspace: Path, script: Any, cell: Any) -> None:
    class Hook:
        def __init__(self) -> None:
            self.finished: list[str] = []

        async def on_event(self, event: object) -> None:
            if isinstance(event, ActionFinished):
                self.finished.append(event.outcome)

        async def before_action(self, action: object) -> object:
            match action:
                case RunCell(code="forbidden()"):
                    return Deny("not this one")
                case RunCell(code="old"):
                    return RunCell(code="print('new')")
                case _:
                    return None

        async def before_model(self, request: Request) -> Request:
            return request

    hook, tracker = Hook(), TokenTracker()
    model = script(
        cell("forbidden()"),
        {**cell("old"), "expect": "not this one"},
        {"expect": "new", "text": "done", "usage": {"input_tokens": 3}},
    )
    async with agent_of(workspace, model) as agent:
        agent.add_callback(hook)
        agent.add_callback(tracker)
        await agent.run("go")
    assert hook.finished == ["denied", "ok"]
    assert (tracker.calls, tracker.usage.input_tokens) == (3, 3)


async def test_interrupt_from_another_task_ends_the_turn(workspace: Path, script: Any, cell: Any) -> None:
    async with agent_of(workspace, script(cell("while True: pass"), {"text": "never"})) as agent:
        seen: list[object] = []
        async for event in agent.stream("go"):
            seen.append(event)
            if type(event).__name__ == "ActionStarted":
                await agent.interrupt()
        assert isinstance(seen[-1], TurnInterrupted)


async def test_the_first_run_opens_an_agent_and_anything_else_says_how(workspace: Path, script: Any) -> None:
    agent = agent_of(workspace, script({"text": "opened"}))
    with pytest.raises(PinfoldError, match="async with Agent"):
        await agent.interrupt()
    assert (await agent.run("x")).text == "opened"
    await agent.close()


@pytest.mark.parametrize(("answer", "seen"), [(True, "wiped"), (False, "the user said no")])
async def test_approve_answers_what_policy_asks(workspace: Path, script: Any, answer: bool, seen: str) -> None:
    asked: list[Approval] = []

    async def approve(approval: Approval) -> bool:
        asked.append(approval)
        return answer

    @tool
    def wipe() -> str:
        """Wipe it."""
        return "wiped"

    model = script(calls("wipe"), {"expect": seen, "text": "done"})
    async with agent_of(workspace, model, tools=[wipe], approve=approve, mode="ask") as agent:
        withhold_grants(agent)
        assert (await agent.run("wipe it")).text == "done"
    assert [approval.action for approval in asked] == [CallTool(tool="wipe", args={})]


def withhold_grants(agent: Agent) -> None:
    """As for a tool that came from elsewhere: what is handed to Agent is granted, and never asked about."""
    assert agent._live is not None  # pyright: ignore[reportPrivateUsage]
    runner: Any = agent._live._engine.core.runner  # pyright: ignore[reportPrivateUsage]
    runner.judging.handed = frozenset()


async def test_an_agent_reads_and_writes_nothing_before_it_is_opened(tmp_path: Path, monkeypatch: Any) -> None:
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home"))
    agent = Agent(model="scripted:nosuch.jsonl", workspace=tmp_path / "nosuch", data=["nosuch.csv"])
    assert agent.session_id in repr(agent)
    assert not (tmp_path / "home").exists()
    with pytest.raises(PinfoldError, match="nosuch"):
        await agent.open()


async def test_a_fork_goes_on_from_where_its_agent_is_and_leaves_that_alone(
    workspace: Path, script: Any, cell: Any
) -> None:
    model = script(
        cell("x = 41"), {"text": "set"}, cell("x += 1\nprint('x is', x)"), {"expect": "x is 42", "text": "42"}
    )
    async with Agent(model=model, workspace=workspace, sandbox="namespaces") as agent:
        await agent.run("set x")
        async with await agent.fork("second") as fork:
            assert fork.session_id != agent.session_id
            assert (await fork.run("add one")).text == "42"
        assert (await agent.run("add one")).text == "42"


async def test_an_ephemeral_agent_cannot_be_forked(workspace: Path, script: Any) -> None:
    async with agent_of(workspace, script(), ephemeral=True) as agent:
        with pytest.raises(PinfoldError, match="cannot be forked"):
            await agent.fork()
