"""The folder of a view: `files` and `work` are overlayfs's, `since` says what the workspace was when the session began.

What overlayfs keeps of the session's changes is hostile: no link is followed, nothing is run.
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
"""In place of a masked file's device: through a view it has another one."""
_OCTAL = re.compile(r"\\([0-7]{3})")
_OVERLAYFS = 0x794C7630
_USE = "choose a folder on ext4, xfs, btrfs or a recent tmpfs"
_PROBE = "user.pinfold"

Seen: TypeAlias = dict[str, Stamp]
"""How each path of a workspace was."""


class ViewFolder:
    """A view that a session has. Locked until `close`: two sessions cannot have one."""

    def __init__(self, workspace: Path, view: Path) -> None:
        """Makes it ready, with what is seen of the workspace now. Raises SandboxUnavailable."""
        self.path = _check_view(workspace, view)
        self._lock = _lock_view(self.path)
        with ExitStack() as on_failure:
            on_failure.callback(self.close)
            try:
                _prepare_view(workspace.resolve(), self.path)
            except OSError as error:
                raise SandboxUnavailable(f"no view can be kept in {self.path}: {error.strerror}; {_USE}") from error
            on_failure.pop_all()

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def to_request(self) -> dict[str, object]:
        """For the launcher. Each time with a folder of its own to work in: a parked session may still have the last one."""
        work = f"{WORK}/{secrets.token_hex(4)}"
        place = self.path / work
        place.mkdir(mode=0o700)
        _give(place, self.path)
        return {"source": str(self.path), "writable": True, "work": work}

    def guards(self, guards: GuardedPaths, shown: str) -> GuardedPaths:
        """Of the workspace, as far as what they guard is seen through the view, and not something of the session's own."""
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
    """How everything in the workspace is now; what cannot be looked at is left out. Follows no link."""
    found: Seen = {"": Stamp.of(workspace.stat())}
    cut = len(str(workspace)) + 1
    for folder, folders, files in os.walk(workspace):
        for path in (f"{folder}/{name}" for name in (*folders, *files)):
            if status := lstat(path):
                found[path[cut:]] = Stamp.of(status)
    return found


def load_start(view: Path) -> Seen:
    """How the workspace was when the session began. Raises SandboxUnavailable."""
    try:
        text = (view / SINCE).read_text(encoding="ascii")
        return {path: Stamp(*stamp) for path, stamp in json.loads(text).items()}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise SandboxUnavailable(f"{view} is no view of a session: {error}") from error


def save_start(view: Path, since: Mapping[str, Stamp]) -> None:
    partial = view / f".{SINCE}"
    partial.write_text(json.dumps(since, separators=(",", ":")), encoding="ascii")
    partial.replace(view / SINCE)


def layer_of(view: Path) -> Layer:
    """What the session changed; close it. Raises SandboxUnavailable."""
    try:
        return Layer(view / FILES, view.stat().st_uid)
    except OSError as error:
        raise SandboxUnavailable(f"{view} is no view of a session: {error.strerror}") from error


def discard(view: Path) -> None:
    """Remove what is in a view, and the folder. Of no use to a session that still has it."""
    remove_folder(view)


def _check_view(workspace: Path, view: Path) -> Path:
    if not view.is_dir():
        raise SandboxUnavailable(f"the view {str(view)!r} is not a folder; create it first")
    top, place = workspace.resolve(), view.resolve()
    if place.is_relative_to(top) or top.is_relative_to(place):
        raise SandboxUnavailable(f"the view {str(view)!r} must lie outside of the workspace")
    if not (place / SINCE).exists() and any(place.iterdir()):
        raise SandboxUnavailable(f"the view {str(view)!r} is neither empty nor of an earlier session")
    with closing(SafeFolder(place)) as top_of_view:
        if top_of_view.file_system == _OVERLAYFS:
            raise SandboxUnavailable(f"the view {str(view)!r} lies on overlayfs, which cannot hold one; {_USE}")
    if within := _find_mount_in(str(top)):
        raise SandboxUnavailable(f"{within} is a file system of its own: a workspace with one has no private views")
    return place


