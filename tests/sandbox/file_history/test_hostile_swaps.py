"""Undo writes and reads nothing outside the workspace, whatever is swapped under its runner. Each with a control."""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import Cells, history, tree

from pinfold.sandbox.file_history.entries import Changes, NotCovered
from pinfold.sandbox.file_history.versions import Versions
from pinfold.sandbox.kernel.safe_files import SafeFolder, Stamp

pytestmark = pytest.mark.safety
SECRET = "of the user's, outside"
RACE_S = 1.5


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path / "outside"
    (folder / "sub").mkdir(parents=True)
    (folder / "x").write_text(SECRET)
    return folder


@pytest.fixture
def top(workspace: Path) -> Generator[SafeFolder]:
    top = SafeFolder(workspace)
    yield top
    top.close()


def file(top: Path, name: str) -> Stamp:
    return Stamp.of((top / name).lstat())


OWNER = (os.getuid(), os.getgid())


def put(top: SafeFolder, path: str, fill: Callable[[int], None], *, was: Stamp | None) -> None:
    top.put_file(path, fill, mode=0o644, owner=OWNER, mtime_ns=1, was=was)


WAYS_OUT: dict[str, Callable[[SafeFolder, str], object]] = {
    "looks": lambda top, path: top.status(path) or _refused(),
    "opens": lambda top, path: top.open_below(path).__enter__(),
    "writes": lambda top, path: put(top, path, lambda _: None, was=None),
    "links": lambda top, path: top.put_link(path, "y", OWNER, was=None),
    "makes": lambda top, path: top.make_folder(path),
    "closes": lambda top, path: top.give(path, 0o700, OWNER, is_folder=True),
    "lets read": lambda top, path: top.let_read(path),
    "removes": lambda top, path: top.remove(path, was=None),
    "removes folders": lambda top, path: top.remove_folder(path),
    "moves out": lambda top, path: top.move("own", path, was=None),
    "moves in": lambda top, path: top.move(path, "taken", was=None),
}


def _refused() -> None:
    raise FileNotFoundError


@pytest.mark.parametrize("way", WAYS_OUT.values(), ids=WAYS_OUT)
@pytest.mark.parametrize("name", ["x", "sub", "new"])
@pytest.mark.parametrize("lead", ["link", "folder/../link", "../outside", "folder/link"])
def test_no_way_leads_through_a_link_or_above(
    workspace: Path, outside: Path, top: SafeFolder, way: Callable[[SafeFolder, str], object], name: str, lead: str
) -> None:
    (workspace / "link").symlink_to(outside)
    (workspace / "folder").mkdir()
    (workspace / "folder" / "link").symlink_to("../../outside")
    (workspace / "own").touch()
    before = tree(outside)
    assert (workspace / lead / "x").read_text() == SECRET  # it does lead there
    with pytest.raises(OSError):  # noqa: PT011
        way(top, f"{lead}/{name}")
    assert tree(outside) == before


def test_the_same_ways_do_their_work_inside(workspace: Path, top: SafeFolder) -> None:
    (workspace / "folder").mkdir()
    put(top, "folder/x", lambda fd: os.close(os.dup(fd)), was=None)
    top.move("folder/x", "x", was=file(workspace, "folder/x"))
    top.put_link("folder/y", "x", OWNER, was=None)
    top.make_folder("folder/z")
    top.give("folder/z", 0o750, OWNER, is_folder=True)
    assert tree(workspace).keys() == {"folder", "folder/y", "folder/z", "x"}
    top.remove("folder/y", was=file(workspace, "folder/y"))
    top.remove_folder("folder/z")
    assert (tree(workspace).keys(), (workspace / "x").stat().st_mode & 0o777) == ({"folder", "x"}, 0o644)


def test_a_folder_swapped_for_a_link_while_a_file_is_written_keeps_the_file(
    workspace: Path, outside: Path, top: SafeFolder
) -> None:
    (workspace / "folder").mkdir()
    before = tree(outside)

    def fill(fd: int) -> None:
        os.write(fd, b"1")
        (workspace / "folder").rename(workspace / "moved")
        (workspace / "folder").symlink_to(outside)

    put(top, "folder/x", fill, was=None)
    assert tree(outside) == before
    assert (workspace / "moved" / "x").read_bytes() == b"1"


