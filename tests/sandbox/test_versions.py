"""The history of a workspace's files: what a cell changed goes back and forth, what the user changed stays."""

from __future__ import annotations

import mmap
import os
import shutil
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from pinfold.sandbox import SandboxUnavailable
from pinfold.sandbox.versions import Changes, Missed, NotCovered, Restored, StateUnknown, Versions

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(sys.platform != "linux", reason="openat2 and inotify are Linux's"),
]

Tree = dict[str, tuple[str, object, int]]
WATCHED, WALKED = 8192, 0


def tree(workspace: Path) -> Tree:
    """Everything in it, read in the plainest way."""
    found: Tree = {}
    for path in workspace.rglob("*"):
        status = path.lstat()
        mode = stat.S_IMODE(status.st_mode)
        name = str(path.relative_to(workspace))
        if path.is_symlink():
            found[name] = ("link", path.readlink(), 0)
        elif path.is_dir():
            found[name] = ("folder", None, mode)
        elif path.is_file():
            found[name] = ("file", path.read_bytes(), mode)
        else:
            found[name] = ("other", stat.S_IFMT(status.st_mode), mode)
    return found


class Cells:
    """Functions run as cells."""

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.number = 0

    def run(self, cell: Callable[..., object], *args: object) -> Changes:
        self.number += 1
        self.versions.before(self.number)
        cell(*args)
        return self.versions.after(self.number)

    def undo(self) -> Restored:
        return self.versions.restore(self.number - 1)


@contextmanager
def history(
    workspace: Path, *, watches: int = WATCHED, file_cap: int = 1 << 20, total_cap: int = 1 << 30
) -> Generator[Cells]:
    store = workspace.parent / f"store-{time.monotonic_ns()}"
    versions = Versions(workspace, store, file_cap=file_cap, total_cap=total_cap, watches=watches)
    try:
        assert versions.begin().watched == (watches > 0)
        assert versions.fill().unread == 0
        yield Cells(versions)
    finally:
        versions.close()


@pytest.fixture(params=[WATCHED, WALKED], ids=["watched", "walked"])
def watches(request: pytest.FixtureRequest) -> int:
    return request.param


@pytest.fixture
def project(workspace: Path) -> Path:
    (workspace / "notes.txt").write_text("one")
    (workspace / "src" / "deep").mkdir(parents=True)
    (workspace / "src" / "main.py").write_text("print(1)")
    (workspace / "src" / "deep" / "data.bin").write_bytes(bytes(range(256)) * 9)
    (workspace / "empty").mkdir(mode=0o750)
    (workspace / "run.sh").write_text("exit")
    (workspace / "run.sh").chmod(0o755)
    (workspace / "link").symlink_to("src/main.py")
    (workspace / "out").symlink_to("/etc")
    (workspace / ".gitignore").write_text("*.log\n")
    (workspace / "train.log").write_text("ignored by git")
    (workspace / os.fsdecode(b"caf\xe9 \n\x01")).write_text("a name that is no text")
    return workspace


# What comes back


def swap(one: Path, other: Path) -> None:
    spare = one.with_name("spare")
    one.rename(spare)
    other.rename(one)
    spare.rename(other)


def to_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("a file now")


def to_folder(path: Path) -> None:
    path.unlink()
    (path / "in").mkdir(parents=True)
    (path / "in" / "it").write_text("a folder now")


def to_link(path: Path, target: str) -> None:
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    path.symlink_to(target)


ACTS: dict[str, Callable[[Path], object]] = {
    "writes a file": lambda w: (w / "notes.txt").write_text("two"),
    "writes in place": lambda w: os.truncate(w / "src/deep/data.bin", 5),
    "makes a file": lambda w: (w / "new").write_text(""),
    "makes folders": lambda w: (w / "a/b/c").mkdir(parents=True),
    "removes a file": lambda w: (w / "notes.txt").unlink(),
    "removes an ignored file": lambda w: (w / "train.log").unlink(),
    "removes an empty folder": lambda w: (w / "empty").rmdir(),
    "removes a folder": lambda w: shutil.rmtree(w / "src"),
    "removes everything": lambda w: [shutil.rmtree(p) if p.is_dir() and not p.is_symlink() else p.unlink() for p in w.iterdir()],
    "renames a file": lambda w: (w / "notes.txt").rename(w / "src/else.txt"),
    "renames a folder": lambda w: (w / "src").rename(w / "lib"),
    "renames and changes": lambda w: ((w / "src").rename(w / "lib"), (w / "lib/main.py").write_text("!")),
    "swaps two files": lambda w: swap(w / "notes.txt", w / "run.sh"),
    "swaps a file and a folder": lambda w: swap(w / "notes.txt", w / "src"),
    "makes a file executable": lambda w: (w / "notes.txt").chmod(0o755),
    "closes a folder": lambda w: (w / "src").chmod(0o700),
    "closes the workspace": lambda w: w.chmod(0o700),
    "points a link elsewhere": lambda w: to_link(w / "link", "/etc/passwd"),
    "folder to file": lambda w: to_file(w / "src"),
    "file to folder": lambda w: to_folder(w / "notes.txt"),
    "folder to link": lambda w: to_link(w / "src", "/etc"),
    "file to link": lambda w: to_link(w / "notes.txt", "nowhere"),
    "link to folder": lambda w: to_folder(w / "out"),
}  # fmt: skip


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_what_a_cell_does_is_undone_and_redone(
    project: Path, act: Callable[[Path], object], watches: int
) -> None:
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
    assert (made, changed, removed) == (
        Changes(made=("new",)),
        Changes(changed=("new",)),
        Changes(removed=("new",)),
    )
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


