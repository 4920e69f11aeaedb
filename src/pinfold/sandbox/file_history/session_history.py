"""The history of a workspace's files beside a live session: looked after in threads, so that no cell waits longer than it must."""

from __future__ import annotations

import asyncio
import functools
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import cast

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import ChangedFile, ChangedFiles, How, SandboxError, Spec
from pinfold.sandbox.file_history.entries import Changes, Coverage, Restored, Why
from pinfold.sandbox.file_history.versions import TOTAL_CAP, Versions
from pinfold.sandbox.guards.gitdir import read_tracked_paths
from pinfold.sandbox.guards.guarded_paths import Listings
from pinfold.sandbox.guards.named_files import format_name, is_masked
from pinfold.sandbox.guards.new_names import Names
from pinfold.sandbox.kernel.folders import TemporaryFolder
from pinfold.text import join_names, numerous

SHARE = 0.2
"""Of the free disk, at most, for contents."""
FILL_S, FILL_CPU_S = 5.0, 1.5
"""From the beginning: how long a cell waits for the user's files to be read, at most, and as long as that takes so much of the
processor. Later ones are read beside it: what it changes before they are is not covered."""
IDLE_S, LEISURE_S = 1.0, 0.1
"""Without a cell, and of the first cell, before a large workspace is read that only this session will go back in: starting it
has all the processor, and most of its cells are over by then."""
LISTED = 50
"""Files of one cell that are told with their content."""
UNSEEN = {".git", "__pycache__"}
REMADE = {*UNSEEN, ".venv", "venv", "node_modules", ".tox"}
"""Folders of files that a command makes again, and that users do not keep."""
NAMED = 5
"""Paths that are named in one line."""
NO_FILES = ChangedFiles()
BEYOND: tuple[Why, ...] = ("too much at once", "too many files")
"""Why undo does not cover what a cell has just made, where it would cover less of it."""
_NO_LOSS: tuple[Why, ...] = ("special file", "secret")
"""Nothing is in it, or code cannot see it."""


