"""Control groups, version 1 or 2, where this process may make them: limits for the whole of a session."""

from __future__ import annotations

import os
import socket
import time
from contextlib import suppress

from .processes import ENDED, put, stat_fields

ROOT_NAME = "pinfold-"
"""Followed by the launcher's pid and start time, so that a group's owner can be identified after a crash."""
CLOSE_TRIES, CLOSE_TRY_S = 200, 0.005
_MEMORY_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_OOM_COUNT = {1: "memory.oom_control", 2: "memory.events"}
_NEEDS_SWAP = {1: "memory.memsw.limit_in_bytes", 2: "memory.swap.max"}


class Groups:
    """The launcher's folder in each hierarchy; each session gets one below it."""

    def __init__(self, places: dict[str, tuple[int, str]]) -> None:
        """`places`: for each controller the version of its hierarchy and a writable folder."""
        self._name = f"{ROOT_NAME}{os.getpid()}-{start_time(os.getpid())}"
        self._version, _ = places.get("memory", (0, ""))
        self._parents = sorted({os.path.join(folder, self._name) for _, folder in places.values()})
        self._waiting: list[str] = []
        for parent in self._parents:
            os.mkdir(parent)
            if os.path.exists(os.path.join(parent, "cgroup.subtree_control")):
                put(os.path.join(parent, "cgroup.subtree_control"), "+memory +cpu")

    def make(self, name: str, pids: list[int]) -> Group:
        """Make a group of this name, with these processes and all that they start later."""
        folders = [os.path.join(parent, name) for parent in self._parents]
        for folder in folders:
            os.mkdir(folder)
            for pid in pids:
                with suppress(ProcessLookupError):
                    put(os.path.join(folder, "cgroup.procs"), str(pid))
        limits = (os.path.join(folder, name) for folder in folders for name in _MEMORY_LIMIT.values())
        memory = next((os.path.dirname(limit) for limit in limits if self._version and os.path.exists(limit)), None)
        return Group(folders, memory, self._version)

    def remove(self, group: Group) -> None:
        """Remove a group whose last process has ended. If one is still ending, `sweep` tries again."""
        self._waiting += group.folders
        self.sweep()

    def sweep(self) -> bool:
        """Try again to remove groups. True if none is left."""
        for folder in self._waiting:
            with suppress(OSError):
                os.rmdir(folder)
        self._waiting = [folder for folder in self._waiting if os.path.exists(folder)]
        return not self._waiting

    def close(self) -> None:
        """Remove all groups. Waits, because processes that were just killed take a moment to end."""
        for _ in range(CLOSE_TRIES):
            for parent in self._parents:
                remove_tree(parent)
            self._parents = [parent for parent in self._parents if os.path.exists(parent)]
            if not self._parents:
                return
            time.sleep(CLOSE_TRY_S)


def make_groups() -> Groups | None:
    """Remove the groups of dead launchers and make new ones; None if this process may not."""
    with suppress(OSError):
        for folder in leftovers():
            remove_tree(folder)
        places = usable_places()
        return Groups(places) if places else None
    return None


class Group:
    def __init__(self, folders: list[str], memory: str | None, version: int) -> None:
        self.folders = folders
        self._memory = memory
        self._version = version

    def limit_memory(self, limit: int) -> None:
        if self._memory is None:
            return
        put(os.path.join(self._memory, _MEMORY_LIMIT[self._version]), str(limit))
        with suppress(OSError):  # a kernel that does not account for swap
            swap = str(limit) if self._version == 1 else "0"
            put(os.path.join(self._memory, _NEEDS_SWAP[self._version]), swap)

    def send_accounts(self, init: socket.socket) -> None:
        """Send the init descriptors from which to read the out-of-memory count and the memory in use."""
        if self._memory is None:
            return
        names = (_OOM_COUNT[self._version], "memory.stat")
        accounts = [os.open(os.path.join(self._memory, name), os.O_RDONLY | os.O_CLOEXEC) for name in names]
        socket.send_fds(init, [b"count"], accounts)
        for fd in accounts:
            os.close(fd)


