"""Which files of a workspace a session must not read, and which it must not change."""

from __future__ import annotations

import os
from fnmatch import fnmatch
from pathlib import Path

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


def guarded(workspace: Path) -> tuple[list[str], list[str]]:
    """Masked files at any depth, and protected paths that exist. Follows no link."""
    masked: list[str] = []
    for folder, _, names in os.walk(workspace):
        masked += [
            str(Path(folder, name)) for name in names if is_masked(name) and _is_plain(Path(folder, name))
        ]
    protected = [str(workspace / name) for name in _PROTECTED if _is_plain(workspace / name)]
    return masked, protected


def is_masked(name: str) -> bool:
    return name not in _HARMLESS and any(fnmatch(name, pattern) for pattern in _MASKED)


def _is_plain(path: Path) -> bool:
    return path.exists() and not path.is_symlink()
