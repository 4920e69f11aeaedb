"""A turn from the user's words to its end: steps, actions, budgets, interrupts."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest
from inline_snapshot import snapshot
from tests.engine.doubles import PATIENCE_S, TURN, EchoRunner, StallingModel, calls, cell, life, outcomes, says, story

from pinfold.engine import Budget, CommandRefused
from pinfold.events import (
    ActionAllowed,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    AssistantMessage,
    Call,
    Continue,
    Execute,
    Interrupt,
    ModelCalled,
    ModelReplied,
    OutputDelta,
    Rename,
    Reply,
    Request,
    RunCell,
    Say,
    SessionChanged,
    TextDelta,
    ToolMessage,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    Unavailable,
    Usage,
    UserMessage,
    UserSpoke,
)
from pinfold.tools import tool

pytestmark = pytest.mark.unit

USAGE = Usage(input_tokens=3, output_tokens=2)


@pytest.mark.installed
async def test_a_plain_turn_is_told_whole() -> None:
    async with life([says("Hello.", usage=USAGE)]) as session:
        await session.say("hi")
    assert story(session.events) == snapshot(
        [
            UserSpoke(turn=TURN, text="hi"),
            ModelCalled(turn=TURN, model="scripted", size=238),
            ModelReplied(
                turn=TURN,
                model="scripted",
                text="Hello.",
                usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=0),
                request_id="3de23a45d2cb",
            ),
            TurnEnded(turn=TURN, text="Hello.", usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=0)),
        ]
    )


async def test_a_cell_and_its_answer_are_told_whole() -> None:
    async with life([says("Let me see.", cell("6 * 7"), usage=USAGE), says("42", usage=USAGE)]) as session:
        await session.say("what is it?")
    assert story(session.events) == snapshot(
        [
            UserSpoke(turn=TURN, text="what is it?"),
            ModelCalled(turn=TURN, model="scripted", size=247),
            ModelReplied(
                turn=TURN,
                model="scripted",
                text="Let me see.",
                actions=(Call(id=ActionId("a1"), tool="python", args={"code": "6 * 7"}),),
                usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=0),
                request_id="0061259b674a",
            ),
            ActionProposed(id=ActionId("a1"), action=RunCell(code="6 * 7", timeout_s=None), turn=TURN),
            ActionAllowed(id=ActionId("a1"), rule="cells run in the sandbox"),
            ActionStarted(id=ActionId("a1"), effect="once", cell=1),
            ActionFinished(id=ActionId("a1"), outcome="ok", observation="6 * 7"),
            ModelCalled(turn=TURN, model="scripted", size=444),
            ModelReplied(
                turn=TURN,
                model="scripted",
                text="42",
                usage=Usage(input_tokens=3, output_tokens=2, cached_tokens=0),
                request_id="79626a3fa76c",
            ),
            TurnEnded(turn=TURN, text="42", usage=Usage(input_tokens=6, output_tokens=4, cached_tokens=0)),
        ]
    )


async def test_the_model_sees_what_its_cells_said_and_earlier_turns() -> None:
    seen: list[Request] = []

    class Watching:
        def before_model(self, request: Request) -> Request:
            seen.append(request)
            return request

    script = [says("", cell("a"), cell("b")), says("both"), says("again")]
    async with life(script, hooks=[Watching()]) as session:
        await session.say("one")
        await session.say("two", TurnId("t2"))
    first, second = (event.id for event in session.all(ActionProposed))
    assert seen[-1].messages == (
        UserMessage(text="one"),
        AssistantMessage(
            text="",
            calls=(
                Call(id=first, tool="python", args={"code": "a"}),
                Call(id=second, tool="python", args={"code": "b"}),
            ),
        ),
        ToolMessage(id=first, text="a"),
        ToolMessage(id=second, text="b"),
        AssistantMessage(text="both"),
        UserMessage(text="two"),
    )


async def test_deltas_are_broadcast_and_never_stored() -> None:
    async with life([says("Hello.", cell("x")), says("bye")]) as session, session.log.subscribe() as feed:
        assert await anext(feed)
        await session.say()
        feed.close()
        deltas = [item async for item in feed if isinstance(item, TextDelta | OutputDelta)]
    assert [delta.text for delta in deltas] == ["Hello.", "x", "bye"]


async def test_the_same_words_sent_twice_are_one_turn() -> None:
    async with life([says("first"), says("second")]) as session:
        await session.submit(Say(turn=TURN, text="go"))
        await session.submit(Say(turn=TURN, text="go"))
        await session.say("other", TurnId("t2"))
        await session.submit(Say(turn=TURN, text="go"))
        await session.say("third", TurnId("t3"))
    assert [event.turn for event in session.all(UserSpoke)] == ["t1", "t2", "t3"]
    assert [event.text for event in session.all(TurnEnded)] == ["first", "second", "(end of script)"]


async def test_parallel_safe_calls_overlap() -> None:
    both, inside = anyio.Event(), 0

    @tool(effect="pure")
    async def meet() -> str:
        """Returns only when two of it run at once."""
        nonlocal inside
        inside += 1
        if inside == 2:
            both.set()
        with anyio.fail_after(PATIENCE_S):
            await both.wait()
        return "met"

    script = [says("", calls("meet"), calls("meet")), says("ok")]
    async with life(script, runner=EchoRunner(tools=[meet])) as session:
        await session.say()
    assert [event.observation for event in session.all(ActionFinished)] == ["met", "met"]


async def test_no_more_calls_run_side_by_side_than_the_budget_allows() -> None:
    now, most = 0, 0

    @tool(effect="pure")
    async def count() -> None:
        """Sees how many of it run."""
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.lowlevel.checkpoint()
        now -= 1

    script = [says("", *[calls("count")] * 9), says("ok")]
    runner = EchoRunner(tools=[count])
    async with life(script, runner=runner, budget=Budget(side_by_side=3)) as session:
        await session.say()
    assert most == 3


async def test_other_actions_run_one_after_the_other() -> None:
    trace: list[str] = []

    @tool
    async def step(name: str) -> None:
        """Not safe beside another."""
        trace.append(f"{name} begins")
        await anyio.lowlevel.checkpoint()
        trace.append(f"{name} ends")

    script = [says("", calls("step", name="a"), calls("step", name="b"), cell("x")), says("ok")]
    async with life(script, runner=EchoRunner(tools=[step], mode="full")) as session:
        await session.say()
    assert trace == ["a begins", "a ends", "b begins", "b ends"]
    assert isinstance(session.core.runner, EchoRunner)
    assert session.core.runner.began[-1] == RunCell(code="x")


@pytest.mark.parametrize(
    ("budget", "error"),
    [
        (Budget(max_steps=2), "stopped after 2 steps, the limit (max_steps)"),
        (Budget(max_tokens=9), "stopped after 10 tokens this turn, the limit is 9"),
        (Budget(max_cost=0.25), "stopped after $0.4000 this turn, the limit is $0.2500"),
    ],
)
async def test_a_turn_stops_at_its_budget(budget: Budget, error: str) -> None:
    script = [says("", cell(str(n)), usage=USAGE, cost=0.2) for n in range(5)]
    async with life(script, budget=budget) as session:
        end = await session.say()
    spent = Usage(input_tokens=6, output_tokens=4)
    assert end == TurnFailed(turn=TURN, error=error, at_limit=True, usage=spent)
    assert len(session.all(ModelReplied)) == 2


async def test_a_cost_limit_with_an_unknown_price_stops_the_turn() -> None:
    async with life([says("", cell("x"))], budget=Budget(max_cost=1)) as session:
        end = await session.say()
    assert end == TurnFailed(
        turn=TURN, error="stopped: a cost limit for this turn is set but the price of a model is not known"
    )


async def test_an_answer_within_the_last_step_is_still_an_answer() -> None:
    async with life([says("done", usage=USAGE, cost=9)], budget=Budget(max_tokens=1, max_cost=1)) as session:
        assert await session.say() == TurnEnded(turn=TURN, text="done", usage=USAGE, cost=9)


async def test_a_turn_stops_after_its_seconds() -> None:
    async with life([says("late", delay_s=3600)], budget=Budget(max_seconds=0.01)) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="stopped after 0.01 s, the limit for a turn", at_limit=True)


async def test_an_interrupt_stops_a_model_that_thinks() -> None:
    async with life(StallingModel()) as session:
        await session.submit(Say(turn=TURN, text="go"))
        await session.seen(lambda event: isinstance(event, ModelCalled))
        await session.submit(Interrupt())
        end = await session.ended()
        assert end == TurnInterrupted(turn=TURN, reason="interrupted by the user")
        assert await session.say("go on", TurnId("t2")) == TurnEnded(turn=TurnId("t2"), text="done", cost=None)


async def test_an_interrupt_right_behind_the_words_is_not_lost() -> None:
    async with life([says("", cell("x")), says("too late")]) as session:
        await session.submit(Say(turn=TURN, text="go"))
        await session.submit(Interrupt())
        end = await session.ended()
    assert isinstance(end, TurnInterrupted)
    assert isinstance(session.core.runner, EchoRunner)
    assert session.core.runner.began == []


async def test_an_interrupt_with_nothing_to_stop_does_nothing() -> None:
    async with life([says("fine")]) as session:
        await session.submit(Interrupt())
        assert isinstance(await session.say(), TurnEnded)


async def test_an_interrupted_cell_says_so_and_shows_its_output() -> None:
    running = anyio.Event()

    async def hang(_id: ActionId, _action: object, on_output: object) -> None:
        assert callable(on_output)
        on_output("stdout", "so far")
        running.set()
        await anyio.sleep_forever()

    async with life([says("", cell("a"), cell("b"))], runner=EchoRunner(before=hang)) as session:
        await session.submit(Say(turn=TURN, text="go"))
        await running.wait()
        await session.submit(Interrupt())
        await session.ended()
    assert story(session.all(ActionFinished)) == snapshot(
        [
            ActionFinished(
                id=ActionId("a1"),
                outcome="interrupted",
                observation="This was interrupted; variables and files are as the code left them, unless the next cell says the variables are gone.\nOutput until then:\nso far",
            ),
            ActionFinished(
                id=ActionId("a2"), outcome="not_run", observation="This was not run: the turn was cut off before it."
            ),
        ]
    )


async def test_an_interrupted_once_tool_may_have_taken_effect() -> None:
    running = anyio.Event()

    @tool
    async def send() -> None:
        """Never comes back."""
        running.set()
        await anyio.sleep_forever()

    runner = EchoRunner(tools=[send], mode="full")
    async with life([says("", calls("send"))], runner=runner) as session:
        await session.submit(Say(turn=TURN, text="go"))
        await running.wait()
        await session.submit(Interrupt())
        await session.ended()
    assert list(outcomes(session.events).values()) == [["outcome_unknown"]]


async def test_the_next_turn_tells_the_model_of_the_interrupt() -> None:
    async with life(StallingModel()) as session:
        await session.submit(Say(turn=TURN, text="go"))
        await session.seen(lambda event: isinstance(event, ModelCalled))
        await session.submit(Interrupt())
        await session.ended()
        await session.say("and now?", TurnId("t2"))
    *_, last = session.core.state.turns
    assert last.messages[0] == UserMessage(
        text="[The previous turn was interrupted: interrupted by the user.]\n\nand now?"
    )


async def test_a_sandbox_fault_ends_the_turn_and_is_no_programs_output() -> None:
    async def broken(*_: object) -> None:
        raise Unavailable("bwrap is gone; install it")

    async with life([says("", cell("x"), cell("y"))], runner=EchoRunner(before=broken)) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="bwrap is gone; install it")
    assert [event.observation for event in session.all(ActionFinished)] == snapshot(
        ["This could not be run: the sandbox is not available.", "This was not run: the turn was cut off before it."]
    )


async def test_a_fault_of_our_own_ends_the_turn_and_leaves_nothing_open() -> None:
    async def broken(*_: object) -> None:
        raise ZeroDivisionError("oops")

    async with life([says("", cell("x")), says("fine")], runner=EchoRunner(before=broken)) as session:
        end = await session.say()
        assert end == TurnFailed(turn=TURN, error="internal error, please report it: ZeroDivisionError: oops")
        assert list(outcomes(session.events).values()) == [["outcome_unknown"]]
        assert isinstance(await session.say("again", TurnId("t2")), TurnEnded)


async def test_a_reply_that_breaks_off_is_a_failed_request() -> None:
    class Cut:
        name = "cut"

        async def stream(self, request: Request) -> AsyncGenerator[str | Reply]:  # noqa: ARG002
            yield "half a "

    async with life(Cut(), budget=Budget(attempts=1)) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="cut: the reply broke off", temporary=True)


async def test_the_users_own_cell_needs_no_model() -> None:
    async with life() as session:
        await session.submit(Execute(id=ActionId("mine"), code="1 + 1"))
        await session.seen(lambda event: isinstance(event, ActionFinished))
    assert story(session.events) == snapshot(
        [
            ActionProposed(id=ActionId("mine"), action=RunCell(code="1 + 1", timeout_s=None), by="user"),
            ActionAllowed(id=ActionId("mine"), rule="cells run in the sandbox"),
            ActionStarted(id=ActionId("mine"), effect="once", cell=1),
            ActionFinished(id=ActionId("mine"), outcome="ok", observation="1 + 1"),
        ]
    )


async def test_the_users_own_cell_can_be_interrupted() -> None:
    running = anyio.Event()

    async def hang(*_: object) -> None:
        running.set()
        await anyio.sleep_forever()

    async with life(runner=EchoRunner(before=hang)) as session:
        await session.submit(Execute(id=ActionId("mine"), code="loop()"))
        await running.wait()
        await session.submit(Interrupt())
        await session.seen(lambda event: isinstance(event, ActionFinished))
    assert outcomes(session.events) == {ActionId("mine"): ["interrupted"]}


async def test_the_users_own_cell_without_a_sandbox_says_why_in_its_outcome() -> None:
    async def broken(*_: object) -> None:
        raise Unavailable("no sandbox here")

    async with life(runner=EchoRunner(before=broken)) as session:
        await session.submit(Execute(id=ActionId("mine"), code="1"))
        await session.seen(lambda event: isinstance(event, ActionFinished))
    assert [finished.error for finished in session.all(ActionFinished)] == ["no sandbox here"]
    assert outcomes(session.events) == {ActionId("mine"): ["not_run"]}


async def test_an_interrupt_with_a_target_stops_that_command_and_no_other() -> None:
    async with life(StallingModel(2)) as session:
        for turn in ("t1", "t2", "t3"):
            await session.submit(Say(turn=TurnId(turn), text=turn))
        await session.submit(Interrupt(target=TurnId("t2")))
        await session.submit(Interrupt(target=TurnId("nothing")))
        await session.seen(lambda event: isinstance(event, ModelCalled))
        await session.submit(Interrupt(target=TURN))
        await session.ended(TurnId("t3"))
    assert [turn.end for turn in session.core.state.turns] == ["interrupted", "interrupted", "ended"]


async def test_an_engine_is_idle_when_all_is_done_or_waits_for_the_user() -> None:
    @tool
    def send() -> None:
        """Must be asked for."""

    runner = EchoRunner(tools=[send])
    async with life([says("ok"), says("", calls("send"))], runner=runner, unattended=False) as session:
        with anyio.fail_after(PATIENCE_S):
            await session.submit(Say(turn=TURN, text="go"))
            await session.engine.idle()
            assert len(session.all(TurnEnded)) == 1
            await session.submit(Say(turn=TurnId("t2"), text="go"))
            await session.engine.idle()
        assert [item.stage for item in session.core.state.open.values()] == ["asking"]


async def test_a_session_can_be_renamed() -> None:
    async with life() as session:
        await session.submit(Rename(title="taxes"))
    assert session.core.state.title == "taxes"
    assert session.all(SessionChanged) == [SessionChanged(title="taxes")]


async def test_there_must_be_a_turn_to_go_on_with() -> None:
    async with life() as session:
        with pytest.raises(CommandRefused, match="there is no interrupted turn to continue"):
            await session.submit(Continue())


async def test_cells_are_counted_over_the_whole_session() -> None:
    async with life([says("", cell("a"), cell("b")), says("ok"), says("", cell("c")), says("ok")]) as session:
        await session.say()
        await session.say("more", TurnId("t2"))
    assert [event.cell for event in session.all(ActionStarted)] == [1, 2, 3]
    assert len(session.all(ActionAllowed)) == 3
