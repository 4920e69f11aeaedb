"""What the user has allowed for always, by folder: patterns in one file of their own, shown and revoked by `pinfold policy grants`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir
from pinfold.app.private_files import hold_file_lock, read_private, write_private


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    pattern: str
    workspace: str
    """It holds for sessions in this folder."""
    at: str


class Grants:
    def __init__(self, folder: Path | None = None) -> None:
        self.file = (folder or config_dir()) / "grants.json"

    def all(self) -> tuple[Grant, ...]:
        """Raises ConfigError."""
        data = read_private(self.file)
        if data is None:
            return ()
        try:
            return msgspec.json.decode(data, type=tuple[Grant, ...])
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
        with hold_file_lock(self.file):
            grants = list(self.all())
            yield grants
            write_private(self.file, msgspec.json.format(msgspec.json.encode(grants)))
