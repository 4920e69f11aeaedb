"""Builds the root of a zygote or session from the current root, attaches a session's mounts, and guards its files.

Needs the capability to mount. Host folders that a session may see come as detached mounts, owned by the session's user.
A view is a private overlay of the workspace: what the session changes goes to a folder of the host.
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
    """User namespaces used only as id maps: what `uid` owns on disk, `outer` owns in the mount."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int, int], int] = {}
        self._last: tuple[int, int] | None = None
        """The owner of the last mount, who probably owns the next session's workspace too."""

    def prepare(self, outer: int) -> None:
        """Make the map a future session will probably need; it takes a fork."""
        if self._last is not None:
            os.close(self.take(*self._last, outer))

    def take(self, uid: int, gid: int, outer: int) -> int:
        """Return a descriptor that the caller must close. A session's mounts with the same owner share one map."""
        self._last = uid, gid
        if (uid, gid, outer) not in self._made:
            self._made[uid, gid, outer] = _create_mapped_namespace(uid, gid, outer)
        return os.dup(self._made[uid, gid, outer])

    def forget(self, outer: int) -> None:
        for key in [key for key in self._made if key[2] == outer]:
            os.close(self._made.pop(key))


def open_tree(item: Request, outer: int, owners: Owners | None) -> int:
    """Return the detached mount that `item` describes. With `owners`, its owner's files belong to `outer` in it."""
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
        # Not every file system supports this; a read-only mount is still useful for files that all may read.
        if needed:
            raise
    finally:
        os.close(userns)


def write_map(process: str, inner: tuple[int, int], outer: tuple[int, int], *, privileged: bool) -> None:
    """Map uid and gid of a new user namespace: `inner` inside is `outer` outside."""
    if not privileged:
        put(f"/proc/{process}/setgroups", "deny")
    put(f"/proc/{process}/uid_map", f"{inner[0]} {outer[0]} 1")
    put(f"/proc/{process}/gid_map", f"{inner[1]} {outer[1]} 1")


def enter_user_namespace(uid: int, gid: int) -> None:
    """Enter a new user namespace, in which this process has all capabilities and these ids."""
    ids = os.geteuid(), os.getegid()
    syscalls.unshare(syscalls.CLONE_NEWUSER)
    write_map("self", (uid, gid), ids, privileged=False)


def maps_up_to(number: int) -> bool:
    """Return True if ids up to `number` exist here: in another container, root may be the only id."""
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
            os._exit(0)  # in any case: this child must not go on as a second launcher
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
"""Exists only while the view is mounted, before the program starts."""
BELOW, ABOVE = f"{LAYERS}/below", f"{LAYERS}/above"
WHAT = "a private view of the workspace"
EMPTY = "/etc/empty"
BRANCHES = "/branch"
MOST_BRANCHES = 8
"""Most branches with files of their own. The program cannot write to the folder that holds their mount points."""
IN_VIEW = 0
"""Stands for any device number: files seen through a view have another device than on the host."""


class Root:
    """A new root. Call `take` for everything from the old root, then `begin`, then add the rest, then `enter`."""

    def __init__(self) -> None:
        self._trees: list[tuple[str, int, bool]] = []
        self._links: list[tuple[str, str]] = []

    def take(self, path: str, link: str | None, is_folder: bool) -> None:
        """Add a path of the old root, as `find_existing` returns it, to the new root, read-only."""
        if link is not None:
            self._links.append((path, link))
        else:
            tree = syscalls.clone_mount(path, recursive=True)
            syscalls.set_mount_attributes(tree, syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID, recursive=True)
            self._trees.append((path, tree, is_folder))

    def begin(self, tmp_bytes: int) -> None:
        """Start the new root, which hides the old one. /tmp is mounted first, because taken paths may be below it."""
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
        """Add an empty writable folder that holds at most `size` bytes."""
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
        """Make read-only what in /proc could change the machine: a second barrier, besides the missing capabilities."""
        for name in ("sys", "sysrq-trigger", "irq", "bus"):
            path = f"{BASE}/proc/{name}"
            if os.path.exists(path):
                syscalls.mount(path, path, None, MS_BIND)
                make_read_only(path)

    def enter(self) -> None:
        """Make it the root of every process here. The old root covers it until `leave_old_root`."""
        syscalls.pivot_to(BASE)
        lock_root()

    def folder(self, path: str) -> None:
        """Make an empty folder to mount on, with those above it."""
        if path != "/":
            self.folder(os.path.dirname(path))
            with suppress(FileExistsError):
                os.mkdir(BASE + path, 0o755)


