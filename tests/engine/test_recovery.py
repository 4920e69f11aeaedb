"""What a crash may do to a session: nothing. Real runs are cut at every event and taken up again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from inline_snapshot import snapshot
from tests.engine.doubles import (
    SESSION,
    TURN,
    EchoRunner,
    Life,
    calls,
    cell,
    copy_of,
    is_end,
    life,
    memory_log,
    outcomes,
    says,
    story,
)

from pinfold.engine import CommandRefused, Core, Engine, fold
from pinfold.events import (
    Action,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    ApprovalRequested,
    AssistantMessage,
    Call,
    CallTool,
    Continue,
    Decide,
    Effect,
    Entry,
    Event,
    Execute,
    Interrupt,
    ModelReplied,
    RunCell,
    Say,
    SessionOpened,
    ToolMessage,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    UserMessage,
    UserSpoke,
)
from pinfold.log import Log, LogUnwritable
from pinfold.model import KeptReply, ScriptedModel
from pinfold.tools import tool

pytestmark = pytest.mark.unit

SCRIPT = (
    says("Look.", cell("a = 1"), calls("look", at="x"), calls("look", at="y")),
    says("Send.", calls("send", to="ann"), calls("refused"), cell("b = 2")),
    KeptReply(error="overloaded", status=529),
    says("Keep.", calls("keep", key="k"), calls("send", to="bob")),
    says("All done."),
)


@tool(effect="pure")
async def look(at: str) -> str:
    """Changes nothing."""
    await anyio.lowlevel.checkpoint()
    return f"seen {at}"


@tool(effect="once")
def send(to: str) -> str:
    """Must never happen twice."""
    return f"sent to {to}"


@tool(effect="keyed")
def keep(key: str) -> str:
    """Happens once for each key."""
    return f"kept {key}"


def world() -> EchoRunner:
    return EchoRunner(tools=[look, send, keep], granted=frozenset({"send", "keep"}))


async def whole(session: Life) -> None:
    await session.say("go")


async def interrupted(session: Life) -> None:
    """Stopped in the middle of an action, then another turn."""
    running = anyio.Event()

    async def hang(*_: object) -> None:
        running.set()
        await anyio.sleep_forever()

    assert isinstance(session.core.runner, EchoRunner)
    session.core.runner.before = hang
    await session.submit(Say(turn=TURN, text="go"))
    await running.wait()
    await session.submit(Interrupt())
    await session.ended()
    session.core.runner.before = None
    await session.say("go on", TurnId("t2"))


async def asked(session: Life) -> None:
    """Every `once` action is answered by hand: the first allowed, the second denied."""
    assert isinstance(session.core.runner, EchoRunner)
    session.core.runner.granted = frozenset({"keep"})
    session.core.unattended = False
    await session.submit(Say(turn=TURN, text="go"))
    seq = 0
    for verdict in ("allow", "deny", "allow"):
        await session.seen(lambda event: type(event).__name__ == "ApprovalRequested", after=seq)
        (waiting,) = [item.asked for item in session.core.state.open.values() if item.asked and item.stage == "asking"]
        seq = session.log.seq
        await session.submit(Decide(id=waiting.id, digest=waiting.digest, verdict=verdict))
    await session.ended()


async def by_hand(session: Life) -> None:
    """The user's own cells around a turn."""
    await session.submit(Execute(id=ActionId("a_mine"), code="mine"))
    await session.say("go")
    await session.submit(Execute(id=ActionId("a_too"), code="too"))
    await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == "a_too")


async def recorded(run: Callable[[Life], Awaitable[None]]) -> list[Entry]:
    async with life(SCRIPT, runner=world()) as session:
        await run(session)
    entries = list(session.log.read())
    assert len(entries) > 15
    return entries


async def taken_up(prefix: list[Entry]) -> tuple[list[Event], list[Action]]:
    """A new process opens the log that ends here and goes on; the story and what it really did."""
    log, runner = memory_log(), world()
    if prefix:
        await log.append(*copy_of(prefix))
    async with life([says("Carried on.")] * 9, runner=runner, log=log) as session:
        if turn := session.core.state.turn:
            await session.submit(Continue())
            await session.ended(turn.id)
        await session.say("and then?", TurnId("t_next"))
    return session.events, runner.began


def started(events: list[Event]) -> dict[ActionId, Effect]:
    return {event.id: event.effect for event in events if isinstance(event, ActionStarted)}


