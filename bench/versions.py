"""What the history of a workspace's files costs: 10,000 files of 2 GB in all. Each bound is checked.

./.venv/bin/python bench/versions.py [--rounds 200] [--folder PATH]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandbox_suite.figures import Figure, shown, table

from pinfold.sandbox.file_history.entries import Restored
from pinfold.sandbox.file_history.versions import Versions

FOLDERS = 100
SIZES = (40_000,) * 90 + (1_000_000,) * 9 + (7_500_000,)
"""Of the files of one folder."""
UNCHANGED_S, ONE_CHANGED_S = 0.010, 0.030


class Cells:
    """Runs functions as cells, and times what is added to each."""

    def __init__(self, versions: Versions) -> None:
        self.versions = versions
        self.number = 0

    def run(self, cell: Callable[[], object]) -> float:
        self.number += 1
        started = time.perf_counter()
        self.versions.before(self.number)
        added = time.perf_counter() - started
        cell()
        started = time.perf_counter()
        self.versions.after(self.number)
        return added + time.perf_counter() - started

    def times(self, rounds: int, cell: Callable[[int], object]) -> Figure:
        return Figure.of([self.run(lambda n=n: cell(n)) for n in range(rounds)])


def make(workspace: Path) -> None:
    noise = random.Random(1).randbytes(max(SIZES))
    for folder in range(FOLDERS):
        place = workspace / f"part-{folder:02}" / "data"
        place.mkdir(parents=True)
        for number, size in enumerate(SIZES):
            (place / f"{number:03}.bin").write_bytes(f"{folder} {number} ".encode() + noise[:size])


def timed(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def walk(workspace: Path) -> None:
    waiting = [str(workspace)]
    while waiting:
        with os.scandir(waiting.pop()) as inside:
            for entry in inside:
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                else:
                    entry.stat(follow_symlinks=False)


def whole(restored: Restored) -> None:
    assert not restored.missed, restored.missed[:5]
    assert not restored.left, restored.left[:5]


def measure(workspace: Path, store: Path, rounds: int) -> tuple[list[tuple[str, str, str]], bool]:
    rows: list[tuple[str, str, str]] = []
    good = True

    def row(what: str, figure: float | Figure, bound_s: float | None = None) -> None:
        nonlocal good
        value = figure.median if isinstance(figure, Figure) else figure
        good = good and (bound_s is None or value < bound_s)
        text = str(figure) if isinstance(figure, Figure) else shown(figure)
        rows.append((what, text, shown(bound_s) if bound_s else ""))

    row("a walk that only looks, for comparison", statistics.median(timed(lambda: walk(workspace)) for _ in range(9)))
    shared = store.with_name("shared")
    versions = Versions(workspace, store, shared=shared, settled_s=0)
    cells = Cells(versions)
    row("begin: before the first cell", timed(versions.begin))
    filling = threading.Thread(target=versions.fill)
    started = time.perf_counter()
    filling.start()
    beside: list[float] = []
    while filling.is_alive():
        beside.append(cells.run(lambda: None))
        time.sleep(0.01)
    row("a cell that changes nothing, while contents are read", Figure.of(beside))
    row("fill: all contents read and kept, beside the cells", time.perf_counter() - started)
    second = Versions(workspace, store.with_name("store-2"), shared=shared, settled_s=0)
    row("begin of a second session", timed(second.begin))
    row("fill of a second session", timed(second.fill))
    second.close()

    small, middle = workspace / "part-03" / "data" / "005.bin", workspace / "part-03" / "data" / "095.bin"
    large = workspace / "part-03" / "data" / "099.bin"
    row("a cell that changes nothing", cells.times(rounds, lambda _: None), UNCHANGED_S)
    for size, path in (("40 kB", small), ("1 MB", middle), ("7.5 MB", large)):
        data = path.read_bytes()
        figure = cells.times(rounds // 4, lambda n, p=path, d=data: p.write_bytes(f"{n} ".encode() + d))
        row(f"a cell that changes one file of {size}", figure, ONE_CHANGED_S)
    row(
        "a cell that makes and removes a file",
        cells.times(rounds // 4, lambda _: (small.rename(small.with_suffix("")), small.with_suffix("").rename(small))),
    )
    readable = sorted(workspace.rglob("00*.bin"))
    row(f"a cell that reads {len(readable)} files", cells.times(5, lambda _: [path.read_bytes() for path in readable]))
    row("undo of one file of 1 MB", undo(cells, lambda: middle.write_bytes(b"other")))
    row("undo of a folder renamed", undo(cells, lambda: (workspace / "part-07").rename(workspace / "moved")))
    row("undo of `rm -rf` of everything", undo(cells, lambda: [shutil.rmtree(path) for path in workspace.iterdir()]))
    row("a cell that changes nothing, after that", cells.times(rounds, lambda _: None), UNCHANGED_S)
    versions.close()

    versions = Versions(workspace, store.with_name("store-3"), watches=0)
    versions.begin()
    versions.fill()
    row("without a watch: a cell that changes nothing", Cells(versions).times(20, lambda _: None))
    versions.close()
    return rows, good


def undo(cells: Cells, cell: Callable[[], object]) -> float:
    cells.run(cell)
    return timed(lambda: whole(cells.versions.restore(cells.number - 1)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", type=Path, help="where to work; needs 7 GB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        workspace = Path(folder) / "workspace"
        workspace.mkdir()
        make(workspace)
        rows, good = measure(workspace, Path(folder) / "store", options.rounds)
    print(table(("what", "time, median (p95)", "bound"), rows))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
