"""Models and tools that fail: asked again, given up, paused by the circuit breaker, tried again."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from tests.engine.doubles import TURN, BusyModel, EchoRunner, calls, life, says, story

from pinfold.engine import Breaker, Budget
from pinfold.events import (
    ActionFinished,
    ModelCalled,
    ModelFailed,
    ModelReplied,
    RequestFailed,
    TurnEnded,
    TurnFailed,
    TurnId,
    UserSpoke,
)
from pinfold.model import KeptReply
from pinfold.tools import tool

pytestmark = pytest.mark.unit


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def busy(count: int, status: int = 529) -> list[RequestFailed]:
    return [RequestFailed("overloaded", status=status, retry_after_s=0.0) for _ in range(count)]


async def test_a_failed_call_is_tried_again_on_record() -> None:
    async with life([KeptReply(error="overloaded", status=529), says("there")]) as session:
        assert await session.say() == TurnEnded(turn=TURN, text="there", cost=None)
    assert story(session.events) == snapshot(
        [
            UserSpoke(turn=TURN, text="go"),
            ModelCalled(turn=TURN, model="scripted", size=238),
            ModelFailed(
                turn=TURN, model="scripted", error="overloaded", status=529, retry_in_s=0.0, request_id="d10882e4c96d"
            ),
            ModelCalled(turn=TURN, model="scripted", attempt=2, size=238),
            ModelReplied(turn=TURN, model="scripted", text="there", request_id="523e7de10f45"),
            TurnEnded(turn=TURN, text="there"),
        ]
    )


async def test_attempts_are_numbered_and_bounded() -> None:
    model = BusyModel(*busy(9))
    async with life(model, budget=Budget(attempts=3)) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="busy: overloaded", temporary=True)
    assert [event.attempt for event in session.all(ModelCalled)] == [1, 2, 3]
    assert [event.retry_in_s for event in session.all(ModelFailed)] == [0.0, 0.0, None]
    assert model.requests == 3


@pytest.mark.parametrize("status", [400, 401, 403, 404, 422])
async def test_what_cannot_get_better_is_not_tried_again(status: int) -> None:
    async with life(BusyModel(*busy(9, status))) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="busy: overloaded", temporary=False)
    assert len(session.all(ModelCalled)) == 1


@pytest.mark.parametrize("status", [None, 408, 409, 425, 429, 500, 503, 529])
def test_what_may_get_better_is_retryable(status: int | None) -> None:
    assert RequestFailed("x", status=status).retryable


async def test_a_wait_the_server_asks_for_is_kept_to_the_letter() -> None:
    model = BusyModel(RequestFailed("busy", status=429, retry_after_s=0.0))
    async with life(model, budget=Budget(retry_base_s=3600)) as session:
        assert isinstance(await session.say(), TurnEnded)
    assert [event.retry_in_s for event in session.all(ModelFailed)] == [0.0]


async def test_a_wait_longer_than_we_are_ready_for_is_a_failure() -> None:
    async with life(BusyModel(RequestFailed("busy", status=429, retry_after_s=61))) as session:
        end = await session.say()
    assert end == TurnFailed(turn=TURN, error="busy: busy", temporary=True)
    assert [event.retry_in_s for event in session.all(ModelFailed)] == [None]


async def test_waits_grow_with_jitter_between_half_and_whole() -> None:
    model = BusyModel(*(RequestFailed("x", status=500) for _ in range(3)))
    async with life(model, budget=Budget(retry_base_s=0.001)) as session:
        await session.say()
    waits = [event.retry_in_s or 0 for event in session.all(ModelFailed)]
    assert all(base / 2 <= wait <= base for wait, base in zip(waits, (0.001, 0.002, 0.004), strict=True))


async def test_the_breaker_pauses_a_model_and_lets_one_call_probe() -> None:
    clock, model = Clock(), BusyModel(*busy(6))
    breaker = Breaker(clock=clock, threshold=5, cooldown_s=30)
    async with life(model, breaker=breaker, budget=Budget(attempts=4)) as session:
        await session.say("one")
        assert breaker.state("the model busy") == "closed"
        end = await session.say("two", TurnId("t2"))
        assert end == TurnFailed(
            turn=TurnId("t2"), error="busy: it keeps failing and is paused for 30 s", temporary=True
        )
        assert (breaker.state("the model busy"), model.requests) == ("open", 5)

        clock.now = 29
        assert isinstance(await session.say("three", TurnId("t3")), TurnFailed)
        assert model.requests == 5

        clock.now = 30
        assert breaker.state("the model busy") == "half-open"
        assert isinstance(await session.say("four", TurnId("t4")), TurnFailed)
        assert (breaker.state("the model busy"), model.requests) == ("open", 6)

        clock.now = 60
        assert isinstance(await session.say("five", TurnId("t5")), TurnEnded)
        assert breaker.state("the model busy") == "closed"


async def test_the_breaker_pauses_a_tool_that_fails_by_itself() -> None:
    called = 0

    @tool(effect="pure")
    def flaky() -> str:
        """Down until the third call."""
        nonlocal called
        called += 1
        if called <= 2:
            raise ConnectionError("down")
        return "up"

    clock = Clock()
    breaker = Breaker(clock=clock, threshold=2, cooldown_s=30)
    script = [says("", calls("flaky"))] * 3 + [says("so"), says("", calls("flaky")), says("so")]
    async with life(script, runner=EchoRunner(tools=[flaky]), breaker=breaker) as session:
        await session.say()
        clock.now = 31
        await session.say("again", TurnId("t2"))
    assert [(event.outcome, event.observation) for event in session.all(ActionFinished)] == snapshot(
        [
            ("error", "flaky failed: ConnectionError: down"),
            ("error", "flaky failed: ConnectionError: down"),
            ("not_run", "flaky keeps failing and is paused; try again in 30 s or do without it"),
            ("ok", "up"),
        ]
    )
    assert called == 3


async def test_wrong_arguments_are_not_the_tools_fault() -> None:
    @tool(effect="pure")
    def strict(n: int) -> int:
        """Takes a number."""
        return n

    breaker = Breaker(clock=Clock(), threshold=1)
    script = [says("", calls("strict", n="many"))] * 3 + [says("so")]
    async with life(script, runner=EchoRunner(tools=[strict]), breaker=breaker) as session:
        await session.say()
    assert breaker.state("the tool strict") == "closed"
    assert [event.outcome for event in session.all(ActionFinished)] == ["error"] * 3


def test_a_breaker_counts_only_failures_in_a_row() -> None:
    breaker = Breaker(clock=Clock(), threshold=2)
    for _ in range(3):
        breaker.record_failure("m")
        breaker.record_success("m")
    assert breaker.state("m") == "closed"
    assert breaker.wait_s("m") == 0


def test_only_one_probe_at_a_time() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock, threshold=1, cooldown_s=10)
    breaker.record_failure("m")
    assert breaker.wait_s("m") == 10
    clock.now = 10
    assert [breaker.wait_s("m"), breaker.wait_s("m")] == [0, 10]


def test_a_probe_that_was_abandoned_leaves_room_for_the_next() -> None:
    clock = Clock()
    breaker = Breaker(clock=clock, threshold=1, cooldown_s=10)
    breaker.record_failure("m")
    clock.now = 10
    assert breaker.wait_s("m") == 0
    breaker.record_unknown("m")
    assert breaker.wait_s("m") == 0


def test_lines_of_a_breaker_do_not_touch_each_other() -> None:
    breaker = Breaker(clock=Clock(), threshold=1)
    breaker.record_failure("m")
    breaker.record_unknown("other")
    assert (breaker.state("m"), breaker.state("other")) == ("open", "closed")
