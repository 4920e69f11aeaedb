"""The folder of a view: `files` and `work` belong to overlayfs, `since` records the workspace at the session's start.

The session's changes in `files` are hostile: no link is followed, nothing is run.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from pinfold.sandbox.contract import SandboxUnavailable
from pinfold.sandbox.file_history.entries import File, Folder, Link, is_below, join_path, mode_of, owner_of
from pinfold.sandbox.file_history.store import pieces, write_at
from pinfold.sandbox.guards.guarded_paths import GuardedPaths
from pinfold.sandbox.guards.named_files import is_masked
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.guards.ports import Mounts, WorkspaceGuard
from pinfold.sandbox.kernel.folders import remove_folder
from pinfold.sandbox.kernel.inotify import Watch
from pinfold.sandbox.kernel.safe_files import SET_ID, Changed, SafeFolder, Stamp, chmod, lstat, reopen

FILES, WORK, SINCE = "files", "work", "since"
IN_VIEW = 0
"""Stands for the device of a masked file, because a file has another device number through a view."""
_OCTAL = re.compile(r"\\([0-7]{3})")
_OVERLAYFS = 0x794C7630
_USE = "choose a folder on ext4, xfs, btrfs or a recent tmpfs"
_PROBE = "user.pinfold"

Seen: TypeAlias = dict[str, Stamp]
"""The stamp of each path of a workspace."""


class ViewFolder:
    """The view of one session. Locked until `close`, so that no other session can use it."""

    def __init__(self, workspace: Path, view: Path) -> None:
        """Prepare the folder, and record the workspace as it is now. Raises SandboxUnavailable."""
        self.path = _check_view(workspace, view)
        self._lock = _lock_view(self.path)
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            try:
                _prepare_view(workspace.resolve(), self.path)
            except OSError as error:
                raise SandboxUnavailable(f"{self.path} cannot hold a private view: {error.strerror}; {_USE}") from error
            on_failure.pop_all()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def to_request(self) -> dict[str, object]:
        """Return the request for the launcher, with a new work folder: a parked session may still use the last one."""
        work = f"{WORK}/{secrets.token_hex(4)}"
        place = self.path / work
        place.mkdir(mode=0o700)
        _give(place, self.path)
        return {"source": str(self.path), "writable": True, "work": work}

    def guards(self, guards: GuardedPaths, shown: str) -> GuardedPaths:
        """Return the workspace's guards whose path is seen through the view and not replaced by the session."""
        hidden = _hidden(self.path)
        cut = len(shown) + 1

        def is_seen(path: str) -> bool:
            return not is_below(path[cut:], hidden)

        return GuardedPaths(
            masked=[(path, IN_VIEW, inode) for path, _, inode in guards.masked if is_seen(path)],
            pinned=list(filter(is_seen, guards.pinned)),
            protected=list(filter(is_seen, guards.protected)),
            hidden=list(filter(is_seen, guards.hidden)),
            kept=guards.kept,
        )


def scan_workspace(workspace: Path) -> Seen:
    """Return the stamps of everything in the workspace, except what cannot be read. Follows no link."""
    found: Seen = {"": Stamp.of(workspace.stat())}
    cut = len(str(workspace)) + 1
    for folder, folders, files in os.walk(workspace):
        for path in (f"{folder}/{name}" for name in (*folders, *files)):
            if status := lstat(path):
                found[path[cut:]] = Stamp.of(status)
    return found


