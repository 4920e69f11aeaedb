"""The store is bounded, a damaged one is noticed, calls out of order are refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sandbox.versions.cells import Cells, history, let_settle

from pinfold.sandbox import SandboxUnavailable
from pinfold.sandbox.versions import Missed, NotCovered, StateUnknown, Versions

pytestmark = pytest.mark.integration


def test_the_oldest_states_are_dropped_for_want_of_room_and_it_is_said(workspace: Path, watches: int) -> None:
    path = workspace / "data"
    path.write_bytes(b"0" * 1000)
    with history(workspace, total_cap=5000, watches=watches) as cells:
        dropped: list[int] = []
        for number in range(1, 10):
            dropped += cells.run(path.write_bytes, f"{number}".encode() * 1000).dropped
        assert dropped == [0, 1, 2, 3, 4]
        for state in (5, 9, 7):
            cells.versions.restore(state)
            assert path.read_bytes() == f"{state}".encode() * 1000
        with pytest.raises(StateUnknown, match="cell 4 "):
            cells.versions.restore(4)
        blobs = [it for it in workspace.parent.glob("store-*/*/*") if it.is_file()]
        assert sum(it.stat().st_size for it in blobs) <= 5000


def test_states_with_more_changes_than_are_kept_make_way_and_it_is_said(workspace: Path) -> None:
    versions = Versions(workspace, workspace.parent / "store", change_cap=25)
    versions.begin()
    versions.fill()
    cells, dropped = Cells(versions), list[tuple[int, ...]]()
    for number in range(1, 6):
        told = cells.run(lambda: [(workspace / f"{number}-{n}").touch() for n in range(10)])  # noqa: B023
        dropped.append(told.dropped)
    assert dropped == [(), (), (0,), (1,), (2,)]
    versions.restore(4)
    assert {path.name[0] for path in workspace.iterdir()} == {"1", "2", "3", "4"}
    versions.close()
    again = Versions(workspace, workspace.parent / "store", change_cap=25)
    again.begin()
    assert again.states == (3, 4, 5)
    again.close()


def test_a_branch_that_led_from_a_dropped_state_is_dropped_with_it(workspace: Path) -> None:
    path = workspace / "data"
    path.write_bytes(b"0" * 1000)
    with history(workspace, total_cap=5000) as cells:
        cells.run(lambda: path.write_bytes(b"1" * 1000))
        cells.run(lambda: path.write_bytes(b"2" * 1000))
        cells.versions.restore(0)
        cells.run(lambda: path.write_bytes(b"3" * 1000))
        cells.run(lambda: path.write_bytes(b"4" * 1000))
        assert cells.run(lambda: path.write_bytes(b"5" * 1000)).dropped == (0, 1, 2)
        cells.versions.restore(3)
        assert path.read_bytes() == b"3" * 1000


def test_what_the_store_has_no_room_for_is_named(workspace: Path) -> None:
    for number in range(4):
        (workspace / f"{number}").write_bytes(f"{number}".encode() * (1000 + number))
    let_settle(workspace)
    versions = Versions(workspace, workspace.parent / "store", total_cap=4100)
    versions.begin()
    assert versions.fill().not_covered == (NotCovered(path="3", why="no room", size=1003),)
    versions.before(1)
    (workspace / "large").write_bytes(b"x" * 5000)
    assert versions.after(1).not_covered == (NotCovered(path="large", why="no room", size=5000),)
    versions.close()


def test_the_same_content_is_kept_once(workspace: Path) -> None:
    for number in range(9):
        (workspace / f"{number}").write_bytes(b"same" * 500_000)
    with history(workspace, file_cap=1 << 22):
        blobs = [path for path in workspace.parent.glob("store-*/*/*") if path.is_file()]
        assert [path.stat().st_size for path in blobs] == [2_000_000]


def test_a_damaged_content_is_never_put_back(project: Path) -> None:
    with history(project) as cells:
        cells.run(lambda: [(project / name).write_text("cell") for name in ("notes.txt", "run.sh")])
        cells.undo()
        (kept,) = {kept.blob for kept in cells.versions.restore(1).replaced if kept.path == "notes.txt"}
        cells.versions.content(kept).write_text("uno")
        assert cells.undo().missed == (Missed(path="notes.txt", why="its content was damaged in the store"),)
        assert (project / "notes.txt").read_text() == "cell"
        assert (project / "run.sh").read_text() == "exit"


def test_calls_out_of_order_are_refused_in_one_line(project: Path) -> None:
    with pytest.raises(ValueError, match="lies in the workspace"):
        Versions(project, project / "store")
    with pytest.raises(SandboxUnavailable, match="cannot be opened"):
        Versions(project / "none", project.parent / "store")
    with history(project) as cells:
        cells.versions.before(3)
        with pytest.raises(ValueError, match="cell 3 has not ended"):
            cells.versions.restore(0)
        with pytest.raises(ValueError, match="cell 2 is not running"):
            cells.versions.after(2)
        cells.versions.after(3)
        with pytest.raises(ValueError, match="does not come after cell 3"):
            cells.versions.before(3)
        with pytest.raises(StateUnknown):
            cells.versions.restore(2)
        with pytest.raises(StateUnknown):
            cells.versions.content("sha256:" + "0" * 64)
        project.rename(project.with_name("other"))
        project.mkdir()
        with pytest.raises(SandboxUnavailable, match="removed or replaced"):
            cells.versions.restore(0)
        assert list(project.iterdir()) == []