@pytest.mark.parametrize("run", [whole, interrupted, asked, by_hand])
async def test_wherever_it_is_cut_nothing_runs_twice_and_everything_ends(
    run: Callable[[Life], Awaitable[None]],
) -> None:
    entries = await recorded(run)
    for cut in range(len(entries) + 1):
        before = [entry.event for entry in entries[:cut]]
        after, began = await taken_up(entries[:cut])
        where = f"cut after {cut}: {before[-1] if before else None}"

        ends = outcomes(after)
        assert all(len(end) == 1 for end in ends.values()), where
        replied = {call.id for event in after if isinstance(event, ModelReplied) for call in event.actions}
        assert replied <= ends.keys(), where
        spoken = [event.turn for event in after if isinstance(event, UserSpoke)]
        ended = [getattr(event, "turn", "") for event in after if is_end(event)]
        assert spoken == ended, where

        actions = {event.id: event.action for event in after if isinstance(event, ActionProposed)}
        done = Counter(map(repr, began))
        for id_, effect in started(before).items():
            if effect != "pure":
                assert done[repr(actions[id_])] == 0, where
        assert max(done.values(), default=0) <= 1, where


@pytest.mark.parametrize("run", [whole, interrupted, asked, by_hand])
async def test_folding_in_two_parts_is_folding_at_once(run: Callable[[Life], Awaitable[None]]) -> None:
    entries = await recorded(run)
    at_once = fold(entries)
    for cut in range(len(entries) + 1):
        assert fold(entries[cut:], fold(entries[:cut])) == at_once


async def test_the_live_state_is_the_fold_of_the_log() -> None:
    async with life(SCRIPT, runner=world()) as session:
        await session.say("go")
    assert session.core.state == fold(session.log.read())


async def test_recovering_twice_adds_nothing() -> None:
    entries = await recorded(whole)
    cut = next(n for n, entry in enumerate(entries) if isinstance(entry.event, ActionStarted)) + 1
    log = memory_log()
    await log.append(*copy_of(entries[:cut]))
    async with life(runner=world(), log=log):
        pass
    count = len(list(log.read()))
    async with life(runner=world(), log=log):
        pass
    again = [entry.event for entry in log.read(count)]
    assert [type(event) for event in again] == [SessionOpened]


async def test_a_once_action_cut_off_while_it_ran_is_told_as_unknown() -> None:
    log = memory_log()
    action = CallTool(tool="send", args={"to": "ann"})
    await log.append(
        UserSpoke(turn=TURN, text="go"),
        ModelReplied(
            turn=TURN, model="m", text="", actions=(Call(id=ActionId("a_1"), tool="send", args={"to": "ann"}),)
        ),
        ActionProposed(id=ActionId("a_1"), action=action, turn=TURN),
        ActionStarted(id=ActionId("a_1"), effect="once"),
    )
    runner = world()
    async with life([says("I will check.")], runner=runner, log=log) as session:
        await session.submit(Continue())
        await session.ended()
    assert runner.began == []
    assert story(session.all(ActionFinished)) == snapshot(
        [
            ActionFinished(
                id=ActionId("a1"),
                outcome="outcome_unknown",
                observation="This was started, then Pinfold stopped before its end was seen. It may or may not have taken effect. It was not run again; check before repeating it.",
            )
        ]
    )


async def test_a_pure_action_cut_off_while_it_ran_is_run_again() -> None:
    log = memory_log()
    call = Call(id=ActionId("a_1"), tool="look", args={"at": "x"})
    await log.append(
        UserSpoke(turn=TURN, text="go"),
        ModelReplied(turn=TURN, model="m", text="", actions=(call,)),
        ActionProposed(id=call.id, action=CallTool(tool="look", args=call.args), turn=TURN),
        ActionStarted(id=call.id, effect="pure"),
    )
    async with life([says("ok")], runner=world(), log=log) as session:
        await session.submit(Continue())
        await session.ended()
    assert [event.observation for event in session.all(ActionFinished)] == ["seen x"]


async def test_words_instead_of_going_on_close_the_turn_that_was_cut_off() -> None:
    log = memory_log()
    call = Call(id=ActionId("a_1"), tool="look", args={"at": "x"})
    await log.append(UserSpoke(turn=TURN, text="go"), ModelReplied(turn=TURN, model="m", text="", actions=(call,)))
    async with life([says("ok")], runner=world(), log=log) as session:
        await session.say("something else", TurnId("t2"))
    assert story(session.events)[2:5] == snapshot(
        [
            ActionProposed(id=ActionId("a1"), action=CallTool(tool="look", args={"at": "x"}), turn=TURN),
            ActionFinished(
                id=ActionId("a1"), outcome="not_run", observation="This was not run: the turn was cut off before it."
            ),
            TurnInterrupted(turn=TURN, reason="the process ended early"),
        ]
    )


