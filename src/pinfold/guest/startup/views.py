"""A private view of the workspace: what a session changes goes to a folder of the host's. Needs the power to mount."""

from __future__ import annotations

import errno
import os

from ..kernel.mount_trees import write_map
from ..kernel.syscalls import CLONE_NEWNS, CLONE_NEWUSER, MS_NODEV, MS_NOSUID, mount, unmount, unshare
from .root import BASE, isolate_mounts, make_folder, make_read_only, mount_tree

LAYERS = "/.pinfold-view"
"""For the moment it takes; the program has not begun."""
BELOW, ABOVE = f"{LAYERS}/below", f"{LAYERS}/above"
WHAT = "a private view of the workspace"


def mount_view(place: str, below: int, above: int, *, work: str, writable: bool) -> None:
    """At `place`, the mount `below` as changed by what is in the folder `files` of the mount `above`."""
    mount_tree(BELOW, below, is_folder=True)
    mount_tree(ABOVE, above, is_folder=True)
    make_folder(place)
    _mount_view(place, BELOW, ABOVE, work)
    if not writable:
        make_read_only(place)
    for layer in (BELOW, ABOVE):
        unmount(layer)
        os.rmdir(layer)
    os.rmdir(LAYERS)


def try_view() -> None:
    """In a process of its own, on files of its own. Raises OSError."""
    ids = os.geteuid(), os.getegid()
    unshare(CLONE_NEWUSER)
    write_map("self", (0, 0), ids, privileged=False)
    unshare(CLONE_NEWNS)
    isolate_mounts()
    mount("view", BASE, "tmpfs", MS_NOSUID | MS_NODEV)
    below, above, place = (f"{BASE}/{name}" for name in ("below", "above", "place"))
    for folder in (f"{below}/folder", f"{above}/files", f"{above}/work", place):
        os.makedirs(folder)
    _mount_view(place, below, above, "work")
    os.rmdir(f"{place}/folder")
    os.mkdir(f"{place}/made")
    if os.listdir(below) != ["folder"] or os.listdir(place) != ["made"]:
        raise OSError(errno.EIO, os.strerror(errno.EIO), WHAT)


def _mount_view(place: str, below: str, above: str, work: str) -> None:
    # Without xino a file that was not changed has the inode number it has on the host: by it a secret is known.
    options = f"userxattr,xino=off,lowerdir={below},upperdir={above}/files,workdir={above}/{work}"
    try:
        mount("view", place, "overlay", MS_NOSUID | MS_NODEV, options)
    except OSError as error:
        raise OSError(error.errno, error.strerror, WHAT) from error
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        # Where the folder above will not do, the kernel mounts it all the same, to be read.
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), WHAT)
