"""Keeps guarded files as they were: asks for new mounts where the session needs them, puts back what a cell changed.

A file does not show who changed it, so the guard infers it: if a path was mounted read-only before any code ran, and
its name was not touched since, only the user can have changed it. See docs/design/0012.
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Callable, Iterable

from pinfold.sandbox.guards import gitdir as git
from pinfold.sandbox.guards.contents import Content, Contents, FileContent, UnknownContent, folders_above, hold_folder
from pinfold.sandbox.guards.guarded_paths import (
    STEERING,
    GuardedPaths,
    find_gitdir_guards,
    follow_links,
    is_within,
    mountable,
)
from pinfold.sandbox.guards.named_files import GIT_FOLDER, AutorunRule
from pinfold.sandbox.guards.new_names import NOTHING, Found, NameCheck, Names, NameWatch, names_of
from pinfold.sandbox.guards.ports import ADVICE, GuardReport, MountQueue, Mounts, WorkspaceGuard
from pinfold.sandbox.kernel.inotify import FOLDERS
from pinfold.sandbox.kernel.safe_files import lstat

_CHANGED = "was changed and could not be put back"
_FOUGHT = 3
"""How often one path is put back while no cell runs before every process of the session is ended."""
_FEW = 64
"""Most folders for the guard to watch all of them. With more it gets new names from the file history, so that opening a
session stays fast."""


class FileGuard(WorkspaceGuard):
    """The guard of one workspace for one session. Paths are relative to the workspace.

    `mounted`: what `guards` names is mounted before any code runs. `remount` is called with what must be mounted now.
    `leftovers` returns True if a process of the session may run while no cell does, which is also the default.
    """

    def __init__(
        self,
        top: str,
        guards: GuardedPaths,
        *,
        shown: str | None = None,
        mounted: bool = True,
        remount: Callable[[Mounts], None] | None = None,
        leftovers: Callable[[], bool] = lambda: True,
    ) -> None:
        self._top = top
        self._shown = shown or top
        self._mounted = mounted
        self._ask_leftovers = leftovers
        self._leftovers: bool | None = None
        """The answer of `leftovers` during the present check."""
        self._contents = Contents(top)
        self._running = False
        self._mounts = MountQueue(top, self._shown, remount)
        cut = len(self._shown) + 1
        self._masked = {path[cut:]: (device, inode) for path, device, inode in guards.masked}
        self._places = {path[cut:]: hold_folder(f"{top}/{path[cut:]}") for path in guards.pinned}
        self._steering = {path[len(top) + 1 :] for name in STEERING for path in follow_links(f"{top}/{name}", top)}
        self._was: dict[str, Content] = {}
        for path in guards.kept:
            if path == f"{self._shown}/.git" and self._status(".git") is None:
                self._places[".git"] = None
            else:
                self._was[path[cut:]] = self._contents.read(path[cut:])
        self._shared = {path for path in self._was if self._contents.is_shared(path)}
        """Hard-linked files: the session may write them by another name, where no mount prevents it."""
        self._loose = set(self._shared)
        """Paths that are or may have been absent or replaced, so the session may have changed them."""
        self._made: dict[str, set[str]] = {}
        """Git folders that the session made, and what is guarded in each. They are not mounted: it may remove them."""
        self._rows: dict[str, AutorunRule] = {}
        """The rule of each obeyed path that appeared."""
        self._report = GuardReport()
        self._again: Counter[str] = Counter()
        """How often a path was put back while no cell ran."""
        self._allowed: set[str] = set()
        self._bytecode: set[str] = set()
        """New or changed bytecode files: removed at the end, because Python makes them again."""
        self._fought: set[str] = set()
        self._names = NameCheck(top, guards)
        self._later = NOTHING
        """Names that a cell has made and that are handled when it has ended."""
        self._unseen = False
        """True if code ran while not all names were watched: at the end the whole workspace is searched."""
        self._loosen(guards)
        self._rebases = {gitdir: git.rebase_commands(f"{top}/{gitdir}") for gitdir in self._gitdirs()}
        self._links = set(self._all_links())
        self._watch = NameWatch(top)
        self.fd = self._watch.fd
        self._watch_all()
        self._watch.watch_each(guards.folders, _FEW if mounted else FOLDERS)

    @property
    def sees_all(self) -> bool:
        return self._watch.sees_all

    @property
    def sees_names(self) -> bool:
        return self._watch.sees_names

    @property
    def fought(self) -> str | None:
        return min(self._fought, default=None)

    @property
    def lost(self) -> tuple[str, ...]:
        return tuple(self._report.lost.values())

    def _loosen(self, guards: GuardedPaths) -> None:
        for path, was in self._was.items():
            real = mountable(f"{self._top}/{path}", self._top)
            if was is not None and real and self._shown + real[len(self._top) :] not in guards.protected:
                self._loose.add(path)  # it was made after the walk
                self._mounts.protect(path)

    def before(self, names: Names | None = NOTHING) -> None:
        self._check(names)
        self._again.clear()
        self._allowed.clear()
        self._running = True

    def on_names_changed(self, names: Names | None = NOTHING) -> None:
        self._check(names, is_midway=self._running)

    def after(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        self._check(names)
        self._running = False
        return self._report.take_lines()

    def allow(self, path: str) -> None:
        self._allowed.add(path)

    def settle(self, names: Names | None = NOTHING) -> tuple[str, ...]:
        self._running = True  # so that every difference counts as made by the session
        self._check(names)
        if self._unseen:
            self._answer(self._names.look_everywhere())
        self._fought.clear()
        self._judge({path for path in self._was if not self._is_untouched(path)}, set())
        for path in sorted(self._fought):
            self._report.lose(path, _CHANGED)
        self._fought.clear()
        while self._bytecode:
            self._contents.put_back(self._bytecode.pop(), None)
        for gitdir in self._gitdirs():
            if git.rebase_commands(f"{self._top}/{gitdir}") - self._rebases.get(gitdir, frozenset()):
                self._report.told[f"{gitdir}/{git.REBASE}"] = GIT_FOLDER
        self._running = False
        return self._report.take_lines()

    def final_notices(self) -> tuple[str, ...]:
        return self._report.final_notices(lambda path: self._status(path) is not None)

    def close(self) -> None:
        self._contents.close()
        for place in self._places.values():
            if place:
                os.close(place.fd)
        self._watch.close()

    def _check(self, names: Names | None, *, is_midway: bool = False) -> None:
        """`is_midway`: a cell is running and must meet no error. Files of the autorun table that it made stay until its
        end, and what git obeys is made read-only only then, because git may be writing it.
        """
        happened = self._watch.changes()
        is_quiet = happened is not None and not any(happened) and names is NOTHING and self._later is NOTHING
        if is_quiet and self.sees_all and self._mounted and not self._loose and not self._made and not self._mounts:
            return
        self._leftovers = None
        self._forget_removed()
        renamed, written = (names_of(paths, self._top) for paths in happened or (set[str](), set[str]()))
        if happened is None or not self.sees_all:
            self._loose.update(self._was)
            self._judge(set(self._was), set(self._places))
            self._refuse_links(self._all_links())
        elif renamed or written:
            self._handle_changes(renamed, written)
        elif self._loose or not self._mounted:
            # No name had an event, so what was absent is still absent.
            self._judge({path for path in self._suspects() if self._was[path] is not None}, set())
        if happened is None or not self.sees_names:
            self._look_beyond(names, is_lost=happened is None and self.sees_names)
        if renamed or written or names or self._later:
            new = Names(renamed, written).merge(names or NOTHING).merge(self._later)
            found = self._names.look(new)
            self._later = NOTHING
            if is_midway and (found.obeyed or found.told):
                self._later = new
                found.obeyed, found.told = {}, {}
            self._answer(found)
        self._mounts.send(is_midway=is_midway)

    def _look_beyond(self, names: Names | None, *, is_lost: bool) -> None:
        """Handle the names that the guard's own watch may have missed."""
        if is_lost or (names is not None and names.is_lost):
            self._watch_all()
            self._watch_names([""])
            self._answer(self._names.look_everywhere())
        elif names is None or names.is_partial:
            self._unseen = True

    def _suspects(self) -> set[str]:
        """Return paths for which events are not enough: a file descriptor opened earlier can write without closing."""
        return set(self._loose if self._mounted else self._was)

    def _handle_changes(self, renamed: set[str], written: set[str]) -> None:
        gitdirs = tuple(f"{gitdir}/" for gitdir in self._gitdirs())
        above = {folder for path in self._was for folder in folders_above(path)}
        folders = False
        for path in renamed:
            if path in self._was or path in self._places or path in above:
                under = f"{path}/"
                self._loose.update(kept for kept in self._was if kept == path or kept.startswith(under))
                folders = True
            elif path.startswith(gitdirs):
                folders = folders or self._is(stat.S_ISDIR, path)
        touched = renamed | written
        suspects = self._suspects() | {
            kept for kept in self._was if kept in touched or kept.rpartition("/")[0] in touched
        }
        self._judge(suspects, {path for path in self._places if path in renamed})
        if folders:
            # A new folder may have been filled before it could be watched.
            self._watch_all()
            self._refuse_links(self._all_links())
        if self.sees_names:
            self._watch_names(path for path in renamed if self._is(stat.S_ISDIR, path))
        self._refuse_links(path for path in renamed if path.startswith(gitdirs) and self._is(stat.S_ISLNK, path))

    def _answer(self, found: Found) -> None:
        """Handle new names: guard git folders, put back what a program would obey, mask secrets, report the rest."""
        for path in sorted(found.gitdirs - self._was.keys()):
            if not self._places.get(path) and path not in self._made:
                self._adopt(path)
        new = {path for path in (*found.pointers, *found.obeyed) if path not in self._was}
        for path in new:
            self._was[path] = None
            self._loose.add(path)
        self._rows.update(found.obeyed)
        self._judge({*found.pointers, *found.obeyed, *found.gitdirs}, set())
        for path in sorted(found.secrets):
            self._mask(path)
        for path in new - self._fought - self._report.lost.keys():
            if self._was[path] is None:
                del self._was[path]
                self._loose.discard(path)
            elif path in found.obeyed:
                self._report.taken.add(path)
        self._bytecode |= found.bytecode
        for path, row in sorted(found.told.items()):
            if path not in self._report.told and path not in self._was and not self._is_users_time():
                self._report.told[path] = row
                self._say(path, f"was made or changed: {row.program} obeys it")
        for folder in sorted(found.closed):
            self._unseen = True
            self._report.lose(folder, "could not be looked into")
        self._watch.watch_parents(new)  # the process that made it may make it again

    def _judge(self, paths: set[str], places: set[str]) -> None:
        for path in sorted(places):
            self._judge_place(path)
        for path in sorted(paths & self._was.keys()):
            if self._is_untouched(path):
                continue
            was, now = self._was[path], self._contents.read(path)
            if now != was:
                if self._is_the_users(path, was, now):
                    self._was[path] = now
                elif self._is_made(path):
                    self._take_out(path, now)
                else:
                    self._restore(path, was, now)
            if path in self._loose and not self._is_made(path):
                self._mounts.protect(path)

    def _is_untouched(self, path: str) -> bool:
        if self._was[path] is None:
            return self._status(path) is None
        return self._contents.is_untouched(path)

    def _is_the_users(self, path: str, was: Content, now: Content) -> bool:
        """Return True if the user made the change or it does no harm."""
        mounted = self._mounted and was is not None and path not in self._shared and not self._is_made(path)
        held = mounted and path not in self._loose
        if held or (path in self._steering and not self._running):
            return True  # the user is asked before the agent obeys new instructions
        if mounted and not self._running:
            return True  # a session cannot replace a mount point
        if self._is_users_time() or any(is_within(edit, path) for edit in self._allowed):
            return True
        before = None if self._is_made(path) else was
        if git.is_plain(path, before, now, may_add_remotes=self._mounted):
            return True
        name = path.rpartition("/")[2]
        points = name == ".git" or (name in ("commondir", "gitdir") and self._is_made(path))
        return points and git.is_pointer_within(self._top, path, now, self._is_guarded)

    def _is_users_time(self) -> bool:
        """Return True if no cell and no other process of the session runs."""
        if self._running or self._again:
            return False
        if self._leftovers is None:
            self._leftovers = self._ask_leftovers()
        return not self._leftovers

    def _restore(self, path: str, was: Content, now: Content, words: str = "") -> None:
        """Put a path back. If that fails, later checks try again. `words`: the report if unsafe parts were removed."""
        how = "made" if was is None else "changed" if now is not None else "removed"
        done = "been removed" if was is None else "been put back"
        if isinstance(was, UnknownContent) or (isinstance(was, FileContent) and was.data is None):
            self._report.lose(path, _CHANGED)
        elif self._contents.put_back(path, was) and self._contents.read(path) == was:
            self._fought.discard(path)
            why = f": {self._rows[path].program} would obey it" if path in self._rows else ""
            self._say(path, words if words and was is not None else f"was {how} and has {done}{why}")
            if not self._running:
                self._again[path] += 1
                if self._again[path] >= _FOUGHT:
                    self._fought.add(path)
        else:
            self._fought.add(path)

    def _say(self, path: str, words: str) -> None:
        self._report.say(f"{path} {words}" if self._running else f"{path} {words}, between cells")

    def _mask(self, path: str) -> None:
        status = self._status(path)
        if status is None or not (stat.S_ISREG(status.st_mode) or stat.S_ISSOCK(status.st_mode)):
            return
        inode = (status.st_dev, status.st_ino)
        if self._mounted and self._masked.get(path) != inode:
            self._mounts.mask(path, inode)
        elif path not in self._masked:
            self._say(path, "looks like a secret, and can be read here: this sandbox cannot mask it")
        self._masked[path] = inode

    def _judge_place(self, path: str) -> None:
        place, now = self._places[path], self._status(path)
        if place is None:
            if now is not None:
                self._adopt(path)
        elif now is None or (now.st_dev, now.st_ino) != place.inode:
            if self._mounted and not self._running:
                os.close(place.fd)
                self._places[path] = None
                if now is not None:
                    self._adopt(path)
            else:
                where = place.where
                if where.startswith(f"{self._top}/") and self._contents.rename(where[len(self._top) + 1 :], path):
                    self._say(path, "was put aside and has been put back")
                else:
                    self._report.lose(path, "is gone or replaced and could not be put back")
                self._pin(path)

    def _adopt(self, path: str) -> None:
        """Guard a new repository: remove what would make git run something, and keep the rest as it is from now on."""
        now = self._status(path)
        if now is None or not stat.S_ISDIR(now.st_mode):
            self._was.setdefault(path, None)
            self._loose.add(path)
            self._judge({path}, set())
            return
        is_users = self._is_users_time()
        folder = f"{self._top}/{path}" if path else self._top
        kept = names_of(find_gitdir_guards(folder, self._top).kept, self._top) - self._was.keys()
        if path and (path == ".git" or is_users):
            self._places[path] = hold_folder(f"{self._top}/{path}")
            self._pin(path)
        else:
            self._made[path] = kept
        self._loose |= kept
        for name in sorted(kept):
            now = self._contents.read(name)
            if is_users:
                self._was[name] = now
            else:
                self._take_out(name, now)
            if path not in self._made:
                self._mounts.protect(name)
        if path:
            self._refuse_links(git.links_in(self._top, path))

    def _take_out(self, name: str, now: Content) -> None:
        """Remove the unsafe parts of a path in a git folder that the session made."""
        points = git.is_pointer_within(self._top, name, now, self._is_guarded)
        self._was[name] = was = now if points else git.strip_unsafe(name, now)
        if now != was:
            self._restore(name, was, now, "held what git would run; that has been taken out")

    def _forget_removed(self) -> None:
        """Forget git folders that the session made and that are no longer git folders."""
        for path in [path for path in self._made if not git.is_gitdir(f"{self._top}/{path}")]:
            for name in self._made.pop(path):
                self._was.pop(name, None)
                self._loose.discard(name)

    def _is_made(self, path: str) -> bool:
        """Return True if the path is in a git folder that the session made."""
        return any(path in kept for kept in self._made.values())

    def _is_guarded(self, gitdir: str) -> bool:
        return gitdir in self._made or bool(self._places.get(gitdir))

    def _pin(self, path: str) -> None:
        kept = [kept for kept in self._was if kept.startswith(f"{path}/")]
        self._mounts.pin(path, kept)
        self._loose.update(kept)

    def _gitdirs(self) -> list[str]:
        return [path for path, place in self._places.items() if place] + [*filter(None, self._made)]

    def _all_links(self) -> list[str]:
        return [link for gitdir in self._gitdirs() for link in git.links_in(self._top, gitdir)]

    def _refuse_links(self, links: Iterable[str]) -> None:
        for link in links:
            if link not in self._links and link not in self._was:
                gone = self._contents.put_back(link, None)
                words = "was made a link and has been removed"
                self._say(link, words if gone else f"was made a link and could not be removed; {ADVICE}")

    def _watch_all(self) -> None:
        written = [folder for gitdir in self._gitdirs() for folder in git.find_written_folders(self._top, gitdir)]
        self._watch.watch_guarded((*self._was, *self._places), written, self._masked)

    def _watch_names(self, folders: Iterable[str]) -> None:
        if not self._watch.watch_names(folders):
            self._unseen = True

    def _is(self, kind: Callable[[int], bool], path: str) -> bool:
        status = self._status(path)
        return status is not None and kind(status.st_mode)

    def _status(self, path: str) -> os.stat_result | None:
        return lstat(f"{self._top}/{path}")