class FileHistory:
    """Of one session. Cells are numbered as the session numbers them."""

    def __init__(
        self,
        workspace: Path,
        folder: Path | None = None,
        listings: Listings | None = None,
        *,
        shared: Path | None = None,
    ) -> None:
        """In any thread; what can be restored is what is there now, and what `folder` holds. Without, it ends with us.

        `listings`: what the walk for guarded paths has just found. `shared`: as in `Spec.contents`.
        """
        self._workspace = workspace
        self._scratch = None if folder else TemporaryFolder("versions")
        place = folder or cast("TemporaryFolder", self._scratch).path
        self._running: int | None = None
        self._is_looking = False
        self.said: tuple[str, ...] = ()
        """Of the last cell's files, a line each."""
        self.changed = NO_FILES
        """By the last cell."""
        with ExitStack() as on_failure:
            if self._scratch:
                on_failure.callback(self._scratch.remove)
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            cap = min(TOTAL_CAP, int(shutil.disk_usage(place).free * SHARE))
            self._versions = Versions(workspace, place, total_cap=cap, is_lasting=folder is not None, shared=shared)
            on_failure.callback(self._versions.close)
            self.coverage: Coverage = self._versions.begin(listings)
            on_failure.pop_all()
        self._is_read = Event()
        self._is_used = Event()
        self._closing = Event()
        self._fill_until = monotonic() + FILL_S
        Thread(target=self._fill, daemon=True, name="pinfold-versions").start()

    def _fill(self) -> None:
        try:
            if self.coverage.has_unmeasured:
                self._is_used.wait(IDLE_S)
            if not self.coverage.has_unmeasured or not self._closing.wait(LEISURE_S):
                self._versions.fill(self._is_read.set, FILL_CPU_S)
        finally:
            self._is_read.set()

    @property
    def last(self) -> int:
        """The highest number of a cell it knows of."""
        return self._versions.last

    @classmethod
    def create_if_possible(cls, spec: Spec, listings: Listings | None = None) -> FileHistory | str:
        """In any thread. Or why not."""
        try:
            return cls(spec.workspace, spec.state and spec.state / "files", listings, shared=spec.contents)
        except (OSError, RuntimeError, ValueError, SandboxError) as error:
            return f"Undo brings back variables only, no files: {error}."

    def get_touched_names(self) -> Names:
        """Names to which something happened since the files were last looked at."""
        return self._versions.get_touched_names()

    async def before(self, cell: int) -> None:
        """Again, if it was given up before it ran."""
        if self._running == cell:
            return
        if self._running is not None:
            await self.after()
        left_s = self._fill_until - monotonic()
        if not self._is_read.is_set() and left_s > 0 and not self.coverage.has_unmeasured:
            await anyio.to_thread.run_sync(self._is_read.wait, left_s, abandon_on_cancel=True)
        if self._versions.is_quiet:  # it is over before a thread would be reached
            self._versions.before(cell)
        else:
            await anyio.to_thread.run_sync(self._versions.before, cell)
        self._is_used.set()
        self._running, self.changed = cell, NO_FILES

    async def after(self, *, spilled: bool = False) -> None:
        """The cell has ended: look at the files before its caller can change them. `spilled`: it filled the disk.

        A cancelled caller waits only until the look has stopped.
        """
        cell, self._running, self.said = self._running, None, ()
        if cell is None:
            return
        if self._versions.is_quiet:
            self._finish(cell, spilled=spilled)
            return
        finish = functools.partial(self._finish, cell, spilled=spilled)
        looking = asyncio.ensure_future(asyncio.to_thread(finish))
        self._is_looking = True
        try:
            await asyncio.shield(looking)
        except asyncio.CancelledError:
            self.hurry()
            with anyio.CancelScope(shield=True):
                await asyncio.wait([looking])
            raise
        finally:
            self._is_looking = False

    def hurry(self) -> None:
        """A caller waits: what has not been looked at yet is reported as not covered."""
        if self._is_looking:
            self._versions.hurry()

    @property
    def is_quiet(self) -> bool:
        """Nothing has happened to any file since the cell began."""
        return self._versions.is_quiet

    def _finish(self, cell: int, *, spilled: bool) -> None:
        changes = self._versions.after(cell, spilled=spilled)
        if changes.texts:
            self.changed = self._read(changes)
        beyond = [one.path or "." for one in changes.not_covered if one.why in BEYOND]
        if beyond and not spilled:
            self.said = (f"Undo does not cover {_names(beyond)}: too many files at once.",)

    def _read(self, changes: Changes) -> ChangedFiles:
        """What a person wants to see of it, with the content of the first few."""
        kinds: tuple[tuple[How, tuple[str, ...]], ...] = (
            ("added", changes.made),
            ("changed", changes.changed),
            ("removed", changes.removed),
        )
        found: list[tuple[str, How]] = [
            (path, how)
            for how, paths in kinds
            for path in paths
            if path in changes.texts and not UNSEEN & set(path.split("/"))
        ]
        files = tuple(
            ChangedFile(path=format_name(path), how=how, before=self._text(before), after=self._text(after))
            for path, how in found[:LISTED]
            for before, after in [changes.texts[path]]
        )
        return ChangedFiles(files=files, more=len(found) - len(files))

    def _text(self, digest: str | None) -> bytes | None:
        try:
            data = self._versions.content(digest) if digest else None
        except SandboxError:
            return None
        return None if data is None or b"\0" in data else data

    async def restore(self, to: int) -> list[str]:
        """The workspace as it was after this cell. What must be said about it, a line each. Raises SandboxError."""
        await self.after()
        return _describe_restored(await anyio.to_thread.run_sync(self._versions.restore, to))

    def describe_tracked_secrets(self) -> str | None:
        """What no mask hides, in a line: secrets that git has in its objects."""
        found = [path for path in read_tracked_paths(f"{self._workspace}/.git") if is_masked(path)]
        if not found:
            return None
        return f"Git keeps copies that code in the session can read: {_names(found)}. Masking hides the files only."

    async def close(self) -> None:
        await anyio.to_thread.run_sync(self._close)

    def _close(self) -> None:
        self._closing.set()
        self._is_used.set()
        self._versions.close()
        if self._scratch:
            self._scratch.remove()


def describe_uncovered(coverage: Coverage) -> str | None:
    """What undo will not bring back, in a line; None if it brings back everything that code may change and a user keeps.

    Git's own files are git's affair.
    """
    paths = [
        one.path for one in coverage.not_covered if one.why not in _NO_LOSS and not REMADE & set(one.path.split("/"))
    ]
    if not paths:
        return None
    names = paths if len(paths) <= NAMED else _by_folder(paths)
    return f"Undo does not cover {_names(names)}; nor /tmp and /dev/shm."


def _by_folder(paths: Sequence[str]) -> list[str]:
    """Of many, the folder at the top of the workspace and how many are in it."""
    counts = Counter(path.partition("/")[0] for path in paths if "/" in path)
    return [path for path in paths if "/" not in path] + [
        f"{folder} ({numerous('file', count)})" for folder, count in counts.most_common()
    ]


def _describe_restored(restored: Restored) -> list[str]:
    said: list[str] = []
    if left := [path for path in restored.left if not REMADE & set(path.split("/"))]:
        said.append(f"Left as it is, because it was changed outside of cells: {_names(left)}.")
    if restored.aside:
        moved = [f"{path} (now {place})" for path, place in restored.aside]
        said.append(f"Not covered and in the way, put aside: {_names(moved)}.")
    if restored.missed:
        said.append(f"Not as it was: {_names([f'{one.path} ({one.why})' for one in restored.missed])}.")
    return said


def _names(paths: Iterable[str]) -> str:
    return join_names([*map(format_name, paths)], NAMED)
