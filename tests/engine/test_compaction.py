"""A conversation that outgrows the model's window: what the model still sees, and that nothing else changes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.doubles import EchoRunner, calls, cell, life, memory_log, says

from pinfold.engine import Budget, CommandRefused, ContextLimits, fold, request_of
from pinfold.events import (
    AssistantMessage,
    Compact,
    ContextCompacted,
    ContextTooLong,
    Redo,
    Reply,
    Request,
    Rewind,
    Thought,
    ToolMessage,
    TurnEnded,
    TurnFailed,
    TurnId,
    Usage,
    UserMessage,
)
from pinfold.model import KeptReply, ScriptedModel
from pinfold.tools import tool

pytestmark = pytest.mark.unit

SMALL = ContextLimits(window=2000)
NOISE = "noise " * 500


def noisy_cells(count: int, end: str = "done") -> list[KeptReply]:
    return [*(says("", cell(f"x{number} = {number} # {NOISE}")) for number in range(count)), says(end)]


class Listener:
    """A model of a script that remembers what it was asked."""

    name = "listener"

    def __init__(self, script: Sequence[KeptReply], context: int | None = None) -> None:
        self.script = ScriptedModel(script)
        self.context = context
        self.requests: list[Request] = []

    async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
        self.requests.append(request)
        async for piece in self.script.stream(request):
            yield piece


def size(request: Request) -> int:
    return sum(len(message.text) for message in request.messages) // 4


async def test_old_results_become_one_line_before_the_window_is_full() -> None:
    model = Listener([*(says("", calls("look", at=number)) for number in range(6)), says("done")])

    @tool(effect="pure")
    def look(at: int) -> str:
        """Look."""
        return f"seen at {at}: {NOISE}"

    async with life(model, runner=EchoRunner(tools=[look]), context=SMALL, budget=Budget(max_steps=50)) as session:
        assert isinstance(await session.say("look around"), TurnEnded)
    compacted = session.all(ContextCompacted)
    assert compacted
    assert all(event.cause == "window" and event.after < event.before and not event.summary for event in compacted)
    assert max(size(request) for request in model.requests) < 2000
    results = [message.text for message in model.requests[-1].messages if isinstance(message, ToolMessage)]
    assert len(results) == 6
    assert results[0].startswith('[Result left out to save space. look {"at":0}: ok; ')
    assert results[-1] == f"seen at 5: {NOISE}"


async def test_without_a_known_window_nothing_is_compacted() -> None:
    async with life(noisy_cells(6), budget=Budget(max_steps=50)) as session:
        await session.say()
    assert session.all(ContextCompacted) == []


async def test_auto_compaction_can_be_switched_off() -> None:
    off = ContextLimits(window=2000, auto=False)
    async with life(noisy_cells(6), context=off, budget=Budget(max_steps=50)) as session:
        await session.say()
    assert session.all(ContextCompacted) == []


async def test_where_lines_do_not_suffice_a_summary_takes_the_place_of_what_was() -> None:
    model = Listener(noisy_cells(12), context=2000)
    runner = EchoRunner(variables="Variables of the session, all still there: x0 (int).")
    async with life(model, runner=runner, budget=Budget(max_steps=50)) as session:
        assert isinstance(await session.say("Remember the word AUBERGINE."), TurnEnded)
    summaries = [event for event in session.all(ContextCompacted) if event.summary]
    assert summaries
    for event in summaries:
        for title in ("DONE", "FAILED", "NEXT", "x0 (int)"):
            assert title in event.summary
    last = model.requests[-1].messages
    assert isinstance(last[0], UserMessage)
    assert "AUBERGINE" in last[0].text
    assert isinstance(last[1], AssistantMessage)
    assert max(size(request) for request in model.requests) < 3000


async def test_every_result_that_stays_follows_its_call() -> None:
    model = Listener(noisy_cells(12), context=2000)
    async with life(model, budget=Budget(max_steps=50)) as session:
        await session.say()
    for request in model.requests:
        made: set[str] = set()
        for message in request.messages:
            if isinstance(message, AssistantMessage):
                made |= {call.id for call in message.calls}
            elif isinstance(message, ToolMessage):
                assert message.id in made


async def test_errors_are_named_in_the_summary_with_their_last_line() -> None:
    @tool(effect="pure")
    def broken(at: int) -> str:
        """Fail."""
        raise ValueError(f"no such place: {at}")

    script = [says("", calls("broken", at=7)), *noisy_cells(12)]
    runner = EchoRunner(tools=[broken])
    async with life(script, runner=runner, context=SMALL, budget=Budget(max_steps=50)) as session:
        await session.say()
    summary = next(event.summary for event in session.all(ContextCompacted) if event.summary)
    failed = summary.partition("FAILED")[2].partition("NEXT")[0]
    assert "no such place: 7" in failed


async def test_a_refused_request_is_compacted_and_sent_once_more() -> None:
    script = [
        says("", cell(f"a = 1 # {NOISE}")),
        says("", cell(f"b = 2 # {NOISE}")),
        KeptReply(error="context_length_exceeded", status=400),
        says("done"),
    ]
    async with life(script) as session:
        assert isinstance(await session.say(), TurnEnded)
    assert [bool(event.summary) for event in session.all(ContextCompacted)] == [True]


async def test_a_request_that_is_refused_again_ends_the_turn() -> None:
    refused = KeptReply(error="context_length_exceeded", status=400)
    ran = [says("", cell(f"{name} = 1 # {NOISE}")) for name in "abc"]
    async with life([*ran, refused, refused, refused]) as session:
        end = await session.say()
    assert isinstance(end, TurnFailed)
    assert "context_length_exceeded" in end.error


async def test_where_nothing_else_is_left_even_the_last_result_goes() -> None:
    @tool(effect="pure")
    def look() -> str:
        """Look."""
        return NOISE

    refused = KeptReply(error="context_length_exceeded", status=400)
    async with life([says("", calls("look")), refused, says("done")], runner=EchoRunner(tools=[look])) as session:
        assert isinstance(await session.say(), TurnEnded)
    (event,) = session.all(ContextCompacted)
    assert len(event.shortened) == 1


async def test_the_window_is_learned_from_a_refusal() -> None:
    class Strict(Listener):
        async def stream(self, request: Request) -> AsyncGenerator[str | Thought | Reply]:
            if size(request) > 1500:
                raise ContextTooLong("too long", size=1500)
            async for piece in super().stream(request):
                yield piece

    model = Strict(noisy_cells(8))
    async with life(model, budget=Budget(max_steps=50)) as session:
        assert isinstance(await session.say(), TurnEnded)
    assert session.core.window == 1500


async def test_tokens_are_counted_by_what_the_last_reply_was_charged() -> None:
    """A tokenizer that makes a token of every two bytes fills the window twice as fast."""
    dense = [says("", cell(f"x = {number} # {NOISE}"), usage=Usage(input_tokens=4000)) for number in range(2)]
    async with life([*dense, says("done")], context=ContextLimits(window=5000), budget=Budget(max_steps=50)) as session:
        await session.say()
    assert session.all(ContextCompacted)


async def test_a_conversation_that_cannot_be_made_to_fit_ends_with_what_to_do() -> None:
    refused = KeptReply(error="context_length_exceeded", status=400)
    async with life([refused], context=ContextLimits(window=200)) as session:
        end = await session.say("word " * 2000)
    assert isinstance(end, TurnFailed)
    assert "larger context" in end.error
    assert "/clear" in end.error


async def test_a_stronger_model_takes_what_does_not_fit() -> None:
    strong = Listener([says("I can.")], context=100_000)
    async with life([says("no")], context=ContextLimits(window=200), escalate=strong) as session:
        end = await session.say("word " * 2000)
    assert isinstance(end, TurnEnded)
    assert end.text == "I can."


async def test_compact_replaces_the_past_by_a_summary_with_the_users_words() -> None:
    model = Listener([says("", cell("total = 5")), says("It is 5."), says("Still 5.")])
    async with life(model) as session:
        await session.say("Count the sheep.")
        await session.submit(Compact(keep="the sheep are in the north field"))
        await session.say("How many?", TurnId("t2"))
    (event,) = session.all(ContextCompacted)
    assert event.cause == "asked"
    (told,) = model.requests[-1].messages
    for words in ("Count the sheep.", "the sheep are in the north field", "answered: It is 5.", "How many?"):
        assert words in told.text


async def test_there_is_nothing_to_compact_in_a_new_session() -> None:
    async with life() as session:
        with pytest.raises(CommandRefused, match="nothing to compact"):
            await session.submit(Compact())


async def test_going_back_to_before_a_compaction_brings_the_whole_conversation_back() -> None:
    first, second, third = TurnId("t1"), TurnId("t2"), TurnId("t3")
    model = Listener([says("one"), *noisy_cells(12), says("three"), says("again")])
    async with life(model, context=SMALL, budget=Budget(max_steps=50)) as session:
        await session.say("first", first)
        await session.say("second", second)
        assert session.core.state.compactions
        await session.submit(Rewind(turn=second, what="chat"))
        assert session.core.state.compactions == ()
        await session.submit(Redo())
        assert session.core.state.compactions
        await session.submit(Rewind(turn=second, what="chat"))
        await session.say("third", third)
    texts = [message.text for message in model.requests[-1].messages]
    assert texts[:2] == ["first", "one"]


async def test_a_reopened_session_sees_what_it_saw_before() -> None:
    log = memory_log()
    async with life(noisy_cells(12), log=log, context=SMALL, budget=Budget(max_steps=50)) as session:
        await session.say()
        before = request_of(session.core.state, (), {})
    assert request_of(fold(log.read()), (), {}) == before


@given(st.integers(1, 14), st.integers(800, 6000))
async def test_no_request_exceeds_the_window_and_the_newest_result_is_whole(count: int, window: int) -> None:
    model = Listener([*(says("", calls("look", at=number)) for number in range(count)), says("done")], context=window)

    @tool(effect="pure")
    def look(at: int) -> str:
        """Look."""
        return f"seen at {at}: {'noise ' * 200}"

    async with life(model, runner=EchoRunner(tools=[look]), budget=Budget(max_steps=50)) as session:
        assert isinstance(await session.say(), TurnEnded)
    for number, request in enumerate(model.requests[1:]):
        assert size(request) <= window
        assert f"seen at {number}: noise" in request.messages[-1].text
