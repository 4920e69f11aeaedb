"""The user's own code at the three points: it observes, stops and replaces; broken, it opens no gate."""

from __future__ import annotations

import anyio
import pytest
from inline_snapshot import snapshot
from tests.engine.doubles import SESSION, TURN, EchoRunner, calls, cell, life, outcomes, says, story

from pinfold.engine import Hooks
from pinfold.events import (
    Action,
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    AssistantMessage,
    CallTool,
    Delta,
    Deny,
    Entry,
    Event,
    Request,
    RunCell,
    TextDelta,
    TurnEnded,
    TurnFailed,
    Usage,
    UserSpoke,
)
from pinfold.hooks import TokenTracker
from pinfold.tools import tool

pytestmark = pytest.mark.unit

ONE_CELL = (says("", cell("import os")), says("ok"))


class Answering:
    """A `before_action` hook that always answers the same."""

    def __init__(self, answer: object) -> None:
        self.answer = answer

    async def before_action(self, action: Action) -> object:  # noqa: ARG002
        return self.answer


class Crashing:
    def before_action(self, action: Action) -> None:
        raise LookupError(f"what is {type(action).__name__}?")


class Dawdling:
    async def before_action(self, action: Action) -> None:  # noqa: ARG002
        await anyio.sleep_forever()


async def test_a_hook_that_has_nothing_to_say_changes_nothing() -> None:
    async with life(ONE_CELL, hooks=[Answering(None), object()]) as session:
        await session.say()
    assert list(outcomes(session.events).values()) == [["ok"]]


async def test_a_hook_denies_an_action_before_policy_sees_it() -> None:
    runner = EchoRunner()
    async with life(ONE_CELL, hooks=[Answering(Deny("no imports today"))], runner=runner) as session:
        await session.say()
    assert runner.began == []
    told = [event for event in story(session.events) if type(event).__name__.startswith("Action")]
    assert told == snapshot(
        [
            ActionProposed(id=ActionId("a1"), action=RunCell(code="import os", timeout_s=None), turn=TURN),
            ActionDenied(id=ActionId("a1"), reason="no imports today"),
            ActionFinished(id=ActionId("a1"), outcome="denied", observation="This was not run: no imports today"),
        ]
    )


@pytest.mark.parametrize(
    ("hook", "reason"),
    [
        (Crashing(), "the hook Crashing failed: LookupError: what is RunCell?"),
        (Dawdling(), "the hook Dawdling took longer than 0.01 s"),
        (Answering("yes"), "the hook Answering returned neither None, Deny nor an action but str"),
        (Answering({"type": "cell"}), "the hook Answering returned neither None, Deny nor an action but dict"),
    ],
)
async def test_a_broken_hook_denies(hook: object, reason: str) -> None:
    runner = EchoRunner()
    async with life(ONE_CELL, hooks=[hook], hook_bound_s=0.01, runner=runner) as session:
        await session.say()
    assert runner.began == []
    assert [event.reason for event in session.all(ActionDenied)] == [reason]


async def test_a_replacement_is_what_is_recorded_and_run() -> None:
    runner = EchoRunner()
    async with life(ONE_CELL, hooks=[Answering(RunCell(code="pass"))], runner=runner) as session:
        await session.say()
    assert runner.began == [RunCell(code="pass")]
    assert [event.action for event in session.all(ActionProposed)] == [RunCell(code="pass")]


async def test_a_replacement_is_judged_as_any_action() -> None:
    @tool
    def send() -> None:
        """Has an effect."""

    runner = EchoRunner(tools=[send], mode="read-only")
    async with life(ONE_CELL, hooks=[Answering(CallTool(tool="send", args={}))], runner=runner) as session:
        await session.say()
    assert runner.began == []
    assert [event.reason for event in session.all(ActionDenied)] == [
        "send has effects (once), and the mode is read-only"
    ]


async def test_each_hook_sees_what_the_one_before_it_made() -> None:
    class Appending:
        def before_action(self, action: Action) -> Action:
            assert isinstance(action, RunCell)
            return RunCell(code=action.code + "!")

    runner = EchoRunner()
    async with life(ONE_CELL, hooks=[Appending(), Appending()], runner=runner) as session:
        await session.say()
    assert runner.began == [RunCell(code="import os!!")]


async def test_a_denial_is_not_asked_further() -> None:
    class Never:
        def before_action(self, action: Action) -> None:  # noqa: ARG002
            raise AssertionError("asked after a denial")

    async with life(ONE_CELL, hooks=[Answering(Deny("enough")), Never()]) as session:
        await session.say()
    assert [event.reason for event in session.all(ActionDenied)] == ["enough"]


async def test_a_hook_changes_what_the_model_is_sent_and_nothing_else() -> None:
    class Adding:
        async def before_model(self, request: Request) -> Request:
            return Request(
                system="Answer in French.",
                messages=(*request.messages, AssistantMessage(text="Bien sûr:")),
                tools=request.tools,
                settings=request.settings,
            )

    async with life([says("Oui.", expect="Bien sûr:")], hooks=[Adding()]) as session:
        assert await session.say("?") == TurnEnded(turn=TURN, text="Oui.", cost=None)
    assert [event.text for event in session.all(UserSpoke)] == ["?"]


async def test_a_broken_before_model_hook_ends_the_turn() -> None:
    class Forgetting:
        def before_model(self, request: Request) -> None:
            pass

    async with life([says("x")], hooks=[Forgetting()]) as session:
        assert await session.say() == TurnFailed(
            turn=TURN, error="a before_model hook Forgetting.before_model returned no request"
        )


async def test_observers_see_events_and_deltas_and_cannot_do_harm(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Event | Delta] = []

    class Faulty:
        def on_event(self, event: Event | Delta) -> None:  # noqa: ARG002
            raise RuntimeError("observer down")

    class Observing:
        async def on_event(self, event: Event | Delta) -> None:
            seen.append(event)

    hooks = Hooks([Faulty()])
    hooks.add(Observing())
    spoke = UserSpoke(turn=TURN, text="hi")
    await hooks.on_event(Entry(seq=1, session=SESSION, at="", event=spoke))
    await hooks.on_event(TextDelta(turn=TURN, text="h"))
    assert seen == [spoke, TextDelta(turn=TURN, text="h")]
    assert caplog.messages == ["hook Faulty: failed: RuntimeError: observer down"] * 2


async def test_the_token_tracker_counts_by_model() -> None:
    tracker = TokenTracker()
    hooks = Hooks([tracker])
    usage = Usage(input_tokens=2000, output_tokens=3, cached_tokens=1)
    async with life([says("", cell("x"), usage=usage, cost=0.5), says("ok", usage=usage, cost=1)]) as session:
        await session.say()
    for entry in session.log.read():
        await hooks.on_event(entry)
    assert tracker.summary() == snapshot("""\
tokens: 2 calls, 4,000 tokens in (2 cached), 6 out, cost $1.5000
  scripted: 4,000 tokens in (2 cached), 6 out\
""")


async def test_a_denied_call_is_still_answered() -> None:
    script = [says("", calls("nothing"), cell("x")), says("ok")]
    async with life(script, hooks=[Answering(Deny("no"))]) as session:
        await session.say()
    assert [event.outcome for event in session.all(ActionFinished)] == ["denied", "denied"]
