"""Calls from cells: the same hooks, policy and record as the model's own, and nothing of it in the model's context."""

from __future__ import annotations

import anyio
import pytest
from inline_snapshot import snapshot
from tests.engine.doubles import TURN, EchoRunner, Life, calls, cell, copy_of, life, memory_log, outcomes, says, story

from pinfold.engine import Performed, request_of
from pinfold.events import (
    Action,
    ActionAllowed,
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
    Deny,
    Event,
    Execute,
    Interrupt,
    Mode,
    RunCell,
    Say,
    TurnId,
    Unavailable,
)
from pinfold.tools import tool

pytestmark = pytest.mark.unit
CELL = ActionId("a_cell")


@tool(effect="pure")
def look(at: str) -> str:
    """Changes nothing."""
    return f"seen {at}"


@tool
def send(to: str) -> str:
    """Must never happen twice."""
    return f"sent to {to}"


def world(mode: Mode = "auto") -> EchoRunner:
    return EchoRunner(tools=[look, send], mode=mode)


async def executed(session: Life, code: str, id_: ActionId = CELL) -> None:
    await session.submit(Execute(id=id_, code=code))
    await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == id_)


def nested(session: Life) -> list[ActionProposed]:
    return [event for event in session.all(ActionProposed) if event.parent]


async def test_a_call_is_told_whole_inside_its_cell() -> None:
    runner = world("full")
    async with life([says("", cell('call send {"to": "ann"}')), says("ok")], runner=runner) as session:
        await session.say()
    told = [event for event in story(session.events) if type(event).__name__.startswith("Act")]
    assert told == snapshot(
        [
            ActionProposed(id=ActionId("a1"), action=RunCell(code='call send {"to": "ann"}'), turn=TURN),
            ActionAllowed(id=ActionId("a1"), rule="cells run in the sandbox"),
            ActionStarted(id=ActionId("a1"), effect="once", cell=1),
            ActionProposed(
                id=ActionId("a2"),
                action=CallTool(tool="send", args={"to": "ann"}),
                by="cell",
                turn=TURN,
                parent=ActionId("a1"),
            ),
            ActionAllowed(id=ActionId("a2"), rule="mode full"),
            ActionStarted(id=ActionId("a2"), effect="once"),
            ActionFinished(id=ActionId("a2"), outcome="ok", observation="sent to ann"),
            ActionFinished(id=ActionId("a1"), outcome="ok", observation='call send {"to": "ann"}'),
        ]
    )
    assert runner.got == [Performed(outcome="ok", observation="sent to ann")]


async def test_what_a_cell_got_is_not_told_to_the_model() -> None:
    code = 'call look {"at": "secret"}'
    async with life([says("", cell(code)), says("ok")], runner=world()) as session:
        await session.say()
        request = request_of(session.core.state, (), {})
    assert "seen secret" not in repr(request)
    assert [message for message in request.messages if "call look" in repr(message)]


@pytest.mark.parametrize(
    ("mode", "outcome", "words"),
    [
        ("read-only", "denied", "the mode is read-only"),
        ("ask", "denied", "no user can be asked"),
        ("auto", "denied", "no user can be asked"),
        ("full", "ok", "sent to ann"),
    ],
)
async def test_policy_judges_a_cells_call_as_the_models(mode: Mode, outcome: str, words: str) -> None:
    """Both ways, side by side: what the model may not, its code may not either."""
    script = [says("", calls("send", to="ann")), says("", cell('call send {"to": "ann"}')), says("ok")]
    runner = world(mode)
    async with life(script, runner=runner) as session:
        await session.say()
    ends = [event for event in session.all(ActionFinished) if not event.observation.startswith("call")]
    assert [(end.outcome, words in end.observation) for end in ends] == [(outcome, True)] * 2
    assert [got.outcome for got in runner.got] == [outcome]
    assert sum(isinstance(action, CallTool) for action in runner.began) == (2 if outcome == "ok" else 0)


async def test_unattended_the_denial_is_on_record() -> None:
    async with life(runner=world()) as session:
        await executed(session, 'call send {"to": "ann"}')
    (call,) = nested(session)
    assert (call.by, call.turn, call.parent) == ("cell", None, CELL)
    (decided,) = session.all(ApprovalDecided)
    assert (decided.id, decided.verdict, decided.by) == (call.id, "deny", "nobody")


@pytest.mark.parametrize("verdict", ["allow", "deny"])
async def test_a_users_answer_is_waited_for(verdict: str) -> None:
    runner = world()
    async with life(runner=runner, unattended=False) as session:
        await session.submit(Execute(id=CELL, code='call send {"to": "ann"}'))
        request = await session.asked()
        allows = verdict == "allow"
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow" if allows else "deny"))
        await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == CELL)
    assert [got.outcome for got in runner.got] == ["ok" if allows else "denied"]


async def test_a_grant_for_the_session_holds_for_calls_too() -> None:
    runner = world()
    async with life(runner=runner, unattended=False) as session:
        await session.submit(Execute(id=CELL, code='call send {"to": "ann"}\ncall send {"to": "bob"}'))
        request = await session.asked()
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="allow", scope="session"))
        await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == CELL)
    assert [got.observation for got in runner.got] == ["sent to ann", "sent to bob"]
    assert len(session.all(ApprovalRequested)) == 1