def load_start(view: Path) -> Seen:
    """Return the stamps of the workspace at the session's start. Raises SandboxUnavailable."""
    try:
        text = (view / SINCE).read_text(encoding="ascii")
        return {path: Stamp(*stamp) for path, stamp in json.loads(text).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SandboxUnavailable(f"{view} does not hold a session's view: {error}") from error


def save_start(view: Path, since: Mapping[str, Stamp]) -> None:
    partial = view / f".{SINCE}"
    partial.write_text(json.dumps(since, separators=(",", ":")), encoding="ascii")
    partial.replace(view / SINCE)


def layer_of(view: Path) -> Layer:
    """Return what the session changed. The caller closes it. Raises SandboxUnavailable."""
    try:
        return Layer(view / FILES, view.stat().st_uid)
    except OSError as error:
        raise SandboxUnavailable(f"{view} does not hold a session's view: {error.strerror}") from error


def discard(view: Path) -> None:
    """Remove a view with its folder. A session that still has it can no longer use it."""
    remove_folder(view)


def _check_view(workspace: Path, view: Path) -> Path:
    if not view.is_dir():
        raise SandboxUnavailable(f"the view {str(view)!r} is not a folder; create it first")
    top, place = workspace.resolve(), view.resolve()
    if place.is_relative_to(top) or top.is_relative_to(place):
        raise SandboxUnavailable(f"the view {str(view)!r} must lie outside of the workspace")
    if not (place / SINCE).exists() and any(place.iterdir()):
        raise SandboxUnavailable(f"the view {str(view)!r} must be empty, or hold the view of an earlier session")
    with closing(SafeFolder(place)) as top_of_view:
        if top_of_view.file_system == _OVERLAYFS:
            raise SandboxUnavailable(f"the view {str(view)!r} lies on overlayfs, which cannot hold one; {_USE}")
    if within := _find_mount_in(str(top)):
        raise SandboxUnavailable(f"{within} is a mount point; a workspace that contains one cannot have private views")
    return place


def _find_mount_in(top: str) -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            # The kernel escapes spaces and similar characters, as \040.
            path = _OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split()[4])
            if path.startswith(f"{top}/"):
                return path
    return None


def _lock_view(view: Path) -> int:
    fd = os.open(view, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise SandboxUnavailable(f"another session is using the view {str(view)!r}") from error
    return fd


def _prepare_view(workspace: Path, view: Path) -> None:
    files, work = view / FILES, view / WORK
    top = workspace.stat()
    view.chmod(0o700)
    if os.geteuid() == 0:
        os.chown(view, top.st_uid, top.st_gid)
    discard(work)
    for folder in (files, work):
        if not folder.exists():
            folder.mkdir()
            _give(folder, view)
            folder.chmod(mode_of(top) if folder == files else 0o700)
    os.setxattr(files, _PROBE, b"1")  # overlayfs needs user attributes; raises OSError where there are none
    os.removexattr(files, _PROBE)
    now = scan_workspace(workspace)
    if (view / SINCE).exists():
        hidden = _hidden(view)
        # For paths that an earlier session has changed, keep the stamps from its start, so that conflicts are found.
        now = {path: stamp for path, stamp in now.items() if not is_below(path, hidden)}
        now |= {path: stamp for path, stamp in load_start(view).items() if is_below(path, hidden)}
    save_start(view, now)


def _hidden(view: Path) -> set[str]:
    """Return the paths at and below which the view hides the workspace."""
    layer = layer_of(view)
    layer.close()
    return layer.hiding


def _give(folder: Path, like: Path) -> None:
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)


class ViewGuard(WorkspaceGuard):
    """Watches the workspace's top folder and each folder with a secret, as far as watches last, to mask new secrets.

    Nothing needs to be put back: only the user changes the workspace itself.
    """

    def __init__(self, top: str, guards: GuardedPaths, *, shown: str, remount: Callable[[Mounts], None] | None) -> None:
        self._top = top
        self._shown = shown
        self._remount = remount
        self._watch: Watch | None = None
        cut = len(shown)
        folders = {(top + path[cut:]).rpartition("/")[0] for path, _, _ in guards.masked}
        folders.update(f"{top}/{folder}" for folder in guards.folders or () if folder)
        with suppress(OSError):
            self._watch = Watch()
            self.fd = self._watch.fd
            self._watch.add_all([top, *sorted(folders - {top})])

    def before(self, names: Names | None = NOTHING) -> None:
        self.on_names_changed(names)

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        self.on_names_changed(names)
        return ()

    def on_names_changed(self, names: Names | None = NOTHING) -> None:  # noqa: ARG002
        renamed, _ = (self._watch.changes() if self._watch else None) or (set[str](), set[str]())
        for path in sorted(renamed):
            if (secret := self._secret(path)) and self._remount:
                self._remount(Mounts(masked=[secret]))  # one at a time: a missing file would stop the others

    def close(self) -> None:
        if self._watch:
            self._watch.close()

    def _secret(self, path: str) -> tuple[str, int, int] | None:
        inner = path[len(self._top) + 1 :]
        if not is_masked(inner):
            return None
        status = lstat(path)
        if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            return None
        return f"{self._shown}/{inner}", IN_VIEW, status.st_ino


_OPAQUE, _REDIRECT = "user.overlay.opaque", "user.overlay.redirect"
_METACOPY, _WHITEOUT = "user.overlay.metacopy", "user.overlay.whiteout"
_NO_ATTRIBUTE = (errno.ENODATA, errno.ENOTSUP)


