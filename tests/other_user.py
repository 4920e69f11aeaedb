"""Runs a command as another user, who can reach this Python and this tree wherever they lie. Needs root."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pinfold.guest.kernel.syscalls import (
    CLONE_NEWNS,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    attach,
    clone_mount,
    mount,
    unshare,
)


def as_someone(uid: int, *command: str, where: Path = Path("/")) -> list[str]:
    """The command that does it; the folder `where` can be reached too."""
    return [sys.executable, "-P", __file__, str(uid), str(where), *command]


def _open_the_way(where: str) -> None:
    """What lies behind a folder that is closed to others, such as /root, is shown there in an open one.

    In a namespace of our own: the machine's folders stay as they are.
    """
    # A Python may be linked to under several names in one folder.
    places = {Path(place) for place in (sys.prefix, Path(sys.base_prefix).parent, where, *sys.path)} - {Path("/")}
    tops = [place for place in places if place.is_dir() and places.isdisjoint(place.parents)]
    behind = {place: closed for place in tops if (closed := _closed(place)) is not None}
    unshare(CLONE_NEWNS)
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    trees = {place: clone_mount(str(place), recursive=True) for place in behind}
    for closed in set(behind.values()):
        mount("open", str(closed), "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for place, tree in trees.items():
        place.mkdir(parents=True, exist_ok=True)
        attach(tree, str(place))
        os.close(tree)


def _closed(place: Path) -> Path | None:
    """The uppermost folder on the way to it that others may not pass."""
    return next((folder for folder in reversed(place.parents) if not folder.stat().st_mode & 0o001), None)


def main() -> None:
    uid, where, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    here = Path.cwd()
    os.umask(0o022)
    _open_the_way(where)
    os.chdir(here)  # as it is now seen
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