async def test_an_answer_to_a_users_cell_does_not_go_on_with_a_turn_that_was_cut_off() -> None:
    async with life([says("", cell("x"))], runner=world()) as first:
        await first.say()
    events = copy_of(first.log.read())
    started = next(n for n, event in enumerate(events) if isinstance(event, ActionStarted))
    log = memory_log()
    await log.append(*events[: started + 1])
    async with life([says("no")], runner=world(), log=log, unattended=False) as session:
        await session.submit(Execute(id=CELL, code='call send {"to": "ann"}'))
        request = await session.asked()
        await session.submit(Decide(id=request.id, digest=request.digest, verdict="deny"))
        await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == CELL)
        await session.engine.idle()
        assert session.core.state.turn is not None


class NoSending:
    async def before_action(self, action: Action) -> Deny | Action | None:
        match action:
            case CallTool(tool="send"):
                return Deny("not today")
            case CallTool(tool="swap"):
                return CallTool(tool="look", args={"at": "instead"})
            case CallTool(tool="cell"):
                return RunCell(code="x")
            case _:
                return None


async def test_hooks_see_a_cells_calls() -> None:
    runner = world("full")
    async with life(runner=runner, hooks=[NoSending()]) as session:
        await executed(session, 'call send {"to": "ann"}\ncall swap {}\ncall cell {}')
    assert [got.observation for got in runner.got] == [
        "This was not run: not today",
        "seen instead",
        "This was not run: a cell cannot run another one",
    ]


async def test_a_cell_cannot_run_a_cell() -> None:
    runner = world("full")
    async with life(runner=runner) as session:
        await executed(session, 'call python {"code": "1"}')
    assert [got.outcome for got in runner.got] == ["denied"]
    assert runner.began == [RunCell(code='call python {"code": "1"}')]
    assert [event.reason for event in session.all(ActionDenied)] == ["a cell cannot run another one"]


async def test_a_call_that_is_interrupted_is_named_and_so_is_its_cell() -> None:
    running = anyio.Event()

    async def hang(_id: ActionId, action: Action, _output: object) -> None:
        if isinstance(action, CallTool):
            running.set()
            await anyio.sleep_forever()

    runner = world("full")
    runner.before = hang
    async with life(runner=runner) as session:
        await session.submit(Execute(id=CELL, code='call send {"to": "ann"}'))
        await running.wait()
        await session.submit(Interrupt())
        await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == CELL)
    assert [end.outcome for end in session.all(ActionFinished)] == ["outcome_unknown", "interrupted"]


async def test_a_question_that_nobody_waits_for_any_more_is_closed() -> None:
    async with life(runner=world(), unattended=False) as session:
        await session.submit(Execute(id=CELL, code='call send {"to": "ann"}'))
        await session.asked()
        await session.submit(Interrupt())
        await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == CELL)
        assert session.core.state.open == {}
    assert [end.outcome for end in session.all(ActionFinished)] == ["not_run", "interrupted"]


async def test_a_tool_that_is_not_available_fails_for_the_cell_alone() -> None:
    async def gone(_id: ActionId, action: Action, _output: object) -> None:
        if isinstance(action, CallTool):
            raise Unavailable("no such server")

    runner = world()
    runner.before = gone
    async with life(runner=runner) as session:
        await executed(session, 'call look {"at": "x"}')
    assert [got.outcome for got in runner.got] == ["not_run"]
    assert [end.outcome for end in session.all(ActionFinished)] == ["not_run", "ok"]


@pytest.mark.parametrize("by_hand", [False, True])
async def test_wherever_a_cell_that_calls_is_cut_nothing_runs_twice_and_everything_ends(by_hand: bool) -> None:
    code = 'call look {"at": "x"}\ncall send {"to": "ann"}\ncall send {"to": "bob"}'
    async with life([says("", cell(code)), says("ok")], runner=world("full")) as first:
        await (executed(first, code) if by_hand else first.say())
    entries = list(first.log.read())
    for cut in range(1, len(entries) + 1):
        before, log, runner = copy_of(entries[:cut]), memory_log(), world("full")
        await log.append(*copy_of(entries[:cut]))
        async with life([says("on")] * 3, runner=runner, log=log) as session:
            if session.core.state.turn:
                await session.submit(Continue())
                await session.ended()
            await session.say("and?", TurnId("t_next"))
        ends = outcomes(session.events)
        assert all(len(end) == 1 for end in ends.values()), cut
        effects = {event.id: event.effect for event in before if isinstance(event, ActionStarted)}
        if not effects:
            continue
        assert runner.began == [], cut
        for id_ in outcomes(before):
            if not outcomes(before)[id_]:
                has_effect = effects.get(id_, "pure") != "pure"
                assert ends[id_] == ["outcome_unknown" if has_effect else "not_run"], cut


async def test_a_pending_question_of_a_cell_is_closed_by_a_restart() -> None:
    async with life([says("", cell('call send {"to": "ann"}'))], runner=world(), unattended=False) as first:
        await first.submit(Say(turn=TURN, text="go"))
        await first.asked()
        kept: list[Event] = copy_of(first.log.read())
    log = memory_log()
    await log.append(*kept)
    runner = world()
    async with life([says("on")], runner=runner, log=log, unattended=False) as session:
        assert session.core.state.open == {}
        await session.submit(Continue())
        await session.ended()
    assert runner.began == []
    assert list(outcomes(session.events).values()) == [["outcome_unknown"], ["not_run"]]
