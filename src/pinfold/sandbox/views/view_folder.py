"""The folder of a view: `files` and `work` are overlayfs's, `since` says what the workspace was when the session began."""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from pinfold.sandbox.contract import SandboxUnavailable
from pinfold.sandbox.file_history.entries import is_below, mode_of
from pinfold.sandbox.guards.guarded_paths import GuardedPaths
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.guards.ports import Mounts
from pinfold.sandbox.guards.secret_files import is_masked
from pinfold.sandbox.kernel.folders import remove_folder
from pinfold.sandbox.kernel.inotify import Watch
from pinfold.sandbox.kernel.safe_files import SafeFolder, Stamp, lstat
from pinfold.sandbox.views.layer import Layer

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
        try:
            _prepare_view(workspace.resolve(), self.path)
        except OSError as error:
            self.close()
            raise SandboxUnavailable(f"no view can be kept in {self.path}: {error.strerror}; {_USE}") from error
        except BaseException:
            self.close()
            raise

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
    top = str(workspace)
    cut = len(top) + 1
    waiting = [top]
    while waiting:
        with suppress(OSError), os.scandir(waiting.pop()) as inside:
            for entry in inside:
                with suppress(OSError):
                    status = entry.stat(follow_symlinks=False)
                    found[entry.path[cut:]] = Stamp.of(status)
                    if stat.S_ISDIR(status.st_mode):
                        waiting.append(entry.path)
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
    if _file_system(place) == _OVERLAYFS:
        raise SandboxUnavailable(f"the view {str(view)!r} lies on overlayfs, which cannot hold one; {_USE}")
    if within := _find_mount_in(str(top)):
        raise SandboxUnavailable(f"{within} is a file system of its own: a workspace with one has no private views")
    return place


def _file_system(folder: Path) -> int:
    top = SafeFolder(folder)
    try:
        return top.file_system
    finally:
        top.close()


def _find_mount_in(top: str) -> str | None:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as table:  # noqa: PTH123
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


class ViewGuard:
    """Watches the top of the workspace and every folder that holds a secret, as far as there are watches."""

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
            self._watch.add_all([top, *sorted(folders - {top})])

    @property
    def fd(self) -> int | None:
        return self._watch.fd if self._watch else None

    fought = None
    sees_names = True
    lost: tuple[str, ...] = ()

    def before(self, names: Names | None = NOTHING) -> None:
        self.on_names_changed(names)

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        self.on_names_changed(names)
        return ()

    def allow(self, path: str) -> None:
        """Whatever changes in the workspace is the user's."""

    def settle(self, names: Names | None = NOTHING) -> tuple[str, ...]:  # noqa: ARG002
        return ()

    def final_notices(self) -> tuple[str, ...]:
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