def times_out_of_memory(count_fd: int) -> int:
    """Return how often the kernel killed a process of the group because memory ran out."""
    for line in os.pread(count_fd, 4096, 0).decode().splitlines():
        name, _, count = line.partition(" ")
        if name == "oom_kill":
            return int(count)
    return 0


def memory_in_use(stat_fd: int) -> int:
    """Return the group's bytes without the cache of files on disk, which the kernel frees before it kills a process."""
    stat = dict(line.split() for line in os.pread(stat_fd, 16384, 0).decode().splitlines())
    names = ("total_rss", "total_shmem") if "total_rss" in stat else ("anon", "shmem", "kernel")
    return sum(int(stat.get(name, 0)) for name in names)


def usable_places() -> dict[str, tuple[int, str]]:
    """Return version and folder where a group can be made, for each of the controllers used here."""
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split(":", 2) for line in file]
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        mounts = _hierarchies(file.read())
    places: dict[str, tuple[int, str]] = {}
    for _, controllers, path in rows:
        for controller in ("memory", "cpu"):
            if controller in controllers.split(",") and controller in mounts:
                folder = _within(mounts[controller], path)
                if folder is not None and _can_make(folder):
                    places[controller] = (1, folder)
        if not controllers and "" in mounts:
            found = _find_delegated(mounts[""][0], _within(mounts[""], path))
            for controller in ("memory", "cpu") if found else ():
                places.setdefault(controller, (2, str(found)))
    return places


def leftovers() -> list[str]:
    """Return the groups of launchers that are gone."""
    return [
        os.path.join(folder, name)
        for folder in {folder for _, folder in usable_places().values()}
        for name in os.listdir(folder)
        if name.startswith(ROOT_NAME) and not owner_lives(name)
    ]


def descendants(pid: int) -> list[int]:
    """Return the present descendants of a process."""
    children: list[int] = []
    with suppress(OSError), open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        children = [int(child) for child in file.read().split()]
    return children + [one for child in children for one in descendants(child)]


def owner_lives(name: str) -> bool:
    pid, _, started = name.removeprefix(ROOT_NAME).partition("-")
    return pid.isdigit() and start_time(int(pid)) == started


def start_time(pid: int) -> str:
    """Return the start time in ticks since boot, which with the pid identifies a process. Empty if it is gone."""
    fields = stat_fields(pid)
    return fields[19].decode() if fields and fields[0] not in ENDED else ""


def remove_tree(folder: str) -> None:
    """Remove a group and those below it, as far as they are empty."""
    with suppress(OSError):
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                remove_tree(entry.path)
    with suppress(OSError):
        os.rmdir(folder)


def _hierarchies(mountinfo: str) -> dict[str, tuple[str, str]]:
    """Return mount point and root of each controller's version 1 hierarchy; the key of version 2 is empty."""
    found: dict[str, tuple[str, str]] = {}
    for line in mountinfo.splitlines():
        before, _, after = line.partition(" - ")
        root, mount_point = before.split()[3:5]
        kind, _, options = [*after.split(), "", "", ""][:3]
        if kind == "cgroup2":
            found[""] = (mount_point, root)
        elif kind == "cgroup":
            for option in options.split(","):
                found[option] = (mount_point, root)
    return found


def _within(mount: tuple[str, str], path: str) -> str | None:
    mount_point, root = mount
    if root != "/":
        if not (path + "/").startswith(root + "/"):
            return None
        path = path[len(root) :]
    return os.path.join(mount_point, path.strip("/")).rstrip("/")


def _find_delegated(top: str, folder: str | None) -> str | None:
    """Return the nearest folder upwards that delegates the memory controller and where groups can be made."""
    while folder is not None and folder.startswith(top):
        with suppress(OSError), open(os.path.join(folder, "cgroup.subtree_control"), encoding="ascii") as file:
            if "memory" in file.read().split() and _can_make(folder):
                return folder
        if folder == top:
            return None
        folder = os.path.dirname(folder)
    return None


def _can_make(folder: str) -> bool:
    return os.access(folder, os.W_OK | os.X_OK) and os.access(os.path.join(folder, "cgroup.procs"), os.W_OK)
