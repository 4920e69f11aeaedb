"""Whether what a workspace holds for the agent may be obeyed: only what the user has seen, down to the byte."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from pinfold.app.errors import ConfigError
from pinfold.app.paths import (
    config_dir,
    hold_file_lock,
    is_too_wide,
    read_store,
    refuse_closed_folders,
    write_private,
)
from pinfold.app.trust.project_files import ProjectFiles, read_project_files
from pinfold.text import join_names, printable_line

_NAMED = 4
"""Files that a notice names one by one."""


class _Grant(msgspec.Struct, frozen=True, kw_only=True):
    digest: str
    files: dict[str, str]
    """The hash of each, to tell which one changed."""
    at: str


class _Store(msgspec.Struct, frozen=True, kw_only=True):
    version: Literal[1] = 1
    folders: dict[str, _Grant] = {}


class TrustStatus(Struct, frozen=True, kw_only=True):
    """How a workspace is trusted."""

    trusted: bool
    at: str = ""
    """When it was; empty if it never was."""
    changed: tuple[str, ...] = ()
    """Files that are new, gone or other than they were then."""


class TrustedFiles(Struct, frozen=True, kw_only=True):
    """What of a workspace is obeyed, and what must be said about the rest."""

    files: Mapping[str, bytes]
    """By their path in the workspace: the very bytes that are trusted."""
    notice: str = ""


class Question(Struct, frozen=True, kw_only=True):
    """What a person decides before a folder is obeyed; the answer yes is `trust(question.found)`."""

    found: ProjectFiles
    lines: tuple[str, ...]
    """For each file its name and what it would do. Not fit to print as they are."""
    changed: tuple[str, ...] = ()
    """Files that are other than when the folder was trusted, if it was."""


def question(workspace: Path) -> Question | None:
    """None where there is nothing to decide: nothing is there, it is trusted, or it cannot be. Raises ConfigError."""
    found = read_project_files(workspace)
    if found.odd or all(file.is_idle for file in found.files) or is_too_wide(found.workspace):
        return None
    stands = trust_status(found)
    if stands.trusted:
        return None
    lines: list[str] = []
    for file in found.files:
        first, *more = found.describe_effects(file)
        lines += [f"{file.name}: {first}", *more]
    return Question(found=found, lines=tuple(lines), changed=stands.changed)


def is_trusted(found: ProjectFiles) -> bool:
    """Whether the user has trusted exactly this. Raises ConfigError."""
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
    """Obey this from now on, until any of it changes. Raises ConfigError."""
    if is_too_wide(found.workspace):
        raise ConfigError(
            f"{found.workspace} is never trusted: it holds far more than one task; name a folder inside it"
        )
    refuse_closed_folders(found.workspace)
    for name, why in found.odd.items():
        raise ConfigError(f"{printable_line(name)} cannot be trusted: {why}; change it or take it away, then try again")
    if not found.files:
        raise ConfigError(f"nothing in {found.workspace} would be obeyed, so there is nothing to trust")
    at = datetime.now(UTC).isoformat(timespec="seconds")
    with hold_file_lock(_path()):
        grant = _Grant(digest=found.digest, files=found.digests, at=at)
        _write({**_read().folders, str(found.workspace): grant})


def forget(workspace: Path) -> bool:
    """Trust it no longer; False if it was not. Raises ConfigError."""
    with hold_file_lock(_path()):
        folders = dict(_read().folders)
        known = folders.pop(str(workspace.resolve()), None)
        if known:
            _write(folders)
    return known is not None


def read_trusted_files(workspace: Path) -> TrustedFiles:
    """The files that are obeyed. Asks no question: untrusted files are ignored, with a notice. Raises ConfigError."""
    found = read_project_files(workspace)
    if not found.files and not found.odd:
        return TrustedFiles(files={})
    stands = trust_status(found)
    if stands.trusted:
        return TrustedFiles(files={file.name: file.data for file in found.files})
    return TrustedFiles(files={}, notice=_notice(found, stands))


def _notice(found: ProjectFiles, stands: TrustStatus) -> str:
    names = [*(file.name for file in found.files if not file.is_idle), *found.odd]
    if not names:
        return ""
    named = printable_line(join_names(names, _NAMED))
    why = "it is not trusted"
    if stands.changed:
        why = f"changed since it was trusted: {printable_line(join_names(stands.changed, _NAMED))}"
    return f"ignored in {found.workspace}: {named} ({why}); see and allow: pinfold trust {found.workspace}"


def _path() -> Path:
    return config_dir() / "trust.json"


def _read() -> _Store:
    return read_store(_path(), _Store, "remove it and trust your folders again")


def _write(folders: Mapping[str, _Grant]) -> None:
    write_private(_path(), msgspec.json.encode(_Store(folders=dict(folders))))
