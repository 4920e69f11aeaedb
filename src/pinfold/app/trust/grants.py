"""The user's own rules, and what the user has allowed for always, by folder: shown and revoked by `pinfold policy grants`."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, hold_file_lock, read_store, write_private
from pinfold.events import Mode
from pinfold.policy import NO_RULES, RuleError, Rules, explain, load_rules


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
        return read_store(self.file, tuple[Grant, ...], "remove it, and what it allowed is asked about again")

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
            before = len(grants)
            grants[:] = [
                one for one in grants if (one.pattern, one.workspace) != (pattern, str(workspace or one.workspace))
            ]
            return before - len(grants)

    @contextmanager
    def _changing(self) -> Generator[list[Grant]]:
        with hold_file_lock(self.file):
            grants = list(self.all())
            yield grants
            write_private(self.file, msgspec.json.format(msgspec.json.encode(grants)))


def user_rules() -> Rules:
    """Raises ConfigError."""
    path = config_dir() / "rules.toml"
    try:
        return load_rules(path.read_text("utf-8"))
    except FileNotFoundError:
        return NO_RULES
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except RuleError as error:
        raise ConfigError(f"{path}: {error}") from error


def explain_command(command: str, mode: Mode = "ask") -> dict[str, object]:
    """What policy would say of a shell command in a new session, and why. Raises ConfigError."""
    return explain(command, mode=mode, rules=user_rules())
