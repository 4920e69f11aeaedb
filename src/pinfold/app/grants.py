"""What the user has allowed for always, by folder: patterns in one file of their own, shown and revoked by `pinfold policy grants`."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, private_dir


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    pattern: str
    workspace: str
    """It holds for sessions in this folder."""
    at: str


class Grants:
    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder or config_dir()
        self.file = self._folder / "grants.json"

    def all(self) -> tuple[Grant, ...]:
        """Raises ConfigError."""
        try:
            return msgspec.json.decode(self.file.read_bytes(), type=tuple[Grant, ...])
        except FileNotFoundError:
            return ()
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be read: {error.strerror}") from error
        except msgspec.MsgspecError as error:
            raise ConfigError(
                f"{self.file} is damaged ({error}); remove it, and what it allowed is asked about again"
            ) from error

    def of(self, workspace: Path) -> frozenset[str]:
        return frozenset(grant.pattern for grant in self.all() if grant.workspace == str(workspace))

    def add(self, pattern: str, workspace: Path) -> None:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        with self._changing() as grants:
            if not any((one.pattern, one.workspace) == (pattern, str(workspace)) for one in grants):
                grants.append(Grant(pattern=pattern, workspace=str(workspace), at=now))

    def revoke(self, pattern: str, workspace: Path | None = None) -> int:
        """In this folder, or in all; how many there were."""
        with self._changing() as grants:
            gone = [
                one
                for one in grants
                if one.pattern == pattern and (workspace is None or one.workspace == str(workspace))
            ]
            for one in gone:
                grants.remove(one)
            return len(gone)

    @contextmanager
    def _changing(self) -> Generator[list[Grant]]:
        """One process at a time; what others read is whole, before or after."""
        private_dir(self._folder)
        lock = os.open(self.file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            grants = list(self.all())
            yield grants
            new = self.file.with_suffix(".new")
            new.unlink(missing_ok=True)
            with os.fdopen(
                os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb"
            ) as file:
                file.write(msgspec.json.format(msgspec.json.encode(grants)))
                os.fsync(file.fileno())
            new.replace(self.file)
        except OSError as error:
            raise ConfigError(f"{self.file} cannot be written: {error.strerror}") from error
        finally:
            os.close(lock)
