"""Paths of the host's that a session sees at their own place: asked for as PATH or PATH:rw, checked before anything starts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from os import PathLike, fspath
from pathlib import Path

from pinfold.app.errors import ConfigError
from pinfold.app.paths import is_too_wide, refuse_closed_folders, suggest_path
from pinfold.sandbox import Capabilities, Mount, data_places, not_mountable

__all__ = ["Mount", "mounts_of", "refuse_overlap"]

_ENDINGS = {":rw": True, ":ro": False}


def mounts_of(items: Iterable[str | PathLike[str]]) -> tuple[Mount, ...]:
    """Each item is PATH, PATH:ro or PATH:rw; read-only unless it says otherwise. Raises ConfigError."""
    mounts: list[Mount] = []
    for item in items:
        mount = _read(fspath(item))
        for other in mounts:
            if _overlap(mount.path, other.path):
                raise ConfigError(f"{mount.path} and {other.path} cannot both be mounted: one lies in the other")
        mounts.append(mount)
    return tuple(mounts)


def data_inside(data: Mapping[str, Path], capabilities: Capabilities) -> list[str]:
    """Where code of the session finds its data."""
    return list(data_places(data)) if capabilities.mounts else [str(path) for path in data.values()]


def refuse_overlap(mounts: Iterable[Mount], workspace: Path) -> None:
    """Raises ConfigError for a mount that has to do with the workspace, which is there anyway."""
    for mount in mounts:
        if mount.path.is_relative_to(workspace):
            raise ConfigError(f"{mount.path} lies in the workspace {workspace} and is there already; leave --mount out")
        if workspace.is_relative_to(mount.path):
            raise ConfigError(
                f"{mount.path} cannot be mounted: the workspace {workspace} lies in it; mount something smaller"
            )


def _read(text: str) -> Mount:
    bare, writable = text, False
    for ending, answer in _ENDINGS.items():
        if text.endswith(ending):
            bare, writable = text.removesuffix(ending), answer
    if not bare:
        raise ConfigError(f"{text!r} names no path to mount; write PATH or PATH:rw")
    try:
        path = Path(bare).absolute().resolve(strict=True)
    except (OSError, RuntimeError, ValueError) as error:
        is_gone = isinstance(error, FileNotFoundError)
        why = f"it does not exist; {suggest_path(Path(bare)) or 'is the path right?'}" if is_gone else str(error)
        raise ConfigError(f"{bare} cannot be mounted: {why}") from error
    if is_too_wide(path):
        raise ConfigError(f"{path} cannot be mounted: it holds far more than one task; mount a part of it")
    refuse_closed_folders(path)
    mount = Mount(path=path, writable=writable)
    if why := not_mountable(mount):
        raise ConfigError(f"{path} cannot be mounted: {why}")
    return mount


def _overlap(one: Path, other: Path) -> bool:
    return one.is_relative_to(other) or other.is_relative_to(one)
