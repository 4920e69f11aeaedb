"""Sorts names that appeared in a workspace by how to handle them: secrets, git folders, files that a program obeys."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import suppress

from msgspec import Struct, field

from pinfold.sandbox.guards import named_files
from pinfold.sandbox.guards.gitdir import DATA, NAMES, is_gitdir
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, Walk, is_within, stamp_of
from pinfold.sandbox.guards.named_files import GIT_FOLDER, AutorunRule, is_masked
from pinfold.sandbox.kernel.inotify import Watch
from pinfold.sandbox.kernel.safe_files import entries_of, grant_owner_access, link_target, lstat, read_plain

_MOST = 2_000_000
"""Most entries below new folders that are checked."""
_SHAPE = frozenset({"HEAD", "objects", "refs", *(name.partition("/")[0] for name in NAMES)})
_ATTRIBUTES_BYTES = 1 << 20


class Names(Struct, frozen=True):
    """Events on names in a workspace, relative to it."""

    renamed: set[str] = field(default_factory=set[str])
    """Names that were made, renamed or removed, so that they may mean another file."""
    written: set[str] = field(default_factory=set[str])
    is_lost: bool = False
    """True if some events were lost."""
    is_partial: bool = False
    """True if some folders are not watched."""

    def __bool__(self) -> bool:
        return bool(self.renamed or self.written)

    def merge(self, other: Names) -> Names:
        return Names(self.renamed | other.renamed, self.written | other.written)


NOTHING = Names()


class Found(Struct):
    secrets: set[str] = field(default_factory=set[str])
    gitdirs: set[str] = field(default_factory=set[str])
    pointers: set[str] = field(default_factory=set[str])
    """`.git` files."""
    obeyed: dict[str, AutorunRule] = field(default_factory=dict[str, AutorunRule])
    """Paths to put back."""
    told: dict[str, AutorunRule] = field(default_factory=dict[str, AutorunRule])
    bytecode: set[str] = field(default_factory=set[str])
    """Bytecode files, which Python runs instead of the source and people do not read."""
    closed: set[str] = field(default_factory=set[str])
    """Folders that could not be read."""


class NameCheck:
    """Checks names of one workspace. Paths are relative to it."""

    def __init__(self, top: str, guards: GuardedPaths) -> None:
        self._top = top
        self._environments = guards.environments
        self._told = guards.told

    def look(self, names: Names) -> Found:
        """Check these names, and everything in folders among them that are new."""
        found = Found()
        # A session may take away the permissions of a folder to hide its files there.
        closed = {path for path in names.renamed | names.written if grant_owner_access(f"{self._top}/{path}")}
        for path in sorted(names.renamed | names.written):
            self._sort(path, found)
        for path in sorted(names.renamed | closed):
            for below in self._below(path, found):
                self._sort(below, found)
        return found

    def look_everywhere(self) -> Found:
        found = Found()
        walk = Walk(self._top, steers=True, is_last=True)
        cut = len(self._top) + 1
        found.secrets.update(path[cut:] for path, _, _ in walk.masked)
        if GIT_FOLDER in named_files.TABLE:
            found.gitdirs.update(path[cut:] for path in walk.gitdirs)
            found.pointers.update(path[cut:] for path in walk.pointers)
        found.closed.update(path[cut:] for path in (*walk.closed, *walk.too_deep))
        for path, row in (
            *walk.autorun.items(),
            *((match.path, match.row) for each in self._environments for match in each.matches(self._top)),
            *((link, match.row) for link, match in walk.through_links),
        ):
            if row.response == "tell" and self._told.get(path) == stamp_of(f"{self._top}/{path}"):
                continue
            self._sort_row(path, row, found)
        return found

    def _below(self, first: str, found: Found) -> Iterator[str]:
        waiting, left = [first], _MOST
        while waiting:
            folder = waiting.pop()
            status = self._status(folder)
            if status is None or not stat.S_ISDIR(status.st_mode):
                continue
            try:
                with os.scandir(f"{self._top}/{folder}") as inside:
                    entries = list(inside)
            except OSError:
                if grant_owner_access(f"{self._top}/{folder}"):
                    waiting.append(folder)
                else:
                    found.closed.add(folder)
                continue
            left -= len(entries)
            if left < 0:
                found.closed.add(folder)
                return
            passed = DATA if is_gitdir(f"{self._top}/{folder}") else ()
            for entry in entries:
                path = f"{folder}/{entry.name}" if folder else entry.name
                yield path
                if entry.is_dir(follow_symlinks=False) and entry.name not in passed:
                    waiting.append(path)

    def _sort(self, path: str, found: Found) -> None:
        status = self._status(path)
        if status is None:
            return
        if GIT_FOLDER in named_files.TABLE:
            self._sort_git(path, found)
        match = named_files.match(path)
        if match is not None and match.row.only_in == "git":
            return  # a branch may be called `x.pem`
        target = link_target(f"{self._top}/{path}") if stat.S_ISLNK(status.st_mode) else None
        matches = [match] if match else [each.match(path, target) for each in self._environments]
        for one in filter(None, matches):
            self._sort_row(one.path, one.row, found)
        if target is not None:
            for one in named_files.match_link(path):
                self._sort_row(path, one.row, found)
        if is_masked(path):
            found.secrets.add(path)
        if path.endswith(".pyc") and "__pycache__/" in path and named_files.TABLE:
            found.bytecode.add(path)

    def _sort_git(self, path: str, found: Found) -> None:
        folder, _, name = path.rpartition("/")
        if name == ".git":
            status = self._status(path)
            is_folder = status is not None and stat.S_ISDIR(status.st_mode)
            (found.gitdirs if is_folder else found.pointers).add(path)
        elif name in _SHAPE and is_gitdir(f"{self._top}/{folder}" if folder else self._top):
            found.gitdirs.add(folder)

    def _sort_row(self, path: str, row: AutorunRule, found: Found) -> None:
        if row.only_in == "environment":
            if any(is_within(path, environment.home) for environment in self._environments):
                found.obeyed[path] = row
            elif (home := self._environment_of(path)) is not None:
                found.told[home or "pyvenv.cfg"] = row
            elif "site-packages/" in path:
                found.told[path] = row
        elif row.response == "put back":
            found.obeyed[path] = row
        elif row.pattern != ".gitattributes" or self._names_drivers(path):
            found.told[path] = row

    def _environment_of(self, path: str) -> str | None:
        while path:
            path = path.rpartition("/")[0]
            if os.path.lexists(f"{self._top}/{path}/pyvenv.cfg"):
                return path
        return None

    def _names_drivers(self, path: str) -> bool:
        data = read_plain(f"{self._top}/{path}", _ATTRIBUTES_BYTES, flags=os.O_NOFOLLOW)
        return data is None or re.search(rb"(?m)^[^#\n]*\b(?:filter|diff|merge)\s*=", data) is not None

    def _status(self, path: str) -> os.stat_result | None:
        return lstat(f"{self._top}/{path}")


class NameWatch:
    """Watches the folders of one workspace that hold guarded names, and all of them where they are few enough."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._watch: Watch | None = None
        with suppress(OSError):
            self._watch = Watch()
        self.sees_all = False
        """True if every folder that holds a guarded name is watched."""
        self.sees_names = False
        """True if every folder is watched, so that each new name is seen at once."""

    @property
    def fd(self) -> int | None:
        return self._watch.fd if self._watch else None

    def changes(self) -> tuple[set[str], set[str]] | None:
        return self._watch.changes() if self._watch else None

    def watch_guarded(self, paths: Iterable[str], written: Iterable[str], secrets: Iterable[str]) -> None:
        """Watch the folders above these paths, those in which git writes, and those that hold secrets."""
        if self._watch is None:
            return
        ways = [path.split("/") for path in paths]
        above = {"/".join([self._top, *way[:count]]) for way in ways for count in range(len(way))}
        try:
            self._watch.add_all(sorted(above))
            self._watch.add_all(f"{self._top}/{folder}" for folder in written)
        except OSError:
            self.sees_all = False
            return
        self.sees_all = True
        self.watch_parents(secrets)  # if they are too many, the file history may still see their names

    def watch_parents(self, paths: Iterable[str]) -> None:
        """Watch the folders that hold these paths, until the kernel allows no more watches."""
        if self._watch:
            with suppress(OSError):
                self._watch.add_all(sorted({f"{self._top}/{path}".rpartition("/")[0] for path in paths}))

    def watch_each(self, folders: list[str] | None, most: int) -> None:
        """Watch all these folders, unless they are more than `most`."""
        if self._watch is None or folders is None or len(folders) > most:
            return
        with suppress(OSError):
            self._watch.add_all(f"{self._top}/{folder}" if folder else self._top for folder in folders)
            self.sees_names = True

    def watch_names(self, folders: Iterable[str]) -> bool:
        """Watch these folders and all below. False if not all could be watched."""
        waiting = list(folders)
        try:
            while waiting and self._watch:
                path = waiting.pop()
                if self._watch.add_all([f"{self._top}/{path}" if path else self._top]):
                    waiting += folders_in(self._top, path)
        except OSError:
            self.sees_names = False
            return False
        return True

    def close(self) -> None:
        if self._watch:
            self._watch.close()


def folders_in(top: str, folder: str) -> list[str]:
    """Return the folders in `folder`, except those of git's data."""
    path = f"{top}/{folder}" if folder else top
    found = [entry.name for entry in entries_of(path) if entry.is_dir(follow_symlinks=False)]
    passed = DATA if path.endswith("/.git") or is_gitdir(path) else ()
    return [f"{folder}/{name}" if folder else name for name in found if name not in passed]


def names_of(paths: Iterable[str], top: str) -> set[str]:
    """Return absolute paths below `top` relative to it."""
    return {path[len(top) + 1 :] for path in paths}
