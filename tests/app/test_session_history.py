"""A session told by turns and cells, from its log alone; and whom it was forked from."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.app import SessionStore, fork
from pinfold.app.clients.session_history import build_history, net_changes
from pinfold.app.paths import private_dir
from pinfold.app.storage.session_store import SessionNode, SessionTree, build_session_tree, list_nodes
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    BlobId,
    CallTool,
    Entry,
    Event,
    FileChange,
    ModelCalled,
    ModelReplied,
    RunCell,
    SessionChanged,
    SessionId,
    SessionOpened,
    SessionRewound,
    TurnEnded,
    TurnId,
    Usage,
    UserSpoke,
)
from pinfold.log import Log

pytestmark = pytest.mark.unit
S, T1, T2 = SessionId("s_1"), TurnId("t_1"), TurnId("t_2")
OPENED = SessionOpened(version="0", workspace="/w", model="m", mode="auto", sandbox="auto")


def story(*events: Event):
    return build_history(S, [Entry(seq=seq, session=S, at="", event=event) for seq, event in enumerate(events, 1)])


def a_cell(number: int, turn: TurnId | None, *files: FileChange) -> tuple[Event, ...]:
    id_ = ActionId(f"a_{number}")
    return (
        ActionProposed(id=id_, action=RunCell(code=f"x = {number}"), turn=turn),
        ActionStarted(id=id_, effect="pure", cell=number),
        ActionFinished(id=id_, outcome="ok", observation=f"{number}", files=files),
    )


def change(path: str, how: str, before: str | None = None, after: str | None = None) -> FileChange:
    blobs = {"before": before and BlobId(before), "after": after and BlobId(after)}
    return FileChange(path=path, how=how, **blobs)  # pyright: ignore[reportArgumentType] - of a table


def test_turns_know_their_cells_and_what_was_there_before_them() -> None:
    told = story(
        OPENED,
        *a_cell(1, None),
        UserSpoke(turn=T1, text="first"),
        *a_cell(2, T1),
        TurnEnded(turn=T1, text=""),
        UserSpoke(turn=T2, text="second"),
        *a_cell(3, T2),
        TurnEnded(turn=T2, text=""),
        SessionRewound(to=2, undone=(3,), forgotten=(T2,)),
    )
    assert [(turn.number, turn.text, turn.before, turn.cells, turn.forgotten) for turn in told.turns] == [
        (1, "first", 1, (2,), False),
        (2, "second", 2, (), True),
    ]
    assert [(cell.number, cell.code, cell.outcome, cell.undone) for cell in told.cells] == [
        (1, "x = 1", "ok", False),
        (2, "x = 2", "ok", False),
        (3, "x = 3", "ok", True),
    ]
    assert told.path == (1, 2)


def test_a_call_within_a_cell_is_a_part_of_it() -> None:
    cell, call = ActionId("a_1"), ActionId("a_2")
    told = story(
        ActionProposed(id=cell, action=RunCell(code="write()")),
        ActionStarted(id=cell, effect="pure", cell=1),
        ActionProposed(id=call, action=CallTool(tool="write_file", args={}), parent=cell),
        ActionStarted(id=call, effect="once", cell=1),
        ActionFinished(id=call, outcome="ok", observation="", files=(change("a", "added"),), more_files=2),
        ActionFinished(id=cell, outcome="ok", observation="done", files=(change("b", "added"),)),
    )
    ((one,),) = (told.cells,)
    assert (one.code, [file.path for file in one.files], told.more_files) == ("write()", ["a", "b"], 2)
    assert [(out.name, out.text) for out in told.outputs] == [("cell 1", "done")]


def test_something_is_under_way_only_if_it_moved_since_the_session_was_opened() -> None:
    begun = (OPENED, UserSpoke(turn=T1, text=""), ModelCalled(turn=T1, model="m"))
    assert story(*begun).is_busy
    assert not story(*begun, OPENED).is_busy  # cut off
    assert story(*begun, OPENED, ModelCalled(turn=T1, model="m")).is_busy
    assert not story(*begun, TurnEnded(turn=T1, text="")).is_busy
    assert story(OPENED, *a_cell(1, None)[:2]).is_busy
    assert not story(OPENED, *a_cell(1, None)).is_busy


def test_a_cost_is_unknown_once_any_part_of_it_is() -> None:
    reply = ModelReplied(turn=T1, model="m", text="", usage=Usage(input_tokens=2, output_tokens=1), cost=0.5)
    other = ModelReplied(turn=T1, model="n", text="", cost=None)
    known = story(reply, reply)
    assert (known.cost, known.usage.input_tokens, known.bills[0].replies) == (1.0, 4, 2)
    assert story(reply, other).cost is None


def test_a_file_is_told_of_once_from_what_it_was_to_what_it_is() -> None:
    assert net_changes(
        [
            change("a", "changed", "1", "2"),
            change("b", "added", None, "1"),
            change("c", "added", None, "1"),
            change("d", "changed", "1", "2"),
            change("e", "removed", "1", None),
            change("a", "changed", "2", "3"),
            change("b", "changed", "1", "2"),
            change("c", "removed", "1", None),
            change("d", "changed", "2", "1"),
            change("e", "added", None, "2"),
        ]
    ) == (change("a", "changed", "1", "3"), change("b", "added", None, "2"), change("e", "changed", "1", "2"))


@given(st.lists(st.sampled_from([None, "1", "2", "3"]), min_size=1, max_size=8))
def test_the_net_of_changes_is_the_difference_of_the_first_and_the_last(contents: list[str | None]) -> None:
    steps = [
        change("f", "added" if old is None else "removed" if new is None else "changed", old, new)
        for old, new in pairwise(contents)
        if old != new
    ]
    first, last = contents[0], contents[-1]
    if first == last:
        assert net_changes(steps) == ()
    else:
        how = "added" if first is None else "removed" if last is None else "changed"
        assert net_changes(steps) == (change("f", how, first, last),)


async def test_forks_of_forks_are_found_and_a_removed_parent_is_named() -> None:
    shelf = SessionStore()
    log = Log(private_dir(shelf.folder_of(S)), S)
    await log.append(OPENED, SessionChanged(title="first"))
    log.close()
    second, _ = await fork(shelf, S, "second")
    third, _ = await fork(shelf, second, "third")
    everyone = {kin.id: kin for kin in list_nodes(shelf)}
    assert [everyone[id_].source for id_ in (S, second, third)] == ["", S, second]

    def brief(family: SessionTree) -> tuple[list[str], list[tuple[int, str]]]:
        return [kin.title for kin in family.ancestors], [(depth, kin.title) for depth, kin in family.children]

    assert brief(build_session_tree(S, list_nodes(shelf))) == ([], [(1, "second"), (2, "third")])
    assert brief(build_session_tree(third, list_nodes(shelf))) == (["second", "first"], [])
    shelf.remove(second)
    assert brief(build_session_tree(third, list_nodes(shelf))) == (["(removed)"], [])


def test_a_family_that_goes_round_in_circles_is_told_to_its_end() -> None:
    a, b = SessionId("s_a"), SessionId("s_b")
    everyone = [SessionNode(id=a, title="a", last="", source=b), SessionNode(id=b, title="b", last="", source=a)]
    assert [kin.id for kin in build_session_tree(a, everyone).ancestors] == [b]
    assert [kin.id for _, kin in build_session_tree(a, everyone).children] == [b]
