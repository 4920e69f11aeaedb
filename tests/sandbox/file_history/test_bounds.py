"""The store is bounded, a damaged one is noticed, calls out of order are refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.sandbox.file_history.cells import Cells, history, let_settle

from pinfold.sandbox import SandboxUnavailable
from pinfold.sandbox.file_history.entries import Missed, NotCovered
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.file_history.store import same_content
from pinfold.sandbox.file_history.versions import StateUnknown, Versions

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
        with pytest.raises(StateUnknown, match="cell 4"):
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
        (kept,) = {kept for path, kept in cells.versions.restore(1).replaced if path == "notes.txt"}
        (blob,) = project.parent.glob(f"store-*/*/{kept}")
        blob.write_text("uno")
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
            cells.versions.content("0" * 64)
        project.rename(project.with_name("other"))
        project.mkdir()
        with pytest.raises(SandboxUnavailable, match="removed or replaced"):
            cells.versions.restore(0)
        assert list(project.iterdir()) == []


def test_what_one_cell_changes_beyond_the_bounds_of_a_look_is_not_covered(workspace: Path) -> None:
    def make(folder: str) -> None:
        (workspace / folder).mkdir()
        for number in range(5):
            (workspace / folder / f"{number}").write_bytes(b"x" * 5000)

    def covered(folder: str, **bounds: Any) -> int:
        with history(workspace, **bounds) as cells:
            changes = cells.run(make, folder)
            assert {one.why for one in changes.not_covered} <= {"too much at once"}
            left = {one.path for one in changes.not_covered}
            cells.undo()
            assert {f"{folder}/{it.name}" for it in (workspace / folder).glob("*")} == left
            return 5 - len(left)

    assert covered("time", look_s=0.0) == 0
    assert covered("bytes", look_bytes=20_000) == 2
    assert covered("room") == 5


@pytest.mark.parametrize("spilled", [False, True])
def test_what_a_cell_filled_the_disk_with_goes_with_it_kept_or_not(workspace: Path, spilled: bool) -> None:
    grown, large, crowd = workspace / "grown", workspace / "large", workspace / "crowd"
    grown.write_text("small")
    with history(workspace, file_cap=1000, entry_cap=20) as cells:
        cells.versions.before(1)
        grown.write_bytes(b"x" * 5000)
        large.write_bytes(b"x" * 5000)
        (crowd / "in").mkdir(parents=True)
        for number in range(30):
            (crowd / "in" / f"{number}").touch()
        cells.versions.after(1, spilled=spilled)
        restored = cells.versions.restore(0)
        assert grown.read_text() == "small"
        assert (large.exists(), crowd.exists(), bool(restored.aside)) == (not spilled,) * 3


def test_a_look_ends_when_somebody_waits_and_the_next_sees_the_rest(workspace: Path) -> None:
    with history(workspace) as cells:
        cells.versions.before(1)
        for number in range(2000):
            (workspace / f"{number}").write_bytes(f"{number}".encode())
        cells.versions.hurry()
        changes = cells.versions.after(1)
        assert changes.not_covered == (NotCovered(path="", why="too much at once"),)
        assert len(changes.made) < 2000
        cells.versions.before(2)
        assert cells.versions.after(2).not_covered == ()
        assert cells.versions.restore(0).left != ()


async def test_whoever_is_cancelled_while_files_are_looked_at_does_not_wait_for_them(workspace: Path) -> None:
    history = FileHistory(workspace)
    await history.before(1)
    for number in range(2000):
        (workspace / f"{number}").write_bytes(f"{number}".encode())
    with anyio.CancelScope() as scope:
        scope.cancel()
        await history.after()
    assert scope.cancelled_caught
    assert history.said == ("Undo does not cover .: too many files at once.",)
    await history.before(2)
    (workspace / "one").touch()
    await history.after()
    assert history.said == ()
    await history.close()


def test_holes_take_no_room_and_come_back_as_holes(workspace: Path) -> None:
    holes, endless = workspace / "holes", workspace / "endless"
    with history(workspace, file_cap=64 << 20, total_cap=1 << 20) as cells:
        with holes.open("wb") as file:
            file.truncate(32 << 20)
            file.seek(20 << 20)
            file.write(b"data")
        content = holes.read_bytes()
        assert cells.run(lambda: None).not_covered == ()
        changes = cells.run(lambda: (holes.unlink(), endless.touch(), os.truncate(endless, 1 << 40)))
        assert changes.not_covered == (NotCovered(path="endless", why="too large", size=1 << 40),)
        cells.undo()
        assert holes.read_bytes() == content
        assert holes.stat().st_blocks * 512 < 1 << 20


def test_contents_with_holes_are_compared_without_reading_them(tmp_path: Path) -> None:
    def file(name: str, at: int) -> int:
        fd = os.open(tmp_path / name, os.O_CREAT | os.O_RDWR)
        os.truncate(fd, 1 << 40)
        os.pwrite(fd, b"x", at)
        return fd

    one, same, other = file("one", 1 << 39), file("same", 1 << 39), file("other", (1 << 39) + (1 << 30))
    assert same_content(one, same)
    assert not same_content(one, other)
    for fd in (one, same, other):
        os.close(fd)