def test_what_changed_after_it_was_seen_is_neither_replaced_nor_removed_nor_moved(
    workspace: Path, top: SafeFolder
) -> None:
    (workspace / "x").write_text("one")
    seen = file(workspace, "x")
    (workspace / "x").write_text("two")
    for attempt in (
        lambda: put(top, "x", lambda _: None, was=seen),
        lambda: put(top, "x", lambda _: None, was=None),
        lambda: top.put_link("x", "y", OWNER, was=seen),
        lambda: top.remove("x", was=seen),
        lambda: top.move("x", "y", was=seen),
    ):
        with pytest.raises(OSError, match="changed meanwhile"):
            attempt()
    assert tree(workspace).keys() == {"x"}
    assert (workspace / "x").read_text() == "two"


SWAPPER = """
import os, sys
workspace, outside = sys.argv[1:]
os.chdir(workspace)
print("ready", flush=True)
while True:
    for name, target in (("d", outside), ("f", outside + "/x")):
        try:
            os.rename(name, name + "-aside")
            os.symlink(target, name)
            for _ in range(500): pass
            os.unlink(name)
        except OSError:
            pass
        try:
            os.rename(name + "-aside", name)
        except OSError:
            pass
        for _ in range(500): pass
"""
"""Only names of the workspace itself: through a link it would get outside by its own doing."""


