"""Restores the workspace to a wanted state and reports what was done. Paths that change meanwhile are left alone.

What is not covered is never overwritten or removed, only moved: back to where it was, or aside where something covered
must come back.
"""

from __future__ import annotations

import errno
import secrets
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TypeAlias

from pinfold.sandbox.file_history.entries import Entry, File, Folder, Link, Uncovered, is_below
from pinfold.sandbox.file_history.store import Store
from pinfold.sandbox.file_history.workspace_scanner import WorkspaceScanner
from pinfold.sandbox.kernel.safe_files import SET_ID, Changed, SafeFolder, Stamp, Thing, partial_name

_Key: TypeAlias = str | Thing | tuple[str | None, int, tuple[int, int]] | None
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)


@dataclass(frozen=True, slots=True)
class Done:
    put_back: list[str] = field(default_factory=list[str])
    replaced: dict[str, str] = field(default_factory=dict[str, str])
    """The digest of the content that was replaced at each path."""
    aside: dict[str, str] = field(default_factory=dict[str, str])
    """The new path of each thing that had to make way."""
    missed: dict[str, str] = field(default_factory=dict[str, str])
    """The reason for each path that could not be restored."""


class FileRestorer:
    """`keeps_times`: restore the times of files too. `aside`: paths put aside by earlier restores, which may return."""

    def __init__(
        self, top: SafeFolder, store: Store, seen: WorkspaceScanner, *, keeps_times: bool, aside: Collection[str] = ()
    ) -> None:
        self._top = top
        self._store = store
        self._seen = seen
        self._now = seen.known
        self._keeps_times = keeps_times
        self._aside = [path for path in seen.known.entries if is_below(path, aside)] if aside else []
        self._lifted: dict[str, str] = {}
        """For each path to move something to: the temporary path where that waits."""
        self._sources: dict[str, str] = {}
        """For each temporary path: where its file came from."""
        self.done = Done()

    def put(self, wanted: Mapping[str, Entry | None]) -> None:
        changed = self._now.differs(wanted)
        upwards = sorted(changed, reverse=True)
        try:
            for path in changed:
                self._let_read(path)
            there = {path: content for path in changed if (content := self._content(path))}
            self._lift(changed)
            for path in upwards:
                self._try(self._clear, path, changed[path])
            for path in reversed(upwards):
                self._try(self._make, path, changed[path])
            for path in upwards:
                if isinstance(entry := changed[path], Folder) and path not in self.done.missed:
                    self._try(self._close, path, entry)
            self._return_lifted()
            self._tidy()
        finally:
            self._top.finish()
        self.done.put_back.extend(path for path in reversed(upwards) if path not in self.done.missed)
        self.done.replaced.update(
            (path, was) for path, was in there.items() if self._content(path) != was and path not in self.done.missed
        )

    def can_bring(self, path: str, entry: Entry | None, wanted: Mapping[str, Entry | None]) -> bool:
        """Return False if it is already known that `path` cannot be restored to `entry`."""
        match entry:
            case File(digest=digest):
                return digest is not None and self._store.has(digest)
            case Uncovered():
                return self._now.entries.get(path) == entry or entry.thing in self._find_leaving(wanted)
            case _:
                return True

    def _content(self, path: str) -> str | None:
        entry = self._now.entries.get(path)
        return entry.digest if isinstance(entry, File) else None

    # Moves

    def _find_leaving(self, changed: Mapping[str, Entry | None]) -> dict[_Key, str]:
        """Return the paths of files that will leave their place, keyed by content and by inode, size and time."""
        found: dict[_Key, str] = {}
        for path in (*changed, *self._aside):
            entry = self._now.entries.get(path)
            wanted = changed.get(path)
            if isinstance(entry, File) and not (isinstance(wanted, File) and wanted.digest == entry.digest):
                found[self._now.stamps[path].thing] = path
                if entry.digest:
                    found[_key(entry)] = path
            elif isinstance(entry, Uncovered) and entry != wanted:
                found[entry.thing] = path
        return found

    def _lift(self, changed: Mapping[str, Entry | None]) -> None:
        """Move each thing that is wanted elsewhere to a temporary path first, because two may swap their places."""
        leaving = self._find_leaving(changed)
        for path, entry in changed.items():
            source = leaving.pop(_key(entry), None)
            if source in self._now.entries:
                waiting = partial_name()
                with suppress(OSError):  # on failure it is copied later, or reported as missed
                    self._move(source, waiting)
                    self._lifted[path] = waiting
                    self._sources[waiting] = source

    def _return_lifted(self) -> None:
        """Move back what could not be put where it was wanted."""
        for waiting, source in self._sources.items():
            if waiting in self._now.entries:
                with suppress(OSError):
                    back = _name_aside(source) if source in self._now.entries else source
                    self._move(waiting, back)
                    if back != source:
                        self.done.aside[source] = back

    # Clearing what is in the way

    def _clear(self, path: str, wanted: Entry | None) -> None:
        entry = self._entry(path)
        if isinstance(wanted, Uncovered) and path not in self._lifted:
            self.done.missed[path] = wanted.why
        elif entry is None or (isinstance(entry, Folder) and isinstance(wanted, Folder)):
            pass
        elif isinstance(entry, Folder):
            self._clear_folder(path, wanted)
        elif not self._is_kept(path, entry):
            if isinstance(entry, Uncovered) and entry.is_folder:
                self._top.remove_all(path)
                self._seen.look_at(path)
            elif wanted is None or isinstance(wanted, Folder) or path in self._lifted:
                self._top.remove(path, was=self._now.stamps[path])
                self._seen.look_at(path)
            # Otherwise `_make` replaces it in one step.
        elif wanted is not None:
            self._put_aside(path)
        elif isinstance(entry, Uncovered):
            self.done.missed[path] = entry.why

    def _entry(self, path: str) -> Entry | None:
        entry = self._now.entries.get(path)
        if isinstance(entry, Uncovered) and entry.why == "hard link":
            self._seen.look_at(path)  # its other name may be gone by now
            return self._now.entries.get(path)
        return entry

    def _clear_folder(self, path: str, wanted: Entry | None) -> None:
        try:
            self._top.remove_folder(path)
            self._seen.look_at(path)
        except OSError as error:
            if error.errno not in _NOT_EMPTY:
                raise
            if wanted is None:
                self.done.missed[path] = "not empty"
            else:
                self._put_aside(path)

    def _is_kept(self, path: str, entry: Entry) -> bool:
        """Return True if removing `path` would lose content that is stored nowhere else."""
        if not isinstance(entry, Uncovered) or entry.why in ("special file", "beyond the disk limit"):
            return False
        status = self._top.status(path)
        return not (entry.why == "hard link" and status and status.st_nlink > 1)

    def _put_aside(self, path: str) -> None:
        aside = _name_aside(path)
        self._move(path, aside)
        self.done.aside[path] = aside

    def _move(self, path: str, to: str) -> None:
        status = self._top.status(path)
        stamp = self._now.stamps.get(path) or (Stamp.of(status) if status else None)
        entry = self._now.entries.get(path)
        moved = self._top.move(path, to, was=stamp)
        self._seen.look_at(path)
        if isinstance(entry, File) and entry.digest:
            self._now.note(to, entry, moved, is_fresh=True)
        else:
            self._seen.look_at(to)

    def _tidy(self) -> None:
        """Remove folders that were put aside and are empty now."""
        for path in sorted(self._aside, reverse=True):
            if isinstance(self._now.entries.get(path), Folder):
                with suppress(OSError):  # not empty
                    self._top.remove_folder(path)
                    self._seen.look_at(path)

    def _let_read(self, path: str) -> None:
        """Make a file readable that a cell made unreadable, so that its content is stored before it is replaced."""
        entry = self._now.entries.get(path)
        if isinstance(entry, Uncovered) and entry.why == "unreadable" and not entry.is_folder:
            with suppress(OSError):
                self._top.let_read(path)
                self._seen.look_at(path)

    # Making what comes back

    def _make(self, path: str, wanted: Entry | None) -> None:
        if wanted is None or path in self.done.missed:
            return
        entry = self._entry(path)
        if entry == wanted:
            return
        match wanted:
            case Folder():
                if not isinstance(entry, Folder):
                    self._top.make_folder(path)
                    self._seen.look_at(path)
            case Link():
                self._top.put_link(path, wanted.target, wanted.owner, was=self._now.stamps.get(path))
                self._seen.look_at(path)
            case File():
                self._make_file(path, wanted)
            case Uncovered():
                self._move(self._lifted[path], path)

    def _make_file(self, path: str, wanted: File) -> None:
        if path in self._lifted:
            self._move(self._lifted[path], path)
        there = self._now.entries.get(path)
        if there == wanted:
            return
        if wanted.mode & SET_ID:
            wanted = replace(wanted, mode=wanted.mode & ~SET_ID)
            self.done.missed[path] = "its set-id bits are not given back"
        if isinstance(there, File) and there.digest == wanted.digest:
            self._top.give(path, wanted.mode, wanted.owner, is_folder=False)
            self._seen.look_at(path)
            return
        digest = wanted.digest
        assert digest is not None, "what was not read is never wanted"
        if not self._keeps_times:
            wanted = replace(wanted, mtime_ns=time.time_ns())
        stamp = self._top.put_file(
            path,
            lambda fd: self._store.copy(digest, fd),
            mode=wanted.mode,
            owner=wanted.owner,
            mtime_ns=wanted.mtime_ns,
            was=self._now.stamps.get(path),
        )
        self._now.note(path, wanted, stamp, is_fresh=True)

    def _close(self, path: str, wanted: Entry | None) -> None:
        assert isinstance(wanted, Folder)
        self._top.give(path, wanted.mode, wanted.owner, is_folder=True)
        self._seen.look_at(path)

    def _try(self, step: Callable[[str, Entry | None], None], path: str, wanted: Entry | None) -> None:
        try:
            step(path, wanted)
        except Changed:
            self.done.missed[path] = "changed meanwhile"
        except OSError as error:
            self.done.missed[path] = error.strerror or "unreadable"


def _name_aside(path: str) -> str:
    """Return an unused name in the same folder, for something that must make way."""
    return f"{path}.undone-{secrets.token_hex(4)}"


def _key(entry: Entry | None) -> _Key:
    """Return the key that identifies the entry elsewhere. With set-id bits it includes the mode and owner, so that no
    other file with the same content gets these bits."""
    match entry:
        case File(digest=digest, mode=mode, owner=owner):
            return (digest, mode, owner) if mode & SET_ID else digest
        case Uncovered(thing=thing):
            return thing
        case _:
            return None
