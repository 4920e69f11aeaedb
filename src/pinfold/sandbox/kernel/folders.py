"""Temporary folders that show whether the process that made them still lives.

That process holds a lock on each of them; the kernel releases the lock when the process ends.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from pinfold.sandbox.kernel.safe_files import remove_all

_OURS = r"pinfold-(egress|home|workspace|proof|bait|site|lite|versions|variables|views)\.[a-z0-9_]{8}"
_UNNAMED = r"\.?pinfold-(workspace-|proof-|bait-|check-)?[a-z0-9_]{8}"
"""Folders without a lock, judged by age alone: made by an older version, or by a process that ended too early."""
_OLD_S = 24 * 3600.0


class TemporaryFolder:
    """A folder private to this user; `remove` removes it."""

    def __init__(self, kind: str) -> None:
        """`kind`: one of those in `_OURS`."""
        place, word = tempfile.gettempdir(), os.urandom(4).hex()
        unlocked = f"{place}/.pinfold-{word}"
        os.mkdir(unlocked, 0o700)
        self._lock = hold_lock(unlocked)
        # Only a locked folder gets the name that cleanup looks for.
        self.path = Path(f"{place}/pinfold-{kind}.{word}")
        os.rename(unlocked, self.path)

    def remove(self) -> None:
        if self._lock >= 0:
            remove_folder(self.path)
            os.close(self._lock)
            self._lock = -1


@contextmanager
def folder(kind: str) -> Generator[Path]:
    made = TemporaryFolder(kind)
    try:
        yield made.path
    finally:
        made.remove()


def remove_folder(path: Path) -> bool:
    """Remove a folder, even with unreadable or very deeply nested folders inside. Returns True if it is gone."""
    with suppress(OSError):
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_all(parent, path.name)
        finally:
            os.close(parent)
    if os.path.lexists(path):  # something in it cannot be removed; remove the rest
        with suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def find_abandoned(within: Path | None = None) -> list[Path]:
    """Return this user's temporary folders whose process is gone."""
    found: list[Path] = []
    for path in Path(within or tempfile.gettempdir()).iterdir():
        with suppress(OSError):  # another process removed it meanwhile
            status = path.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            if re.fullmatch(_OURS, path.name):
                is_abandoned = not in_use(path)
            else:
                is_old = re.fullmatch(_UNNAMED, path.name) and time.time() - status.st_mtime > _OLD_S
                is_abandoned = is_old and not any(path.iterdir())
            if is_abandoned:
                found.append(path)
    return sorted(found)


def hold_lock(path: Path | str) -> int:
    """Lock the folder until this process ends or closes the returned descriptor."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def in_use(path: Path) -> bool:
    """Return True if a living process holds the folder's lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Try to take an exclusive lock. Returns True on success."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
