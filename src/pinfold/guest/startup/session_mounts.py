"""Puts a session's mounts in and guards its files, for the init, which alone may mount."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

from ..kernel.syscalls import MS_BIND, MS_NODEV, MS_NOSUID, MS_RDONLY, MS_REC, mount, open_without_links
from .requests import Request
from .root import lock_root, make_read_only, mount_tree, unlock_root
from .views import mount_view

EMPTY = "/etc/empty"
IN_VIEW = 0
"""In place of a device: what is seen through a view has another one than the host sees."""


@contextmanager
def open_mount(path: str) -> Generator[int]:
    """What is mounted there."""
    fd = open_without_links(path)
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
            mount(EMPTY, place, None, MS_BIND)
    for path in request.get("hidden", ()):
        with _pin_path(path) as place:
            mount("hidden", place, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=555")
    for path in request["pinned"]:
        with _pin_path(path) as place:
            mount(place, place, None, MS_BIND)
    for path in request["protected"]:
        with _pin_path(path) as place:
            mount(place, place, None, MS_BIND | MS_REC)
        with _pin_path(path) as place:
            make_read_only(place)


@contextmanager
def _pin_path(path: str) -> Generator[str]:
    """A name for what is there now, whatever the program does to the path: no link on the way is followed."""
    with open_mount(path) as fd:
        yield f"/proc/self/fd/{fd}"
