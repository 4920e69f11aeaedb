"""What a path can be, as far as it can be put back, how one state differs from another, and what is said of it. No disk."""

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
"""Why something is not covered."""


@dataclass(frozen=True, slots=True)
class File:
    digest: str | None
    """Of its content; None: not read yet, and as it was at the start."""
    size: int
    mode: int
    owner: tuple[int, int]
    mtime_ns: int = field(compare=False)
    """Not compared: a file that was only touched has not changed."""


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
    """Known to be there, content unknown: never overwritten, never removed, at most moved."""

    why: Why
    thing: Thing
    is_folder: bool = False
    """And nothing is known of what it holds."""

    @property
    def size(self) -> int:
        return self.thing[1]


UNMEASURED = Uncovered("changed before it was read", (0, 0, 0))
"""A file that was only listed yet. This very object: one that was measured and found uncovered is another."""

Entry: TypeAlias = File | Folder | Link | Uncovered
Delta: TypeAlias = dict[str, tuple[Entry | None, Entry | None]]
"""What each path was and what it became; None: not there. Paths are relative to the workspace, "" is the workspace."""


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
    """Each folder on the way to `path`, the workspace first."""
    if path:
        yield ""
    at = path.find("/")
    while at > 0:
        yield path[:at]
        at = path.find("/", at + 1)


def is_below(path: str, places: Collection[str]) -> bool:
    """Or is one of them."""
    return path in places or any(folder in places for folder in above(path))


def whole(path: str) -> str:
    """What must be put back together with `path`: all of its git folder, or the path alone.

    Git's files mean something only together: an index without its objects is a broken repository.
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
    """`on_lost` is told of each folder that is one no longer."""

    def __init__(self, on_lost: Callable[[str], None]) -> None:
        self.entries: dict[str, Entry] = {}
        self.stamps: dict[str, Stamp] = {}
        """Of everything that is no folder."""
        self.inside: dict[str, set[str]] = {}
        """The names in each folder that was looked into."""
        self.unsure: set[str] = set()
        """Changed so shortly before it was read that the next change could bear the same time."""
        self.held: set[str] = set()
        """Open for writing by some process."""
        self._on_lost = on_lost
        self._was: dict[str, Entry | None] = {}
        """What each changed path was when `changes` was last asked."""
        self._moving: dict[Stamp, tuple[Entry, bool]] | None = None

    def is_file(self, path: str) -> bool:
        return isinstance(self.entries.get(path), File)

    def is_unread(self, path: str) -> bool:
        entry = self.entries.get(path)
        return isinstance(entry, File) and entry.digest is None

    def differs(self, wanted: Mapping[str, Entry | None]) -> dict[str, Entry | None]:
        return {path: entry for path, entry in wanted.items() if self.entries.get(path) != entry}

    def changes(self) -> Delta:
        """Since the last time."""
        was, self._was = self._was, {}
        delta = {path: (old, self.entries.get(path)) for path, old in was.items()}
        return {path: pair for path, pair in delta.items() if pair[0] != pair[1]}

    @property
    def is_as_told(self) -> bool:
        """Nothing has changed since `changes` was last asked."""
        return not self._was

    def give_up(self) -> None:
        """What was made since `changes` was last asked and is too much to be kept may be removed: it filled the disk."""
        for path, was in self._was.items():
            entry = self.entries.get(path)
            if isinstance(entry, Uncovered) and entry.why in TOO_MUCH and not isinstance(was, Uncovered):
                self.entries[path] = replace(entry, why="beyond the disk limit")

    def has_changed(self, path: str) -> bool:
        return path in self._was

    def digests(self) -> Iterator[str]:
        """Of every content that is, or was when `changes` was last asked."""
        for entry in (*self.entries.values(), *self._was.values()):
            if isinstance(entry, File) and entry.digest:
                yield entry.digest

    def recall(self, entries: dict[str, Entry], stamps: dict[str, Stamp]) -> None:
        """What an earlier process knew."""
        self.entries, self.stamps = entries, stamps
        for path, entry in entries.items():
            if isinstance(entry, Folder):
                self.inside.setdefault(path, set())
            if path:
                self.inside.setdefault(parent_of(path), set()).add(name_of(path))

    def settle(self, path: str) -> None:
        """It was so from the start."""
        self._was.pop(path, None)

    # What was seen

    def note(self, path: str, entry: Entry, stamp: Stamp, *, is_fresh: bool = False) -> None:
        """Something that is no folder."""
        self.drop_below(path)
        if self.is_unread(path) and self.stamps[path] == stamp:
            self.entries[path] = entry  # what it was at the start: nothing changed
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
        """It is no folder any more, if it was one."""
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

    # What was moved

    def files_by_stamp(self) -> dict[Stamp, tuple[Entry, bool]]:
        """Files that were there when this look began, to know them again under a new name, and which of them are held."""
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
        """What is known of files only."""
        self.stamps.pop(path, None)
        self.held.discard(path)
        self.unsure.discard(path)


SMALL = 64 << 10
"""Bytes of a file whose content is told with a change."""
_NAMED = 1000
"""Of what is not covered, by name; the rest is counted."""


class NotCovered(Struct, frozen=True, kw_only=True):
    """Undo neither restores nor removes it."""

    path: str
    why: Why
    size: int = 0


class Coverage(Struct, frozen=True, kw_only=True):
    files: int
    """That can be put back, those still unread included."""
    unread: int
    """Files that `fill` has still to read: if one changes before that, what it was is lost, and it is named then."""
    not_covered: tuple[NotCovered, ...]
    """The largest first, at most a thousand."""
    watched: bool
    """If not, every cell costs a walk over all files."""
    has_unmeasured: bool = False
    """There are files that were only listed, and are not covered until `fill` has looked at them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What changed while a cell ran. Paths are relative to the workspace; "" is the workspace itself."""

    made: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    texts: Mapping[str, tuple[str | None, str | None]] = field(
        default_factory=dict[str, tuple[str | None, str | None]], compare=False
    )
    """Of small files: what they held before and after, as `Versions.content` has it."""
    not_covered: tuple[NotCovered, ...] = ()
    """Of these: what this cell made of it, or what it was before, is not kept."""
    dropped: tuple[int, ...] = ()
    """States that can no longer be gone back to, for want of room."""


class Missed(Struct, frozen=True, kw_only=True):
    path: str
    why: str


class Restored(Struct, frozen=True, kw_only=True):
    put_back: tuple[str, ...] = ()
    """Made again, changed back or removed."""
    left: tuple[str, ...] = ()
    """As the user has made it since, which no undo overwrites."""
    replaced: tuple[tuple[str, str], ...] = ()
    """Every version that gave way, for `Versions.content`: who changed a file while a cell ran, the cell or the user, cannot be seen."""
    aside: tuple[tuple[str, str], ...] = ()
    """What is not covered and was in the way, and where it is now."""
    missed: tuple[Missed, ...] = ()
    """Not as it was after that cell, and why."""


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
    """`is_cut`: there may be more that was not looked at."""
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
