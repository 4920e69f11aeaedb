"""What the user has agreed to: trusted workspaces, policy rules, and permanent grants.

Project files take effect only with exactly the bytes the user has seen. `pinfold policy grants` shows and revokes grants.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, hold_file_lock, is_too_wide, read_store, refuse_closed_folders, write_private
from pinfold.app.trust.project_files import ProjectFiles, read_project_files
from pinfold.events import Mode
from pinfold.policy import NO_RULES, RuleError, Rules, explain, load_rules
from pinfold.text import join_names, printable_line

_NAMED = 4
"""Maximum files that a notice names."""


class _Grant(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    files: dict[str, str]
    """Hash of each file, to tell which one changed."""
    at: str


class _Store(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    folders: dict[str, _Grant] = {}


class TrustStatus(Struct, frozen=True, kw_only=True):
    """Whether a workspace is trusted, and what changed."""

    trusted: bool
    at: str = ""
    """When it was trusted; empty if it never was."""
    changed: tuple[str, ...] = ()
    """Files added, removed or changed since then."""


class TrustedFiles(Struct, frozen=True, kw_only=True):
    """The trusted files of a workspace, and a notice about the rest."""

    files: Mapping[str, bytes]
    """The trusted bytes, by path in the workspace."""
    notice: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """The question whether to trust a folder. To answer yes, call `trust(question.found)`."""

    found: ProjectFiles
    lines: tuple[str, ...]
    """For each file its name and what it would do. Must be made printable before printing."""
    changed: tuple[str, ...] = ()
    """Files changed since the folder was last trusted."""


def question(workspace: Path) -> Question | None:
    """Return the question; None if there are no files, or they are trusted or cannot be. Raises ConfigError."""
    found = read_project_files(workspace)
    if found.odd or all(file.is_idle for file in found.files) or is_too_wide(found.workspace):
        return None
    status = trust_status(found)
    if status.trusted:
        return None
    lines: list[str] = []
    for file in found.files:
        first, *more = found.describe_effects(file)
        lines += [f"{file.name}: {first}", *more]
    return Question(found=found, lines=tuple(lines), changed=status.changed)


def is_trusted(found: ProjectFiles) -> bool:
    """True if the user has trusted exactly these files. Raises ConfigError."""
    return trust_status(found).trusted


def trust_status(found: ProjectFiles) -> TrustStatus:
    """Raises ConfigError."""
    grant = _read().folders.get(str(found.workspace))
    if grant is None or is_too_wide(found.workspace):
        return TrustStatus(trusted=False)
    now = {**found.digests, **dict.fromkeys(found.odd, "")}
    changed = sorted(name for name in now.keys() | grant.files if now.get(name) != grant.files.get(name))
    trusted = not changed and found.digest == grant.digest
    return TrustStatus(trusted=trusted, at=grant.at, changed=tuple(changed))


def trust(found: ProjectFiles) -> None:
    """Trust these files until any of them changes. Raises ConfigError."""
    if is_too_wide(found.workspace):
        raise ConfigError(
            f"{found.workspace} is never trusted: it holds far more than one task; name a folder inside it"
        )
    refuse_closed_folders(found.workspace)
    for name, why in found.odd.items():
        raise ConfigError(f"{printable_line(name)} cannot be trusted: {why}; change or remove it, then try again")
    if not found.files:
        raise ConfigError(f"there is nothing to trust in {found.workspace}")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    with hold_file_lock(_path()):
        grant = _Grant(digest=found.digest, files=found.digests, at=at)
        _write({**_read().folders, str(found.workspace): grant})


def forget(workspace: Path) -> bool:
    """Revoke trust; False if the workspace was not trusted. Raises ConfigError."""
    with hold_file_lock(_path()):
        folders = dict(_read().folders)
        known = folders.pop(str(workspace.resolve()), None)
        if known:
            _write(folders)
    return known is not None


def read_trusted_files(workspace: Path) -> TrustedFiles:
    """Return the trusted files. Asks nothing: untrusted files are ignored, with a notice. Raises ConfigError."""
    found = read_project_files(workspace)
    if not found.files and not found.odd:
        return TrustedFiles(files={})
    status = trust_status(found)
    if status.trusted:
        return TrustedFiles(files={file.name: file.data for file in found.files})
    return TrustedFiles(files={}, notice=_notice(found, status))


def _notice(found: ProjectFiles, status: TrustStatus) -> str:
    names = [*(file.name for file in found.files if not file.is_idle), *found.odd]
    if not names:
        return ""
    named = printable_line(join_names(names, _NAMED))
    why = "it is not trusted"
    if status.changed:
        why = f"changed since it was trusted: {printable_line(join_names(status.changed, _NAMED))}"
    return f"ignored in {found.workspace}: {named} ({why}); see and allow: pinfold trust {found.workspace}"


def _path() -> Path:
    return config_dir() / "trust.json"


def _read() -> _Store:
    return read_store(_path(), _Store, "remove it and trust your folders again")


def _write(folders: Mapping[str, _Grant]) -> None:
    write_private(_path(), msgspec.json.encode(_Store(folders=dict(folders))))


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    pattern: str
    workspace: str
    """The grant holds for sessions in this folder."""
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
        """Revoke a grant in this folder, or in all. Return how many were revoked."""
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
    """Return the verdict of policy on a shell command in a new session, and why. Raises ConfigError."""
    return explain(command, mode=mode, rules=user_rules())
