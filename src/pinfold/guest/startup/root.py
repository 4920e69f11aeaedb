"""Builds the root a zygote or a session lives in, from what the current one holds. Needs the power to mount."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress

from ..kernel import syscalls

DEVICES = ("null", "zero", "full", "random", "urandom")
BASE = "/tmp"
HOME = "/tmp/home"


class Root:
    """A root in the making. Take everything from the old one first, then `begin`, put it in and `enter`."""

    def __init__(self) -> None:
        self._trees: list[tuple[str, int, bool]] = []
        self._links: list[tuple[str, str]] = []
        self._made = {"/"}
        """Folders that are there, and need not be looked for."""

    def take(self, path: str, link: str | None, is_folder: bool) -> None:
        """What `found` has found is there in the new root, read-only."""
        if link is not None:
            self._links.append((path, link))
        else:
            tree = syscalls.clone_mount(path, recursive=True)
            syscalls.set_mount_attributes(tree, syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID, recursive=True)
            self._trees.append((path, tree, is_folder))

    def begin(self, tmp_bytes: int) -> None:
        """From here on the old root is out of sight. /tmp comes first: what was taken may lie beneath it."""
        syscalls.mount("root", BASE, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV, "size=16m,nr_inodes=20k,mode=755")
        self.scratch("/tmp", tmp_bytes)
        for path, tree, is_folder in self._trees:
            self.put(path, tree, is_folder=is_folder)
        for path, target in self._links:
            self._make(os.path.dirname(path))
            os.symlink(target, BASE + path)

    def put(self, path: str, tree: int, *, is_folder: bool) -> None:
        if is_folder:
            self._make(path)
        else:
            self._make(os.path.dirname(path))
            with suppress(FileExistsError):
                os.close(os.open(BASE + path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        syscalls.attach(tree, BASE + path)
        os.close(tree)

    def scratch(self, path: str, size: int, mode: str = "1777", flags: int = 0) -> None:
        """An empty writable folder of its own, at most `size` bytes."""
        self._make(path)
        options = f"size={size},nr_inodes={max(1000, size >> 13)},mode={mode}"
        syscalls.mount("scratch", BASE + path, "tmpfs", syscalls.MS_NOSUID | syscalls.MS_NODEV | flags, options)

    def write(self, path: str, text: str) -> None:
        self._make(os.path.dirname(path))
        with open(BASE + path, "w", encoding="utf-8") as file:
            file.write(text)

    def processes(self, options: str | None = None) -> None:
        self._make("/proc")
        syscalls.mount(
            "proc", BASE + "/proc", "proc", syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC, options
        )

    def lock_processes(self) -> None:
        """What in /proc would change the machine: no capability is left to use it, and this is the second lock."""
        for name in ("sys", "sysrq-trigger", "irq", "bus"):
            path = f"{BASE}/proc/{name}"
            if os.path.exists(path):
                syscalls.mount(path, path, None, syscalls.MS_BIND)
                make_read_only(path)

    def enter(self) -> None:
        """Every process here is in it; the old one lies on it until `leave_old_root`."""
        syscalls.pivot_to(BASE)
        lock_root()

    def _make(self, path: str) -> None:
        if path not in self._made:
            self._make(os.path.dirname(path))
            with suppress(FileExistsError):
                os.mkdir(BASE + path, 0o755)
            self._made.add(path)


def find_existing(paths: Iterable[str]) -> list[tuple[str, str | None, bool]]:
    """Those that are there: each with where it leads, if it is a link, and whether it is a folder."""
    return [
        (path, os.readlink(path) if os.path.islink(path) else None, os.path.isdir(path))
        for path in paths
        if os.path.lexists(path)
    ]


def mount_tree(place: str, tree: int, *, is_folder: bool) -> None:
    """Hang a mount in."""
    make_folder(place if is_folder else os.path.dirname(place))
    if not is_folder and not os.path.exists(place):
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    syscalls.attach(tree, place)
    os.close(tree)


def lock_root() -> None:
    """The root itself holds only places to mount on, and none can be added."""
    syscalls.mount(
        None,
        "/",
        None,
        syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV,
    )


def unlock_root() -> None:
    """Until `shut_root`, for more places."""
    syscalls.mount(None, "/", None, syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_NOSUID | syscalls.MS_NODEV)


def make_read_only(path: str) -> None:
    """The mount at `path` and all below it."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        syscalls.set_mount_attributes(fd, syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID, recursive=True)
    finally:
        os.close(fd)


def make_folder(path: str) -> None:
    os.makedirs(path, mode=0o755, exist_ok=True)


def isolate_mounts() -> None:
    """What is mounted in this namespace is seen in no other, and the other way round."""
    syscalls.mount(None, "/", None, syscalls.MS_REC | syscalls.MS_PRIVATE)


def begin_with_devices(root: Root, tmp_bytes: int) -> None:
    """Begin, with a /dev of the few harmless ones; made once, sessions take it as it is."""
    trees = [(name, syscalls.clone_mount(f"/dev/{name}", recursive=False)) for name in DEVICES]
    root.begin(tmp_bytes)
    for name, tree in trees:
        syscalls.set_mount_attributes(tree, syscalls.ATTR_NOSUID)
        root.put(f"/dev/{name}", tree, is_folder=False)
    for name, target in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink(f"/proc/self/fd{target}", f"{BASE}/dev/{name}")
    os.mkdir(BASE + "/dev/shm", 0o755)
