"""The file history of a live session. Its work runs in threads, so that a cell waits as little as possible."""

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
from pinfold.text import join_names, pluralize

SHARE = 0.2
"""The largest share of the free disk that contents may take."""
FILL_S, FILL_CPU_S = 5.0, 1.5
"""How long after the start a cell waits, at most, for the user's files to be read, and how much processor time that may
take meanwhile. Other files are read while the cell runs; what it changes before that is not covered."""
IDLE_S, LEISURE_S = 1.0, 0.1
"""How long to wait for a first cell, and then during it, before reading a large workspace that no other process will
continue with: the session's start needs the processor, and most cells end within that time."""
LISTED = 50
"""Most files of one cell that are reported with their content."""
UNSEEN = {".git", "__pycache__"}
REMADE = {*UNSEEN, ".venv", "venv", "node_modules", ".tox"}
"""Folders whose files a command can make again, so that users do not miss them."""
NAMED = 5
"""Most paths that one line names."""
NO_FILES = ChangedFiles()
BEYOND: tuple[Why, ...] = ("too much at once", "too many files")
"""Reasons that only a cell with too many changes has; these are reported after the cell."""
_NO_LOSS: tuple[Why, ...] = ("special file", "secret")
"""Reasons not worth a report: the file has no content, or code in the session cannot read it."""


class FileHistory:
    """The file history of one session. Cells have the session's numbers."""

    def __init__(
        self,
        workspace: Path,
        folder: Path | None = None,
        listings: Listings | None = None,
        *,
        shared: Path | None = None,
    ) -> None:
        """Start the history from the present files, or continue the one in `folder`. May run in any thread.

        Without `folder` the history ends with this object. `listings`: what the walk for guarded paths has just found.
        `shared`: as in `Spec.contents`.
        """
        self._workspace = workspace
        self._scratch = None if folder else TemporaryFolder("versions")
        place = folder or cast("TemporaryFolder", self._scratch).path
        self._running: int | None = None
        self._is_looking = False
        self.said: tuple[str, ...] = ()
        """Lines to report about the last cell's files."""
        self.changed = NO_FILES
        """The files that the last cell changed."""
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
        """The highest cell number in the history."""
        return self._versions.last

    @classmethod
    def create_if_possible(cls, spec: Spec, listings: Listings | None = None) -> FileHistory | str:
        """Open the history, or return a message that says why undo cannot cover files. May run in any thread."""
        try:
            return cls(spec.workspace, spec.state and spec.state / "files", listings, shared=spec.contents)
        except (OSError, RuntimeError, ValueError, SandboxError) as error:
            return f"Undo restores variables only, not files: {error}."

    def get_touched_names(self) -> Names:
        """Return the names that had events since the files were last scanned."""
        return self._versions.get_touched_names()

    async def before(self, cell: int) -> None:
        """Call before a cell runs. Calling again for a cell that was given up before it ran does nothing."""
        if self._running == cell:
            return
        if self._running is not None:
            await self.after()
        left_s = self._fill_until - monotonic()
        if not self._is_read.is_set() and left_s > 0 and not self.coverage.has_unmeasured:
            await anyio.to_thread.run_sync(self._is_read.wait, left_s, abandon_on_cancel=True)
        if self._versions.is_quiet:  # faster than handing it to a thread
            self._versions.before(cell)
        else:
            await anyio.to_thread.run_sync(self._versions.before, cell)
        self._is_used.set()
        self._running, self.changed = cell, NO_FILES

    async def after(self, *, spilled: bool = False) -> None:
        """Scan the files after a cell, before its caller can change them. `spilled`: the cell filled the disk.

        A cancelled caller waits only until the scan has stopped.
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
        """End a running scan soon, because a caller waits; what it has not read yet is reported as not covered."""
        if self._is_looking:
            self._versions.hurry()

    @property
    def is_quiet(self) -> bool:
        """True if nothing has happened to any file since the cell began."""
        return self._versions.is_quiet

    def _finish(self, cell: int, *, spilled: bool) -> None:
        changes = self._versions.after(cell, spilled=spilled)
        if changes.texts:
            self.changed = self._read(changes)
        beyond = [one.path or "." for one in changes.not_covered if one.why in BEYOND]
        if beyond and not spilled:
            self.said = (f"Undo does not cover {_names(beyond)}: too many files at once.",)

    def _read(self, changes: Changes) -> ChangedFiles:
        """Return the changes worth showing to the user, with the content of the first `LISTED` files."""
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
        """Restore the workspace to its state after cell `to`. Return lines for the user. Raises SandboxError."""
        await self.after()
        return _describe_restored(await anyio.to_thread.run_sync(self._versions.restore, to))

    def describe_tracked_secrets(self) -> str | None:
        """Return a line about secrets that git has in its objects, where no mask hides them; None if there are none."""
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
    """Return a line about what undo will not restore; None if nothing worth naming.

    Leaves out git's own files, folders that a command can make again, and what code cannot change or read.
    """
    paths = [
        one.path for one in coverage.not_covered if one.why not in _NO_LOSS and not REMADE & set(one.path.split("/"))
    ]
    if not paths:
        return None
    names = paths if len(paths) <= NAMED else _by_folder(paths)
    return f"Undo does not cover {_names(names)}; nor /tmp and /dev/shm."


def _by_folder(paths: Sequence[str]) -> list[str]:
    """Return the files at the top of the workspace, and each top folder with the number of paths in it."""
    counts = Counter(path.partition("/")[0] for path in paths if "/" in path)
    return [path for path in paths if "/" not in path] + [
        f"{folder} ({pluralize('file', count)})" for folder, count in counts.most_common()
    ]


def _describe_restored(restored: Restored) -> list[str]:
    said: list[str] = []
    if left := [path for path in restored.left if not REMADE & set(path.split("/"))]:
        said.append(f"Left as it is, because it was changed outside of cells: {_names(left)}.")
    if restored.aside:
        moved = [f"{path} (now {place})" for path, place in restored.aside]
        said.append(f"Moved aside, because undo does not cover them and they were in the way: {_names(moved)}.")
    if restored.missed:
        said.append(f"Not fully restored: {_names([f'{one.path} ({one.why})' for one in restored.missed])}.")
    return said


def _names(paths: Iterable[str]) -> str:
    return join_names([*map(format_name, paths)], NAMED)