def _find_mount_in(top: str) -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:
        for line in table:
            # The kernel writes spaces and the like as \040.
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
        raise SandboxUnavailable(f"another session has the view {str(view)!r}") from error
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
    os.setxattr(files, _PROBE, b"1")  # overlayfs keeps its notes so
    os.removexattr(files, _PROBE)
    now = scan_workspace(workspace)
    if (view / SINCE).exists():
        hidden = _hidden(view)
        # Of what an earlier session made its own, the workspace is compared with what that session saw.
        now = {path: stamp for path, stamp in now.items() if not is_below(path, hidden)}
        now |= {path: stamp for path, stamp in load_start(view).items() if is_below(path, hidden)}
    save_start(view, now)


def _hidden(view: Path) -> set[str]:
    """Paths at and below which the workspace is not seen."""
    layer = layer_of(view)
    layer.close()
    return layer.hiding


def _give(folder: Path, like: Path) -> None:
    if os.geteuid() == 0:
        owner = like.stat()
        os.chown(folder, owner.st_uid, owner.st_gid)


class ViewGuard(WorkspaceGuard):
    """Watches the top of the workspace and every folder that holds a secret, as far as there are watches.

    Whatever changes in the workspace is the user's.
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
                self._remount(Mounts(masked=[secret]))  # each alone: one that is gone stops the others

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
class Odd:
    """Something that is not brought over."""

    why: str


Layered: TypeAlias = File | Folder | Link | Odd | None
"""None: it was removed. Set-id bits are never among the modes."""


class Layer:
    """`entries` by path, folders before what is in them; "" is the workspace. Raises OSError."""

    def __init__(self, files: Path, owner: int) -> None:
        """`owner`: what belongs to another user was not made by the session."""
        self._top = SafeFolder(files)
        self._owner = owner
        self._opened_up: list[tuple[str, int]] = []
        self._stamps: dict[str, Stamp] = {}
        self.entries: dict[str, Layered] = {}
        self.opaque: set[str] = set()
        """Folders in which nothing of the workspace is seen."""
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
        """At and below these, what the workspace has is not seen."""
        return self.opaque | {path for path, entry in self.entries.items() if not isinstance(entry, Folder)}

    def copy(self, path: str, to: int) -> None:
        """The content of a file that was found, holes left out. Raises Changed, OSError."""
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
        """For reading, if it is still the one that was found."""
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
                entry, names = Odd(error.strerror or "it cannot be read"), []
            self.entries[path] = entry
            waiting += [join_path(path, name) for name in names]

    def _entry(self, path: str, fd: int) -> Layered:
        status = os.fstat(fd)
        mode = mode_of(status)
        if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
            return None
        if status.st_uid != self._owner:
            return Odd("it belongs to someone else")
        if stat.S_ISLNK(status.st_mode):
            return Link(os.fsdecode(os.readlink(b"", dir_fd=fd)), owner_of(status))
        if stat.S_ISREG(status.st_mode):
            self._stamps[path] = Stamp.of(status)
            if _attribute(fd, _WHITEOUT) is not None:
                return None
            if _attribute(fd, _METACOPY) is not None:
                return Odd("its content is not there")
            return File(None, status.st_size, mode & ~SET_ID, owner_of(status), status.st_mtime_ns)
        if not stat.S_ISDIR(status.st_mode):
            return Odd("special file")
        if mode & 0o500 != 0o500 and os.geteuid() != 0:
            self._opened_up.append((path, mode))
            chmod(fd, mode | 0o700)
        if _attribute(fd, _REDIRECT) is not None:
            return Odd("its content is elsewhere")
        if _attribute(fd, _OPAQUE) == b"y":
            self.opaque.add(path)
        return Folder(mode & ~SET_ID, owner_of(status))


def _attribute(fd: int, name: str) -> bytes | None:
    try:
        return os.getxattr(f"/proc/self/fd/{fd}", name)
    except PermissionError:
        return None  # a file that its owner may not read; the kernel sets none on such
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