def find_existing(paths: Iterable[str]) -> list[tuple[str, str | None, bool]]:
    """Return each existing path, with its target if it is a link, and whether it is a folder."""
    return [
        (path, os.readlink(path) if os.path.islink(path) else None, os.path.isdir(path))
        for path in paths
        if os.path.lexists(path)
    ]


def mount_tree(place: str, tree: int, *, is_folder: bool) -> None:
    """Attach a mount and close its descriptor."""
    os.makedirs(place if is_folder else os.path.dirname(place), mode=0o755, exist_ok=True)
    if not is_folder and not os.path.exists(place):
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY, 0o644))
    syscalls.attach(tree, place)
    os.close(tree)


def lock_root() -> None:
    """Make the root read-only: it holds only mount points, and none can be added."""
    syscalls.mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV)


def unlock_root() -> None:
    """Make the root writable until `lock_root`, to add mount points."""
    syscalls.mount(None, "/", None, MS_REMOUNT | MS_BIND | MS_NOSUID | MS_NODEV)


def make_read_only(path: str) -> None:
    """Make the mount at `path` and all below it read-only."""
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        syscalls.set_mount_attributes(fd, syscalls.ATTR_RDONLY | syscalls.ATTR_NOSUID, recursive=True)
    finally:
        os.close(fd)


def isolate_mounts() -> None:
    """Stop mounts from propagating between this namespace and others."""
    syscalls.mount(None, "/", None, MS_REC | syscalls.MS_PRIVATE)


def begin_with_devices(root: Root, tmp_bytes: int) -> None:
    """Call `begin` and add a /dev with the few harmless devices. Made once in the zygote; sessions take it as it is."""
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
    """Yield a descriptor of what is mounted at `path`."""
    fd = syscalls.open_without_links(path)
    try:
        yield fd
    finally:
        os.close(fd)


def attach_mounts(request: Request, trees: list[int]) -> list[str]:
    """Attach the mounts, the workspace first and its view last. Return those the program may write to."""
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
    """Cover `masked` files with an empty file, keep `pinned` folders in place, make `protected` paths read-only."""
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
    """Yield a name for what is at `path` now, even if the program changes the path. Follows no links."""
    with open_mount(path) as fd:
        yield f"/proc/self/fd/{fd}"


def mount_view(place: str, below: int, above: int, *, work: str, writable: bool) -> None:
    """Mount at `place` an overlay of `below`, with changes kept in the folder `files` of the mount `above`."""
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
    """Mount a branch's overlay of a live session's workspace. Return its top and the folder that takes its changes.

    The changes are in a tmpfs of their own, so that the host can read them after everything else has ended.
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
    """Mask a file in the branches too, which see new files of the workspace."""
    if not path.startswith(f"{workspace}/"):
        return
    for place in filter(None, places):
        with suppress(OSError):  # the branch has removed it, or has its own file there
            guard({"masked": [(place + path[len(workspace) :], IN_VIEW, inode)], "pinned": [], "protected": []})


def unmount_branch_view(place: str) -> None:
    """Unmount everything at `place`."""
    with suppress(OSError):
        while True:
            syscalls.unmount(place)


def try_view() -> None:
    """Test that views work; call in a process of its own. Raises OSError if they do not."""
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
    # Without xino an unchanged file has the same inode number as on the host, by which secrets are recognised.
    options = f"userxattr,xino=off,lowerdir={below},upperdir={above}/files,workdir={above}/{work}"
    try:
        syscalls.mount("view", place, "overlay", MS_NOSUID | MS_NODEV, options)
    except OSError as error:
        raise OSError(error.errno, error.strerror, WHAT) from error
    if os.statvfs(place).f_flag & os.ST_RDONLY:
        # If the upper folder is not suitable, the kernel mounts the overlay anyway, but read-only.
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), WHAT)
