"""Which files of a mount a session must not read, and which it must not change. Found before it starts; fails closed."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from pinfold.sandbox.contract import SandboxUnavailable

_MASKED = (".env", ".env.*", "*.pem", "id_rsa*", "id_ed25519*", "id_ecdsa*", ".netrc")
_HARMLESS = (".env.example", ".env.sample", ".env.template")
_PROTECTED = (".mcp.json", "pinfold.toml", ".agents", "AGENTS.md", "CLAUDE.md")
_CHECKOUT = ("pinfold", "check", "scripts", "src", ".uv", ".venv", "pyproject.toml", "uv.lock")
"""What a checkout of Pinfold runs when its commands are started."""
_SYSTEM = ("/", "/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/usr", "/var")
_MOST = 2_000_000
"""Entries of one mount; a folder with more is no workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards:
    """By the path the session sees; each masked file with its device and inode, so that no other is taken for it."""

    masked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    protected: list[str] = field(default_factory=list[str])


@dataclass(slots=True)
class _Found:
    path: str
    status: os.stat_result
    secret: bool


def guarded(source: Path, shown: str, *, steers: bool) -> Guards:
    """What to guard in the folder or file `source`, which the session sees at `shown`.

    `steers`: it is the workspace, whose instructions the agent would obey. Raises SandboxUnavailable.
    """
    if str(source) in _SYSTEM:
        raise SandboxUnavailable(f"{source} belongs to the system; name a folder of your own")
    guards = Guards()
    secrets: set[tuple[int, int]] = set()
    linked: list[_Found] = []
    for found in _walk(str(source)):
        mode, inode = found.status.st_mode, (found.status.st_dev, found.status.st_ino)
        place = shown + found.path[len(str(source)) :]
        if found.secret or stat.S_ISSOCK(mode):
            secrets.add(inode)
            guards.masked.append((place, *inode))
        elif found.status.st_nlink > 1 and stat.S_ISREG(mode):
            linked.append(found)
        elif Path(found.path).name == ".git" or (stat.S_ISREG(mode) and mode & (stat.S_ISUID | stat.S_ISGID)):
            guards.protected.append(place)
    for found in linked:  # a secret by its other name
        inode = (found.status.st_dev, found.status.st_ino)
        if inode in secrets:
            guards.masked.append((shown + found.path[len(str(source)) :], *inode))
    if steers:
        ours = [source / name for name in _PROTECTED] + ours_within(source)
        guards.protected.extend(
            shown + str(path)[len(str(source)) :] for path in ours if os.path.lexists(path)
        )
    return guards


def is_masked(name: str) -> bool:
    lowered = name.lower()
    return lowered not in _HARMLESS and any(fnmatch(lowered, pattern) for pattern in _MASKED)


def _walk(top: str) -> Iterator[_Found]:
    """Everything below `top` that may need a guard. What cannot be looked at refuses the session."""
    waiting = [(top, False)]
    entries = 0
    while waiting:
        folder, secret = waiting.pop()
        try:
            if not Path(folder).is_dir():
                yield _Found(folder, os.lstat(folder), is_masked(Path(folder).name))
                continue
            with os.scandir(folder) as inside:
                for entry in inside:
                    entries += 1
                    hidden = secret or is_masked(entry.name)
                    if entry.is_symlink():
                        # What it leads to is guarded under its own name, unless only this one gives it away.
                        target = os.path.realpath(entry.path)
                        if hidden and target.startswith(top + "/") and Path(target).is_file():
                            yield _Found(target, os.lstat(target), secret=True)
                    elif entry.is_dir(follow_symlinks=False):
                        waiting.append((entry.path, hidden))
                        if entry.name == ".git":
                            yield _Found(entry.path, entry.stat(follow_symlinks=False), secret=False)
                    else:
                        yield _Found(entry.path, entry.stat(follow_symlinks=False), hidden)
        except OSError as error:
            words = f"{error.filename or folder} cannot be looked at for secrets: {error.strerror}"
            raise SandboxUnavailable(f"{words}; make it readable or choose another folder") from error
        if entries > _MOST:
            raise SandboxUnavailable(f"{top} holds more than {_MOST:,} files; choose a smaller folder")


def ours_within(workspace: Path) -> list[Path]:
    """Pinfold's own files, if they lie in the workspace: code inside must never change what runs outside."""
    package = Path(__file__).resolve().parents[1]
    installed = [package, Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    checkout = package.parents[1]
    if (checkout / "scripts" / "bootstrap.sh").exists():
        installed += [checkout / name for name in _CHECKOUT]
    return [path for path in installed if path.is_relative_to(workspace) and path != workspace]
