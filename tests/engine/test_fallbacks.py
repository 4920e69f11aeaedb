"""Doing without: other models, a stronger one, a tool that is broken; and stopping where nothing helps."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
from tests.engine.doubles import TURN, BusyModel, EchoRunner, Life, calls, cell, life, says

from pinfold import tool
from pinfold.engine import Breaker, Budget, OnCall, OnOutput, Performed, Spent, fold
from pinfold.events import (
    Action,
    ActionId,
    ApproachChanged,
    AssistantMessage,
    BlobId,
    Call,
    CallTool,
    Entry,
    Image,
    ModelFailed,
    ModelReplied,
    Noticed,
    Reply,
    Request,
    RequestFailed,
    Say,
    SessionRewound,
    TextDelta,
    Thought,
    ToolMessage,
    TurnEnded,
    TurnFailed,
    TurnId,
    Usage,
    UserMessage,
)
from pinfold.model import BadScript, KeptReply, ScriptedModel

pytestmark = pytest.mark.unit


class Requests:
    def __init__(self) -> None:
        self.all: list[Request] = []

    async def before_model(self, request: Request) -> Request:
        self.all.append(request)
        return request


class Told:
    """Gives the replies in turn and remembers what it was asked."""

    name = "told"

    def __init__(self, *replies: Reply | Thought) -> None:
        self.replies = list(replies)
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        self.requests.append(request)
        while self.replies:
            piece = self.replies.pop(0)
            yield piece
            if isinstance(piece, Reply):
                return
        yield Reply(text="done")


def down(status: int = 529, times: int = 9) -> BusyModel:
    return BusyModel(*(RequestFailed("overloaded", status=status) for _ in range(times)))


def with_others(session: Life, *others: ScriptedModel) -> None:
    session.core.fallbacks = others


@pytest.mark.parametrize("status", [529, 401, None])
async def test_the_next_model_answers_for_one_that_cannot(status: int | None) -> None:
    first = BusyModel(*(RequestFailed("no", status=status) for _ in range(9)))
    async with life(first) as session:
        with_others(session, ScriptedModel([says("", cell("1")), says("here")], name="second"))
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.without == ("busy (no)",)
    assert end.text == "here\n\n(Done without busy (no).)"
    assert [event.model for event in session.all(ModelReplied)] == ["second", "second"]
    tries = 1 if status == 401 else 4
    assert [event.instead for event in session.all(ModelFailed)] == [""] * (tries - 1) + ["second"]
    # The second reply of the turn was not asked of the first model again.
    assert first.requests == tries


async def test_the_next_turn_tries_the_first_model_again() -> None:
    async with life(down(times=4)) as session:
        with_others(session, ScriptedModel([says("here")], name="second"))
        await session.say()
        end = await session.say("again", TurnId("t2"))
    assert isinstance(end, TurnEnded)
    assert (end.text, end.without) == ("done", ())


async def test_when_no_model_answers_each_is_named_with_its_reason() -> None:
    async with life(down()) as session:
        with_others(session, ScriptedModel([says(error="bad key", status=401)], name="second"))
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert (end.error, end.temporary) == ("busy: overloaded; second: bad key", True)


async def test_an_open_breaker_sends_the_question_on_at_once() -> None:
    first, breaker = down(), Breaker(clock=lambda: 0.0, threshold=1)
    breaker.record_failure("the model busy")
    async with life(first, breaker=breaker) as session:
        with_others(session, ScriptedModel([says("here")], name="second"))
        assert isinstance(await session.say(), TurnEnded)
    assert first.requests == 0
    (failed,) = session.all(ModelFailed)
    assert (failed.breaker, failed.instead) == ("open", "second")


async def test_a_loop_is_pointed_out_and_then_stopped() -> None:
    async with life([says("", cell("same"))] * 9) as session:
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert end.error == "stopped: the model keeps doing the same thing with the same result"
    assert len(session.all(ModelReplied)) == 4
    answers = [told.text for told in messages(session) if isinstance(told, ToolMessage)]
    assert [("exactly this 3 times" in text) for text in answers] == [False, False, True, False]


async def test_two_steps_in_turn_are_a_loop_too_and_other_results_are_none() -> None:
    back_and_forth = [says("", cell(code)) for _ in range(4) for code in ("a", "b")]
    async with life(back_and_forth) as session:
        assert isinstance(await session.say(), TurnFailed)
    async with life([*(says("", cell(f"{n}")) for n in range(9)), says("ok")]) as session:
        assert isinstance(await session.say(), TurnEnded)


class RaisingRunner(EchoRunner):
    """Code raises what it is."""

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
        done = await super().perform(id, action, on_output, on_call, cell, read_only=read_only)
        code = done.observation
        if "Error" not in code:
            return done
        error = f"Traceback:\n  File <cell {cell}>\n{code.split('#')[0]}\nthe table has other columns\n"
        return Performed(outcome="error", observation=error, error=error)


def failing(times: int, error: str = "KeyError: 'x'") -> list[KeptReply]:
    """Other code each time, the same error."""
    return [says("", cell(f"{error}# {n}")) for n in range(times)]


async def test_the_same_error_three_times_brings_a_fresh_look_and_once_more_a_start_without_the_tries() -> None:
    runner, requests = RaisingRunner(files="a.csv: 3 rows"), Requests()
    script = [says("", cell("fine")), *failing(4), says("", cell("other")), says("done")]
    async with life(script, runner=runner, hooks=[requests]) as session:
        end = await session.say("sum x in a.csv")
    assert isinstance(end, TurnEnded)
    assert end.text == "done"
    looks, starts = session.all(ApproachChanged)
    assert (looks.error, looks.times, looks.started_over) == ("KeyError: 'x'", 3, False)
    assert (starts.times, starts.started_over) == (4, True)
    fourth, fifth = requests.all[4].messages, requests.all[5].messages
    assert "[The same error 3 times. Things are like this now:\na.csv: 3 rows of sum x in a.csv" in fourth[-1].text
    assert [type(one) for one in fifth] == [UserMessage]
    assert fifth[0].text.startswith(
        "sum x in a.csv\n\n[This was tried before and failed 4 times with KeyError: 'x'. Do it another way."
    )
    (back,) = session.all(SessionRewound)
    assert (back.to, back.undone) == (0, (1, 2, 3, 4, 5))
    assert session.core.state.path == (6,)
    assert fold(session.log.read()) == session.core.state
    assert [event.text for event in session.all(Noticed)] == [
        "the same error 3 times (KeyError: 'x'): looking at the data again",
        "the same error 4 times (KeyError: 'x'): starting over",
    ]


async def test_an_error_that_comes_back_after_a_new_start_ends_the_turn_or_a_stronger_model_goes_on() -> None:
    async with life(failing(20), runner=RaisingRunner()) as session:
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert end.error == "stopped: the model keeps making the same error: KeyError: 'x'"
    assert len(session.all(ModelReplied)) == 7
    async with life(failing(20), runner=RaisingRunner()) as session:
        session.core.escalate = ScriptedModel([says("solved")], name="strong")
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "solved"


async def test_other_errors_and_errors_of_earlier_turns_change_nothing() -> None:
    script = [*failing(2), *failing(2, "ValueError: y"), says("one"), *failing(2), says("two")]
    async with life(script, runner=RaisingRunner()) as session:
        await session.say()
        await session.say("again", TurnId("t2"))
    assert session.all(ApproachChanged) == []


async def test_what_reached_outside_is_not_begun_again() -> None:
    @tool(effect="once")
    def send() -> str:
        """Send."""
        return "sent"

    runner = RaisingRunner(tools=[send], granted=frozenset({"send"}))
    async with life([says("", calls("send")), *failing(9)], runner=runner) as session:
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert [event.started_over for event in session.all(ApproachChanged)] == [False]
    assert session.all(SessionRewound) == []
    assert runner.began.count(CallTool(tool="send", args={})) == 1


async def test_a_stronger_model_takes_over_from_one_that_is_stuck() -> None:
    async with life([says("", cell("same"))] * 9) as session:
        session.core.escalate = ScriptedModel([says("", cell("other")), says("solved")], name="strong")
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "solved"
    assert [event.model for event in session.all(ModelReplied)] == ["scripted"] * 4 + ["strong"] * 2
    assert [event.text for event in session.all(Noticed)] == [
        "scripted keeps repeating itself; strong continues from here"
    ]


async def test_a_reply_that_cannot_be_read_is_sent_back_with_the_reason() -> None:
    model = Told(Reply(text="<tool", correction="Close the tag."), Reply(text="fine"))
    async with life(model) as session:
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "fine"
    assert model.requests[1].messages[-2:] == (AssistantMessage(text="<tool"), UserMessage(text="[Close the tag.]"))


async def test_a_call_that_stays_unreadable_is_no_answer() -> None:
    replies = [Reply(text=f"<tool {n}", correction="Close the tag.", unreadable=True) for n in range(9)]
    async with life(Told(*replies)) as session:
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert end.error == "told gave no usable answer: Close the tag."


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(), "Your reply was empty."),
        (Reply(text=" \n", reasoning="hm"), "Your reply holds thoughts and no answer."),
        (Reply(text="(no output)\n"), "`(no output)` says that your code printed nothing"),
        (Reply(reasoning="hm", finish="length"), "Your reply ended at the limit of tokens"),
    ],
)
async def test_a_reply_with_nothing_in_it_is_sent_back_and_never_an_answer(reply: Reply, words: str) -> None:
    model = Told(reply, Reply(text="fine"), reply, reply, reply)
    async with life(model) as session:
        assert isinstance(await session.say(), TurnEnded)
        assert words in model.requests[1].messages[-1].text
        end = await session.say("again", TurnId("t2"))
    assert isinstance(end, TurnFailed)
    assert words in end.error


async def test_a_call_that_was_cut_off_after_another_is_told_with_the_others_result() -> None:
    done = Call(id=ActionId("a_1"), tool="python", args={"code": "1"})
    model = Told(Reply(calls=(done,), finish="length", correction="Cut off.", unreadable=True), Reply(text="fine"))
    async with life(model) as session:
        assert isinstance(await session.say(), TurnEnded)
    *_, result, told = model.requests[1].messages
    assert isinstance(result, ToolMessage)
    assert told == UserMessage(text="[Cut off.]")


async def test_what_a_filter_withheld_is_no_answer() -> None:
    async with life(Told(Reply(text="Take two spoons of", finish="filter"))) as session:
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert "content filter" in end.error


async def test_a_reply_that_is_corrected_in_vain_counts_as_it_is() -> None:
    async with life(Told(*(Reply(text=f"{n}", correction="No.") for n in range(9)))) as session:
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.text == "2"


async def test_what_was_done_without_is_named_unless_it_came_back() -> None:
    answers = iter(["down", "down", "up"])

    @tool(effect="pure")
    def flaky() -> str:
        """Works the third time."""
        if (said := next(answers)) == "down":
            raise ConnectionError("down")
        return said

    script = [says("", calls("flaky")), says("so")]
    async with life([*script, *script, *script], runner=EchoRunner(tools=[flaky])) as session:
        first = await session.say()
    assert isinstance(first, TurnEnded)
    assert first.without == ("the tool flaky (ConnectionError: down)",)
    answers = iter(["down", "up"])
    async with life(
        [says("", calls("flaky")), says("", calls("flaky")), says("so")], runner=EchoRunner(tools=[flaky])
    ) as session:
        second = await session.say()
    assert isinstance(second, TurnEnded)
    assert (second.text, second.without) == ("so", ())


async def test_reasoning_is_broadcast_apart_and_kept() -> None:
    model = Told(Thought("hm"), Reply(text="yes", reasoning="hm", notices=("tight",), finish="length"))
    async with life(model) as session, session.log.subscribe(session.log.seq) as feed:
        await session.submit(Say(turn=TURN, text="well?"))
        seen: list[object] = []
        async for item in feed:
            seen.append(item)
            if isinstance(item, Entry) and isinstance(item.event, TurnEnded):
                break
    assert TextDelta(turn=TURN, text="hm", reasoning=True) in seen
    assert session.all(ModelReplied)[0].reasoning == "hm"
    assert [event.text for event in session.all(Noticed)] == [
        "tight",
        "told stopped at its limit of tokens; raise model.max_tokens to get more",
    ]


async def test_pictures_go_to_the_model_with_their_bytes() -> None:
    model, blob = Told(), BlobId("sha256:x")
    async with life(model, runner=EchoRunner(pictures={blob: b"png"})) as session:
        image = Image(mime="image/png", blob=blob)
        await session.submit(Say(turn=TURN, text="look", images=(image,)))
        await session.ended()
    assert model.requests[0].messages == (UserMessage(text="look", images=(image,)),)
    assert model.requests[0].blobs == {blob: b"png"}


class Day:
    def __init__(self, spent: Spent) -> None:
        self.spent = spent

    def add(self, usage: Usage, cost: float | None) -> None:
        known = self.spent.cost is not None and cost is not None
        self.spent = Spent(
            tokens=self.spent.tokens + usage.total, cost=(self.spent.cost or 0) + (cost or 0) if known else None
        )

    def today(self) -> Spent:
        return self.spent


USED = Usage(input_tokens=3, output_tokens=2)


@pytest.mark.parametrize(
    ("budget", "error"),
    [
        (Budget(session_tokens=8), "stopped after 10 tokens this session, the limit is 8"),
        (Budget(session_cost=0.3), "stopped after $0.4000 this session, the limit is $0.3000"),
        (Budget(day_tokens=108), "stopped after 110 tokens today, the limit is 108"),
        (Budget(day_cost=9.3), "stopped after $9.4000 today, the limit is $9.3000"),
    ],
)
async def test_a_session_and_a_day_have_their_own_limits(budget: Budget, error: str) -> None:
    async with life([says("ok", usage=USED, cost=0.2)] * 9, budget=budget) as session:
        session.core.ledger = Day(Spent(tokens=100, cost=9.0))
        ends = [await session.say("go", TurnId(f"t{n}")) for n in range(3)]
    assert [type(end) for end in ends] == [TurnEnded, TurnEnded, TurnFailed]
    assert isinstance(ends[2], TurnFailed)
    assert ends[2].error == error


def messages(session: Life) -> Sequence[object]:
    turn = session.core.state.last
    assert turn
    return turn.messages


async def test_files_are_told_with_the_message_and_again_only_if_they_changed() -> None:
    runner = EchoRunner(files="a.csv")
    model = Told()
    async with life(model, runner=runner) as session:
        await session.say("one", TurnId("t1"))
        await session.say("two", TurnId("t2"))
        runner.files = "b.csv"
        await session.say("three", TurnId("t3"))
    told = [message.text for message in model.requests[-1].messages if isinstance(message, UserMessage)]
    assert told == [
        "one\n\n[Files in the current folder:\na.csv]",
        "two",
        "three\n\n[Files in the current folder:\nb.csv]",
    ]


class Broken:
    """Cannot even be asked."""

    name = "broken"

    def stream(self, request: object) -> AsyncGenerator[str | Reply]:  # noqa: ARG002
        raise BadScript("its file is gone")


async def test_a_model_that_cannot_be_asked_at_all_is_done_without_too() -> None:
    async with life(Broken()) as session:
        with_others(session, ScriptedModel([says("here")], name="second"))
        end = await session.say()
    assert isinstance(end, TurnEnded)
    assert end.without == ("broken (its file is gone)",)
    async with life(Broken()) as session:
        alone = await session.say()
    assert isinstance(alone, TurnFailed)
    assert alone.error == "its file is gone"
