"""The fold: total, pure and prefix-stable for any events in any order, however little sense they make."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given
from msgspec.structs import replace
from tests.events.strategies import events as any_event

from pinfold.engine import State, fold, request_of
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    ApprovalRequested,
    CallTool,
    Entry,
    Event,
    ModelReplied,
    SessionChanged,
    SessionId,
    SessionOpened,
    SessionRewound,
    TurnEnded,
    TurnFailed,
    TurnId,
    Unknown,
    Usage,
    UserMessage,
    UserSpoke,
)

pytestmark = pytest.mark.unit

ids = st.sampled_from([ActionId("a1"), ActionId("a2")])
turns = st.sampled_from([TurnId("t1"), TurnId("t2")])


@st.composite
def about_few_things(draw: st.DrawFn) -> Event:
    """Any event, but about one of two actions and one of two turns, so that they meet."""
    event: Any = draw(any_event)
    if isinstance(event, Unknown):
        return event
    changes: dict[str, Any] = {}
    if "id" in event.__struct_fields__:
        changes["id"] = draw(ids)
    if "turn" in event.__struct_fields__:
        changes["turn"] = draw(turns)
    if isinstance(event, ModelReplied):
        changes["actions"] = tuple(replace(call, id=draw(ids)) for call in event.actions)
    return replace(event, **changes)


def numbered(events: list[Event]) -> list[Entry]:
    return [Entry(seq=n, session=SessionId("s"), at="", event=event) for n, event in enumerate(events, 1)]


@given(st.lists(about_few_things(), max_size=25), st.data())
def test_any_log_folds_and_folds_the_same_in_two_parts(events: list[Event], data: st.DataObject) -> None:
    entries = numbered(events)
    cut = data.draw(st.integers(0, len(entries)))
    whole = fold(entries)
    assert fold(entries[cut:], fold(entries[:cut])) == whole
    assert sum(1 for _ in whole.turns) <= sum(isinstance(event, UserSpoke) for event in events)
    request_of(whole, (), {})


@given(st.lists(about_few_things(), max_size=25))
def test_folding_changes_nothing_that_was_given(events: list[Event]) -> None:
    entries = numbered(events)
    first = fold(entries)
    kept = [(turn.messages, turn.end) for turn in first.turns]
    fold(entries, first)
    assert [(turn.messages, turn.end) for turn in first.turns] == kept


def test_an_empty_log_is_an_empty_state() -> None:
    assert fold([]) == State()


def test_many_turns_are_all_remembered_in_order() -> None:
    events: list[Event] = []
    for number in range(300):
        turn = TurnId(f"t{number}")
        events += [UserSpoke(turn=turn, text=str(number)), TurnEnded(turn=turn, text="ok")]
    state = fold(numbered(events))
    assert [turn.id for turn in state.turns] == [f"t{number}" for number in range(300)]
    assert state.last is not None
    assert (state.last.id, state.last.end, state.turn) == ("t299", "ended", None)
    assert [message.text for message in request_of(state, (), {}).messages] == [str(n) for n in range(300)]


def test_costs_add_up_until_one_is_unknown() -> None:
    turn, usage = TurnId("t"), Usage(input_tokens=2, output_tokens=1, cached_tokens=1)

    def reply(cost: float | None) -> ModelReplied:
        return ModelReplied(turn=turn, model="m", text="", usage=usage, cost=cost)

    spoke = UserSpoke(turn=turn, text="")
    known = fold(numbered([spoke, reply(0.5), reply(0.25)])).turn
    unknown = fold(numbered([spoke, reply(0.5), reply(None), reply(0.25)])).turn
    assert known is not None
    assert unknown is not None
    assert (known.cost, known.usage.total, unknown.cost, unknown.steps) == (0.75, 6, None, 3)


def test_a_reply_to_a_turn_that_is_over_changes_nothing() -> None:
    over: list[Event] = [UserSpoke(turn=TurnId("t"), text=""), TurnEnded(turn=TurnId("t"), text="")]
    late = ModelReplied(turn=TurnId("t"), model="m", text="late")
    assert fold(numbered([*over, late])) == fold(numbered(over))


def test_notes_wait_for_the_next_words() -> None:
    lost = SessionOpened(version="0", workspace="", model="", mode="auto", sandbox="", lost=("x", "y"))
    failed = TurnFailed(turn=TurnId("t1"), error="no model")
    state = fold(
        numbered([UserSpoke(turn=TurnId("t1"), text="a"), failed, lost, UserSpoke(turn=TurnId("t2"), text="b")])
    )
    assert state.turn is not None
    assert state.turn.messages == (
        UserMessage(text="[The previous turn was stopped: no model]\n\n[The session was reopened. Lost: x, y.]\n\nb"),
    )
    assert state.notes == ()


def test_what_is_granted_is_the_pattern_that_was_shown_until_it_is_revoked() -> None:
    proposed = ActionProposed(id=ActionId("a"), action=CallTool(tool="send", args={}))
    asked = ApprovalRequested(id=ActionId("a"), reason="", digest="d", pattern="tool: send")
    decided = ApprovalDecided(id=ActionId("a"), verdict="allow", scope="session")
    revoked = SessionChanged(title="", revoked=("tool: send",))
    assert fold(numbered([proposed, asked, decided])).granted == {"tool: send"}
    assert fold(numbered([asked, decided])).granted == frozenset()
    assert fold(numbered([proposed, replace(asked, pattern=""), decided])).granted == frozenset()
    assert fold(numbered([proposed, asked, replace(decided, scope="once")])).granted == frozenset()
    assert fold(numbered([proposed, asked, decided, revoked])).granted == frozenset()


def test_what_a_session_has_read_is_never_unread() -> None:
    fetched = ActionFinished(id=ActionId("f"), outcome="ok", observation="", untrusted=True)
    looked = ActionFinished(id=ActionId("l"), outcome="ok", observation="", private=True)
    proposed = [ActionProposed(id=id_, action=CallTool(tool="t", args={})) for id_ in (fetched.id, looked.id)]
    undone = SessionRewound(to=0, undone=(1,))
    before = fold(numbered([*proposed, fetched]))
    assert (before.private, before.untrusted) == (False, True)
    state = fold(numbered([*proposed, fetched, looked, undone]))
    assert (state.private, state.untrusted) == (True, True)


def test_the_last_title_counts() -> None:
    assert fold(numbered([SessionChanged(title="a"), SessionChanged(title="b")])).title == "b"


def test_an_action_that_ends_is_open_no_more() -> None:
    proposed = ActionProposed(id=ActionId("a"), action=CallTool(tool="send", args={}))
    finished = ActionFinished(id=ActionId("a"), outcome="ok", observation="")
    assert fold(numbered([proposed, finished, finished])).open == {}
