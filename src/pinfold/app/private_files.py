"""Small files of Pinfold's own that others must neither read nor write: secrets, and what is trusted."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import tempfile
from collections.abc import Generator
from pathlib import Path

from pinfold.app.errors import ConfigError
from pinfold.app.paths import private_dir

_MOST = 4 << 20


def read_private(path: Path) -> bytes | None:
    """What is in it; None if it is not there. Raises ConfigError where others could have read or written it."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; it must be a file of yours") from error
    with os.fdopen(fd, "rb") as file:
        _refuse_shared(path, os.fstat(fd), 0o077, "600")
        _refuse_shared(path.parent, path.parent.stat(), 0o022, "700")
        data = file.read(_MOST + 1)
    if len(data) > _MOST:
        raise ConfigError(f"{path} is larger than anything Pinfold writes; move it away")
    return data


def write_private(path: Path, data: bytes) -> None:
    """Put this into it, whole or not at all, for its owner alone. Raises ConfigError."""
    folder = private_dir(path.parent)
    try:
        fd, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=folder)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(fd)
            Path(name).replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


@contextlib.contextmanager
def hold_file_lock(path: Path) -> Generator[None]:
    """Nobody else changes it meanwhile: reading and writing it becomes one step."""
    lock = private_dir(path.parent) / f".{path.name}.lock"
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{lock} cannot be used: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _refuse_shared(path: Path, status: os.stat_result, wide: int, mode: str) -> None:
    if stat.S_IMODE(status.st_mode) & wide:
        raise ConfigError(f"{path} is open to other users of this machine; fix it: chmod {mode} {path}")
    if status.st_uid not in (os.geteuid(), 0):
        raise ConfigError(f"{path} belongs to another user; fix it: chown {os.geteuid()} {path}")
