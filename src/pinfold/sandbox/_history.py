"""The history of a workspace's files beside a live session: looked after in threads, so that no cell waits longer than it must."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Thread
from typing import cast

import anyio.to_thread

from pinfold.sandbox._naming import shown
from pinfold.sandbox.contract import SandboxError
from pinfold.sandbox.folders import Folder
from pinfold.sandbox.versions import TOTAL_CAP, Coverage, Restored, Versions
from pinfold.text import listed

SHARE = 0.2
"""Of the free disk, at most, for contents."""
NAMED = 5
"""Paths that are named in one line."""


class FileHistory:
    """Of one session. Cells are numbered as the session numbers them."""

    def __init__(self, workspace: Path, folder: Path | None = None) -> None:
        """In any thread; what can be restored is what is there now, and what `folder` holds. Without, it ends with us."""
        self._scratch = None if folder else Folder("versions")
        place = folder or cast("Folder", self._scratch).path
        self._running: int | None = None
        try:
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            cap = min(TOTAL_CAP, int(shutil.disk_usage(place).free * SHARE))
            self._versions = Versions(workspace, place, total_cap=cap)
            self.coverage: Coverage = self._versions.begin()
        except BaseException:
            if self._scratch:
                self._scratch.remove()
            raise
        Thread(target=self._versions.fill, daemon=True, name="pinfold-versions").start()

    @property
    def last(self) -> int:
        """The highest number of a cell it knows of."""
        return self._versions.last

    @classmethod
    def where_possible(cls, workspace: Path, folder: Path | None = None) -> FileHistory | str:
        """Or why not."""
        try:
            return cls(workspace, folder)
        except (OSError, RuntimeError, ValueError, SandboxError) as error:
            return f"Undo brings back variables only, no files: {error}."

    async def before(self, cell: int) -> None:
        """Again, if it was given up before it ran."""
        if self._running == cell:
            return
        await self.after()
        await self._step(self._versions.before, cell)
        self._running = cell

    async def after(self) -> None:
        """The cell has ended, and whoever waits for it may change files the moment it is told."""
        cell, self._running = self._running, None
        if cell is not None:
            await self._step(self._versions.after, cell)

    async def _step(self, step: Callable[[int], object], cell: int) -> None:
        """Where nothing has happened it is over before a thread would be reached."""
        if self._versions.is_quiet:
            step(cell)
        else:
            await anyio.to_thread.run_sync(step, cell)

    async def restore(self, to: int) -> list[str]:
        """The workspace as it was after this cell. What must be said about it, a line each. Raises SandboxError."""
        await self.after()
        return _told(await anyio.to_thread.run_sync(self._versions.restore, to))

    async def close(self) -> None:
        await anyio.to_thread.run_sync(self.close_now)

    def close_now(self) -> None:
        self._versions.close()
        if self._scratch:
            self._scratch.remove()


def uncovered(coverage: Coverage) -> str | None:
    """What undo will not bring back, in a line; None if it brings back everything. Git's own files are git's affair."""
    paths = [one.path for one in coverage.not_covered if ".git" not in one.path.split("/")]
    if not paths:
        return None
    return f"Undo does not cover {_names(paths)}; nor /tmp, /dev/shm and --mount folders."


def _told(restored: Restored) -> list[str]:
    said: list[str] = []
    if restored.left:
        said.append(f"Left as you changed them between cells: {_names(restored.left)}.")
    if restored.aside:
        moved = [f"{path} (now {place})" for path, place in restored.aside]
        said.append(f"Not covered and in the way, put aside: {_names(moved)}.")
    if restored.missed:
        said.append(f"Not as it was: {_names([f'{one.path} ({one.why})' for one in restored.missed])}.")
    return said


def _names(paths: Iterable[str]) -> str:
    return listed([*map(shown, paths)], NAMED)
