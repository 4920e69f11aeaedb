"""Keeps guarded files as they were: says what the session must have mounted anew, and puts back what a cell changed.

Who made a change cannot be seen on the file. So it is judged by what is known: a path that was mounted read-only before
any code ran, and whose name nobody touched since, only the user can have changed. See docs/design/0012.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Protocol

from msgspec import Struct, field

from pinfold.sandbox._beneath import Below, Content, File, Folder
from pinfold.sandbox._gitdir import WRITTEN, is_plain_config
from pinfold.sandbox._watch import Watch
from pinfold.sandbox._workspace import STEERING, Guards, followed, guards_of_gitdir, is_masked, mountable

_LINK_FOLDERS = 2000
"""Of one git folder, that are searched for links."""
_LOST = "look at it before you use it"


class Keeping(Protocol):
    """What a session asks of its keeper."""

    def before(self) -> None:
        """A cell is about to run: what differs now was not its doing."""
        ...

    def after(self) -> tuple[str, ...]:
        """It has ended: everything guarded is as before. One line for each thing put back, for the model and the user."""
        ...

    @property
    def fd(self) -> int | None:
        """Readable when `noticed` should be called; None: only cells are looked at."""
        ...

    def noticed(self) -> None: ...

    def close(self) -> None: ...


class Mounts(Struct, frozen=True, kw_only=True):
    """What the session's init is to mount, in this order, each by the path the session sees."""

    masked: list[tuple[str, int, int]] = field(default_factory=list[tuple[str, int, int]])
    pinned: list[str] = field(default_factory=list[str])
    protected: list[str] = field(default_factory=list[str])

    def __bool__(self) -> bool:
        return bool(self.masked or self.pinned or self.protected)


