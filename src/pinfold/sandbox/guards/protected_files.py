"""How the host reads and changes protected files of a workspace: those that steer the agent or that a program obeys."""

from __future__ import annotations

import os.path
from contextlib import closing
from pathlib import Path

from msgspec.structs import replace

from pinfold.sandbox.contract import FileRefused
from pinfold.sandbox.guards.contents import FILE_BYTES, Contents, FileContent
from pinfold.sandbox.guards.guarded_paths import STEERING
from pinfold.sandbox.guards.named_files import Match, match

_OF_GIT = ("hooks", "config", "commondir", "modules", "worktrees")


def find_protected_path(path: str, workspace: Path) -> str | None:
    """Return `path` relative to the workspace if it names a protected file. Checks only the name: links are resolved by
    the sandbox."""
    top = str(workspace)
    whole = os.path.normpath(os.path.join(top, path))
    if not whole.startswith(f"{top}/"):
        return None
    inside = whole[len(top) + 1 :]
    parts = inside.split("/")
    if parts[0] in STEERING:
        return inside
    git = parts.index(".git") if ".git" in parts else None
    if git is not None and parts[git + 1 : git + 2] and parts[git + 1] in _OF_GIT:
        return inside
    found = match(inside)
    return inside if found and found.row.response == "put back" and not _is_elsewhere(found, workspace) else None


def _is_elsewhere(found: Match, workspace: Path) -> bool:
    """Return True if the rule does not apply: no virtual environment is above, or git's files are checked by name."""
    if found.row.only_in != "environment":
        return found.row.only_in == "git"
    return not any(os.path.exists(folder / "pyvenv.cfg") for folder in (workspace / found.path).parents)


def steers_agent(path: str) -> bool:
    """Return True if the agent obeys this protected file; False if another program does."""
    return path.partition("/")[0] in STEERING


def read_protected_file(path: str, workspace: Path) -> bytes | None:
    """Return the content; None if the file does not exist. Raises FileRefused."""
    with closing(Contents(str(workspace))) as contents:
        content = contents.read(path)
    if content is None:
        return None
    if not isinstance(content, FileContent) or content.data is None:
        raise FileRefused(f"{path} is not a regular file of at most {FILE_BYTES >> 20} MB, so it cannot be edited")
    return content.data


def write_protected_file(path: str, data: bytes, workspace: Path) -> None:
    """Write the file, never through a link. Raises FileRefused."""
    with closing(Contents(str(workspace))) as contents:
        now = contents.read(path)
        if now is None:
            stat = workspace.stat()
            now = FileContent(data=None, mode=0o644, owner=(stat.st_uid, stat.st_gid))
        if not isinstance(now, FileContent):
            raise FileRefused(f"{path} is not a regular file, so it cannot be written")
        if not contents.write(path, replace(now, data=data, stamp=None)):
            raise FileRefused(f"{path} could not be written: a parent of it is not a folder")
