"""What a yes covers: for how long, for what, and what it takes for it to be none."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.engine.doubles import TURN, EchoRunner, Life, calls, cell, life, memory_log, outcomes, says

from pinfold.engine import CommandRefused, digest_of
from pinfold.events import (
    Action,
    ActionAllowed,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    ApprovalRequested,
    Call,
    CallTool,
    Configure,
    Continue,
    Decide,
    ModelReplied,
    Say,
    Scope,
    TurnEnded,
    TurnId,
    UserSpoke,
)
from pinfold.tools import tool

pytestmark = pytest.mark.unit


@tool
def send(to: str) -> str:
    """Has an effect that cannot be undone."""
    return f"sent to {to}"


@tool
def delete(name: str) -> str:
    """So has this."""
    return f"deleted {name}"


SCRIPT = (says("", calls("send", to="ann")), says("ok"), says("", calls("send", to="bob")), says("ok"))


async def asking(session: Life, turn: TurnId = TURN) -> ApprovalRequested:
    before = len(session.all(ApprovalRequested))
    if session.core.state.turn is None:
        await session.submit(Say(turn=turn, text="go"))
    while len(session.all(ApprovalRequested)) == before:
        await session.core.wait_for_change()
    return session.all(ApprovalRequested)[-1]


async def yes(session: Life, request: ApprovalRequested, scope: Scope = "once", words: str = "") -> None:
    await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow", scope=scope, words=words))


async def test_a_loop_of_calls_of_one_pattern_in_one_cell_is_one_question() -> None:
    loop = "\n".join(f'call send {{"to": "n{i}"}}' for i in range(50))
    script = (says("", cell(loop + '\ncall delete {"name": "x"}')), says("ok"))
    runner = EchoRunner(tools=[send, delete])
    async with life(script, runner=runner, unattended=False) as session:
        first = await asking(session)
        assert (first.pattern, first.bundled) == ("tool: send", True)
        await yes(session, first)
        second = await asking(session)
        assert second.pattern == "tool: delete"
        await yes(session, second)
        await session.ended()
    assert len(session.all(ApprovalRequested)) == 2
    assert [one.outcome for one in runner.got] == ["ok"] * 51
    assert len(session.all(ActionAllowed)) >= 49


async def test_what_one_cell_may_call_the_next_one_asks_for_again() -> None:
    one = cell('call send {"to": "ann"}')
    async with life(
        (says("", one), says("", one), says("ok")), runner=EchoRunner(tools=[send]), unattended=False
    ) as session:
        await yes(session, await asking(session))
        again = await asking(session)
        await yes(session, again)
        assert isinstance(await session.ended(), TurnEnded)
    assert len(session.all(ApprovalRequested)) == 2


async def test_a_yes_to_a_call_of_the_models_own_covers_nothing_else() -> None:
    async with life(SCRIPT, runner=EchoRunner(tools=[send]), unattended=False) as session:
        first = await asking(session)
        assert not first.bundled
        await yes(session, first)
        await session.ended()
        await asking(session, TurnId("t2"))


async def test_always_is_kept_where_it_says_and_holds_in_another_session() -> None:
    runner = EchoRunner(tools=[send])
    async with life(SCRIPT, runner=runner, unattended=False) as session:
        request = await asking(session)
        assert request.stored == "grants"
        await yes(session, request, "always")
        await session.ended()
    assert runner.always == {"tool: send"}
    async with life(SCRIPT, runner=runner, log=memory_log()) as session:
        await session.say()
    assert [event.outcome for event in session.all(ActionFinished)] == ["ok"]


async def test_what_was_granted_to_the_session_can_be_revoked() -> None:
    async with life(SCRIPT, runner=EchoRunner(tools=[send]), unattended=False) as session:
        await yes(session, await asking(session), "session")
        await session.ended()
        with pytest.raises(CommandRefused, match="'tool: sen' is not granted to this session"):
            await session.submit(Configure(revoke=("tool: sen",)))
        await session.submit(Configure(revoke=("tool: send",)))
        await asking(session, TurnId("t2"))


async def test_what_was_shown_and_has_changed_since_is_asked_again() -> None:
    """As when a file is changed by hand while the user looks at the diff."""
    now = ["- old\n+ new"]

    def shown(_: Action) -> str:
        return now[0]

    runner = EchoRunner(tools=[send], shown=shown)
    async with life(SCRIPT, runner=runner, unattended=False) as session:
        first = await asking(session)
        assert first.shows == "- old\n+ new"
        now[0] = "- older\n+ new"
        await yes(session, first)
        second = await asking(session)
        assert (second.shows, runner.began) == ("- older\n+ new", [])
        assert second.digest != first.digest
        with pytest.raises(CommandRefused, match="has changed since"):
            await yes(session, first)
        await yes(session, second)
        await session.ended()
    assert outcomes(session.events) == {first.id: ["ok"]}


@pytest.mark.parametrize(("late_s", "asks"), [(1.0, 1), (0.0, 0)])
async def test_a_yes_that_was_given_long_ago_is_asked_again_after_a_restart(late_s: float, asks: int) -> None:
    log, runner = memory_log(), EchoRunner(tools=[send])
    call = Call(id=ActionId("a_1"), tool="send", args={"to": "ann"})
    action = CallTool(tool="send", args={"to": "ann"})
    await log.append(
        UserSpoke(turn=TURN, text="go"),
        ModelReplied(turn=TURN, model="m", text="", actions=(call,)),
        ActionProposed(id=call.id, action=action, turn=TURN),
        ApprovalRequested(id=call.id, reason="why", digest=digest_of(call.id, action)),
        ApprovalDecided(id=call.id, verdict="allow"),
    )
    async with life((says("ok"),), runner=runner, log=log) as session:
        clock = session.core.clock
        session.core.clock = lambda: clock() + timedelta(seconds=session.core.approval_s + late_s)
        await session.submit(Continue())
        await session.ended()
    assert len(session.all(ApprovalRequested)) == 1 + asks
    assert len(runner.began) == 1 - asks


async def test_the_answer_to_the_agents_own_question_is_what_it_sees() -> None:
    script = (says("", calls("ask_user", question="Which one?")), says("done"))
    async with life(script, runner=EchoRunner(), unattended=False) as session:
        request = await asking(session)
        assert (request.question, request.options, request.reason) == (True, ("yes", "no"), "Which one?")
        await yes(session, request, words="the blue one")
        await session.ended()
    assert [event.observation for event in session.all(ActionFinished)] == ["the blue one"]


async def test_a_question_when_nobody_is_there_is_told_to_the_model_as_its_own_to_decide() -> None:
    script = (says("", calls("ask_user", question="Which one?")), says("done"))
    async with life(script, runner=EchoRunner()) as session:
        assert isinstance(await session.say(), TurnEnded)
    assert [event.observation for event in session.all(ActionFinished)] == [
        "The user gave no answer: no user can be asked; decide yourself, and state your assumptions"
    ]


async def test_a_mode_that_the_files_were_not_mounted_for_is_refused() -> None:
    async with life(runner=EchoRunner()) as session:
        await session.submit(Configure(mode="full"))
        assert session.core.state.mode == "full"
        with pytest.raises(CommandRefused, match="reopen it in read-only"):
            await session.submit(Configure(mode="read-only"))
