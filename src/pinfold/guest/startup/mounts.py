"""Builds the root a zygote or a session lives in, from what the current one holds; puts a session's mounts in and guards its files.

Needs the power to mount. What of the host's a session may see comes as detached mounts, with an owner inside. A view is a
private overlay of the workspace: what the session changes goes to a folder of the host's.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress

from ..kernel import syscalls
from ..kernel.landlock import DEVICES
from ..kernel.processes import put
from ..kernel.syscalls import MS_BIND, MS_NODEV, MS_NOEXEC, MS_NOSUID, MS_RDONLY, MS_REC, MS_REMOUNT
from .messages import Request


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
    with ExitStack() as on_failure:
        on_failure.callback(os.close, tree)
        attributes = syscalls.ATTR_NOSUID | syscalls.ATTR_NODEV | (0 if item["writable"] else syscalls.ATTR_RDONLY)
        syscalls.set_mount_attributes(tree, attributes, recursive=True)
        if owners is not None:
            _give_to(tree, os.stat(path), outer, owners, needed=item["writable"])
        on_failure.pop_all()
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
    done, finished = os.pipe()
    child = syscalls.clone(syscalls.CLONE_NEWUSER | signal.SIGCHLD)
    if child == 0:
        try:
            os.close(finished)
            os.read(done, 1)
        finally:
            os._exit(0)  # whatever happens: there must be one launcher
    try:
        write_map(str(child), (uid, gid), (outer, outer), privileged=True)
        return os.open(f"/proc/{child}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(done)
        os.close(finished)
        os.waitpid(child, 0)


BASE = "/tmp"
HOME = "/tmp/home"
LAYERS = "/.pinfold-view"
"""For the moment it takes; the program has not begun."""
BELOW, ABOVE = f"{LAYERS}/below", f"{LAYERS}/above"
WHAT = "a private view of the workspace"
EMPTY = "/etc/empty"
BRANCHES = "/branch"
MOST_BRANCHES = 8
"""With files of their own. The program cannot write to what their places lie in."""
IN_VIEW = 0
"""In place of a device: what is seen through a view has another one than the host sees."""


class Root:
    """A root in the making. Take everything from the old one first, then `begin`, put it in and `enter`."""

    def __init__(self) -> None:
        self._trees: list[tuple[str, int, bool]] = []
        self._links: list[tuple[str, str]] = []

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
        syscalls.mount("root", BASE, "tmpfs", MS_NOSUID | MS_NODEV, "size=16m,nr_inodes=20k,mode=755")
        self.scratch("/tmp", tmp_bytes)
        for path, tree, is_folder in self._trees:
            self.put(path, tree, is_folder=is_folder)
        for path, target in self._links:
            self.folder(os.path.dirname(path))
            os.symlink(target, BASE + path)

    def put(self, path: str, tree: int, *, is_folder: bool) -> None:
        if is_folder:
            self.folder(path)
        else:
            self.folder(os.path.dirname(path))
            with suppress(FileExistsError):
                os.close(os.open(BASE + path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
        syscalls.attach(tree, BASE + path)
        os.close(tree)

    def scratch(self, path: str, size: int) -> None:
        """An empty writable folder of its own, at most `size` bytes."""
        self.folder(path)
        options = f"size={size},nr_inodes={max(1000, size >> 13)},mode=1777"
        syscalls.mount("scratch", BASE + path, "tmpfs", MS_NOSUID | MS_NODEV, options)

    def write(self, path: str, text: str) -> None:
        self.folder(os.path.dirname(path))
        with open(BASE + path, "w", encoding="utf-8") as file:
            file.write(text)

    def processes(self, options: str | None = None) -> None:
        self.folder("/proc")
        syscalls.mount("proc", BASE + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, options)

    def lock_processes(self) -> None:
        """What in /proc would change the machine: no capability is left to use it, and this is the second lock."""
        for name in ("sys", "sysrq-trigger", "irq", "bus"):
            path = f"{BASE}/proc/{name}"
            if os.path.exists(path):
                syscalls.mount(path, path, None, MS_BIND)
                make_read_only(path)

    def enter(self) -> None:
        """Every process here is in it; the old one lies on it until `leave_old_root`."""
        syscalls.pivot_to(BASE)
        lock_root()

    def folder(self, path: str) -> None:
        """An empty one, to mount on."""
        if path != "/":
            self.folder(os.path.dirname(path))
            with suppress(FileExistsError):
                os.mkdir(BASE + path, 0o755)


def find_existing(paths: Iterable[str]) -> list[tuple[str, str | None, bool]]:
    """Those that are there: each with where it leads, if it is a link, and whether it is a folder."""
    return [
        (path, os.readlink(path) if os.path.islink(path) else None, os.path.isdir(path))
        for path in paths
        if os.path.lexists(path)
    ]


def mount_tree(place: str, tree: int, *, is_folder: bool) -> None:
    """Hang a mount in."""
    os.makedirs(place if is_folder else os.path.dirname(place), mode=0o755, exist_ok=True)
    if not is_folder and not os.path.exists(place):
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    syscalls.attach(tree, place)
    os.close(tree)


def lock_root() -> None:
    """The root itself holds only places to mount on, and none can be added."""
    syscalls.mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def unlock_root() -> None:
    """Until `lock_root`, for more places."""
    syscalls.mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV)


def make_read_only(path: str) -> None:
    """The mount at `path` and all below it."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        syscalls.set_mount_attributes(fd, syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID, recursive=True)
    finally:
        os.close(fd)


