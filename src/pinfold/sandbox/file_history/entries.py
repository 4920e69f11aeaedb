"""The kinds of entry at a path, the index of a workspace's entries, and the reports of changes. Touches no disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold.sandbox.kernel.safe_files import Stamp, Thing

Why: TypeAlias = Literal[
    "too large", "no room", "hard link", "special file", "unreadable", "secret", "too many files", "too much at once",
    "beyond the disk limit", "another file system", "changed before it was read", "changed while it was read"
]  # fmt: skip
"""Why undo does not cover a path."""


@dataclass(frozen=True, slots=True)
class File:
    digest: str | None
    """The SHA-256 of the content; None if the file is unchanged since the start and not read yet."""
    size: int
    mode: int
    owner: tuple[int, int]
    mtime_ns: int = field(compare=False)
    """Not compared: a file with nothing but a new time has not changed."""


@dataclass(frozen=True, slots=True)
class Folder:
    mode: int
    owner: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Link:
    target: str
    owner: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Uncovered:
    """Something that exists but whose content is not kept. Undo never overwrites or removes it, at most moves it."""

    why: Why
    thing: Thing
    is_folder: bool = False
    """True for a folder that was not read, so what it holds is unknown."""

    @property
    def size(self) -> int:
        return self.thing[1]


UNMEASURED = Uncovered("changed before it was read", (0, 0, 0))
"""Marks a file that was only listed so far. Compare by identity: a measured, uncovered file may be equal to it."""

Entry: TypeAlias = File | Folder | Link | Uncovered
Delta: TypeAlias = dict[str, tuple[Entry | None, Entry | None]]
"""The old and new entry of each path; None if absent. Paths are relative to the workspace, "" is the workspace."""


def owner_of(status: os.stat_result) -> tuple[int, int]:
    return status.st_uid, status.st_gid


def mode_of(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)


def parent_of(path: str) -> str:
    return path.rpartition("/")[0]


def name_of(path: str) -> str:
    return path.rpartition("/")[2]


def join_path(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def above(path: str) -> Iterator[str]:
    """Yield each folder that contains `path`, the workspace first."""
    if path:
        yield ""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def is_below(path: str, places: Collection[str]) -> bool:
    """True if `path` is one of `places` or lies below one."""
    return path in places or any(folder in places for folder in above(path))


def whole(path: str) -> str:
    """Return the unit that `path` is restored with: its whole git folder, or else the path alone.

    Git's files make sense only together: an index without its objects is a broken repository.
    """
    if ".git" in path:
        parts = path.split("/")
        if ".git" in parts:
            return "/".join(parts[: parts.index(".git") + 1])
    return path


def is_git(path: str) -> bool:
    return path == ".git" or path.endswith("/.git")


def digests(delta: Mapping[str, tuple[Entry | None, Entry | None]]) -> Iterator[str]:
    for pair in delta.values():
        for entry in pair:
            if isinstance(entry, File) and entry.digest:
                yield entry.digest


TOO_MUCH = ("too large", "no room", "too many files", "too much at once", "changed while it was read")


class FileIndex:
    """What is known of the workspace's files. Calls `on_lost` with each path that is no longer a folder."""

    def __init__(self, on_lost: Callable[[str], None]) -> None:
        self.entries: dict[str, Entry] = {}
        self.stamps: dict[str, Stamp] = {}
        """The stamp of each entry that is not a folder."""
        self.inside: dict[str, set[str]] = {}
        """The names in each folder that was read."""
        self.unsure: set[str] = set()
        """Files changed so shortly before they were read that the next change could leave the same time."""
        self.held: set[str] = set()
        """Files that some process has open for writing."""
        self._on_lost = on_lost
        self._was: dict[str, Entry | None] = {}
        """The entry of each changed path at the last call of `changes`."""
        self._moving: dict[Stamp, tuple[Entry, bool]] | None = None

    def is_file(self, path: str) -> bool:
        return isinstance(self.entries.get(path), File)

    def is_unread(self, path: str) -> bool:
        entry = self.entries.get(path)
        return isinstance(entry, File) and entry.digest is None

    def differs(self, wanted: Mapping[str, Entry | None]) -> dict[str, Entry | None]:
        return {path: entry for path, entry in wanted.items() if self.entries.get(path) != entry}

    def changes(self) -> Delta:
        """Return what changed since the last call."""
        was, self._was = self._was, {}
        delta = {path: (old, self.entries.get(path)) for path, old in was.items()}
        return {path: pair for path, pair in delta.items() if pair[0] != pair[1]}

    @property
    def is_as_told(self) -> bool:
        """True if nothing has changed since the last call of `changes`."""
        return not self._was

    def give_up(self) -> None:
        """Let undo remove what was made since the last `changes` and is too big to be kept: it filled the disk."""
        for path, was in self._was.items():
            entry = self.entries.get(path)
            if isinstance(entry, Uncovered) and entry.why in TOO_MUCH and not isinstance(was, Uncovered):
                self.entries[path] = replace(entry, why="beyond the disk limit")

    def has_changed(self, path: str) -> bool:
        return path in self._was

    def digests(self) -> Iterator[str]:
        """Yield the digest of every current content, and of every content at the last call of `changes`."""
        for entry in (*self.entries.values(), *self._was.values()):
            if isinstance(entry, File) and entry.digest:
                yield entry.digest

    def recall(self, entries: dict[str, Entry], stamps: dict[str, Stamp]) -> None:
        """Take over what an earlier process knew."""
        self.entries, self.stamps = entries, stamps
        for path, entry in entries.items():
            if isinstance(entry, Folder):
                self.inside.setdefault(path, set())
            if path:
                self.inside.setdefault(parent_of(path), set()).add(name_of(path))

    def settle(self, path: str) -> None:
        """Treat the entry of `path` as the one at the start, so that it is not reported as a change."""
        self._was.pop(path, None)

    # Noting what the scanner saw

    def note(self, path: str, entry: Entry, stamp: Stamp, *, is_fresh: bool = False) -> None:
        """Record the entry of a path that is not a folder."""
        self.drop_below(path)
        if self.is_unread(path) and self.stamps[path] == stamp:
            self.entries[path] = entry  # the content it had at the start: not a change
        self._set(path, entry)
        self.stamps[path] = stamp
        (self.unsure.add if is_fresh else self.unsure.discard)(path)

    def note_folder(self, path: str, entry: Folder | Uncovered) -> None:
        self._set(path, entry)
        self._forget(path)

    def remove(self, path: str) -> None:
        self.drop_below(path)
        self._lose(path)
        self.inside.get(parent_of(path), set()).discard(name_of(path))

    def drop_below(self, path: str) -> None:
        """Forget everything below `path`, because it is not a folder, or no longer one."""
        if path not in self.inside:
            return
        self.files_by_stamp()
        waiting = [path]
        while waiting:
            folder = waiting.pop()
            if folder in self.inside:
                self._on_lost(folder)
            for name in self.inside.pop(folder, ()):
                below = join_path(folder, name)
                waiting.append(below)
                self._lose(below)

    # Recognising moved files

    def files_by_stamp(self) -> dict[Stamp, tuple[Entry, bool]]:
        """Return the files known when this scan began and whether each is held, to recognise them under a new name."""
        if self._moving is None:
            self._moving = {
                stamp: (entry, path in self.held)
                for path, stamp in self.stamps.items()
                if path not in self.unsure and isinstance(entry := self.entries[path], File) and entry.digest
            }
        return self._moving

    def forget_moves(self) -> None:
        self._moving = None

    def _set(self, path: str, entry: Entry | None) -> None:
        old = self.entries.get(path)
        if old != entry:
            if isinstance(old, File) and old.digest is None:
                old = Uncovered("changed before it was read", self.stamps[path].thing)
            self._was.setdefault(path, old)
        if entry is None:
            self.entries.pop(path, None)
        else:
            self.entries[path] = entry
            if path and (names := self.inside.get(parent_of(path))) is not None:
                names.add(name_of(path))

    def _lose(self, path: str) -> None:
        self._set(path, None)
        self._forget(path)

    def _forget(self, path: str) -> None:
        """Drop what is recorded only for files."""
        self.stamps.pop(path, None)
        self.held.discard(path)
        self.unsure.discard(path)


