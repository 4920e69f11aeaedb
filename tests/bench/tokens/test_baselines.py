"""What Pinfold is compared with gets the benefit of every doubt: at once whatever can be, nothing twice."""

from __future__ import annotations

import pytest
from bench.tokens.baselines import data_in_prompt, json_calls, steps_of
from bench.tokens.o200k import tokens
from bench.tokens.servers import public_tools
from bench.tokens.task import Task, Turn
from bench.tokens.weight import Weight, tool_text, weigh

from pinfold.events import AssistantMessage, CallTool, Request, UserMessage
from pinfold.tools import Registry

pytestmark = pytest.mark.unit


def call(tool: str, **args: object) -> CallTool:
    return CallTool(tool=tool, args=args)


async def steps_taken(asks: str, *calls: CallTool) -> list[list[str]]:
    [steps] = await steps_of([(asks, calls)], Registry(public_tools()))
    return [[one.tool.rpartition(".")[2] for one in step.calls] for step in steps]


async def test_independent_calls_are_one_step() -> None:
    calls = [call("trading.get_quote", symbol=symbol) for symbol in ("ZETA", "ORCA", "VITA")]
    assert await steps_taken("Quotes of ZETA, ORCA and VITA?", *calls) == [["get_quote"] * 3]


async def test_a_call_waits_for_the_result_that_it_needs() -> None:
    user, send = (call("messages.get_user_id", name="Ben"), call("messages.send_message", receiver_id="U02", text="hi"))
    assert await steps_taken("Say hi to Ben", user, send) == [["get_user_id"], ["send_message"]]
    assert await steps_taken("Say hi to Ben, who is U02", user, send) == [["get_user_id", "send_message"]]


async def test_a_number_that_nobody_has_said_was_worked_out_from_results() -> None:
    quote = call("trading.get_quote", symbol="ZETA")
    order = call("trading.place_order", symbol="ZETA", side="buy", quantity=1, price=222.62)
    assert await steps_taken("Buy a ZETA a little cheaper", quote, order) == [["get_quote"], ["place_order"]]
    assert await steps_taken("Buy a ZETA at 222.62", quote, order) == [["get_quote", "place_order"]]


async def test_after_a_failure_there_is_a_new_step_and_nothing_is_asked_twice() -> None:
    start, lock = call("vehicle.start_engine"), call("vehicle.lock_doors", locked=True)
    assert await steps_taken("Start it", start, lock) == [["start_engine"], ["lock_doors"]]
    status = call("vehicle.get_vehicle_status")
    assert await steps_taken("How is it?", status, status) == [["get_vehicle_status"]]


TASK = Task(
    name="quote",
    domain="trading",
    servers=("trading",),
    turns=(Turn(asks="What does ZETA cost?", does="print(1)", says="{0}", facts=("227.16",)),),
)


async def test_json_calls_are_counted_with_the_tools_they_are_told_of() -> None:
    tools = public_tools()
    [steps] = await steps_of([(TASK.turns[0].asks, [call("trading.get_quote", symbol="ZETA")])], Registry(tools))
    every, needed, called = (json_calls(TASK, [steps], tools, which) for which in ("all", "needed", "called"))
    assert every.calls == needed.calls == called.calls == 2
    sizes = {tool.name: tokens(tool_text(tool.schema)) for tool in tools}
    trading = sum(size for name, size in sizes.items() if name.startswith("trading."))
    assert every.total - needed.total == 2 * (sum(sizes.values()) - trading)
    assert needed.total - called.total == 2 * (trading - sizes["trading.get_quote"])


def test_data_is_counted_once_or_with_every_turn() -> None:
    now = Turn(asks="And now?", does="print(1)", says="{0}", facts=("2",))
    once, resent = data_in_prompt(Task(name="two", domain="", turns=(*TASK.turns, now)), 10_000)
    assert resent.total - once.total == 10_000
    assert once.calls == resent.calls == 2
    assert 10_000 < once.total < 10_200


def test_what_begins_as_the_request_before_counts_as_cached() -> None:
    first = Request(system="Be brief.", messages=(UserMessage(text="Hello there"),))
    second = Request(
        system="Be brief.", messages=(*first.messages, AssistantMessage(text="Hi"), UserMessage(text="Bye"))
    )
    other = Request(system="Be briefer.", messages=second.messages)
    alike, apart = weigh([(first, 1), (second, 1)]), weigh([(first, 1), (other, 1)])
    assert alike.cached == tokens("Be brief.") + tokens("Hello there")
    assert apart.cached == 0
    assert isinstance(alike, Weight)
    assert alike.later < alike.input
