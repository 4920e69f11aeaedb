"""What a cell changed goes back and forth, and what the user changed stays."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import ACTS, history, tree

from pinfold.sandbox.file_history.entries import Changes

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_a_cell_does_is_undone_and_redone(project: Path, act: Callable[[Path], object], watches: int) -> None:
    before, mode = tree(project), project.stat().st_mode
    with history(project, watches=watches) as cells:
        changes = cells.run(act, project)
        after = tree(project)
        undone = cells.undo()
        assert (tree(project), project.stat().st_mode) == (before, mode)
        assert (undone.left, undone.missed, undone.aside) == ((), (), ())
        assert set(undone.put_back) == {*changes.made, *changes.changed, *changes.removed}
        assert cells.versions.restore(1).missed == ()
        assert tree(project) == after
        cells.undo()
        assert tree(project) == before


def test_a_cell_is_told_apart_from_the_next(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells:
        made = cells.run(lambda: (project / "new").write_text("1"))
        changed = cells.run(lambda: (project / "new").write_text("2"))
        nothing = cells.run(lambda: None)
        same = cells.run(lambda: (project / "new").write_text("2"))
        removed = cells.run((project / "new").unlink)
    assert (made, changed, removed) == (Changes(made=("new",)), Changes(changed=("new",)), Changes(removed=("new",)))
    assert nothing == same == Changes()


def test_history_is_a_tree(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells:
        trees = [tree(project)]
        for parent in (0, 1, 1, 3, 0):
            cells.versions.restore(parent)
            assert tree(project) == trees[parent]
            cells.run(lambda: (project / f"by-{cells.number}").write_text("x"))
            trees.append(tree(project))
        for state in (3, 5, 2, 4, 0, 2, 1):
            assert cells.versions.restore(state).missed == ()
            assert tree(project) == trees[state]


def test_files_get_their_times_back(project: Path, watches: int) -> None:
    os.utime(project / "notes.txt", ns=(5, 1_700_000_000_123_456_789))
    with history(project, watches=watches) as cells:
        cells.run((project / "notes.txt").unlink)
        cells.undo()
        assert (project / "notes.txt").stat().st_mtime_ns == 1_700_000_000_123_456_789


def test_with_something_of_the_users_among_it_files_get_the_present_time(project: Path) -> None:
    os.utime(project / "notes.txt", ns=(5, 5))
    with history(project) as cells:
        cells.run(lambda: (project / "notes.txt").write_text("two"))
        (project / "built-from-two").write_text("two")
        assert cells.undo().left == ("built-from-two",)
        times = [(project / name).stat().st_mtime_ns for name in ("built-from-two", "notes.txt")]
        assert times == sorted(times)


def test_what_the_user_changed_between_cells_is_never_overwritten(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells:
        cells.run(lambda: [(project / name).write_text("cell") for name in ("notes.txt", "run.sh", "new")])
        (project / "notes.txt").write_text("user")
        (project / "new").unlink()
        (project / "own").write_text("user")
        before = tree(project)
        undone = cells.undo()
        assert undone.left == ("notes.txt", "own")
        assert undone.put_back == ("run.sh",)
        assert (project / "notes.txt").read_text() == (project / "own").read_text() == "user"
        assert not (project / "new").exists()
        cells.versions.restore(1)
        assert tree(project) == before


def test_a_change_on_top_of_the_users_is_undone_to_the_users(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells:
        cells.run(lambda: (project / "notes.txt").write_text("cell 1"))
        (project / "notes.txt").write_text("user")
        cells.run(lambda: (project / "notes.txt").write_text("cell 2"))
        assert cells.undo().left == ("notes.txt",)
        assert (project / "notes.txt").read_text() == "user"
        cells.versions.restore(2)
        assert (project / "notes.txt").read_text() == "cell 2"
        cells.versions.restore(0)
        assert (project / "notes.txt").read_text() == "user"


def test_what_the_user_changes_back_is_as_the_user_wants_it(project: Path) -> None:
    notes = project / "notes.txt"
    with history(project) as cells:
        notes.write_text("user")
        cells.run(lambda: notes.write_text("cell"))
        notes.write_text("user")
        cells.versions.restore(0)
        assert notes.read_text() == "user"
        cells.versions.restore(1)
        assert notes.read_text() == "user"
        notes.write_text("one")
        cells.versions.restore(0)
        assert notes.read_text() == "one"


def test_a_folder_of_the_cells_stays_for_what_the_user_put_in(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells:
        cells.run(lambda: ((project / "made").mkdir(), (project / "made" / "by-cell").touch()))
        (project / "made" / "by-user").touch()
        undone = cells.undo()
        assert undone.left == ("made", "made/by-user")
        assert [path.name for path in (project / "made").iterdir()] == ["by-user"]
        assert undone.missed == ()


def test_nothing_comes_back_into_a_folder_the_user_removed(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells:
        cells.run((project / "src" / "main.py").unlink)
        shutil.rmtree(project / "src")
        undone = cells.undo()
        assert not (project / "src").exists()
        assert "src" in undone.left
        assert "src/main.py" in undone.left
        (project / "src").write_text("a file of the user's")
        cells.versions.restore(1)
        assert (project / "src").is_file()


def test_every_version_that_gives_way_is_kept_and_named(project: Path, watches: int) -> None:
    def both() -> None:
        (project / "notes.txt").write_text("by the cell")
        (project / "notes.txt").write_text("by the user, while the cell ran")
        (project / "own").write_text("of the user's, made while the cell ran")

    with history(project, watches=watches) as cells:
        cells.run(both)
        replaced = {path: cells.versions.content(kept).decode() for path, kept in cells.undo().replaced}
    assert replaced == {"notes.txt": "by the user, while the cell ran", "own": "of the user's, made while the cell ran"}


def test_what_could_not_be_put_back_is_not_taken_for_the_users(project: Path, watches: int) -> None:
    with history(project, file_cap=2500, watches=watches) as cells:
        cells.run((project / "log").write_bytes, b"x" * 3000)
        cells.run((project / "log").write_bytes, b"y" * 4000)
        cells.run((project / "log").write_bytes, b"small")
        assert [it.path for it in cells.versions.restore(1).missed] == ["log"]
        cells.versions.restore(3)
        assert (project / "log").read_bytes() == b"small"
        assert [it.path for it in cells.versions.restore(2).missed] == ["log"]
        cells.run((project / "log").write_bytes, b"other")
        assert cells.versions.restore(3).left == ()
        assert (project / "log").read_bytes() == b"small"
