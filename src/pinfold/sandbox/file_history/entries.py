"""What a path can be, as far as it can be put back, and how one state differs from another. No disk."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from pinfold.sandbox.kernel.safe_files import Thing

Why: TypeAlias = Literal[
    "too large",
    "no room",
    "hard link",
    "special file",
    "unreadable",
    "secret",
    "too many files",
    "too much at once",
    "beyond the disk limit",
    "another file system",
    "changed before it was read",
    "changed while it was read",
]
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
