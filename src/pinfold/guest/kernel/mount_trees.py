"""What of the host's a session may see, as detached mounts; and who owns it inside. Needs the launcher's power."""

from __future__ import annotations

import os

from ..startup.messages import Request
from . import syscalls
from .processes import put


class Owners:
    """User namespaces that are only tables: what `uid` owns on disk, `outer` owns in the mount."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, int], int] = {}

    def take(self, uid: int, gid: int, outer: int) -> int:
        """A descriptor of the caller's own; every mount of a session that has the same owner is given the same table."""
        if (uid, gid, outer) not in self._made:
            self._made[uid, gid, outer] = _create_mapped_namespace(uid, gid, outer)
        return os.dup(self._made[uid, gid, outer])

    def forget(self, outer: int) -> None:
        for key in [key for key in self._made if key[2] == outer]:
            os.close(self._made.pop(key))


def open_tree(item: Request, outer: int, owners: Owners | None) -> int:
    """The mount `item` asks for. With `owners`, what its owner has on disk belongs to `outer` in it."""
    path = item["source"]
    tree = syscalls.clone_mount(path, recursive=True)
    try:
        attributes = syscalls.ATTR_NOSUID | syscalls.ATTR_NODEV | (0 if item["writable"] else syscalls.ATTR_RDONLY)
        syscalls.set_mount_attributes(tree, attributes, recursive=True)
        if owners is not None:
            _give_to(tree, os.stat(path), outer, owners, needed=item["writable"])
    except BaseException:
        os.close(tree)
        raise
    return tree


def _give_to(tree: int, owner: os.stat_result, outer: int, owners: Owners, *, needed: bool) -> None:
    userns = owners.take(owner.st_uid, owner.st_gid, outer)
    try:
        syscalls.set_mount_attributes(tree, syscalls.ATTR_IDMAP, userns=userns)
    except OSError:
        # Not every file system can; data that all may read is still of use.
        if needed:
            raise
    finally:
        os.close(userns)


def write_map(process: str, inner: tuple[int, int], outer: tuple[int, int], *, privileged: bool) -> None:
    """Uid and gid of a new user namespace: `inner` inside is `outer` outside."""
    if not privileged:
        put(f"/proc/{process}/setgroups", "deny")
    put(f"/proc/{process}/uid_map", f"{inner[0]} {outer[0]} 1")
    put(f"/proc/{process}/gid_map", f"{inner[1]} {outer[1]} 1")


def enter_user_namespace(uid: int, gid: int) -> None:
    """Where this process has power, and these ids are its own."""
    ids = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    write_map("self", (uid, gid), ids, privileged=False)


def maps_up_to(number: int) -> bool:
    """Whether these ids exist here: inside another container, root may be the only one."""
    with open("/proc/self/uid_map", encoding="ascii") as table:
        return any(int(first) <= number < int(first) + int(count) for first, _, count in map(str.split, table))


def _create_mapped_namespace(uid: int, gid: int, outer: int) -> int:
    ready, made = os.pipe()
    done, finished = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(finished)
            syscalls.unshare(syscalls.CLONE_NEWUSER)
            os.write(made, b"1")
            os.read(done, 1)
        finally:
            os._exit(0)  # whatever happens: there must be one launcher
    try:
        os.close(made)
        if not os.read(ready, 1):
            raise OSError(0, "no user namespace could be made", "id map")
        write_map(str(child), (uid, gid), (outer, outer), privileged=True)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        for fd in (ready, done, finished):
            os.close(fd)
        os.waitpid(child, 0)
