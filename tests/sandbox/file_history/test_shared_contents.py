"""What the files of a workspace hold is read once for all its sessions, and kept as long as one of them needs it."""

from __future__ import annotations

import hashlib
import mmap
import os
import shutil
import sqlite3
import tempfile
import threading
import time
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from tests.sandbox.file_history.cells import Tree, history, let_settle, tree

from pinfold.sandbox.file_history.shared_contents import SharedContents, keep_for_copy, remove_shared_contents
from pinfold.sandbox.file_history.versions import Versions
from pinfold.sandbox.kernel.folders import remove_folder

pytestmark = pytest.mark.integration

NAMES = ("a", "b", "c")
HISTORY = st.integers(0, 1)
CHANGES = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 14)), min_size=1, max_size=3)
EXAMPLES = 10


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


def test_a_content_can_be_read_while_nothing_can_be_written(tmp_path: Path) -> None:
    with closing(SharedContents(tmp_path / "shared", total=1 << 20, largest=1 << 20)) as shared:
        digests: list[str] = []
        for name in ("written", "waiting"):
            (tmp_path / name).write_text(name)
            with (tmp_path / name).open("rb") as file:
                digests.append(shared.take(file.fileno()))
            if name == "written":
                shared.flush()
        with closing(sqlite3.connect(tmp_path / "shared/small.sqlite", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            began = time.monotonic()
            assert [shared.read(digest) for digest in digests] == [b"written", b"waiting"]
            assert time.monotonic() - began < 5
            other.execute("ROLLBACK")


def test_a_file_that_was_mapped_before_the_session_is_compared_at_each_look(project: Path) -> None:
    (project / "map").write_bytes(b"0" * 5000)
    with history(project, is_shared=True):
        pass
    with (project / "map").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        assert mapped[0] == ord("0")
        with history(project, is_shared=True) as cells:
            mapped[0:1] = b"1"  # by the user, and no event tells of it
            cells.run((project / "notes.txt").unlink)
            cells.run((project / "map").write_bytes, b"cell")
            cells.undo()
    assert (project / "map").read_bytes()[:2] == b"10"


def test_where_a_file_can_change_and_keep_its_stamp_nothing_is_shared() -> None:
    if not os.access("/dev/shm", os.W_OK):
        pytest.skip("there is no tmpfs to write to")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        project = Path(folder) / "project"
        project.mkdir()
        (project / "map").write_bytes(b"0" * 5000)
        with history(project, is_shared=True):
            pass
        was = (project / "map").stat()
        with (project / "map").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
            assert mapped[0] == ord("0")
            mapped[0:1] = b"1"
        assert (project / "map").stat().st_ctime_ns == was.st_ctime_ns
        with history(project, is_shared=True) as cells:
            cells.run((project / "map").write_bytes, b"cell")
            assert cells.undo().missed == ()
        assert (project / "map").read_bytes()[:2] == b"10"


def test_a_time_that_sqlite_has_no_number_for_is_kept(project: Path) -> None:
    os.utime(project / "notes.txt", (0, 10_400_000_000))  # in the year 2299
    for _ in range(2):
        with history(project, is_shared=True) as cells:
            cells.run((project / "run.sh").unlink)
            assert cells.undo().missed == ()
    with database(project) as found:
        assert found.execute("SELECT count(*) FROM stamp WHERE stamp LIKE '%, 10400000000000000000,%'").fetchone()[0]


def test_what_is_forgotten_leaves_its_room(project: Path) -> None:
    for number in range(60):
        (project / f"{number}").write_bytes(bytes([number]) * 20_000)
    with history(project, is_shared=True):
        pass
    for number in range(60):
        (project / f"{number}").unlink()
    age(project)
    with history(project, is_shared=True):
        pass
    assert (project.parent / "shared/small.sqlite").stat().st_size < 100_000


def test_a_content_that_a_power_cut_has_taken_is_read_again(project: Path) -> None:
    (project / "large").write_bytes(b"large" * 50_000)
    before = tree(project)
    with history(project, is_shared=True):
        pass
    (blob,) = project.parent.glob("shared/large/??/*")
    os.truncate(blob, 0)
    with database(project) as found:
        found.execute("DELETE FROM content WHERE data = ?", [b"one"])
    with history(project, is_shared=True) as cells:
        cells.run(lambda: [(project / name).unlink() for name in ("large", "notes.txt")])
        assert cells.undo().missed == ()
    assert tree(project) == before


@pytest.mark.parametrize("place", ["shared", "shared/large", "shared/small.sqlite"])
def test_where_nothing_can_be_shared_undo_works_and_nothing_is_leaked(project: Path, place: str) -> None:
    bad = project.parent / place
    bad.parent.mkdir(exist_ok=True)
    bad.mkdir() if "sqlite" in place else bad.write_text("a file")
    let_settle(project)
    opened = len([*Path("/proc/self/fd").iterdir()])
    with history(project, is_shared=True) as cells:
        cells.run((project / "notes.txt").unlink)
        assert cells.undo().missed == ()
    (project.parent / "no-folder").write_text("")
    with pytest.raises(FileExistsError):
        Versions(project, project.parent / "no-folder", shared=project.parent / "shared")
    for thread in threading.enumerate():
        if thread.name == "pinfold-unwatch":
            thread.join()
    assert len([*Path("/proc/self/fd").iterdir()]) == opened


def test_a_database_that_is_lost_meanwhile_costs_what_it_held_and_is_named(project: Path) -> None:
    (project / ".git").mkdir()
    (project / ".git/HEAD").write_text("ref")
    with history(project, is_shared=True):
        pass
    with history(project, is_shared=True) as cells:
        (project.parent / "shared/small.sqlite").unlink()
        (project.parent / "shared/small.sqlite").mkdir()
        cells.run(lambda: [(project / name).write_text("cell") for name in (".git/HEAD", "notes.txt")])
        assert [one.path for one in cells.undo().missed] == [".git", "notes.txt"]


def test_where_the_shared_room_is_full_a_session_uses_its_own(project: Path) -> None:
    (project / "large").write_bytes(b"1" * 500_000)
    with history(project, is_shared=True, total_cap=1_000_000):
        pass
    (project / "large").write_bytes(b"2" * 500_000)
    with history(project, is_shared=True, total_cap=1_000_000) as cells:
        assert cells.versions.fill().not_covered == ()
        cells.run((project / "large").unlink)
        assert cells.undo().missed == ()
    assert (project / "large").read_bytes() == b"2" * 500_000


def test_what_was_read_is_on_disk_before_the_first_cell_runs(project: Path) -> None:
    (project / ".venv").mkdir()
    (project / ".venv/python").write_text("not needed for that")
    let_settle(project)
    versions = Versions(project, project.parent / "store", shared=project.parent / "shared", settled_s=0)
    versions.begin()
    seen: list[int] = []
    versions.fill(lambda: seen.append(count(project, "stamp")))
    versions.close()
    assert seen == [count(project, "stamp") - 1]


def test_a_copy_of_a_history_keeps_what_it_needs_and_a_moved_one_finds_it(project: Path) -> None:
    before = tree(project)
    with history(project, is_shared=True) as cells:
        cells.run((project / "notes.txt").unlink)
    (store,) = project.parent.glob("store-*")
    fork = store.with_name("fork")
    shutil.copytree(store, fork, symlinks=True)
    keep_for_copy(store, fork)
    remove_folder(store)
    age(project)
    with history(project, is_shared=True):
        pass
    moved = project.rename(project.with_name("moved"))
    versions = Versions(moved, fork, shared=project.parent / "shared of another path", settled_s=0)
    versions.begin()
    assert versions.restore(0).missed == ()
    versions.close()
    assert tree(moved) == before
    assert not (project.parent / "shared of another path").exists()


class TwoHistories(RuleBasedStateMachine):
    """Of one workspace: every file comes back as it was, or is named, and is then as it was at some time."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.workspace = self.folder / "workspace"
        self.workspace.mkdir()
        for name in NAMES:
            (self.workspace / name).write_text(f"start {name}")
        self.opened: dict[int, Versions] = {}
        self.after: dict[int, dict[int, Tree]] = {0: {}, 1: {}}
        self.cells = {0: 0, 1: 0}
        self.killed: set[int] = set()
        self.has_aged = False
        self.seen: dict[str, list[object]] = {name: [] for name in NAMES}

    def look(self) -> Tree:
        now = tree(self.workspace)
        for name in NAMES:
            self.seen[name].append(now.get(name))
        return now

    def open(self, one: int) -> Versions:
        if one not in self.opened:
            let_settle(self.workspace)
            store, shared = self.folder / f"store{one}", self.folder / "shared"
            versions = self.opened[one] = Versions(self.workspace, store, shared=shared, settled_s=0)
            versions.begin()
            versions.fill()
            if not self.after[one] or one in self.killed:  # the cell that ran becomes a state like any other
                self.after[one][self.cells[one]] = self.look()
                self.killed.discard(one)
            assert versions.states == tuple(sorted(self.after[one]))
        return self.opened[one]

    def change(self, what: list[tuple[str, int]]) -> None:
        for name, number in what:
            path = self.workspace / name
            if number < 3:
                path.unlink(missing_ok=True)
            elif number < 6 and path.exists():
                path.chmod(0o644 if number == 3 else 0o600)
            else:
                path.write_text(f"{number % 3}" * (5 if number < 12 else 70_000))
        self.look()

    @rule(one=HISTORY, what=CHANGES)
    def runs(self, one: int, what: list[tuple[str, int]]) -> None:
        versions = self.open(one)
        self.cells[one] += 1
        versions.before(self.cells[one])
        self.change(what)
        versions.after(self.cells[one])
        self.after[one][self.cells[one]] = self.look()

    @rule(one=HISTORY, what=CHANGES)
    def is_killed_in_a_cell(self, one: int, what: list[tuple[str, int]]) -> None:
        versions = self.open(one)
        self.cells[one] += 1
        versions.before(self.cells[one])
        self.change(what)
        self.killed.add(one)
        self.closes(one)

    @rule(what=CHANGES)
    def user_changes(self, what: list[tuple[str, int]]) -> None:
        self.change(what)

    @rule(one=HISTORY)
    def closes(self, one: int) -> None:
        if versions := self.opened.pop(one, None):
            versions.close()

    @rule(one=HISTORY)
    def takes_over(self, one: int) -> None:
        self.closes(one)
        self.open(one)

    @rule()
    def ages(self) -> None:
        if (self.folder / "shared").exists():
            age(self.workspace)
            self.has_aged = True

    @rule(one=HISTORY)
    def is_forked(self, one: int) -> None:
        """In place of the other, which is removed."""
        if self.after[one]:
            self.closes(one)
            self.closes(1 - one)
            store, copy = self.folder / f"store{one}", self.folder / f"store{1 - one}"
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(store, copy, symlinks=True)
            keep_for_copy(store, copy)
            self.after[1 - one], self.cells[1 - one] = dict(self.after[one]), self.cells[one]
            self.killed = {0, 1} if one in self.killed else set()

    @rule(one=HISTORY, data=st.data())
    def goes(self, one: int, data: st.DataObject) -> None:
        versions = self.open(one)
        to = data.draw(st.sampled_from(sorted(self.after[one])))
        self.look()
        restored = versions.restore(to)
        now, wanted = tree(self.workspace), self.after[one][to]
        missed = {item.path for item in restored.missed}
        assert not missed or self.has_aged
        for name in NAMES:
            is_named = name in missed or name in restored.left
            assert now.get(name) == wanted.get(name) or (is_named and now.get(name) in self.seen[name])
        self.look()

    def teardown(self) -> None:
        self.closes(0)
        self.closes(1)
        shutil.rmtree(self.folder)


def test_whatever_two_histories_do_no_file_comes_back_wrong() -> None:
    run_state_machine_as_test(  # pyright: ignore[reportUnknownMemberType]
        TwoHistories, settings=settings(max_examples=EXAMPLES, stateful_step_count=15)
    )