SMALL = 64 << 10
"""Largest file, in bytes, whose content is reported with a change."""
_NAMED = 1000
"""Most uncovered paths that `Coverage` names."""


class NotCovered(Struct, frozen=True, kw_only=True):
    """A path that undo neither restores nor removes."""

    path: str
    why: Why
    size: int = 0


class Coverage(Struct, frozen=True, kw_only=True):
    files: int
    """Files that undo can restore, including those still unread."""
    unread: int
    """Files that `fill` has yet to read. If one changes before that, its old content is lost and the file is named."""
    not_covered: tuple[NotCovered, ...]
    """Uncovered paths, the largest first, at most a thousand."""
    watched: bool
    """False if every cell costs a walk over all files."""
    has_unmeasured: bool = False
    """True if some files were only listed; they are not covered until `fill` has looked at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed while a cell ran. Paths are relative to the workspace; "" is the workspace itself."""

    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    texts: Mapping[str, tuple[str | None, str | None]] = field(
        default_factory=dict[str, tuple[str | None, str | None]], compare=False
    )
    """For small files: the digests of their content before and after, to be read with `Versions.content`."""
    not_covered: tuple[NotCovered, ...] = ()
    """Changed paths of which the new or the old version is not kept."""
    dropped: tuple[int, ...] = ()
    """States that can no longer be restored, because they were dropped to make room."""


