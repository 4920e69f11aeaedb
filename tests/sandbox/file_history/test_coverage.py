"""What is not covered is named, and neither overwritten nor removed."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.sandbox.file_history.cells import history, let_settle, to_folder, tree

from pinfold.sandbox.file_history.entries import Missed, NotCovered
from pinfold.sandbox.file_history.versions import Versions

pytestmark = pytest.mark.integration


def test_what_is_not_covered_is_named_before_any_cell_runs(project: Path, tmp_path: Path) -> None:
    os.mkfifo(project / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(project / "socket"))
    os.link(project / "notes.txt", tmp_path / "elsewhere")
    (project / "large").write_bytes(b"x" * 1001)
    (project / ".env").write_text("TOKEN=1")
    versions = Versions(project, tmp_path / "store", file_cap=1000)
    coverage = versions.begin()
    assert replace(coverage, unread=0) == versions.fill()
    versions.close()
    assert set(coverage.not_covered) == {
        NotCovered(path="src/deep/data.bin", why="too large", size=256 * 9),
        NotCovered(path="large", why="too large", size=1001),
        NotCovered(path=".env", why="secret", size=7),
        NotCovered(path="notes.txt", why="hard link", size=3),
        NotCovered(path="pipe", why="special file"),
        NotCovered(path="socket", why="special file"),
    }
    assert coverage.files == 5
    held = [path.read_bytes() for path in (tmp_path / "store").glob("??/*")]
    assert len(held) == 5
    assert b"TOKEN=1" not in held


def test_the_users_files_are_read_before_those_that_a_command_makes_again(workspace: Path, tmp_path: Path) -> None:
    for path in (".venv/lib/small.py", "src/large.csv", "node_modules/x/index.js", "notes.txt"):
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(path * (1000 if "large" in path else 1))
    let_settle(workspace)
    versions = Versions(workspace, tmp_path / "store")
    assert versions.begin().unread == 4
    kept: list[int] = []
    versions.fill(lambda: kept.append(len(list((tmp_path / "store").glob("??/*")))))
    versions.close()
    assert kept == [2]


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_what_cannot_be_read_is_named(project: Path) -> None:
    (project / "notes.txt").chmod(0)
    (project / "src").chmod(0)
    try:
        versions = Versions(project, project.parent / "store")
        coverage = versions.begin()
        assert set(versions.fill().not_covered) >= {NotCovered(path="src", why="unreadable")}
        assert "unreadable" in {one.why for one in coverage.not_covered}
        versions.close()
    finally:
        (project / "src").chmod(0o700)


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_what_a_cell_closed_is_opened_and_what_it_made_of_it_is_kept(project: Path, watches: int) -> None:
    before = tree(project)

    def cell() -> None:
        (project / "src" / "main.py").write_text("new")
        (project / "src" / "deep").chmod(0)
        (project / "src").chmod(0o500)
        (project / "notes.txt").write_text("two")
        (project / "notes.txt").chmod(0)

    with history(project, watches=watches) as cells:
        assert [it.path for it in cells.run(cell).not_covered] == ["notes.txt"]
        undone = cells.undo()
        assert (undone.missed, undone.aside) == ((), ())
        assert tree(project) == before
        assert {path for path, _ in undone.replaced} == {"notes.txt", "src/main.py"}


def test_a_large_file_that_a_cell_moved_is_moved_back(project: Path, watches: int) -> None:
    (project / "src" / "large").write_bytes(b"x" * 3000)
    before = tree(project)
    with history(project, file_cap=2500, watches=watches) as cells:
        cells.run(lambda: (project / "src").rename(project / "lib"))
        after = tree(project)
        assert cells.undo().missed == ()
        assert tree(project) == before
        assert cells.versions.restore(1).missed == ()
        assert tree(project) == after


def test_a_large_file_that_a_cell_made_stays_and_is_named(project: Path, watches: int) -> None:
    with history(project, file_cap=2500, watches=watches) as cells:
        changes = cells.run(lambda: ((project / "new").mkdir(), (project / "new/large").write_bytes(b"x" * 3000)))
        assert changes.not_covered == (NotCovered(path="new/large", why="too large", size=3000),)
        assert cells.undo().missed == (Missed(path="new", why="not empty"), Missed(path="new/large", why="too large"))
        assert (project / "new/large").stat().st_size == 3000


def test_what_was_covered_comes_back_in_place_of_what_is_not(project: Path, watches: int) -> None:
    before = tree(project)
    with history(project, file_cap=2500, watches=watches) as cells:
        cells.run(lambda: ((project / "notes.txt").write_bytes(b"x" * 3000), to_folder(project / "run.sh")))
        cells.run(lambda: (project / "run.sh" / "in" / "large").write_bytes(b"x" * 3000))
        after = tree(project)
        undone = cells.versions.restore(0)
        asides = dict(undone.aside)
        assert set(asides) == {"notes.txt", "run.sh"}
        now = tree(project)
        assert now.items() >= before.items()
        assert (project / asides["notes.txt"]).stat().st_size == 3000
        assert (project / asides["run.sh"] / "in" / "large").stat().st_size == 3000
        assert cells.versions.restore(2).missed == ()
        assert tree(project) == after


def test_pipes_and_other_names_made_by_a_cell_are_removed(project: Path, watches: int) -> None:
    before = tree(project)

    def cell() -> None:
        os.mkfifo(project / "pipe")
        os.link(project / "notes.txt", project / "another name")
        os.link(project / "run.sh", project / "src" / "another name")
        (project / "notes.txt").write_text("by both names")

    with history(project, watches=watches) as cells:
        changes = cells.run(cell)
        assert {it.why for it in changes.not_covered} == {"special file", "hard link"}
        assert cells.undo().missed == ()
        assert tree(project) == before


def test_a_file_changed_before_it_was_read_is_named_and_left(project: Path, watches: int) -> None:
    let_settle(project)
    versions = Versions(project, project.parent / "store", watches=watches)
    assert versions.begin().unread == 7
    versions.before(1)
    (project / "notes.txt").write_text("two")
    (project / "src").rename(project / "lib")
    changes = versions.after(1)
    assert NotCovered(path="notes.txt", why="changed before it was read", size=3) in changes.not_covered
    assert versions.fill().unread == 0
    undone = versions.restore(0)
    assert undone.missed == (Missed(path="notes.txt", why="changed before it was read"),)
    assert (project / "notes.txt").read_text() == "two"
    assert (project / "src" / "main.py").read_text() == "print(1)"
    assert not (project / "lib").exists()
    versions.before(2)
    (project / "notes.txt").write_text("three")
    versions.after(2)
    versions.restore(1)
    assert (project / "notes.txt").read_text() == "two"
    versions.close()


def test_contents_are_read_while_cells_run(project: Path, watches: int) -> None:
    for number in range(500):
        (project / f"{number}").write_text(f"{number}" * 100)
    let_settle(project)
    versions = Versions(project, project.parent / "store", watches=watches)
    versions.begin()
    lost: set[str] = set()
    filling = threading.Thread(target=versions.fill)
    before = tree(project)
    filling.start()
    for cell in range(1, 21):
        versions.before(cell)
        (project / f"{cell * 7}").write_text("changed")
        lost |= {it.path for it in versions.after(cell).not_covered}
    filling.join()
    missed = {it.path for it in versions.restore(0).missed}
    versions.close()
    assert missed == lost
    assert {path for path, entry in tree(project).items() if before[path] != entry} == lost
