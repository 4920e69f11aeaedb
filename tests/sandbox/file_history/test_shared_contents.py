"""What the files of a workspace hold is read once for all its sessions, and kept as long as one of them needs it."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import history, let_settle, tree

from pinfold.sandbox.file_history.shared_contents import SharedContents, remove_shared_contents
from pinfold.sandbox.file_history.versions import Versions
from pinfold.sandbox.kernel.folders import remove_folder

pytestmark = pytest.mark.integration


@contextmanager
def database(project: Path) -> Generator[sqlite3.Connection]:
    with closing(sqlite3.connect(project.parent / "shared/small.sqlite", isolation_level=None)) as found:
        yield found


def count(project: Path, table: str) -> int:
    with database(project) as found:
        return found.execute(f"SELECT count(*) FROM {table}").fetchone()[0]


def age(project: Path) -> None:
    """All files were last seen long ago."""
    with database(project) as found:
        found.execute("UPDATE stamp SET used_day = 0")


def test_a_second_session_takes_from_the_first_what_has_not_changed(project: Path) -> None:
    (project / "large").write_bytes(b"large" * 50_000)
    before = tree(project)
    with history(project, is_shared=True):
        pass
    with database(project) as found:
        found.execute("UPDATE content SET data = ? WHERE data = ?", [b"of the first session", b"print(1)"])
    (project / "notes.txt").write_text("by the user")
    with history(project, is_shared=True) as cells:
        cells.run(
            lambda: [(project / name).write_text("cell") for name in ("notes.txt", "run.sh", "src/main.py", "large")]
        )
        missed = cells.undo().missed
    # Only what was not read again can be found damaged.
    assert [(one.path, one.why) for one in missed] == [("src/main.py", "its content was damaged in the store")]
    after = tree(project)
    assert (project / "notes.txt").read_text() == "by the user"
    assert {path: after[path] for path in ("run.sh", "large")} == {path: before[path] for path in ("run.sh", "large")}


def test_a_file_that_was_just_written_is_not_known_by_its_stamp(project: Path) -> None:
    let_settle(project)
    versions = Versions(project, project.parent / "store", shared=project.parent / "shared")
    versions.begin()
    assert versions.fill().unread == 0
    versions.close()
    assert count(project, "stamp") == 0
    with history(project, is_shared=True):
        pass
    assert count(project, "stamp") > 0


def test_what_a_session_goes_back_to_is_kept_as_long_as_the_session(project: Path) -> None:
    before = tree(project)
    with history(project, is_shared=True) as cells:
        cells.run((project / "notes.txt").unlink)
    (store,) = project.parent.glob("store-*")
    age(project)
    with history(project, is_shared=True):
        pass
    versions = Versions(project, store, shared=project.parent / "shared", settled_s=0)
    versions.begin()
    assert versions.restore(0).missed == ()
    assert tree(project) == before
    versions.close()
    (project / "notes.txt").unlink()
    remove_folder(store)
    kept = count(project, "content")
    age(project)
    with history(project, is_shared=True):
        pass
    assert count(project, "content") == kept - 1
    assert count(project, "need") == 0


def test_while_another_session_is_open_nothing_is_forgotten(project: Path) -> None:
    with history(project, is_shared=True) as cells:
        (project / "notes.txt").unlink()
        age(project)
        kept = count(project, "content")
        with history(project, is_shared=True):
            pass
        assert count(project, "content") == kept
        (project / "notes.txt").write_text("one")
        assert cells.run((project / "run.sh").unlink).removed == ("run.sh",)
        assert cells.undo().missed == ()


def test_a_damaged_database_is_begun_anew(project: Path) -> None:
    with history(project, is_shared=True):
        pass
    (project.parent / "shared/small.sqlite").write_bytes(b"no database" * 1000)
    with history(project, is_shared=True) as cells:
        cells.run((project / "notes.txt").unlink)
        assert cells.undo().missed == ()
    assert (project / "notes.txt").read_text() == "one"
    assert count(project, "stamp") > 0


def test_without_room_files_are_named_as_not_covered(project: Path) -> None:
    (project / "large").write_bytes(b"large" * 50_000)
    with history(project, is_shared=True, total_cap=250_000) as cells:
        assert [(one.path, one.why) for one in cells.versions.fill().not_covered] == [("large", "no room")]


def test_a_folder_in_use_is_not_removed(tmp_path: Path) -> None:
    shared = SharedContents(tmp_path / "shared", total=1 << 20, largest=1 << 20)
    (tmp_path / "file").write_bytes(b"content")
    with (tmp_path / "file").open("rb") as file:
        assert shared.take(file.fileno()) == hashlib.sha256(b"content").hexdigest()
    assert not remove_shared_contents(tmp_path / "shared")
    assert shared.read(hashlib.sha256(b"content").hexdigest()) == b"content"
    shared.close()
    assert remove_shared_contents(tmp_path / "shared")
    assert not (tmp_path / "shared").exists()
