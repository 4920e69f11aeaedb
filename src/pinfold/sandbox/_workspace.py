"""Which files of a workspace a session must not read, and which it must not change."""

from __future__ import annotations

import os
import sys
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

_MASKED = (".env", ".env.*", "*.pem", "id_rsa*", "id_ed25519*", "id_ecdsa*", ".netrc")
_HARMLESS = (".env.example", ".env.sample", ".env.template")
_PROTECTED = (
    ".git/hooks",
    ".git/config",
    ".mcp.json",
    "pinfold.toml",
    ".agents",
    "AGENTS.md",
    "CLAUDE.md",
)

_CHECKOUT = ("pinfold", "check", "scripts", "src", ".uv", ".venv", "pyproject.toml", "uv.lock")
"""What a checkout of Pinfold runs when its commands are started."""


class Guards(NamedTuple):
    masked: list[str]
    """Read as empty."""
    pinned: list[str]
    """Stay where they are, so that nothing else can be put in their place."""
    protected: list[str]
    """Read-only."""


def guarded(workspace: Path) -> Guards:
    """Masked files at any depth, and protected paths that exist. Follows no link."""
    masked: list[str] = []
    for folder, _, names in os.walk(workspace):
        masked += [
            str(Path(folder, name)) for name in names if is_masked(name) and _is_plain(Path(folder, name))
        ]
    steering = [workspace / name for name in _PROTECTED]
    protected = [str(path) for path in (*steering, *_ours_within(workspace)) if _is_plain(path)]
    pinned = [str(path) for path in [workspace / ".git"] if _is_plain(path)]
    return Guards(masked, pinned, protected)


def _ours_within(workspace: Path) -> list[Path]:
    """Pinfold's own files, if they lie in the workspace: code inside must never change what runs outside."""
    package = Path(__file__).resolve().parents[1]
    installed = [package, Path(sys.prefix), Path(sys.base_prefix)]
    checkout = package.parents[1]
    if (checkout / "scripts" / "bootstrap.sh").exists():
        installed += [checkout / name for name in _CHECKOUT]
    return [path for path in installed if path.is_relative_to(workspace) and path != workspace]


def is_masked(name: str) -> bool:
    return name not in _HARMLESS and any(fnmatch(name, pattern) for pattern in _MASKED)


def _is_plain(path: Path) -> bool:
    return path.exists() and not path.is_symlink()
