"""AGENTS.md, or CLAUDE.md where there is none: what a model is told on the user's and a project's behalf.

The user's own is obeyed as it is. A project's are obeyed only as far as they are trusted: see `trust`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir, is_too_wide

NAMES = ("AGENTS.md", "CLAUDE.md")
"""In each folder, the first of them that is there."""
ALL_BYTES = 32 << 10
"""Of all of them together that a model is told."""
SMALL_BYTES = 4 << 10
"""For a small model: it has to have room for the task."""
_DEEPEST = 32
"""Folders above a workspace that are looked at."""
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Instruction(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    text: str


def folders_above(workspace: Path) -> tuple[Path, ...]:
    """Those between a workspace and the root of its repository, that one included, nearest first; none outside of one.

    Never a home folder, and no folder of another user, who could write there.
    """
    found: list[Path] = []
    try:
        owners = {workspace.stat().st_uid, os.geteuid(), 0}
        if _is_root(workspace):
            return ()
        for folder in workspace.parents[:_DEEPEST]:
            if is_too_wide(folder) or folder.stat().st_uid not in owners:
                return ()
            found.append(folder)
            if _is_root(folder):
                return tuple(found)
    except OSError:
        pass
    return ()


def _is_root(folder: Path) -> bool:
    try:
        mode = (folder / ".git").lstat().st_mode
    except FileNotFoundError:
        return False
    return stat.S_ISDIR(mode) or stat.S_ISREG(mode)  # a file, in a worktree


def instructions(
    workspace: Path | None, obeyed: Mapping[str, bytes]
) -> tuple[tuple[Instruction, ...], tuple[str, ...]]:
    """The user's, then those that are `obeyed`, outermost first; and what the user must know of them."""
    notices: list[str] = []
    found: list[Instruction] = []
    try:
        found += _read_user_instructions()
    except ConfigError as error:
        notices.append(str(error))
    if workspace is not None:
        found += _read_project_instructions(workspace, obeyed)
    size = sum(len(one.text.encode()) for one in found)
    if size > ALL_BYTES:
        last = found[-1].path
        notices.append(
            f"the instructions are {size >> 10} KB in all and the model is told {ALL_BYTES >> 10} KB of them; "
            f"shorten them, the last is {last}"
        )
    return tuple(found), tuple(notices)


def format_instructions(found: tuple[Instruction, ...], most: int = ALL_BYTES) -> str:
    """As the model reads them; empty if there are none. What is beyond `most` bytes is left out, and that is said."""
    lines: list[str] = []
    for one in found:
        data = one.text.encode()
        kept = data[: max(0, most)].decode("utf-8", "ignore")
        most -= len(data)
        lines.append(f"--- {one.path}\n{kept}")
        if len(kept) < len(one.text):
            lines.append("[the rest is left out: it is too long]")
            break
    if not lines:
        return ""
    return "\n".join(
        ["The user's instructions, from files; where they differ, the later one holds.", *lines, "---", ""]
    )


def _read_user_instructions() -> Iterator[Instruction]:
    """Raises ConfigError where it may not be the user's own words."""
    path = config_dir() / NAMES[0]
    try:
        fd = os.open(path, _FILE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path} is ignored: it cannot be read: {error.strerror}") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is ignored: it is no regular file")
        if status.st_mode & 0o022 or status.st_uid not in (os.geteuid(), 0):
            raise ConfigError(f"{path} is ignored: others can write it; fix it: chmod 600 {path}")
        data = file.read(ALL_BYTES + 1)
    yield from _instruction(path, data)


def _read_project_instructions(workspace: Path, obeyed: Mapping[str, bytes]) -> Iterator[Instruction]:
    ups = max((name.count("../") for name in obeyed), default=0)
    for up in range(ups, -1, -1):
        for name in NAMES:
            if (data := obeyed.get(f"{'../' * up}{name}")) is not None:
                folder = workspace.parents[up - 1] if up else workspace
                yield from _instruction(folder / name, data)
                break


def _instruction(path: Path, data: bytes) -> Iterator[Instruction]:
    if text := data.decode("utf-8", "replace").strip():
        yield Instruction(path=str(path), text=text)
