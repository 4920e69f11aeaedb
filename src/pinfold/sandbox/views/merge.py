"""Merges the changes of a session with a view into the workspace, where that has not changed since. Synchronous."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from msgspec import Struct, field

from pinfold.sandbox.contract import How
from pinfold.sandbox.file_history.entries import (
    File,
    Folder,
    Link,
    above,
    is_below,
    is_git,
    join_path,
    mode_of,
    owner_of,
    whole,
)
from pinfold.sandbox.file_history.store import same_content
from pinfold.sandbox.guards import named_files
from pinfold.sandbox.guards.gitdir import NAMES, is_gitdir
from pinfold.sandbox.guards.guarded_paths import find_guarded_paths
from pinfold.sandbox.guards.named_files import is_masked
from pinfold.sandbox.kernel.safe_files import SET_ID, Changed, SafeFolder, Stamp, reopen
from pinfold.sandbox.views.view_folder import Layer, Unmergeable, layer_of, load_start, save_start


class Change(Struct, frozen=True, order=True):
    path: str
    how: How


class LeftOut(Struct, frozen=True, order=True):
    path: str
    why: str


class MergeReport(Struct, frozen=True, kw_only=True):
    """The result of a merge. Each field is sorted by path."""

    applied: tuple[Change, ...] = ()
    conflicts: tuple[str, ...] = ()
    """Paths that changed in the workspace since the session began, or lie below or above one; left as they are."""
    left_out: tuple[LeftOut, ...] = ()
    """Paths that are never merged, or could not be."""


def merge_view(workspace: Path, view: Path) -> MergeReport:
    """Make the workspace what the session saw. Best after the session is closed: files that change meanwhile stay.

    Paths that changed in the workspace since the session began are conflicts and stay. Raises SandboxUnavailable.
    """
    known = load_start(view)
    with closing(layer_of(view)) as layer, closing(SafeFolder(workspace.resolve())) as top:
        plan = MergePlanner(workspace.resolve(), top, layer).plan(known)
        planned = plan.changes
        bringing = _Merge(top, layer, plan)
        bringing.apply()
        for path in plan.wanted.keys() - plan.left_out.keys():
            known.pop(path, None)
        known |= bringing.made
    save_start(view, known)
    return MergeReport(
        applied=tuple(sorted(change for path, change in planned.items() if path not in plan.left_out)),
        conflicts=tuple(sorted(plan.conflicts)),
        left_out=tuple(sorted(LeftOut(path, why) for path, why in plan.left_out.items())),
    )


class _Merge:
    """Applies a plan: removes entries, the deepest first, then adds and replaces, then sets the modes of folders."""

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
            return  # `_make` replaces it atomically
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
                # The time of the merge, not of the session's write: build tools must see the file as new.
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
        """Record its stamp now: once the folders above have their final modes, it may be unreachable."""
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


Wanted: TypeAlias = File | Folder | Link | None
_DATA = (["objects"], ["refs"], ["logs"])
"""Parts of a git folder where names do not mark secrets: a branch may be called `x.pem`."""
_NESTING = ("modules", "worktrees")
GUARDED = "it is guarded in the workspace"
BY_NAME = "its name is a secret's"


class Plan(Struct, frozen=True):
    wanted: dict[str, Wanted] = field(default_factory=dict[str, Wanted])
    """The new entry of each path that differs in the workspace; None to remove it."""
    now: dict[str, os.stat_result | None] = field(default_factory=dict[str, "os.stat_result | None"])
    """What each of these paths is now in the workspace."""
    same_content: set[str] = field(default_factory=set[str])
    """Files whose content is the same, so that only the mode changes."""
    conflicts: set[str] = field(default_factory=set[str])
    left_out: dict[str, str] = field(default_factory=dict[str, str])

    @property
    def changes(self) -> dict[str, Change]:
        return {
            path: Change(path, "removed" if entry is None else "changed" if self.now[path] else "added")
            for path, entry in self.wanted.items()
        }


class MergePlanner:
    """Plans the merge of one layer into one workspace. Raises SandboxUnavailable if the workspace cannot be scanned."""

    def __init__(self, workspace: Path, top: SafeFolder, layer: Layer) -> None:
        self._top = top
        self._layer = layer
        self._guards = _Guarded(workspace, layer)
        self._owner = owner_of(workspace.stat())
        self._plan = Plan()

    def plan(self, since: Mapping[str, Stamp]) -> Plan:
        """Return the plan. `since`: the start of the session, against which conflicts are found."""
        plan = self._plan
        for path, entry in self._layer.entries.items():
            self._want(path, entry)
        for path in self._hidden():
            self._want(path, None)
        for path in list(plan.wanted):
            if why := self._guards.why_not(path, plan.wanted[path]):
                del plan.wanted[path]
                plan.left_out[path] = why
        self._find_conflicts(since)
        self._keep_apart()
        return plan

    def _want(self, path: str, entry: Wanted | Unmergeable) -> None:
        plan = self._plan
        if isinstance(entry, Unmergeable):
            plan.left_out[path] = entry.why
            return
        try:
            now = self._top.status(path)
            if entry is None and now is None:
                return
            entry = self._with_owner(entry, now)
            if now is not None and self._is_same(path, entry, now):
                return
        except OSError as error:
            plan.left_out[path] = error.strerror or "it cannot be read"
            return
        plan.wanted[path], plan.now[path] = entry, now

    def _hidden(self) -> list[str]:
        """Return paths that the workspace has and the session no longer saw."""
        entries = self._layer.entries
        found: list[str] = []
        for path, entry in entries.items():
            if path in self._layer.opaque or not isinstance(entry, Folder | Unmergeable):
                found += (below for below in self._below(path) if below not in entries)
        return found

    def _below(self, path: str) -> Iterator[str]:
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            for name in self._list_folder(folder):
                inner = join_path(folder, name)
                yield inner
                waiting.append(inner)

    def _list_folder(self, folder: str) -> list[str]:
        try:
            with self._top.open_below(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
                return os.listdir(fd)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
                self._plan.left_out[folder] = error.strerror or "it cannot be read"
            return []

    def _with_owner(self, entry: Wanted, now: os.stat_result | None) -> Wanted:
        """Return the entry with the present owner and, for a folder, the present set-id bits."""
        owner = owner_of(now) if now else self._owner
        match entry:
            case Folder():
                kept = mode_of(now) & SET_ID if now and stat.S_ISDIR(now.st_mode) else 0
                return Folder(entry.mode | kept, owner)
            case File() | Link():
                return replace(entry, owner=owner)
            case None:
                return None

    def _is_same(self, path: str, entry: Wanted, now: os.stat_result) -> bool:
        match entry:
            case Folder():
                return stat.S_ISDIR(now.st_mode) and mode_of(now) == entry.mode
            case Link():
                with self._top.open_below(path) as fd:
                    return stat.S_ISLNK(now.st_mode) and os.fsdecode(os.readlink(b"", dir_fd=fd)) == entry.target
            case File():
                if stat.S_ISREG(now.st_mode) and now.st_size == entry.size and self._has_content_of(path):
                    self._plan.same_content.add(path)
                    return mode_of(now) == entry.mode
                return False
            case None:
                return False

    def _has_content_of(self, path: str) -> bool:
        with self._top.open_below(path) as named, self._layer.open_file(path) as theirs:
            try:
                ours = reopen(named)
            except PermissionError:
                return False
            try:
                return same_content(ours, theirs)
            finally:
                os.close(ours)

    # Conflicts

    def _find_conflicts(self, since: Mapping[str, Stamp]) -> None:
        plan = self._plan
        for path, entry in list(plan.wanted.items()):
            was, now = since.get(path), plan.now[path]
            if was is None and _is_folder(now) and isinstance(entry, Folder):
                del plan.wanted[path]  # both made this folder; the user's mode wins
            elif not _is_as_it_was(was, now):
                plan.conflicts.add(path)
        # Git's files are consistent only together.
        plan.conflicts.update({whole(path) for path in plan.conflicts})

    def _keep_apart(self) -> None:
        """Leave out changes below a path that stays as it is, or that would replace a folder which holds one."""
        plan = self._plan
        for path in list(plan.left_out):
            plan.wanted.pop(path, None)
        over = {folder for path in (*plan.conflicts, *plan.left_out) for folder in above(path)}
        for path, entry in plan.wanted.items():
            if entry is not None and not isinstance(entry, Folder) and path in over:
                plan.conflicts.add(path)
        barred = {path for path in (*plan.conflicts, *plan.left_out) if self._bars(path)}
        for path in list(plan.wanted):
            if path in plan.conflicts or is_below(path, barred):
                del plan.wanted[path]
                plan.conflicts.add(path)
            elif plan.wanted[path] is None and path in over:
                del plan.wanted[path]  # this folder holds a path that stays
        for path in [path for path in plan.conflicts if whole(path) in plan.conflicts]:
            plan.conflicts.remove(path)
            plan.conflicts.add(whole(path))

    def _bars(self, path: str) -> bool:
        """Return True if nothing below it may change. A folder that stays a folder does not bar what is in it."""
        if is_git(path) or not isinstance(self._layer.entries.get(path), Folder):
            return True
        try:
            return not _is_folder(self._top.status(path))
        except OSError:
            return True


def _is_folder(status: os.stat_result | None) -> bool:
    return status is not None and stat.S_ISDIR(status.st_mode)


def _is_as_it_was(was: Stamp | None, now: os.stat_result | None) -> bool:
    if was is None or now is None:
        return was is now
    if stat.S_ISDIR(was.mode) and stat.S_ISDIR(now.st_mode):
        return was.mode == now.st_mode  # the other fields change with the folder's content
    return was == Stamp.of(now)


class _Guarded:
    """Paths of this workspace that no merge may change."""

    def __init__(self, workspace: Path, layer: Layer) -> None:
        top = str(workspace)
        cut = len(top) + 1
        self._workspace = workspace
        self._layer = layer
        guards = find_guarded_paths(workspace, top, steers=True)
        self._masked = {path[cut:] for path, _, _ in guards.masked}
        self._kept = {path[cut:] for path in (*guards.kept, *guards.protected) if path.startswith(f"{top}/")}
        self._kept -= {".git"}  # a new .git is judged by its content
        self._over = {folder for path in self._kept for folder in above(path)} - {""}
        self._gitdirs = {path[cut:] for path in guards.pinned}
        self._environments = guards.environments

    def why_not(self, path: str, wanted: Wanted) -> str | None:
        parts = path.split("/")
        git = len(parts) - parts[::-1].index(".git") if ".git" in parts else 0
        inside = parts[git:] if git else []
        if path in self._masked or is_masked("/".join(parts if inside[:1] not in _DATA else parts[:git])):
            return BY_NAME
        if is_below(path, self._kept) or (isinstance(wanted, Link) and path in self._over):
            return GUARDED
        if parts[-1] == ".git" and not isinstance(wanted, Folder | None):
            return GUARDED  # it would redirect git to another folder
        if isinstance(wanted, Link) and (inside or is_below(path, self._gitdirs)):
            return GUARDED  # git would write through the link
        if inside:
            return GUARDED if _is_obeyed(inside) else None
        if program := self._who_obeys(path, wanted.target if isinstance(wanted, Link) else None):
            return f"{program} would obey it"
        return GUARDED if self._is_in_bare(path) else None

    def _who_obeys(self, path: str, target: str | None) -> str | None:
        """Return the program that would obey this file. `target`: where it leads, if it is a link."""
        through = named_files.match_link(path) if target is not None else []
        matches = [named_files.match(path), *through, *(each.match(path, target) for each in self._environments)]
        for found in filter(None, matches):
            if found.row.response == "put back" and found.row.only_in != "git":
                return found.row.program
        return None

    def _is_in_bare(self, path: str) -> bool:
        """Return True if git would obey it: it lies in a folder that looks like a git folder, whatever its name."""
        parts = path.split("/")
        return any(
            _is_obeyed(parts[at:]) and is_gitdir("/".join(parts[:at]), self._is_there) for at in range(len(parts))
        )

    def _is_there(self, path: str) -> bool:
        """Return True if the path exists in the view or in the workspace."""
        path = path.removeprefix("/")  # below the workspace itself
        return self._layer.entries.get(path) is not None or os.path.lexists(self._workspace / path)


def _is_obeyed(inside: list[str]) -> bool:
    """Return True if git obeys this path within a git folder. Submodules and worktrees are git folders within it."""
    if inside[0] in _NESTING:
        return any(_is_obeyed(inside[at:]) for at in range(1, len(inside)))
    return any(is_below("/".join(inside), {name}) for name in NAMES)
