"""Nothing that changes is missed, however it is done."""

from __future__ import annotations

import mmap
import os
import shutil
import time
from collections.abc import Generator
from pathlib import Path

import pytest
from tests.sandbox.file_history.cells import history, let_settle

from pinfold.sandbox.file_history.entries import Changes

pytestmark = pytest.mark.integration


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
    let_settle(folder)
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
