"""Undo and redo: on record, told to the model, and honest about what no undo reaches."""

from __future__ import annotations

import anyio
import pytest
from tests.engine.doubles import PATIENCE_S, BusyModel, EchoRunner, Life, StallingModel, calls, cell, life, says

from pinfold.engine import Choice, CommandRefused, request_of
from pinfold.events import (
    ActionFinished,
    ActionId,
    Clear,
    Configure,
    Execute,
    Interrupt,
    ModelReplied,
    Redo,
    Rewind,
    Say,
    SessionRewound,
    TurnId,
    Undo,
)
from pinfold.tools import tool

pytestmark = pytest.mark.unit


@tool
def send_mail(to: str) -> str:
    """Send a mail.

    Args:
        to: Whom to.
    """
    return f"sent to {to}"


async def test_an_undo_is_on_record_and_the_model_is_told_with_the_next_message() -> None:
    async with life([says("one", cell("x = 1")), says("done"), says("again")]) as session:
        await session.say()
        await session.submit(Undo())
        assert session.all(SessionRewound) == [SessionRewound(to=0, undone=(1,), notices=("Files stay.",))]
        await session.say("more", TurnId("t2"))
        request = request_of(session.core.state, (), {})
    told = [message for message in request.messages if getattr(message, "text", "").endswith("more")]
    assert getattr(told[0], "text", "") == (
        "[The user undid cell 1: variables and workspace files are as at the start. Files stay.]\n\nmore"
    )


async def test_what_happened_outside_is_named_and_stays() -> None:
    runner = EchoRunner(tools=[send_mail], granted=frozenset({"send_mail"}))
    script = [
        says("one", cell('call send_mail {"to": "ann"}')),
        says("two", cell("x = 2")),
        says("three", calls("send_mail", to="bob")),
        says("done"),
    ]
    async with life(script, runner=runner) as session:
        await session.say()
        await session.submit(Undo())
        await session.submit(Undo())
        first, second = session.all(SessionRewound)
    assert first.effects == ('send_mail {"to":"bob"}',)
    assert second.effects == ('send_mail {"to":"ann"}',)


async def test_redo_brings_a_cell_back_and_the_next_one_is_numbered_on() -> None:
    runner = EchoRunner()
    async with life(runner=runner) as session:
        await executed(session, "x = 1")
        await executed(session, "x = 2")
        await session.submit(Undo())
        assert session.core.state.path == (1,)
        await session.submit(Redo())
        assert session.core.state.path == (1, 2)
        await session.submit(Undo())
        await executed(session, "x = 3")
        assert session.core.state.path == (1, 3)
    assert runner.cells == [1, 2, 3]


async def test_a_refused_undo_is_told_to_whoever_asked_and_not_recorded() -> None:
    async with life() as session:
        with pytest.raises(CommandRefused, match="there is no cell to undo"):
            await session.submit(Undo())
        assert session.all(SessionRewound) == []
        await executed(session, "x = 1")


async def test_nothing_is_undone_while_something_runs() -> None:
    async with life(StallingModel()) as session:
        await session.submit(Say(turn=TurnId("t1"), text="go"))
        with pytest.raises(CommandRefused, match="is busy"):
            await session.submit(Undo())
        await session.submit(Interrupt())
        await session.ended()
        with pytest.raises(CommandRefused, match="no cell to undo"), anyio.fail_after(PATIENCE_S):
            await session.submit(Undo())


def told(session: Life) -> list[str]:
    """What users and models said, as the next request has it."""
    messages = request_of(session.core.state, (), {}).messages
    return [text for message in messages if (text := getattr(message, "text", ""))]


async def three_turns(session: Life) -> None:
    for turn in ("t1", "t2", "t3"):
        await session.say(f"say {turn}", TurnId(turn))


THREE = [says("one", cell("x = 1")), says("done 1"), says("two", cell("x = 2")), says("done 2"), says("done 3")]


async def test_a_rewind_of_all_takes_the_conversation_back_with_the_cells_and_redo_brings_both() -> None:
    async with life(THREE) as session:
        await three_turns(session)
        before = told(session)
        await session.submit(Rewind(turn=TurnId("t2")))
        (event,) = session.all(SessionRewound)
        assert (event.forgotten, event.undone, event.to) == ((TurnId("t2"), TurnId("t3")), (2,), 1)
        assert told(session) == before[:4]
        await session.submit(Redo())
        assert session.all(SessionRewound)[1].recalled == (TurnId("t2"), TurnId("t3"))
        assert told(session) == before
        assert session.core.state.path == (1, 2)


async def test_a_rewind_of_the_chat_leaves_the_cells_and_of_files_leaves_the_chat() -> None:
    async with life([*THREE, says("on")]) as session:
        await three_turns(session)
        before = told(session)
        await session.submit(Rewind(turn=TurnId("t2"), what="chat"))
        assert session.core.state.path == (1, 2)
        assert told(session) == before[:4]
        await session.say("and?", TurnId("t4"))
        words = "[The user took back 2 turns of the conversation; variables and files stay as they are.]"
        assert told(session)[4:] == [f"{words}\n\nand?", "on"]
        await session.submit(Rewind(turn=TurnId("t1"), what="files"))
        assert session.all(SessionRewound)[-1].what == "files"
        assert told(session)[:4] == before[:4]


async def test_what_was_said_since_cannot_be_recalled() -> None:
    async with life([*THREE, says("on")]) as session:
        await three_turns(session)
        await session.submit(Rewind(turn=TurnId("t3")))
        await session.say("other", TurnId("t4"))
        assert session.core.state.taken == ()


@pytest.mark.parametrize(
    ("rewind", "why"),
    [(Rewind(turn=TurnId("t9")), "has no turn t9"), (Rewind(turn=TurnId("t3"), what="files"), "no cell has run since")],
)
async def test_a_rewind_to_nowhere_is_refused(rewind: Rewind, why: str) -> None:
    async with life(THREE) as session:
        await three_turns(session)
        with pytest.raises(CommandRefused, match=why):
            await session.submit(rewind)
        assert session.all(SessionRewound) == []


async def test_a_conversation_begun_anew_knows_of_the_variables_alone() -> None:
    runner = EchoRunner(variables="Variables: x (int).")
    async with life([*THREE, says("on")], runner=runner) as session:
        await three_turns(session)
        await session.submit(Clear())
        await session.say("and?", TurnId("t4"))
        assert told(session) == ["[Variables: x (int).]\n\nand?", "on"]
        assert session.core.state.path == (1, 2)
        with pytest.raises(CommandRefused, match="the conversation was cleared"):
            await session.submit(Rewind(turn=TurnId("t1")))


async def test_another_model_answers_from_the_next_turn_on() -> None:
    async with life([says("done")]) as session:
        with pytest.raises(CommandRefused, match="cannot be changed"):
            await session.submit(Configure(model="busy"))
        session.core.choose = lambda name: Choice(model=BusyModel(), prompt=f"You are {name}.")
        await session.submit(Configure(model="busy"))
        assert request_of(session.core.state, (), {}).system == "You are busy."
        await session.say("hello", TurnId("t1"))
        assert session.all(ModelReplied)[-1].model == "busy"


async def executed(session: Life, code: str) -> None:
    id_ = ActionId(f"a_{code}")
    await session.submit(Execute(id=id_, code=code))
    await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == id_)
    await session.engine.idle()