# What is the user's


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
        replaced = {
            kept.path: cells.versions.content(kept.blob).read_text() for kept in cells.undo().replaced
        }
    assert replaced == {
        "notes.txt": "by the user, while the cell ran",
        "own": "of the user's, made while the cell ran",
    }


# Git


QUIET = {
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_CONFIG_SYSTEM": "/dev/null",
    "GIT_AUTHOR_NAME": "A",
    "GIT_AUTHOR_EMAIL": "a@example.org",
    "GIT_COMMITTER_NAME": "A",
    "GIT_COMMITTER_EMAIL": "a@example.org",
    "GIT_OPTIONAL_LOCKS": "0",  # as editors do: looking at the status writes no index
    "PATH": os.environ["PATH"],
}
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git")


def git(folder: Path, *args: str) -> str:
    done = subprocess.run(["git", *args], cwd=folder, env=QUIET, check=True, capture_output=True, text=True)
    return done.stdout


def commit(folder: Path, text: str) -> None:
    (folder / "notes.txt").write_text(text)
    git(folder, "add", "notes.txt")
    git(folder, "commit", "-q", "-m", text)


@pytest.fixture
def repository(workspace: Path) -> Path:
    git(workspace, "init", "-q", "-b", "main")
    commit(workspace, "one")
    return workspace


def log(repository: Path) -> list[str]:
    git(repository, "fsck", "--strict")
    return git(repository, "log", "--format=%s").split()


@needs_git
def test_a_repository_goes_back_and_forth_with_its_files(repository: Path, watches: int) -> None:
    with history(repository, watches=watches) as cells:
        cells.run(lambda: commit(repository, "two"))
        cells.run(lambda: (git(repository, "gc", "-q"), git(repository, "checkout", "-q", "-b", "topic")))
        cells.versions.restore(0)
        assert (log(repository), git(repository, "status", "--porcelain")) == (["one"], "")
        cells.versions.restore(2)
        assert (log(repository), git(repository, "branch", "--show-current")) == (["two", "one"], "topic\n")
        cells.run(lambda: [shutil.rmtree(path) for path in repository.iterdir() if path.is_dir()])
        cells.versions.restore(1)
        assert (log(repository), git(repository, "branch", "--show-current")) == (["two", "one"], "main\n")


@needs_git
def test_a_repository_the_user_works_in_stays_whole(repository: Path, watches: int) -> None:
    with history(repository, watches=watches) as cells:
        cells.run(lambda: commit(repository, "two"))
        commit(repository, "three")
        cells.run(lambda: commit(repository, "four"))
        cells.versions.restore(0)
        assert log(repository) == ["three", "two", "one"]
        assert git(repository, "status", "--porcelain") == ""
        cells.versions.restore(2)
        assert log(repository) == ["four", "three", "two", "one"]
        commit(repository, "five")
        cells.versions.restore(0)
        assert log(repository) == ["five", "four", "three", "two", "one"]


@needs_git
def test_a_repository_comes_back_as_a_whole_or_stays_as_it_is(repository: Path) -> None:
    (repository / "large").write_bytes(os.urandom(1 << 19))
    git(repository, "add", "large")
    git(repository, "commit", "-q", "-m", "large")
    with history(repository, file_cap=1 << 18) as cells:
        cells.run(lambda: (commit(repository, "two"), git(repository, "gc", "-q", "--prune=now")))
        undone = cells.undo()
        assert [missed.path for missed in undone.missed] == [".git"]
        assert log(repository) == ["two", "large", "one"]
        assert (repository / "notes.txt").read_text() == "one"


# What is not covered


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
    assert coverage.not_covered_by_reason == {"too large": 2, "secret": 1, "hard link": 1, "special file": 2}
    assert coverage.files == 5
    held = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert len(held) == 5
    assert b"TOKEN=1" not in held


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_what_cannot_be_read_is_named(project: Path) -> None:
    (project / "notes.txt").chmod(0)
    (project / "src").chmod(0)
    try:
        versions = Versions(project, project.parent / "store")
        coverage = versions.begin()
        assert set(versions.fill().not_covered) >= {NotCovered(path="src", why="unreadable")}
        assert coverage.not_covered_by_reason["unreadable"] >= 1
        versions.close()
    finally:
        (project / "src").chmod(0o700)


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
        changes = cells.run(
            lambda: ((project / "new").mkdir(), (project / "new/large").write_bytes(b"x" * 3000))
        )
        assert changes.not_covered == (NotCovered(path="new/large", why="too large", size=3000),)
        assert cells.undo().missed == (
            Missed(path="new", why="not empty"),
            Missed(path="new/large", why="too large"),
        )
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
    time.sleep(0.03)  # what was made just now is read at once
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
    time.sleep(0.03)
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