def isolate_mounts() -> None:
    """What is mounted in this namespace is seen in no other, and the other way round."""
    syscalls.mount(None, "/", None, MS_REC | syscalls.MS_PRIVATE)


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
            syscalls.mount(EMPTY, place, None, MS_BIND)
    for path in request.get("hidden", ()):
        with _pin_path(path) as place:
            syscalls.mount("hidden", place, "tmpfs", MS_RDONLY | MS_NOSUID | MS_NODEV, "size=4k,mode=555")
    for path in request["pinned"]:
        with _pin_path(path) as place:
            syscalls.mount(place, place, None, MS_BIND)
    for path in request["protected"]:
        with _pin_path(path) as place:
            syscalls.mount(place, place, None, MS_BIND | MS_REC)
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
    os.makedirs(place, mode=0o755, exist_ok=True)
    _mount_view(place, BELOW, ABOVE, work)
    if not writable:
        make_read_only(place)
    for layer in (BELOW, ABOVE):
        syscalls.unmount(layer)
        os.rmdir(layer)
    os.rmdir(LAYERS)


def mount_branch_view(request: Request) -> tuple[int, int]:
    """At its place, over the workspace of a live session: its top, and the folder that takes what is changed.

    The changes are kept in memory, in a file system of their own, so that the host can read them when all else is gone.
    """
    place, workspace = request["place"], request["workspace"]
    syscalls.mount("branch", place, "tmpfs", MS_NOSUID | MS_NODEV, f"size={request['bytes']},mode=700")
    with ExitStack() as on_failure:
        on_failure.callback(unmount_branch_view, place)
        for name in ("files", "work"):
            os.mkdir(f"{place}/{name}", 0o700)
        files = os.open(f"{place}/files", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        on_failure.callback(os.close, files)
        with open_mount(workspace) as below, open_mount(place) as above:
            os.chmod(files, os.stat(f"/proc/self/fd/{below}").st_mode & 0o777)
            _mount_view(place, f"/proc/self/fd/{below}", f"/proc/self/fd/{above}", "work")
        guard(request)
        top = syscalls.open_without_links(place)
        on_failure.pop_all()
    return top, files


def mask_in_views(places: Iterable[str], workspace: str, path: str, inode: int) -> None:
    """A branch sees what comes into the workspace too."""
    if not path.startswith(f"{workspace}/"):
        return
    for place in filter(None, places):
        with suppress(OSError):  # the branch has removed it, or has a file of its own there
            guard({"masked": [(place + path[len(workspace) :], IN_VIEW, inode)], "pinned": [], "protected": []})


def unmount_branch_view(place: str) -> None:
    """Whatever of it is mounted there."""
    with suppress(OSError):
        while True:
            syscalls.unmount(place)


def try_view() -> None:
    """In a process of its own, on files of its own. Raises OSError."""
    enter_user_namespace(0, 0)
    syscalls.unshare(syscalls.CLONE_NEWNS)
    isolate_mounts()
    syscalls.mount("view", BASE, "tmpfs", MS_NOSUID | MS_NODEV)
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
        syscalls.mount("view", place, "overlay", MS_NOSUID | MS_NODEV, options)
    except OSError as error:
        raise OSError(error.errno, error.strerror, WHAT) from error
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        # Where the folder above will not do, the kernel mounts it all the same, to be read.
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), WHAT)
