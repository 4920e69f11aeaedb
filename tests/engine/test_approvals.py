"""Asking the user: bound to the bytes that were shown, answered once, from anywhere, even after a restart."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from inline_snapshot import snapshot
from tests.engine.doubles import SESSION, TURN, EchoRunner, Life, calls, life, memory_log, outcomes, says, story

from pinfold.engine import CommandRefused, digest_of
from pinfold.events import (
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    ApprovalDecided,
    ApprovalRequested,
    CallTool,
    Continue,
    Decide,
    Interrupt,
    RunCell,
    Say,
    TurnEnded,
    TurnId,
    TurnInterrupted,
)
from pinfold.log import Log
from pinfold.tools import tool

pytestmark = pytest.mark.unit

SCRIPT = (says("", calls("send", to="ann")), says("ok"), says("", calls("send", to="bob")), says("ok"))


@tool
def send(to: str) -> str:
    """Has an effect that cannot be undone."""
    return f"sent to {to}"


def world() -> EchoRunner:
    return EchoRunner(tools=[send])


async def asking(session: Life, turn: TurnId = TURN) -> ApprovalRequested:
    seq = session.log.seq
    await session.submit(Say(turn=turn, text="go"))
    event = await session.seen(lambda event: isinstance(event, ApprovalRequested), after=seq)
    assert isinstance(event, ApprovalRequested)
    return event


async def test_an_allowed_action_is_told_whole() -> None:
    async with life(SCRIPT, runner=world(), unattended=False) as session:
        request = await asking(session)
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow"))
        await session.ended()
    told = [event for event in story(session.events) if type(event).__name__.startswith(("A",))]
    assert told == snapshot(
        [
            ActionProposed(id=ActionId("a1"), action=CallTool(tool="send", args={"to": "ann"}), turn=TURN),
            ApprovalRequested(
                id=ActionId("a1"),
                reason="send runs outside the sandbox; what it does may not be undone",
                digest="a digest",
                pattern="tool: send",
                stored="grants",
            ),
            ApprovalDecided(id=ActionId("a1"), verdict="allow"),
            ActionStarted(id=ActionId("a1"), effect="once"),
            ActionFinished(id=ActionId("a1"), outcome="ok", observation="sent to ann"),
        ]
    )


async def test_a_denied_action_never_begins_and_the_model_hears_why() -> None:
    runner = world()
    async with life(SCRIPT, runner=runner, unattended=False) as session:
        request = await asking(session)
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="deny", words="not to her"))
        await session.ended()
    assert runner.began == []
    assert session.all(ActionStarted) == []
    assert [event.observation for event in session.all(ActionFinished)] == ["This was not run: not to her"]


async def test_a_denial_without_words_still_says_something() -> None:
    async with life(SCRIPT, runner=world(), unattended=False) as session:
        request = await asking(session)
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="deny"))
        await session.ended()
    assert [event.observation for event in session.all(ActionFinished)] == ["This was not run: the user said no"]


async def test_nothing_happens_until_someone_answers() -> None:
    runner = world()
    async with life(SCRIPT, runner=runner, unattended=False) as session:
        request = await asking(session)
        assert session.core.state.open[request.id].stage == "asking"
        assert runner.began == []


async def test_an_answer_about_other_bytes_is_refused() -> None:
    runner = world()
    async with life(SCRIPT, runner=runner, unattended=False) as session:
        request = await asking(session)
        other = digest_of(request.id, CallTool(tool="send", args={"to": "eve"}))
        with pytest.raises(CommandRefused, match="has changed since it was answered"):
            await session.submit(Decide(id=request.id, digest=other, verdict="allow"))
        assert session.core.state.open[request.id].stage == "asking"
        assert runner.began == []


async def test_an_answer_nobody_asked_for_is_refused() -> None:
    async with life(SCRIPT, runner=world(), unattended=False) as session:
        with pytest.raises(CommandRefused, match="no approval is waiting for nothing"):
            await session.submit(Decide(id=ActionId("nothing"), digest="", verdict="allow"))


async def test_an_approval_is_used_once() -> None:
    async with life(SCRIPT, runner=world(), unattended=False) as session:
        request = await asking(session)
        decide = Decide(id=request.id, digest=request.digest, verdict="allow")
        await session.submit(decide)
        await session.ended()
        with pytest.raises(CommandRefused, match="it was answered already or never asked"):
            await session.submit(decide)


async def test_of_two_answers_that_cross_the_first_counts_and_the_second_is_refused(tmp_path: Path) -> None:
    refused: list[str] = []

    async def answer(session: Life, decide: Decide) -> None:
        try:
            await session.submit(decide)
        except CommandRefused as refusal:
            refused.append(str(refusal))

    log = Log(tmp_path, SESSION)
    async with life(SCRIPT, runner=world(), unattended=False, log=log) as session:
        request = await asking(session)
        async with anyio.create_task_group() as tasks:
            for verdict in ("allow", "deny"):
                tasks.start_soon(answer, session, Decide(id=request.id, digest=request.digest, verdict=verdict))
        await session.ended()
        assert [event.verdict for event in session.all(ApprovalDecided)] == ["allow"]
        assert len(refused) == 1
        assert list(outcomes(session.events).values()) == [["ok"]]
    log.close()


async def test_a_grant_for_the_session_is_not_asked_again() -> None:
    async with life(SCRIPT, runner=world(), unattended=False) as session:
        request = await asking(session)
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow", scope="session"))
        await session.ended()
        assert isinstance(await session.say("again", TurnId("t2")), TurnEnded)
    assert len(session.all(ApprovalRequested)) == 1
    assert [event.outcome for event in session.all(ActionFinished)] == ["ok", "ok"]


async def test_an_answer_for_once_is_asked_again() -> None:
    async with life(SCRIPT, runner=world(), unattended=False) as session:
        request = await asking(session)
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow"))
        await session.ended()
        second = await asking(session, TurnId("t2"))
    assert second.digest == digest_of(second.id, CallTool(tool="send", args={"to": "bob"}))
    assert second.digest != request.digest


async def test_a_grant_survives_a_restart() -> None:
    log = memory_log()
    async with life(SCRIPT, runner=world(), unattended=False, log=log) as session:
        request = await asking(session)
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow", scope="session"))
        await session.ended()
    async with life(SCRIPT, runner=world(), unattended=False, log=log) as session:
        await session.say("again", TurnId("t2"))
    assert len(session.all(ApprovalRequested)) == 1


async def test_with_nobody_there_asking_is_denying_on_record() -> None:
    runner = world()
    async with life(SCRIPT, runner=runner) as session:
        await session.say()
    assert runner.began == []
    told = [event for event in story(session.events) if type(event).__name__.startswith("App")]
    assert told == snapshot(
        [
            ApprovalRequested(
                id=ActionId("a1"),
                reason="send runs outside the sandbox; what it does may not be undone",
                digest="a digest",
                pattern="tool: send",
                stored="grants",
            ),
            ApprovalDecided(
                id=ActionId("a1"),
                verdict="deny",
                by="nobody",
                words="send runs outside the sandbox; what it does may not be undone, and no user can be asked",
            ),
        ]
    )
    assert [event.observation for event in session.all(ActionFinished)] == snapshot(
        ["This was not run: send runs outside the sandbox; what it does may not be undone, and no user can be asked"]
    )


async def test_a_pending_approval_survives_a_restart_and_is_answered_then() -> None:
    log, runner = memory_log(), world()
    async with life(SCRIPT, runner=world(), unattended=False, log=log) as session:
        request = await asking(session)
    async with life(SCRIPT, runner=runner, unattended=False, log=log) as session:
        assert session.core.state.open[request.id].stage == "asking"
        assert runner.began == []
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow"))
        assert isinstance(await session.ended(), TurnEnded)
    assert runner.began == [CallTool(tool="send", args={"to": "ann"})]
    assert outcomes(session.events) == {request.id: ["ok"]}


async def test_going_on_after_a_restart_waits_for_the_same_answer() -> None:
    log, runner = memory_log(), world()
    async with life(SCRIPT, runner=world(), unattended=False, log=log) as session:
        request = await asking(session)
    async with life(SCRIPT, runner=runner, unattended=False, log=log) as session:
        await session.submit(Continue())
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="deny"))
        await session.ended()
    assert runner.began == []
    assert len(session.all(ApprovalRequested)) == 1


async def test_an_interrupt_while_asking_leaves_nothing_done() -> None:
    runner = world()
    async with life(SCRIPT, runner=runner, unattended=False) as session:
        request = await asking(session)
        await session.submit(Interrupt())
        assert isinstance(await session.ended(), TurnInterrupted)
        with pytest.raises(CommandRefused):
            await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow"))
    assert runner.began == []
    assert outcomes(session.events) == {request.id: ["not_run"]}


async def test_a_second_answer_in_the_log_changes_nothing() -> None:
    log = memory_log()
    action = CallTool(tool="send", args={"to": "ann"})
    id_ = ActionId("a_1")
    await log.append(
        ActionProposed(id=id_, action=action),
        ApprovalRequested(id=id_, reason="why", digest=digest_of(id_, action)),
        ApprovalDecided(id=id_, verdict="allow"),
        ActionStarted(id=id_, effect="once"),
        ApprovalDecided(id=id_, verdict="deny"),
    )
    runner = world()
    async with life(runner=runner, log=log) as session:
        pass
    assert outcomes(session.events) == {id_: ["outcome_unknown"]}


async def test_a_policy_denial_is_on_record_and_told() -> None:
    runner = EchoRunner(tools=[send], mode="read-only")
    async with life(SCRIPT, runner=runner) as session:
        await session.say()
    assert runner.began == []
    assert [event.reason for event in session.all(ActionDenied)] == [
        "send has effects (once), and the mode is read-only"
    ]


def test_every_byte_of_an_action_is_in_its_digest() -> None:
    actions = [
        CallTool(tool="send", args={"to": "ann"}),
        CallTool(tool="send", args={"to": "ann "}),
        CallTool(tool="send", args={"to": ["ann"]}),
        CallTool(tool="send2", args={"to": "ann"}),
        RunCell(code="send"),
        RunCell(code="send", timeout_s=1),
    ]
    digests = {digest_of(ActionId(id_), action, shows) for action in actions for id_ in "ab" for shows in ("", "+ x")}
    assert len(digests) == 4 * len(actions)