NO_CHANGES = Changes()


class Missed(Struct, frozen=True, kw_only=True):
    path: str
    why: str


class Restored(Struct, frozen=True, kw_only=True):
    put_back: tuple[str, ...] = ()
    """Paths that were made again, changed back or removed."""
    left: tuple[str, ...] = ()
    """Paths left as the user changed them since: undo does not overwrite these."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Path and digest of every replaced version. All are kept: a change made during a cell may be the user's."""
    aside: tuple[tuple[str, str], ...] = ()
    """Uncovered paths that were in the way, and where each is now."""
    missed: tuple[Missed, ...] = ()
    """Paths that are not as they were after that cell, and why."""


def coverage_of(
    entries: Mapping[str, Entry], crowded: Collection[str], *, unread: int, watched: bool, has_unmeasured: bool = False
) -> Coverage:
    missing = [*_not_covered(entries.items()), *_list_crowded(crowded)]
    missing.sort(key=lambda it: (-it.size, it.path))
    return Coverage(
        files=sum(isinstance(entry, File) for entry in entries.values()),
        unread=unread,
        not_covered=tuple(missing[:_NAMED]),
        watched=watched,
        has_unmeasured=has_unmeasured,
    )


def changes_of(delta: Delta, dropped: list[int], crowded: Collection[str], *, is_cut: bool) -> Changes:
    """`is_cut`: the scan ended early, so there may be more changes."""
    if not (delta or dropped or crowded or is_cut):
        return NO_CHANGES
    ends = {path: new if isinstance(new, Uncovered) else old for path, (old, new) in delta.items()}
    return Changes(
        made=tuple(sorted(path for path, (old, _) in delta.items() if old is None)),
        changed=tuple(sorted(path for path, (old, new) in delta.items() if old and new)),
        removed=tuple(sorted(path for path, (_, new) in delta.items() if new is None)),
        texts={
            path: (_small(old), _small(new))
            for path, (old, new) in delta.items()
            if isinstance(old, File) or isinstance(new, File)
        },
        not_covered=(
            *_not_covered((path, entry) for path, entry in sorted(ends.items()) if entry),
            *_list_crowded(crowded),
            *(NotCovered(path="", why="too much at once") for _ in range(is_cut)),
        ),
        dropped=tuple(dropped),
    )


def _small(entry: Entry | None) -> str | None:
    return entry.digest if isinstance(entry, File) and entry.size <= SMALL else None


def _not_covered(entries: Iterable[tuple[str, Entry]]) -> list[NotCovered]:
    return [
        NotCovered(path=path, why=entry.why, size=entry.size)
        for path, entry in entries
        if isinstance(entry, Uncovered) and entry is not UNMEASURED
    ]


def _list_crowded(folders: Iterable[str]) -> list[NotCovered]:
    return [NotCovered(path=folder, why="too many files") for folder in sorted(folders)]
