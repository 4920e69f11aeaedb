"""Another process goes on where the last one ended, however it ended."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.sandbox.file_history.cells import ACTS, Cells, history, let_settle, tree

from pinfold.sandbox.file_history.versions import Versions

pytestmark = pytest.mark.integration


@contextmanager
def resumed(workspace: Path, cells: Cells, **bounds: Any) -> Generator[Versions]:
    """By another owner, while the first is still there and says nothing more: as after `kill -9`."""
    del cells
    (store,) = workspace.parent.glob("store-*")
    versions = Versions(workspace, store, shared=workspace.parent / "shared", settled_s=0, **bounds)
    try:
        versions.begin()
        versions.fill()
        yield versions
    finally:
        versions.close()


def test_another_owner_goes_on_where_the_last_one_ended(project: Path) -> None:
    trees = [tree(project)]
    with history(project, is_shared=True) as cells:
        for act in ("renames a folder", "writes a file", "removes everything"):
            cells.run(ACTS[act], project)
            trees.append(tree(project))
        cells.versions.restore(1)
        with resumed(project, cells) as versions:
            assert (versions.at, versions.states) == (1, (0, 1, 2, 3))
            for state in (3, 0, 2, 1):
                restored = versions.restore(state)
                assert (restored.missed, restored.left) == ((), ())
                assert tree(project) == trees[state]
            with pytest.raises(ValueError, match="does not come after cell 3"):
                versions.before(3)


def test_what_changed_while_nobody_owned_it_is_the_users(project: Path) -> None:
    with history(project, is_shared=True) as cells:
        cells.run(lambda: [(project / name).write_text("cell") for name in ("notes.txt", "run.sh")])
        (project / "run.sh").write_text("user")
        (project / "src" / "main.py").unlink()
        with resumed(project, cells) as versions:
            assert versions.restore(0).left == ("run.sh", "src/main.py")
            assert (project / "notes.txt").read_text() == "one"
            assert (project / "run.sh").read_text() == "user"
            assert not (project / "src" / "main.py").exists()


def test_what_a_cell_did_whose_owner_was_lost_can_be_undone(project: Path) -> None:
    before = tree(project)
    with history(project, is_shared=True) as cells:
        cells.versions.before(7)
        ACTS["removes everything"](project)
        with resumed(project, cells) as versions:
            assert versions.at == 7
            assert versions.restore(0).missed == ()
            assert tree(project) == before


def test_a_restore_that_was_cut_short_is_finished(project: Path) -> None:
    (project / "src" / "large").write_bytes(b"x" * 3000)
    before = tree(project)
    with history(project, is_shared=True, file_cap=2500) as cells:
        cells.run((project / "src").rename, project / "lib")
        cells.versions.restore(0)
        (journal,) = project.parent.glob("store-*/journal")
        lines = journal.read_text().splitlines(keepends=True)
        assert lines[-1].startswith('["arrives", 0')
        journal.write_text("".join(lines[:-1]) + lines[-1][:20])
        (project / "src" / "large").rename(project / f".pinfold-{'0' * 16}")
        (project / "src" / "main.py").rename(project / f".pinfold-{'1' * 16}")
        (project / f".pinfold-{'2' * 16}").write_text("half a fi")
        for _ in range(2):
            with resumed(project, cells, file_cap=2500) as versions:
                assert versions.at == 0
                assert tree(project) == before
                assert versions.restore(1).left == ()
                assert versions.restore(0).missed == ()
                assert tree(project) == before


def test_a_start_that_was_not_written_whole_is_a_new_start(project: Path) -> None:
    with history(project, is_shared=True) as cells:
        cells.run((project / "notes.txt").write_text, "two")
        (journal,) = project.parent.glob("store-*/journal")
        for damaged in (journal.read_text().splitlines(keepends=True)[0], "[]\n", "{\n", "\0"):
            journal.write_text(damaged)
            with resumed(project, cells) as versions:
                assert versions.states == (0,)


def test_states_that_were_dropped_stay_dropped(workspace: Path) -> None:
    path = workspace / "data"
    path.write_bytes(b"0" * 1000)
    with history(workspace, total_cap=5000) as cells:
        for number in range(1, 7):
            cells.run(path.write_bytes, f"{number}".encode() * 1000)
        with resumed(workspace, cells, total_cap=5000) as versions:
            assert versions.states == cells.versions.states == (2, 3, 4, 5, 6)
            versions.restore(2)
            assert path.read_bytes() == b"2" * 1000


def test_files_that_were_not_read_yet_are_read_by_the_next_owner(project: Path) -> None:
    let_settle(project)
    with history(project, is_shared=True):
        (store,) = project.parent.glob("store-*")
        journal = store / "journal"
        lines = journal.read_text().splitlines(keepends=True)
        journal.write_text("".join(line for line in lines if not line.startswith('["read"')))
    versions = Versions(project, store)
    assert versions.begin().unread == 7
    assert versions.fill().unread == 0
    versions.before(1)
    (project / "notes.txt").write_text("two")
    versions.after(1)
    versions.restore(0)
    assert (project / "notes.txt").read_text() == "one"
    versions.close()


def test_without_room_for_the_story_undo_goes_on_and_nobody_else_can(project: Path) -> None:
    store = project.parent / "store-1"
    versions = Versions(project, store)
    versions.begin()
    (store / "journal").symlink_to("/dev/full")
    versions.fill()
    versions.before(1)
    (project / "notes.txt").write_text("two")
    versions.after(1)
    versions.restore(0)
    assert (project / "notes.txt").read_text() == "one"
    versions.close()
    assert not (store / "journal").is_symlink()