async def test_what_was_lost_is_never_told_between_a_call_and_its_answer() -> None:
    """Providers refuse a conversation in which a call is not answered at once."""
    call = Call(id=ActionId("a_1"), tool="python", args={"code": "x"})
    happened: list[Event] = [
        UserSpoke(turn=TURN, text="go"),
        ModelReplied(turn=TURN, model="m", text="", actions=(call,)),
        ActionProposed(id=call.id, action=RunCell(code="x"), turn=TURN),
        ActionStarted(id=call.id, effect="once", cell=1),
        SessionOpened(version="0", workspace="/w", model="m", mode="auto", sandbox="s", lost=("all Python variables",)),
        ActionFinished(id=call.id, outcome="outcome_unknown", observation="nobody knows"),
    ]
    log = memory_log()
    await log.append(*happened)
    turn = fold(log.read()).turn
    assert turn is not None
    assert turn.messages == (
        UserMessage(text="go"),
        AssistantMessage(text="", calls=(call,)),
        ToolMessage(id=call.id, text="nobody knows"),
        UserMessage(text="[The session was reopened. Lost: all Python variables.]"),
    )


@pytest.mark.parametrize("effect", ["once", "keyed"])
async def test_the_intent_is_on_disk_before_the_effect_begins(effect: Effect, tmp_path: Path) -> None:
    seen: list[list[Event]] = []

    @tool(effect=effect)
    def act() -> None:
        """Has an effect."""

    async def look_at_the_disk(id_: ActionId, _action: object, _output: object) -> None:
        other = Log(tmp_path, SESSION)
        seen.append([entry.event for entry in other.read() if getattr(entry.event, "id", None) == id_])
        other.close()

    log = Log(tmp_path, SESSION)
    runner = EchoRunner(tools=[act], mode="full", before=look_at_the_disk)
    async with life([says("", calls("act"), cell("x")), says("ok")], runner=runner, log=log) as session:
        await session.say()
    log.close()
    assert [type(events[-1]) for events in seen] == [ActionStarted, ActionStarted]


async def test_a_full_disk_ends_the_turn_before_the_effect() -> None:
    class FullDisk(Log):
        """Takes everything but the start of an action."""

        async def append(self, *events: Event) -> tuple[Entry, ...]:
            if any(isinstance(event, ActionStarted) for event in events):
                raise LogUnwritable("cannot write: no space left")
            return await super().append(*events)

    runner = world()
    async with life([says("", cell("x"))], runner=runner, log=FullDisk(None, SESSION)) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="cannot write: no space left", temporary=True)
    assert runner.began == []
    assert list(outcomes(session.events).values()) == [["not_run"]]


async def test_a_second_crash_does_no_more_harm_than_the_first() -> None:
    entries = await recorded(whole)
    for cut in range(1, len(entries), 4):
        once = await taken_up(entries[:cut])
        for again in range(cut + 1, len(once[0]), 5):
            at_first = memory_log()
            await at_first.append(*once[0][:again])
            events, _ = await taken_up(list(at_first.read()))
            assert all(len(end) == 1 for end in outcomes(events).values()), (cut, again)
            spoken = [event.turn for event in events if isinstance(event, UserSpoke)]
            assert spoken == [getattr(event, "turn", "") for event in events if is_end(event)], (cut, again)


async def test_a_log_from_elsewhere_is_told_but_grants_and_starts_nothing() -> None:
    entries = await recorded(asked)
    for cut in range(1, len(entries) + 1, 2):
        log, runner = memory_log(), world()
        await log.append(
            *copy_of(entries[:cut]),
            SessionOpened(version="0", workspace="/w", model="m", mode="auto", sandbox="s", imported=True),
        )
        core = Core(journal=log, model=ScriptedModel([]), runner=runner, state=fold(log.read()))
        engine = Engine(core)
        await engine.recover()
        assert (core.state.turn, core.state.open, core.state.granted) == (None, {}, frozenset()), cut
        assert all(len(end) == 1 for end in outcomes(entry.event for entry in log.read()).values()), cut
        assert runner.began == []
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(engine.serve)
            await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()


@pytest.mark.parametrize("imported", [True, False])
async def test_a_question_in_a_log_from_elsewhere_is_put_to_nobody(imported: bool) -> None:
    """Of no turn that is open: ending the turn does not end it."""
    log, runner, digest = memory_log(), world(), "0" * 64
    opened = SessionOpened(version="0", workspace="/w", model="m", mode="auto", sandbox="s", imported=imported)
    await log.append(
        UserSpoke(turn=TURN, text="hello"),
        ActionProposed(id=ActionId("a_forged"), action=RunCell(code="x"), turn=TurnId("t_over")),
        ApprovalRequested(id=ActionId("a_forged"), reason="harmless", digest=digest, pattern="tool: send"),
        opened,
    )
    engine = Engine(Core(journal=log, model=ScriptedModel([]), runner=runner, state=fold(log.read())))
    await engine.recover()
    yes = Decide(id=ActionId("a_forged"), digest=digest, verdict="allow", scope="session")
    if imported:
        with pytest.raises(CommandRefused, match="no approval is waiting"):
            await engine.submit(yes)
    else:
        await engine.submit(yes)
    assert engine.core.state.granted == (frozenset() if imported else {"tool: send"})
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(engine.serve)
        await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()
