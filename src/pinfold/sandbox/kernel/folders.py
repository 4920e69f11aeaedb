"""Temporary folders that tell whether anyone still uses them, however their maker ended.

Each is locked for as long as its maker lives; the kernel lets go of the lock with the process.
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
"""Without a lock, by age alone: made by an older version, or cut off before the lock was taken."""
_OLD_S = 24 * 3600.0


class TemporaryFolder:
    """Private to this user, removed with `remove`."""

    def __init__(self, kind: str) -> None:
        """`kind`: one of those that `_OURS` knows."""
        place, word = tempfile.gettempdir(), os.urandom(4).hex()
        unlocked = f"{place}/.pinfold-{word}"
        os.mkdir(unlocked, 0o700)
        self._lock = hold_lock(unlocked)
        # It gets the name a cleanup looks for only once it is locked.
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
    """All of it, whatever a session has put there: closed folders, thousands in each other. Whether it is gone."""
    with suppress(OSError):
        parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            remove_all(parent, path.name)
        finally:
            os.close(parent)
    if os.path.lexists(path):  # something in it is not ours to remove: the rest is
        with suppress(RecursionError):
            shutil.rmtree(path, ignore_errors=True)
    return not os.path.lexists(path)


def find_abandoned(within: Path | None = None) -> list[Path]:
    """Temporary folders of this user whose maker is gone."""
    found: list[Path] = []
    for path in Path(within or tempfile.gettempdir()).iterdir():
        with suppress(OSError):  # someone else removed it meanwhile
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
    """Lock the folder until this process ends or closes what is returned."""
    lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    fcntl.flock(lock, fcntl.LOCK_SH)
    return lock


def in_use(path: Path) -> bool:
    """Whether a living process holds the folder's lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not try_lock(descriptor)
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Whether it is locked now, for us alone."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