@contextmanager
def swapping(workspace: Path, outside: Path) -> Generator[None]:
    """Somebody who puts links to outside in the place of folders and files, and takes them away, as fast as can be."""
    process = subprocess.Popen(
        [sys.executable, "-c", SWAPPER, str(workspace), str(outside)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("watches", [8192, 0], ids=["watched", "walked"])
def test_undo_stays_inside_while_links_to_outside_come_and_go(workspace: Path, outside: Path, watches: int) -> None:
    for name in ("d/x", "d/sub/y", "f"):
        (workspace / name).parent.mkdir(parents=True, exist_ok=True)
        (workspace / name).write_text(name)
    before = tree(outside)
    put_back: set[str] = set()
    with history(workspace, watches=watches) as cells, swapping(workspace, outside):
        until = time.monotonic() + RACE_S
        while time.monotonic() < until:
            cells.run(change, workspace)
            put_back.update(cells.versions.restore(0).put_back)
            cells.versions.restore(cells.number)
    assert put_back
    assert tree(outside) == before
    assert SECRET not in {path.read_text() for path in workspace.parent.glob("store-*/*/*")}


def change(workspace: Path) -> None:
    """As code in a sandbox, whose writes do not get out: in the folder itself, and through no link."""
    with suppress(OSError):
        folder = os.open(workspace / "d", os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY)
        try:
            fd = os.open("x", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, dir_fd=folder)
            os.write(fd, b"by a cell")
            os.close(fd)
        finally:
            os.close(folder)


def test_each_write_is_made_inside_or_refused_while_links_come_and_go(
    workspace: Path, outside: Path, top: SafeFolder
) -> None:
    (workspace / "d" / "sub").mkdir(parents=True)
    before = tree(outside)
    made = refused = 0
    with swapping(workspace, outside):
        until = time.monotonic() + 30
        while min(made, refused) < 50 and time.monotonic() < until:
            try:
                status = top.status("d/sub/x")
                put(top, "d/sub/x", lambda _: None, was=Stamp.of(status) if status else None)
                made += 1
            except OSError:
                refused += 1
    assert min(made, refused) >= 50
    assert tree(outside) == before


def test_without_such_care_the_same_swaps_lead_outside(workspace: Path, outside: Path) -> None:
    (workspace / "d" / "sub").mkdir(parents=True)
    before = tree(outside)
    with swapping(workspace, outside):
        until = time.monotonic() + 30
        while tree(outside) == before and time.monotonic() < until:
            with suppress(OSError):
                (workspace / "d" / "sub" / "x").write_text("put back")
    assert (outside / "sub" / "x").read_text() == "put back"


def test_no_file_that_a_cell_made_gets_set_id_bits_from_undo(workspace: Path) -> None:
    for folder in ("moved", "gone"):
        (workspace / folder).mkdir()
        (workspace / folder / "tool").write_bytes(f"{folder:6}".encode())
        (workspace / folder / "tool").chmod(0o4755)
    inode = (workspace / "moved" / "tool").stat().st_ino
    held: list[mmap.mmap] = []

    def cell() -> None:
        (workspace / "moved").rename(workspace / "elsewhere")
        (workspace / "gone" / "tool").unlink()
        for name in ("zzz", "elsewhere/zzz", "gone/aaa"):
            for copied in ("moved ", "gone  "):
                (workspace / f"{name}{copied}").write_text(copied)
                with (workspace / f"{name}{copied}").open("r+b") as file:
                    held.append(mmap.mmap(file.fileno(), 0))

    with history(workspace) as cells:
        cells.run(lambda: None)
        cells.run(cell)
        restored = cells.undo()
    for one in held:
        one[:] = b"cell's"  # through a map, which takes no bits away
    tool, bare = workspace / "moved" / "tool", workspace / "gone" / "tool"
    assert (tool.stat().st_ino, tool.stat().st_mode & 0o7777, tool.read_bytes()) == (inode, 0o4755, b"moved ")
    assert bare.stat().st_mode & 0o7777 == 0o755
    assert [(one.path, one.why) for one in restored.missed] == [("gone/tool", "its set-id bits are not given back")]


def test_a_pipe_in_the_place_of_a_file_holds_nobody_up(workspace: Path) -> None:
    (workspace / "x").write_text("1")
    with history(workspace) as cells:
        cells.run(lambda: ((workspace / "x").unlink(), os.mkfifo(workspace / "x")))
        assert cells.undo().missed == ()
        assert (workspace / "x").read_text() == "1"


def test_a_folder_too_deep_to_name_is_left_and_named(workspace: Path) -> None:
    def dig() -> None:
        here = os.open(workspace, os.O_PATH)
        for _ in range(60):
            os.mkdir("x" * 200, dir_fd=here)
            below = os.open("x" * 200, os.O_PATH, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)

    with history(workspace) as cells:
        changes = cells.run(dig)
        assert [it.why for it in changes.not_covered] == ["unreadable"]
        assert len(cells.undo().missed) == len(changes.made)
        assert cells.run(lambda: None).made == ()


def test_a_flood_of_files_takes_nothing_known_away(workspace: Path, watches: int) -> None:
    for number in range(10):
        (workspace / f"known-{number}").write_text("1")
    versions = Versions(workspace, workspace.parent / "store", entry_cap=20, watches=watches)
    versions.begin()
    versions.fill()
    cells = Cells(versions)

    def flood() -> None:
        for number in range(30):
            (workspace / f"flood-{number}").touch()
        (workspace / "known-3").write_text("2")
        (workspace / "known-4").unlink()

    changes = cells.run(flood)
    assert NotCovered(path="", why="too many files") in changes.not_covered
    assert "known-3" in changes.changed
    assert cells.run(lambda: None) == Changes()
    versions.restore(0)
    assert {path.read_text() for path in workspace.glob("known-*")} == {"1"}
    assert len(list(workspace.glob("known-*"))) == 10
    versions.close()


def test_too_many_files_are_named_and_the_rest_is_covered(workspace: Path) -> None:
    (workspace / "many").mkdir()
    for number in range(30):
        (workspace / "many" / f"{number}").touch()
    (workspace / "few").write_text("1")
    versions = Versions(workspace, workspace.parent / "store", entry_cap=20)
    coverage = versions.begin()
    assert [(it.path, it.why) for it in coverage.not_covered] == [("many", "too many files")]
    versions.fill()
    cells = Cells(versions)
    cells.run(lambda: ((workspace / "few").unlink(), (workspace / "many" / "31").touch()))
    assert cells.undo().missed == ()
    assert (workspace / "few").read_text() == "1"
    versions.close()