class Keeper:
    """Of one workspace and one session. Paths inside are relative to the workspace.

    `mounted`: what `guards` names is mounted before any code runs. `remount` is told what must be mounted now.
    """

    def __init__(
        self,
        top: str,
        guards: Guards,
        *,
        shown: str | None = None,
        mounted: bool = True,
        remount: Callable[[Mounts], None] | None = None,
    ) -> None:
        self._top = top
        self._shown = shown or top
        self._mounted = mounted
        self._remount = remount
        self._below = Below(top)
        self._running = False
        self._said: list[str] = []
        self._mounts = Mounts()
        cut = len(self._shown) + 1
        self._masked = {path[cut:] for path, _, _ in guards.masked}
        self._places = {path[cut:]: self._place(path[cut:]) for path in guards.pinned}
        self._steering = {
            path[len(top) + 1 :] for name in STEERING for path in followed(f"{top}/{name}", top)
        }
        self._was: dict[str, Content] = {}
        for path in guards.kept:
            if path == f"{self._shown}/.git" and self._status(".git") is None:
                self._places[".git"] = None
            else:
                self._was[path[cut:]] = self._below.read(path[cut:])
        self._loose: set[str] = set()
        """Paths that were absent, or replaced, or may have been: the session may have had its hands on them."""
        self._shared = {path for path in self._was if self._below.is_shared(path)}
        """Files with another name, by which the session may write them; no mount is in its way there."""
        self._sent: dict[str, tuple[int, int]] = {}
        self._loosen(guards)
        self._links = {link for gitdir in self._gitdirs() for link in self._links_in(gitdir)}
        self._watch: Watch | None = None
        with suppress(OSError):
            self._watch = Watch()
        self._sees_all = False
        self._watch_all()

    @property
    def fd(self) -> int | None:
        return self._watch.fd if self._watch else None

    @property
    def notice(self) -> str | None:
        """What the user must know."""
        if self._sees_all:
            return None
        return "files cannot be watched here (inotify): a guarded file that you replace is guarded again at the next cell"

    def _loosen(self, guards: Guards) -> None:
        self._loose.update(self._shared)
        for path, was in self._was.items():
            real = mountable(f"{self._top}/{path}", self._top)
            if was is not None and real and self._shown + real[len(self._top) :] not in guards.protected:
                self._loose.add(path)  # it was made after the walk
                self._protect(path)

    def before(self) -> None:
        self._check()
        self._running = True

    def noticed(self) -> None:
        self._check()

    def after(self) -> tuple[str, ...]:
        self._check()
        self._running = False
        said, self._said = self._said, []
        return tuple(said)

    def close(self) -> None:
        self._below.close()
        for place in self._places.values():
            if place:
                os.close(place.fd)
        if self._watch:
            self._watch.close()

    def _check(self) -> None:
        happened = self._watch.events() if self._watch else None
        if happened is None or not self._sees_all:
            self._loose.update(self._was)
            self._judge(set(self._was), set(self._places))
            self._refuse_links(self._all_links())
        elif any(happened):
            renamed, written = ({path[len(self._top) + 1 :] for path in paths} for paths in happened)
            self._happened(renamed, written)
        elif self._loose or not self._mounted:
            self._judge(self._suspects(), set())
        if self._mounts:
            mounts, self._mounts = self._mounts, Mounts()
            if self._remount:
                self._remount(mounts)

    def _suspects(self) -> set[str]:
        """Where the watch alone is not enough: a descriptor opened early writes without closing."""
        return set(self._loose if self._mounted else self._was)

    def _happened(self, renamed: set[str], written: set[str]) -> None:
        gitdirs = tuple(f"{gitdir}/" for gitdir in self._gitdirs())
        folders = False
        for path in renamed:
            if path in self._was or path in self._places or self._is_above(path):
                under = f"{path}/"
                self._loose.update(kept for kept in self._was if kept == path or kept.startswith(under))
                folders = True
            elif path.startswith(gitdirs):
                folders = folders or self._is(stat.S_ISDIR, path)
            elif path in self._masked or any(map(is_masked, path.split("/"))):
                self._mask(path)
        touched = renamed | written
        suspects = self._suspects() | {
            kept for kept in self._was if kept in touched or kept.rpartition("/")[0] in touched
        }
        self._judge(suspects, {path for path in self._places if path in renamed})
        if folders:
            # A new folder may have been filled before it could be watched.
            self._watch_all()
            self._refuse_links(self._all_links())
        self._refuse_links(
            path for path in renamed if path.startswith(gitdirs) and self._is(stat.S_ISLNK, path)
        )

    def _judge(self, paths: set[str], places: set[str]) -> None:
        for path in sorted(places):
            self._judge_place(path)
        for path in sorted(paths):
            if self._is_untouched(path):
                continue
            was, now = self._was[path], self._below.read(path)
            if now != was:
                if self._is_the_users(path, was, now):
                    self._was[path] = now
                else:
                    self._put_back(path, was, now)
            if path in self._loose:
                self._protect(path)

    def _is_untouched(self, path: str) -> bool:
        if self._was[path] is None:
            return self._status(path) is None
        return self._below.is_untouched(path)

    def _is_the_users(self, path: str, was: Content, now: Content) -> bool:
        """Or does no harm, whoever made it."""
        mounted = self._mounted and was is not None and path not in self._shared
        held = mounted and path not in self._loose
        if held or (path in self._steering and not self._running):
            return True  # what steers the agent is asked about before it is obeyed
        if mounted and not self._running:
            return True  # a session cannot replace a mount point
        return _is_plain(path, now)

    def _put_back(self, path: str, was: Content, now: Content) -> None:
        how = "made" if was is None else "changed" if now is not None else "removed"
        done = "been removed" if was is None else "been put back"
        if self._below.put_back(path, was) and self._below.read(path) == was:
            self._say(path, f"was {how} and has {done}")
        else:
            self._was[path] = self._below.read(path)
            self._say(path, f"was {how} and could not be put back; {_LOST}")

    def _say(self, path: str, words: str) -> None:
        self._said.append(f"{path} {words}" if self._running else f"{path} {words}, between cells")

    def _protect(self, path: str) -> None:
        real = mountable(f"{self._top}/{path}", self._top)
        status = self._status(real[len(self._top) + 1 :]) if real else None
        if real is None or status is None:
            return
        place = self._shown + real[len(self._top) :]
        if self._sent.get(place) != (sign := (status.st_ino, status.st_ctime_ns)):
            self._sent[place] = sign
            self._mounts.protected.append(place)

    def _mask(self, path: str) -> None:
        status = self._status(path)
        if status and (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            self._mounts.masked.append((f"{self._shown}/{path}", status.st_dev, status.st_ino))

    # Git folders

    def _judge_place(self, path: str) -> None:
        place, now = self._places[path], self._status(path)
        if place is None:
            if now is not None:
                self._adopt(path, now)
        elif now is None or (now.st_dev, now.st_ino) != place.inode:
            if self._mounted and not self._running:
                os.close(place.fd)
                self._places[path] = None
                if now is not None:
                    self._adopt(path, now)
            else:
                self._bring_back(path, place)

    def _bring_back(self, path: str, place: _Place) -> None:
        where = os.readlink(f"/proc/self/fd/{place.fd}")  # noqa: PTH115
        inside = where.startswith(f"{self._top}/") and not where.endswith(" (deleted)")
        if inside and self._below.rename(where[len(self._top) + 1 :], path):
            self._say(path, "was put aside and has been put back")
        else:
            self._say(path, f"is gone or replaced and could not be put back; {_LOST}")
        self._pin(path)

    def _adopt(self, path: str, now: os.stat_result) -> None:
        """A repository made meanwhile: what in it would make git run something is taken out, the rest is kept from now on."""
        if not stat.S_ISDIR(now.st_mode):
            gone = self._below.put_back(path, None)
            self._say(
                path, "was made and has been removed" if gone else f"was made and is no folder; {_LOST}"
            )
            return
        self._places[path] = self._place(path)
        self._pin(path)
        for kept in guards_of_gitdir(f"{self._top}/{path}", self._top).kept:
            name = kept[len(self._top) + 1 :]
            self._was.setdefault(name, None)
            self._loose.add(name)
        self._judge({name for name in self._was if name.startswith(f"{path}/")}, set())
        self._refuse_links(self._links_in(path))

    def _pin(self, path: str) -> None:
        self._mounts.pinned.append(f"{self._shown}/{path}")
        for kept in self._was:
            if kept.startswith(f"{path}/"):
                self._sent.pop(f"{self._shown}/{kept}", None)
                self._loose.add(kept)

    def _place(self, path: str) -> _Place | None:
        try:
            fd = os.open(f"{self._top}/{path}", os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return None
        status = os.fstat(fd)
        return _Place(fd, (status.st_dev, status.st_ino))

    # Links in git folders

    def _gitdirs(self) -> list[str]:
        return [path for path, place in self._places.items() if place]

    def _all_links(self) -> list[str]:
        return [link for gitdir in self._gitdirs() for link in self._links_in(gitdir)]

    def _links_in(self, gitdir: str) -> list[str]:
        return [
            f"{folder}/{entry.name}"
            for folder in self._written_folders(gitdir)
            for entry in _entries(f"{self._top}/{folder}")
            if entry.is_symlink()
        ]

    def _written_folders(self, gitdir: str) -> list[str]:
        found = [gitdir]
        waiting = [f"{gitdir}/{name}" for name in WRITTEN if name]
        while waiting and len(found) < _LINK_FOLDERS:
            folder = waiting.pop()
            status = self._status(folder)
            if status and stat.S_ISDIR(status.st_mode):
                found.append(folder)
                waiting += [
                    f"{folder}/{entry.name}"
                    for entry in _entries(f"{self._top}/{folder}")
                    if entry.is_dir(follow_symlinks=False)
                ]
        return found

    def _refuse_links(self, links: Iterable[str]) -> None:
        for link in links:
            if link not in self._links and link not in self._was:
                gone = self._below.put_back(link, None)
                words = "was made a link and has been removed"
                self._say(link, words if gone else f"was made a link and could not be removed; {_LOST}")

    # Watching

    def _watch_all(self) -> None:
        if self._watch is None:
            return
        above = {folder for path in (*self._was, *self._places) for folder in self._above(path)}
        written = [folder for gitdir in self._gitdirs() for folder in self._written_folders(gitdir)]
        secret = {f"{self._top}/{path}".rpartition("/")[0] for path in self._masked}
        try:
            self._watch.add(sorted(above))
            self._watch.add(f"{self._top}/{folder}" for folder in written)
        except OSError:
            self._sees_all = False
            return
        self._sees_all = True
        with suppress(OSError):  # more than can be watched: the rest is looked for when a session starts
            self._watch.add(sorted(secret))

    def _above(self, path: str) -> list[str]:
        parts = path.split("/")
        return ["/".join([self._top, *parts[:count]]) for count in range(len(parts))]

    def _is_above(self, path: str) -> bool:
        return any(kept.startswith(f"{path}/") for kept in self._was)

    def _is(self, kind: Callable[[int], bool], path: str) -> bool:
        status = self._status(path)
        return status is not None and kind(status.st_mode)

    def _status(self, path: str) -> os.stat_result | None:
        try:
            return os.lstat(f"{self._top}/{path}")
        except OSError:
            return None


class _Place(Struct, frozen=True):
    """Where a git folder is; the descriptor finds it again wherever it was moved, and keeps its inode its own."""

    fd: int
    inode: tuple[int, int]


def _is_plain(path: str, now: Content) -> bool:
    """Whether git does nothing on account of it but what it does anyway."""
    name = path.rpartition("/")[2]
    if name == "config" and isinstance(now, File) and now.data is not None:
        return is_plain_config(now.data.decode("utf-8", "replace"))
    if name == "hooks" and isinstance(now, Folder):
        return all(key.endswith(".sample") and isinstance(it, File) for key, it in now.entries.items())
    return name in {"branches", "remotes"} and isinstance(now, Folder) and not now.entries


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as inside:
            return list(inside)
    except OSError:
        return []