@dataclass(frozen=True, slots=True)
class Unmergeable:
    """An entry that is never merged, and why."""

    why: str


Layered: TypeAlias = File | Folder | Link | Unmergeable | None
"""One entry of a layer; None if it was removed. Modes never include set-uid or set-gid bits."""


class Layer:
    """A session's changes: `entries` by path, folders before their content; "" is the workspace. Raises OSError."""

    def __init__(self, files: Path, owner: int) -> None:
        """`owner`: the session's user; what belongs to another user is left out."""
        self._top = SafeFolder(files)
        self._owner = owner
        self._opened_up: list[tuple[str, int]] = []
        self._stamps: dict[str, Stamp] = {}
        self.entries: dict[str, Layered] = {}
        self.opaque: set[str] = set()
        """Folders that hide all that the workspace has in them."""
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            self._walk()
            on_failure.pop_all()

    def close(self) -> None:
        for path, mode in reversed(self._opened_up):
            with suppress(OSError), self._top.open_below(path) as fd:
                chmod(fd, mode)
        self._top.close()

    @property
    def hiding(self) -> set[str]:
        """Paths at and below which the view hides the workspace."""
        return self.opaque | {path for path, entry in self.entries.items() if not isinstance(entry, Folder)}

    def copy(self, path: str, to: int) -> None:
        """Copy the content of a file in `entries`, skipping holes. Raises Changed, OSError."""
        with self.open_file(path) as fd:
            opened = Stamp.of(os.fstat(fd))
            os.ftruncate(to, opened.size)
            for at, piece, is_written in pieces(fd):
                if is_written:
                    write_at(to, piece, at)
            if Stamp.of(os.fstat(fd)) != opened:
                raise Changed(0, "it was changed meanwhile", path)

    @contextmanager
    def open_file(self, path: str) -> Generator[int]:
        """Open a file for reading, if it is unchanged since the scan. Raises Changed, OSError."""
        with self._top.open_below(path) as named:
            if Stamp.of(os.fstat(named)) != self._stamps[path]:
                raise Changed(0, "it was changed meanwhile", path)
            fd = _readable(named)
        try:
            yield fd
        finally:
            os.close(fd)

    def _walk(self) -> None:
        waiting = [""]
        while waiting:
            path = waiting.pop()
            try:
                with self._top.open_below(path) as fd:
                    entry = self._entry(path, fd)
                    is_folder = isinstance(entry, Folder)
                    names = sorted(os.listdir(f"/proc/self/fd/{fd}"), reverse=True) if is_folder else []
            except OSError as error:
                entry, names = Unmergeable(error.strerror or "it cannot be read"), []
            self.entries[path] = entry
            waiting += [join_path(path, name) for name in names]

    def _entry(self, path: str, fd: int) -> Layered:
        status = os.fstat(fd)
        mode = mode_of(status)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            return None
        if status.st_uid != self._owner:
            return Unmergeable("it belongs to someone else")
        if stat.S_ISLNK(status.st_mode):
            return Link(os.fsdecode(os.readlink(b"", dir_fd=fd)), owner_of(status))
        if stat.S_ISREG(status.st_mode):
            self._stamps[path] = Stamp.of(status)
            if _attribute(fd, _WHITEOUT) is not None:
                return None
            if _attribute(fd, _METACOPY) is not None:
                return Unmergeable("its content is not there")
            return File(None, status.st_size, mode & ~SET_ID, owner_of(status), status.st_mtime_ns)
        if not stat.S_ISDIR(status.st_mode):
            return Unmergeable("special file")
        if mode & 0o500 != 0o500 and os.geteuid() != 0:
            self._opened_up.append((path, mode))
            chmod(fd, mode | 0o700)
        if _attribute(fd, _REDIRECT) is not None:
            return Unmergeable("its content is elsewhere")
        if _attribute(fd, _OPAQUE) == b"y":
            self.opaque.add(path)
        return Folder(mode & ~SET_ID, owner_of(status))


def _attribute(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(f"/proc/self/fd/{fd}", name)
    except PermissionError:
        return None  # the owner may not read the file; the kernel sets no attributes on such files
    except OSError as error:
        if error.errno in _NO_ATTRIBUTE:
            return None
        raise


def _readable(named: int) -> int:
    try:
        return reopen(named)
    except PermissionError:
        mode = mode_of(os.fstat(named))
        chmod(named, mode | stat.S_IRUSR)
        try:
            return reopen(named)
        finally:
            chmod(named, mode)