# What could be missed


def test_rewrites_of_the_same_size_in_the_same_moment_are_seen(project: Path, watches: int) -> None:
    notes = project / "notes.txt"
    with history(project, watches=watches) as cells:
        for number in range(200):
            os.utime(notes, ns=(7, 7))
            assert cells.run(_rewrite, notes, f"{number:03}").changed == ("notes.txt",)
        for number in (199, 57, 1):
            cells.versions.restore(number)
            assert notes.read_text() == f"{number - 1:03}"


def _rewrite(path: Path, text: str) -> None:
    """In place, and as if it had not been."""
    with path.open("r+") as file:
        file.write(text)
    os.utime(path, ns=(7, 7))


def test_writes_through_a_descriptor_that_stays_open_are_seen(project: Path, watches: int) -> None:
    with history(project, watches=watches) as cells, (project / "notes.txt").open("r+b", buffering=0) as file:
        assert cells.run(lambda: None) == Changes()
        for text in (b"two", b"six"):
            assert cells.run(os.pwrite, file.fileno(), text, 0).changed == ("notes.txt",)
        cells.undo()
        assert (project / "notes.txt").read_text() == "two"


@pytest.fixture(params=["disk", "memory"])
def mapped(request: pytest.FixtureRequest, workspace: Path, tmp_path: Path) -> Generator[Path]:
    """A file in a workspace on a disk, or on a file system that keeps no account of writes through maps."""
    folder = workspace
    if request.param == "memory":
        if not os.access("/dev/shm", os.W_OK):
            pytest.skip("there is no tmpfs to write to")
        folder = Path("/dev/shm") / f"pinfold-{os.getpid()}-{time.monotonic_ns()}" / "workspace"
        folder.mkdir(parents=True)
    (folder / "map").write_bytes(b"0" * 10_000)
    time.sleep(0.03)
    yield folder / "map"
    if folder != workspace:
        shutil.rmtree(folder.parent)


def test_writes_through_a_map_are_seen_though_nothing_tells_of_them(mapped: Path) -> None:
    with history(mapped.parent) as cells:
        maps: list[mmap.mmap] = []

        def opens() -> None:
            with mapped.open("r+b") as file:
                maps.append(mmap.mmap(file.fileno(), 0))
            assert maps[0][5000] == ord("0")

        def writes(byte: bytes) -> None:
            maps[0][5000:5001] = byte

        assert cells.run(opens) == Changes()
        for byte in (b"1", b"2", b"3"):
            assert cells.run(writes, byte).changed == ("map",)
        assert cells.run(maps[0].close) == Changes()
        cells.versions.restore(3)
        assert mapped.read_bytes()[4999:5002] == b"020"


def test_maps_made_while_events_were_lost_are_seen(workspace: Path) -> None:
    queued = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if queued > 1 << 16:
        pytest.skip("the queue takes too long to fill")
    (workspace / "map").write_bytes(b"0" * 10)
    with history(workspace) as cells:
        maps: list[mmap.mmap] = []

        def cell() -> None:
            for number in range(queued // 4 + 100):
                os.close(os.open(workspace / str(number), os.O_CREAT | os.O_WRONLY))
            with (workspace / "map").open("r+b") as file:
                maps.append(mmap.mmap(file.fileno(), 0))

        assert len(cells.run(cell).made) == queued // 4 + 100
        maps[0][0] = 7
        assert cells.run(lambda: maps[0].__setitem__(0, 8)).changed == ("map",)
        maps[0].close()
        cells.undo()
        assert (workspace / "map").read_bytes()[0] == 7


def test_a_folder_filled_before_it_was_watched_is_seen_and_watched_from_then_on(project: Path) -> None:
    with history(project) as cells:
        cells.run(lambda: ((project / "a/b").mkdir(parents=True), (project / "a/b/c").write_text("1")))
        assert cells.run(lambda: (project / "a/b/c").write_text("2")).changed == ("a/b/c",)
        cells.run(lambda: (project / "a").rename(project / "z"))
        assert cells.run(lambda: (project / "z/b/c").write_text("3")).changed == ("z/b/c",)
        cells.run(lambda: ((project / "z").rename(project / "a"), (project / "z/b").mkdir(parents=True)))
        changed = cells.run(lambda: ((project / "a/b/c").write_text("4"), (project / "z/b/d").touch()))
        assert changed == Changes(made=("z/b/d",), changed=("a/b/c",))
        shutil.rmtree(project / "a")
        cells.versions.restore(2)
        assert not (project / "a").exists()


def test_with_more_folders_than_are_watched_everything_is_walked(project: Path) -> None:
    with history(project, watches=6) as cells:
        cells.run(lambda: [(project / f"{number}" / "in").mkdir(parents=True) for number in range(4)])
        assert cells.run((project / "3" / "in" / "it").touch).made == ("3/in/it",)
        cells.versions.restore(0)
        assert not (project / "3").exists()


# Bounds


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
    time.sleep(0.03)
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
