"""Undo and redo: on record, told to the model, and honest about what no undo reaches."""

from __future__ import annotations

import anyio
import pytest
from tests.engine.doubles import PATIENCE_S, EchoHands, Life, StallingModel, calls, cell, life, says

from pinfold.engine import CommandRefused, request_of
from pinfold.events import (
    ActionFinished,
    ActionId,
    Execute,
    Interrupt,
    Redo,
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
    hands = EchoHands(tools=[send_mail], granted=frozenset({"send_mail"}))
    script = [
        says("one", cell('call send_mail {"to": "ann"}')),
        says("two", cell("x = 2")),
        says("three", calls("send_mail", to="bob")),
        says("done"),
    ]
    async with life(script, hands=hands) as session:
        await session.say()
        await session.submit(Undo())
        await session.submit(Undo())
        first, second = session.all(SessionRewound)
    assert first.effects == ('send_mail {"to":"bob"}',)
    assert second.effects == ('send_mail {"to":"ann"}',)


async def test_redo_brings_a_cell_back_and_the_next_one_is_numbered_on() -> None:
    hands = EchoHands()
    async with life(hands=hands) as session:
        await executed(session, "x = 1")
        await executed(session, "x = 2")
        await session.submit(Undo())
        assert session.core.state.path == (1,)
        await session.submit(Redo())
        assert session.core.state.path == (1, 2)
        await session.submit(Undo())
        await executed(session, "x = 3")
        assert session.core.state.path == (1, 3)
    assert hands.cells == [1, 2, 3]


async def test_a_refused_undo_is_told_to_whoever_asked_and_not_recorded() -> None:
    async with life() as session:
        with pytest.raises(CommandRefused, match="there is no cell to undo"):
            await session.submit(Undo())
        assert session.all(SessionRewound) == []
        await executed(session, "x = 1")


async def test_nothing_is_undone_while_something_runs() -> None:
    async with life(StallingModel()) as session:
        await session.submit(Say(turn=TurnId("t1"), text="go"))
        with pytest.raises(CommandRefused, match="something runs"):
            await session.submit(Undo())
        await session.submit(Interrupt())
        await session.ended()
        with pytest.raises(CommandRefused, match="no cell to undo"), anyio.fail_after(PATIENCE_S):
            await session.submit(Undo())


async def executed(session: Life, code: str) -> None:
    id_ = ActionId(f"a_{code}")
    await session.submit(Execute(id=id_, code=code))
    await session.seen(lambda event: isinstance(event, ActionFinished) and event.id == id_)
    await session.engine.idle()
