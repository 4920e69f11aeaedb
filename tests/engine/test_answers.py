"""Code that tells the user the result ends the turn; tools that may fit are told with a message."""

from __future__ import annotations

import pytest
from tests.engine.doubles import EchoRunner, calls, cell, life, says

from pinfold.engine import OnCall, OnOutput, Performed, fold
from pinfold.events import (
    Action,
    ActionId,
    AssistantMessage,
    Changed,
    ModelReplied,
    Request,
    ToolMessage,
    TurnEnded,
    TurnId,
    UserMessage,
)
from pinfold.tools import tool

pytestmark = pytest.mark.unit


@tool(effect="pure")
def answer(text: str) -> None:
    """Tell the user."""


@tool(effect="pure")
def look() -> str:
    """Look."""
    return "seen"


class Requests:
    def __init__(self) -> None:
        self.all: list[Request] = []

    async def before_model(self, request: Request) -> Request:
        self.all.append(request)
        return request


class FailingRunner(EchoRunner):
    async def perform(
        self,
        id: ActionId,
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool = False,
    ) -> Performed:
        performed = await super().perform(id, action, on_output, on_call, cell, read_only=read_only)
        failed = "fail" in getattr(action, "code", "")
        return Performed(outcome="error", observation="failed") if failed else performed


TELL = 'call answer {"text": "It is 42."}'


async def test_what_code_tells_the_user_is_the_answer_and_the_model_is_not_asked_again() -> None:
    requests = Requests()
    async with life(
        [says("", cell(TELL)), says("next")], runner=EchoRunner(tools=[answer]), hooks=[requests]
    ) as session:
        end = await session.say("what is it?")
        assert isinstance(end, TurnEnded)
        assert end.text == "It is 42."
        assert len(session.all(ModelReplied)) == 1
        again = await session.say("and now?", TurnId("t_2"))
    assert isinstance(again, TurnEnded)
    assert again.text == "next"
    before = requests.all[1].messages
    assert [type(message) for message in before] == [
        UserMessage,
        AssistantMessage,
        ToolMessage,
        AssistantMessage,
        UserMessage,
    ]
    assert before[3] == AssistantMessage(text="It is 42.")


async def test_an_answer_of_code_that_fails_is_none() -> None:
    script = [says("", cell(f"{TELL}\nfail")), says("sorry")]
    async with life(script, runner=FailingRunner(tools=[answer])) as session:
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "sorry"


async def test_of_several_calls_the_last_one_decides() -> None:
    script = [says("", cell(TELL), calls("look")), says("looked")]
    async with life(script, runner=EchoRunner(tools=[answer, look])) as session:
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "looked"


async def test_other_calls_of_code_end_nothing() -> None:
    script = [says("", cell("call look {}")), says("looked")]
    async with life(script, runner=EchoRunner(tools=[answer, look])) as session:
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "looked"


async def test_tools_that_may_fit_are_told_with_the_message_and_stay_there() -> None:
    requests = Requests()
    runner = EchoRunner(hints={"close it": "[Tools that may fit:\ndesk.close(id)]"})
    async with life([says("closed"), says("fine")], runner=runner, hooks=[requests]) as session:
        await session.say("close it")
        await session.say("thanks", TurnId("t_2"))
    first = UserMessage(text="close it\n\n[Tools that may fit:\ndesk.close(id)]")
    assert requests.all[0].messages == (first,)
    assert requests.all[1].messages[0] == first
    assert requests.all[1].messages[-1] == UserMessage(text="thanks")


class InventingRunner(EchoRunner):
    async def perform(
        self,
        id: ActionId,
        action: Action,
        on_output: OnOutput,
        on_call: OnCall,
        cell: int | None,
        *,
        read_only: bool = False,
    ) -> Performed:
        del id, action, on_output, on_call, cell, read_only
        return Performed(outcome="ok", observation="done", variables=Changed(added=("rows", "hidden")))


async def test_of_new_variables_those_are_told_that_the_code_does_not_name() -> None:
    requests = Requests()
    async with life([says("", cell("rows = 1")), says("done")], runner=InventingRunner(), hooks=[requests]) as session:
        await session.say()
    [told] = [message.text for message in requests.all[1].messages if isinstance(message, ToolMessage)]
    assert told == "done\n[variables: added hidden]"


FARE = "What is the mean fare? Format: @fare[value]"


async def test_what_code_prints_in_the_asked_form_is_the_answer_and_the_log_says_so() -> None:
    requests = Requests()
    async with life([says("", cell("read\n@fare[3.5]")), says("next")], hooks=[requests]) as session:
        end = await session.say(FARE)
        assert isinstance(end, TurnEnded)
        assert (end.text, end.printed) == ("@fare[3.5]", True)
        assert len(session.all(ModelReplied)) == 1
        again = await session.say("and now?", TurnId("t_2"))
    assert isinstance(again, TurnEnded)
    assert (again.text, again.printed) == ("next", False)
    assert AssistantMessage(text="@fare[3.5]") in requests.all[1].messages
    assert fold(session.log.read()) == session.core.state


@pytest.mark.parametrize(
    ("prompt", "printed"),
    [
        ("What is the mean fare?", "@fare[3.5]"),
        (FARE, "The mean fare is 3.5"),
        (f"Plot the fares. {FARE}", "@fare[3.5]"),
    ],
)
async def test_what_code_prints_otherwise_goes_to_the_model(prompt: str, printed: str) -> None:
    async with life([says("", cell(printed)), says("It is @fare[3.5]")]) as session:
        end = await session.say(prompt)
    assert isinstance(end, TurnEnded)
    assert (end.text, end.printed) == ("It is @fare[3.5]", False)


async def test_what_was_printed_before_a_failure_is_not_the_answer() -> None:
    async with life([says("", cell("@fare[3.5] fail")), says("@fare[4]")], runner=FailingRunner()) as session:
        end = await session.say(FARE)
    assert isinstance(end, TurnEnded)
    assert (end.text, end.printed) == ("@fare[4]", False)


async def test_an_answer_without_the_asked_form_goes_back_once_and_the_second_is_final() -> None:
    requests = Requests()
    script = [says("It is 3.5"), says("", cell("x")), says("I said 3.5"), says("never asked")]
    async with life(script, hooks=[requests]) as session:
        end = await session.say(FARE)
    assert isinstance(end, TurnEnded)
    assert end.text == "I said 3.5"
    lacks = "The answer is not in the form that was asked for: @fare[...] is missing."
    assert requests.all[1].messages[-1] == UserMessage(
        text=f"[{lacks} Answer again in exactly this form: @fare[value]]"
    )
    assert [reply.correction[: len(lacks)] for reply in session.all(ModelReplied)] == [lacks, "", ""]


async def test_code_that_answers_without_the_asked_form_is_told_once_too() -> None:
    runner = EchoRunner(tools=[answer])
    async with life([says("", cell(TELL)), says("It is 42.")], runner=runner) as session:
        end = await session.say(FARE)
    assert "@fare[...] is missing" in runner.got[0].observation
    assert runner.got[0].outcome == "error"
    assert isinstance(end, TurnEnded)
