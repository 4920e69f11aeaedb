"""Puts a session's mounts in and guards its files, for the init, which alone may mount.

A view is a private overlay of the workspace: what the session changes goes to a folder of the host's.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager

from ..kernel import syscalls
from ..kernel.mount_trees import write_map
from .messages import Request
from .root import BASE, isolate_mounts, lock_root, make_folder, make_read_only, mount_tree, unlock_root

LAYERS = "/.pinfold-view"
"""For the moment it takes; the program has not begun."""
BELOW, ABOVE = f"{LAYERS}/below", f"{LAYERS}/above"
WHAT = "a private view of the workspace"
EMPTY = "/etc/empty"
IN_VIEW = 0
"""In place of a device: what is seen through a view has another one than the host sees."""


@contextmanager
def open_mount(path: str) -> Generator[int]:
    """What is mounted there."""
    fd = syscalls.open_without_links(path)
    try:
        yield fd
    finally:
        os.close(fd)


def attach_mounts(request: Request, trees: list[int]) -> list[str]:
    """Hang the mounts in; returns those the program may write to. The workspace is the first, its view the last."""
    mounts, view = request["mounts"], request["view"]
    unlock_root()
    try:
        for above in view:
            workspace = mounts[0]
            writable = workspace["writable"]
            mount_view(workspace["path"], trees[0], trees[-1], work=above["work"], writable=writable)
        for item, tree in zip(mounts[len(view) :], trees[len(view) : len(mounts)], strict=True):
            mount_tree(item["path"], tree, is_folder=item["folder"])
    finally:
        lock_root()
    return [item["path"] for item in request["mounts"] if item["writable"]]


def guard(request: Request) -> None:
    """Hide what is masked behind an empty file, hold what is pinned in its place, make what is protected read-only."""
    for path, device, inode in request["masked"]:
        with _pin_path(path) as place:
            seen = os.stat(place)
            if device not in (seen.st_dev, IN_VIEW) or seen.st_ino != inode:
                raise OSError(0, "it changed while the session began", path)
            syscalls.mount(EMPTY, place, None, syscalls.MS_BIND)
    for path in request.get("hidden", ()):
        with _pin_path(path) as place:
            syscalls.mount(
                "hidden",
                place,
                "tmpfs",
                syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV,
                "size=4k,mode=555",
            )
    for path in request["pinned"]:
        with _pin_path(path) as place:
            syscalls.mount(place, place, None, syscalls.MS_BIND)
    for path in request["protected"]:
        with _pin_path(path) as place:
            syscalls.mount(place, place, None, syscalls.MS_BIND | syscalls.MS_REC)
        with _pin_path(path) as place:
            make_read_only(place)


@contextmanager
def _pin_path(path: str) -> Generator[str]:
    """A name for what is there now, whatever the program does to the path: no link on the way is followed."""
    with open_mount(path) as fd:
        yield f"/proc/self/fd/{fd}"


def mount_view(place: str, below: int, above: int, *, work: str, writable: bool) -> None:
    """At `place`, the mount `below` as changed by what is in the folder `files` of the mount `above`."""
    mount_tree(BELOW, below, is_folder=True)
    mount_tree(ABOVE, above, is_folder=True)
    make_folder(place)
    _mount_view(place, BELOW, ABOVE, work)
    if not writable:
        make_read_only(place)
    for layer in (BELOW, ABOVE):
        syscalls.unmount(layer)
        os.rmdir(layer)
    os.rmdir(LAYERS)


def try_view() -> None:
    """In a process of its own, on files of its own. Raises OSError."""
    ids = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    write_map("self", (0, 0), ids, privileged=False)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    isolate_mounts()
    syscalls.mount("view", BASE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV)
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
        syscalls.mount("view", place, "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, options)
    except OSError as error:
        raise OSError(error.errno, error.strerror, WHAT) from error
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        # Where the folder above will not do, the kernel mounts it all the same, to be read.
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), WHAT)
