"""What of a git folder does no harm, whoever made it; and links in it, through which git would write elsewhere."""

from __future__ import annotations

import os
from collections.abc import Callable

from msgspec.structs import replace

from pinfold.sandbox.guards.contents import Content, File, Folder
from pinfold.sandbox.guards.gitdir import WRITTEN, is_plain_config, plain_part, pushes_elsewhere
from pinfold.sandbox.kernel.safe_files import entries_of

_LINK_FOLDERS = 2000
"""Of one git folder, that are searched for links."""
_POINTER_BYTES = 4096


def is_plain(path: str, was: Content, now: Content, *, may_add_remotes: bool = True) -> bool:
    """Whether git does nothing on account of it but what it does anyway, and pushes to where it did."""
    name = path.rpartition("/")[2]
    if name == "config" and isinstance(now, File) and now.data is not None:
        text = now.data.decode("utf-8", "replace")
        before = was.data.decode("utf-8", "replace") if isinstance(was, File) and was.data else None
        return is_plain_config(text) and (before is None or not pushes_elsewhere(before, text, may_add=may_add_remotes))
    if name == "hooks" and isinstance(now, Folder):
        return all(key.endswith(".sample") and isinstance(it, File) for key, it in now.entries.items())
    return name in {"branches", "remotes"} and isinstance(now, Folder) and not now.entries


def strip_unsafe(path: str, now: Content) -> Content:
    """What is left of something in a git folder that a session made, when all that is not plain is taken out."""
    if is_plain(path, None, now):
        return now
    if path.rpartition("/")[2] == "config" and isinstance(now, File) and now.data is not None:
        return replace(now, data=plain_part(now.data.decode("utf-8", "replace")).encode())
    return None


def is_pointer_within(top: str, path: str, now: Content, is_guarded: Callable[[str], bool]) -> bool:
    """Whether a file that says where a git folder is names one below `top` that is guarded: as worktrees and submodules do."""
    if not isinstance(now, File) or now.data is None or len(now.data) > _POINTER_BYTES:
        return False
    folder, _, name = path.rpartition("/")
    if name == "gitdir":
        return True  # back to a worktree: git reads it, and believes the worktree's own word only
    text = now.data.decode("utf-8", "replace").removeprefix("gitdir: ").removesuffix("\n")
    target = os.path.realpath(os.path.join(top, folder, text))  # noqa: PTH118
    return "\n" not in text and target.startswith(f"{top}/") and is_guarded(target[len(top) + 1 :])


def links_in(top: str, gitdir: str) -> list[str]:
    return [
        f"{folder}/{entry.name}"
        for folder in find_written_folders(top, gitdir)
        for entry in entries_of(f"{top}/{folder}")
        if entry.is_symlink()
    ]


def find_written_folders(top: str, gitdir: str) -> list[str]:
    """Folders in which git writes."""
    found = [gitdir]
    waiting = [f"{gitdir}/{name}" for name in WRITTEN if name]
    while waiting and len(found) < _LINK_FOLDERS:
        folder = waiting.pop()
        if os.path.isdir(f"{top}/{folder}") and not os.path.islink(f"{top}/{folder}"):  # noqa: PTH112, PTH114
            found.append(folder)
            waiting += [
                f"{folder}/{entry.name}"
                for entry in entries_of(f"{top}/{folder}")
                if entry.is_dir(follow_symlinks=False)
            ]
    return found
