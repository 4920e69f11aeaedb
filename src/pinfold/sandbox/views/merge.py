"""Makes a workspace what a session with a view saw, as far as it was not changed since. Host side, synchronous."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.sandbox.file_history.entries import File, Folder, Link
from pinfold.sandbox.kernel.safe_files import Changed, SafeFolder, Stamp
from pinfold.sandbox.views.layer import Layer
from pinfold.sandbox.views.merge_plan import MergePlanner, Plan, Wanted
from pinfold.sandbox.views.view_folder import layer_of, load_start, save_start

How: TypeAlias = Literal["added", "changed", "removed"]


class Change(Struct, frozen=True, order=True):
    path: str
    how: How


class LeftOut(Struct, frozen=True, order=True):
    path: str
    why: str


class MergeReport(Struct, frozen=True, kw_only=True):
    """Each in the order of their paths."""

    applied: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Changed in the workspace since the session began, or below or above such a path; left as they are there."""
    left_out: tuple[LeftOut, ...] = ()
    """What is never brought over, and what could not be."""


def changes(workspace: Path, view: Path) -> list[Change]:
    """What the session saw otherwise than it is in the workspace now. What is never brought over is not among it.

    Raises SandboxUnavailable.
    """
    with _open_view(workspace, view) as (top, layer):
        plan = MergePlanner(workspace.resolve(), top, layer).plan(None)
        return sorted(Change(path, _how(plan, path)) for path in plan.wanted)


def merge_view(workspace: Path, view: Path, *, since: Mapping[str, Stamp] | None = None) -> MergeReport:
    """Make the workspace what the session saw. Best when the session is closed: what changes meanwhile is left out.

    `since`: how the workspace was when the session began, as `seen` gives it; the view remembers it, unless given.
    What is otherwise now is a conflict and stays. Raises SandboxUnavailable.
    """
    known = dict(load_start(view) if since is None else since)
    with _open_view(workspace, view) as (top, layer):
        plan = MergePlanner(workspace.resolve(), top, layer).plan(known)
        bringing = _Merge(top, layer, plan)
        bringing.apply()
        for path in plan.wanted.keys() - plan.left_out.keys():
            known.pop(path, None)
        known |= bringing.made
    save_start(view, known)
    return MergeReport(
        applied=tuple(sorted(Change(path, _how(plan, path)) for path in plan.wanted if path not in plan.left_out)),
        conflicts=tuple(sorted(plan.conflicts)),
        left_out=tuple(sorted(LeftOut(path, why) for path, why in plan.left_out.items())),
    )


class _Merge:
    """First what is gone goes, the deepest first; then what is new comes; then folders get their modes."""

    def __init__(self, top: SafeFolder, layer: Layer, plan: Plan) -> None:
        self._top = top
        self._layer = layer
        self._plan = plan
        self._now_ns = time.time_ns()
        self.made: dict[str, Stamp] = {}

    def apply(self) -> None:
        paths = sorted(self._plan.wanted)
        try:
            for path in reversed(paths):
                self._try(self._clear, path)
            for path in paths:
                self._try(self._make, path)
            for path in reversed(paths):
                self._try(self._close, path)
        finally:
            self._top.finish()

    def _clear(self, path: str, wanted: Wanted) -> None:
        now = self._plan.now[path]
        if now is None or (wanted is not None and stat.S_ISDIR(now.st_mode) == isinstance(wanted, Folder)):
            return  # it is replaced in one step
        if stat.S_ISDIR(now.st_mode):
            self._top.remove_folder(path)
        else:
            self._top.remove(path, was=Stamp.of(now))
        self._plan.now[path] = now if wanted is None else None

    def _make(self, path: str, wanted: Wanted) -> None:
        now = self._plan.now[path]
        was = Stamp.of(now) if now else None
        match wanted:
            case Folder() if now is None:
                self._top.make_folder(path)
            case Link():
                self._top.put_link(path, wanted.target, wanted.owner, was=was)
            case File() if path in self._plan.same_content:
                self._top.give(path, wanted.mode, wanted.owner, is_folder=False)
            case File():
                # Not when the session wrote it: a build tool must see that it came now.
                self._top.put_file(
                    path,
                    lambda fd: self._layer.copy(path, fd),
                    mode=wanted.mode,
                    owner=wanted.owner,
                    mtime_ns=self._now_ns,
                    was=was,
                )
            case _:
                return
        self._note(path)

    def _close(self, path: str, wanted: Wanted) -> None:
        if isinstance(wanted, Folder):
            self._top.give(path, wanted.mode, wanted.owner, is_folder=True)
            self._note(path)

    def _note(self, path: str) -> None:
        """Now: once the folders above are as they are to be, it may not be seen any more."""
        if status := self._top.status(path):
            self.made[path] = Stamp.of(status)

    def _try(self, step: Callable[[str, Wanted], None], path: str) -> None:
        if path in self._plan.left_out:
            return
        try:
            step(path, self._plan.wanted[path])
        except Changed:
            self._plan.left_out[path] = "it was changed meanwhile"
        except OSError as error:
            self._plan.left_out[path] = error.strerror or os.strerror(error.errno or 0)


def _how(plan: Plan, path: str) -> How:
    if plan.wanted[path] is None:
        return "removed"
    return "changed" if path in plan.was_there else "added"


@contextmanager
def _open_view(workspace: Path, view: Path) -> Generator[tuple[SafeFolder, Layer]]:
    layer = layer_of(view)
    try:
        top = SafeFolder(workspace.resolve())
        try:
            yield top, layer
        finally:
            top.close()
    finally:
        layer.close()
