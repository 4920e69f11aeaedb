"""What is said of a workspace's files: what is covered, what a cell changed, what was restored."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from pinfold.sandbox.file_history.entries import UNMEASURED, Delta, Entry, File, Uncovered, Why

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
