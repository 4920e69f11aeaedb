"""Opens a database file: that file and no other, even if code changes its folder meanwhile.

In a folder where the session's code can write, the name may be a link to a file outside its reach, and the database's
side files, such as its journal, may be forged. It is then opened without them, and the opened file is checked.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pinfold.tools.sql.sources import Source
from pinfold.tools.sql.statements import DatabaseFault, Refused

_MOST_LINKS = 40


class FileEngine:
    """A database in one file. Each statement opens it anew: an open file would keep other programs from writing it."""

    _connection: Any

    def __init__(self, source: Source, error: type[Exception]) -> None:
        self._timeout_s = source.timeout_s
        self._is_out_of_time = False
        self._error = error

    def is_as_new(self) -> bool:
        return False

    def cancel(self) -> None:
        """Cancel the running query, from any thread."""
        with suppress(Exception):
            self._connection.interrupt()

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()

    @contextmanager
    def _faults(self) -> Generator[None]:
        try:
            yield
        except self._error as error:
            words = f"it took longer than {self._timeout_s:g} s" if self._is_out_of_time else str(error)
            raise DatabaseFault(words[:2000]) from None


class FileCheck:
    """Checks a database file: created before the library opens it; call `check` afterwards, before reading anything."""

    def __init__(self, source: Source, side_files: tuple[str, ...]) -> None:
        """Check the file before it is opened. Raises Refused, DatabaseFault."""
        self.path = source.address.where
        folders = tuple(Path(folder).resolve() for folder in source.changeable)
        visited = _visited_paths(self.path)
        self.is_changeable = any(place.is_relative_to(folder) for place in visited for folder in folders)
        self._before = _open_files()
        try:
            status = Path(self.path).stat(follow_symlinks=not self.is_changeable)
        except OSError as error:
            raise DatabaseFault(f"its file cannot be opened: {error.strerror}") from error
        if not stat.S_ISREG(status.st_mode):
            raise Refused("the database is not a file, or a link in a folder that code can write")
        if self.is_changeable:
            self._refuse_links(visited, folders)
            for ending in side_files:
                if _size(self.path + ending):
                    words = f"the database has changes in its {ending} file, in a folder that code can write"
                    raise Refused(f"{words}; open it from Python instead")
        self._identity = (status.st_dev, status.st_ino)

    def check(self) -> None:
        """Raise Refused unless the file now open is the one that was checked before."""
        if not self.is_changeable:
            return
        new = _open_files() - self._before
        if self._identity not in new or len(new) > 1:
            raise Refused("the database's file was exchanged while it was opened; open it from Python instead")

    def _refuse_links(self, visited: list[Path], folders: tuple[Path, ...]) -> None:
        for place in visited:
            if place.is_symlink() and any(place.parent.resolve().is_relative_to(folder) for folder in folders):
                raise Refused("the path to the database goes over a link that code can change; name the file itself")


def _visited_paths(path: str) -> list[Path]:
    """Return every path visited on the way to `path`, following links one by one."""
    seen: list[Path] = []
    waiting = list(Path(path).parts)[1:]
    at = Path("/")
    links = 0
    while waiting:
        name = waiting.pop(0)
        at = at.parent if name == ".." else at / name
        seen.append(at)
        if at.is_symlink() and links < _MOST_LINKS:
            links += 1
            target = at.readlink()
            waiting = [*(target.parts[1:] if target.is_absolute() else target.parts), *waiting]
            at = Path("/") if target.is_absolute() else at.parent
    return seen


def _open_files() -> set[tuple[int, int]]:
    """Return device and inode of the regular files this process holds open."""
    found: set[tuple[int, int]] = set()
    for fd in range(3, 256):
        try:
            status = os.fstat(fd)
        except OSError:
            continue
        if stat.S_ISREG(status.st_mode):
            found.add((status.st_dev, status.st_ino))
    return found


def _size(path: str) -> int:
    try:
        return Path(path).stat(follow_symlinks=False).st_size
    except OSError:
        return 0
