"""One owner per session: a lock the kernel lets go of when its holder dies, however it dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from pathlib import Path

from pinfold.app.errors import ConfigError

_LOCK = "owner.lock"
_TRIES = 5
_TRY_AGAIN_S = 0.01


class Claim:
    """Held from `claim` until `release` or the end of the process."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        os.close(self._descriptor)


def claim(folder: Path) -> Claim | None:
    """Become the owner of the session, or None if another process is."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{folder} cannot be used: {error.strerror}") from error
    if not _try_lock(descriptor):
        os.close(descriptor)
        return None
    # The number is for messages only; the lock is held without it, on a full disk too.
    with contextlib.suppress(OSError):
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
    return Claim(descriptor)


def _try_lock(descriptor: int) -> bool:
    # Someone who only looks holds the lock for a moment; an owner holds it for longer than this.
    for _ in range(_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_TRY_AGAIN_S)
        else:
            return True
    return False


def holder_of(folder: Path) -> int | None:
    """The owner's process id, as it wrote it; None if the session is not held."""
    try:
        descriptor = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        number = os.pread(descriptor, 20, 0)
        return int(number) if number.isdigit() else 0
    finally:
        os.close(descriptor)
    return None
