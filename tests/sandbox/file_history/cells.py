"""Functions run as cells over a workspace with a history, and what cells can do to one."""

from __future__ import annotations

import os
import shutil
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pinfold.sandbox.file_history.entries import Changes, Restored
from pinfold.sandbox.file_history.versions import Versions

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


def let_settle(workspace: Path) -> None:
    """Until nothing in it has changed just now: that would be read at once."""
    newest = max(path.lstat().st_ctime_ns for path in (workspace, *workspace.rglob("*")))
    while time.time_ns() - newest < 30_000_000:
        pass


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
    workspace: Path,
    *,
    watches: int = WATCHED,
    file_cap: int = 1 << 20,
    total_cap: int = 1 << 30,
    look_s: float = 600,
    is_shared: bool = False,
    **bounds: Any,
) -> Generator[Cells]:
    """`look_s`: else a look on a busy machine ends before it has seen everything. `is_shared`: with other histories of it."""
    store = workspace.parent / f"store-{time.monotonic_ns()}"
    if is_shared:
        let_settle(workspace)
        bounds.update(shared=workspace.parent / "shared", settled_s=0)
    versions = Versions(
        workspace, store, file_cap=file_cap, total_cap=total_cap, watches=watches, look_s=look_s, **bounds
    )
    try:
        assert versions.begin().watched == (watches > 0)
        assert versions.fill().unread == 0
        yield Cells(versions)
    finally:
        versions.close()


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
