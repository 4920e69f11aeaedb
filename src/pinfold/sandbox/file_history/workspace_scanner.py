"""Keeps the index of the workspace up to date by examining only what had events. Stores the contents.

A file counts as unchanged while its stamp is the same, with three exceptions, where the stamp is not enough:
- it was changed so shortly before the stamp was taken that the next change could leave the same time: it is read again
  after any event, or when events were lost;
- a process has it open for writing, so a shared map can change it without an event: its stamp is compared in each scan.
  It was synced before it was read, so that the next write through a map changes its times;
- the same on a file system that does not record writes through maps (tmpfs): its content is compared in each scan.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

from pinfold.sandbox.file_history.entries import (
    UNMEASURED,
    Entry,
    File,
    FileIndex,
    Folder,
    Uncovered,
    join_path,
    mode_of,
    name_of,
    owner_of,
    parent_of,
)
from pinfold.sandbox.file_history.file_scanner import Effort, FileScanner
from pinfold.sandbox.file_history.store import Store, reason
from pinfold.sandbox.guards.contents import TICK_NS
from pinfold.sandbox.guards.guarded_paths import Listings, stamp_of_folder
from pinfold.sandbox.guards.named_files import PATTERNS, is_masked
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.kernel.inotify import OPENED, WRITTEN
from pinfold.sandbox.kernel.safe_files import SafeFolder, Stamp

INSTALLED = frozenset({".tox", ".venv", "__pycache__", "node_modules", "site-packages", "venv"})
LAST = INSTALLED | {".git"}
"""Folders that are read last at the start: a cell is least likely to change what they hold."""
MEASURED_AT_START = 2_000
"""Files to measure at the start if no other process will continue the history; the rest waits for the first cell."""


OWN = 2


def _rank(path: str) -> int:
    parts = path.split("/")
    return 0 if not INSTALLED.isdisjoint(parts) else 1 if ".git" in parts else OWN


def is_installed(path: str) -> bool:
    """Return True if the path is in a folder that a command can make again."""
    return _rank(path) == 0


class WorkspaceScanner:
    """`make_room` frees bytes in the store and returns True if there may be room now."""

    def __init__(
        self,
        top: SafeFolder,
        store: Store,
        *,
        largest: int,
        most: int,
        watches: int,
        effort: Effort,
        make_room: Callable[[int], bool],
        measured_at_start: int | None = None,
    ) -> None:
        """`measured_at_start`: `start` only lists files beyond this number; `measure_next` makes them covered later."""
        self.known = FileIndex(lambda folder: self.files.watch.remove(folder) if self.files.watch else None)
        self.crowded: set[str] = set()
        """Folders in which more was made than can be covered: only what was known before stays covered."""
        self._top = top
        self._most = most
        self._effort = effort
        self.is_cut = False
        """True if the last scan ended before it had seen everything; the next scan continues."""
        self._is_partial = False
        """True if some folder was not read."""
        self._last_count = 0
        """The number of unread files in folders of `LAST` at the start."""
        self._unmeasured: list[str] = []
        """Folders with files that were only listed."""
        self._unindexed: dict[str, list[os.DirEntry[str]]] = {}
        """The listings of these folders that are not in `known` yet."""
        self._unindexed_count = 0
        self._measured_at_start = measured_at_start
        self._listings: Listings = {}
        self._compares_held = not top.tells_of_maps
        self.files = FileScanner(top, store, self.known, effort, largest=largest, watches=watches, make_room=make_room)

    @property
    def watches(self) -> bool:
        return self.files.watch is not None

    @property
    def is_quiet(self) -> bool:
        known, watch = self.known, self.files.watch
        is_told = known.is_as_told and not self.is_cut
        return watch is not None and not known.held and is_told and watch.is_quiet

    @property
    def unread(self) -> int:
        return len(self.files.unread) + len(self._unmeasured)

    @property
    def has_own_unread(self) -> bool:
        """True if files outside the folders of `LAST` are still unread."""
        return len(self.files.unread) > self._last_count

    @property
    def has_unmeasured(self) -> bool:
        return bool(self._unmeasured)

    def close(self) -> None:
        if self.files.watch:
            self.files.watch.close()

    def start(self, listings: Listings) -> None:
        """Examine everything, reading only files that could change again undetected. Empties `listings`."""
        self._listings = listings
        self._enter("")
        self._listings.clear()
        self.files.started = True
        self.known.changes()
        self._order_unread(filter(self.known.stamps.__contains__, self.files.unread))  # some have gone meanwhile

    def resume(self, entries: dict[str, Entry], stamps: dict[str, Stamp]) -> None:
        """Examine everything; `changes` then returns what differs from these entries."""
        self.known.recall(entries, stamps)
        self._order_unread(filter(self.known.is_unread, entries))
        self.files.started = True
        self._walk()
        self.known.forget_moves()

    def _order_unread(self, paths: Iterable[str]) -> None:
        """Sort the unread files, which are read from the end: the user's, git's, then installed; small ones first."""
        ranks = {path: _rank(path) for path in paths}
        self._last_count = sum(rank < OWN for rank in ranks.values())
        self.files.unread = sorted(ranks, key=lambda path: (ranks[path], -self.known.stamps[path].size))

    def get_touched_names(self) -> Names:
        """Return the names that had events since the last scan."""
        if self.is_quiet and not self._is_partial and not self.crowded:
            return NOTHING
        touched = self.files.watch.peek_touched() if self.files.watch else None
        if touched is None:
            return Names(is_lost=True)
        return Names(*touched, is_lost=bool(self.crowded), is_partial=self._is_partial)

    def look(self) -> None:
        happened = self.files.watch.take_events() if self.files.watch else None
        was_cut, self.is_cut = self.is_cut, False
        if happened != {} or was_cut:
            self.index_listed()
        if happened is None or was_cut:
            self._walk()
        else:
            for path, mask in sorted(happened.items()):
                if self._is_cut_off():
                    break
                self._look_at(path, written=bool(mask & (WRITTEN | OPENED)))
        for path in list(self.known.held):
            if self._is_cut_off():
                break
            if self._compares_held:
                self.files.read(path)
            else:
                self._look_at(path, written=False)
        self.known.forget_moves()

    def _is_cut_off(self) -> bool:
        self.is_cut = self.is_cut or self._effort.is_over
        return self.is_cut

    def look_at(self, path: str) -> None:
        self._look_at(path, written=True)

    # Measuring what was only listed

    def measure_next(self) -> bool:
        """Measure the files of one more folder that `start` only listed; False if none is left."""
        if not self._unmeasured or self.files.watch is None or self.is_cut:
            self._unmeasured.clear()  # they may have changed since without an event
            return False
        folder = self._unmeasured.pop(0)
        self._index(folder)
        with suppress(OSError), self._top.open_below(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
            with os.scandir(fd) as inside:
                found = [
                    entry for entry in inside if self.known.entries.get(join_path(folder, entry.name)) is UNMEASURED
                ]
            for entry in found:
                with suppress(FileNotFoundError):
                    entry.stat(follow_symlinks=False)  # cached in the entry before the events are checked
            touched = self.files.watch.peek_paths()
            if touched is None:
                self._unmeasured.clear()
                return False
            self._measure(folder, [one for one in found if join_path(folder, one.name) not in touched])
        return True

    def index_listed(self) -> None:
        """Add all listed files to the index. Called before events are handled, to recognise listed files that moved."""
        for folder in list(self._unindexed):
            self._index(folder)

    def _index(self, folder: str) -> None:
        if found := self._unindexed.pop(folder, None):
            self._unindexed_count -= len(found)
            files = [entry for entry in found if not entry.is_dir(follow_symlinks=False)]
            self.known.inside[folder] = {entry.name for entry in found}
            self.known.entries.update(dict.fromkeys([join_path(folder, entry.name) for entry in files], UNMEASURED))
            self.files.listed.update([entry.inode() for entry in files])

    # Scanning

    def _walk(self) -> None:
        """Examine everything, because it is unknown what happened."""
        self._enter("")
        if self.files.watch:
            # Events of opening were lost too, so check each file for writers.
            for path in filter(self.known.is_file, list(self.known.entries)):
                if self._is_cut_off():
                    break
                if not self._effort.allows(0):
                    self.is_cut = True
                    break
                self.files.probe(path)

    def _look_at(self, path: str, *, written: bool) -> None:
        if path and parent_of(path) not in self.known.inside:
            return  # in a folder that was not read, or is gone
        if path not in self.known.entries and len(self.known.entries) >= self._most:
            self.crowded.add(parent_of(path))
            return
        try:
            status = self._top.status(path)
        except OSError as error:
            if error.errno != errno.EACCES:  # EACCES: a folder above was closed; see `_shut`
                self.known.remove(path)
                self.known.note_folder(path, Uncovered(reason(error), (0, 0, 0)))
            return
        if status is None:
            self.known.remove(path)
        elif stat.S_ISDIR(status.st_mode):
            self._enter(path, below=False)
        elif not self.files.see(path, status, written=written) and written and self.known.is_file(path):
            self.files.probe(path)

    def _enter(self, first: str, *, below: bool = True) -> None:
        """Read a folder and all below it. With `below=False`, skip folders already watched, which missed no event."""
        waiting = [first]
        while waiting and not (self.files.started and self._is_cut_off()):
            folder = waiting.pop()
            try:
                with self._top.open_below(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
                    status = os.fstat(fd)
                    is_new = self._start_watching(fd, folder)
                    self.known.note_folder(folder, Folder(mode_of(status), owner_of(status)))
                    if is_new or below or folder not in self.known.inside:
                        found = self._list(fd, folder)
                        if not self.files.started:
                            waiting[:0] = [one for one in found if name_of(one) in LAST]
                            found = [one for one in found if name_of(one) not in LAST]
                        waiting += found
            except OSError as error:
                self._shut(folder, error)

    def _list(self, fd: int, folder: str) -> list[str]:
        """Examine what is directly in a folder. Return the folders in it."""
        listed = self._listings.pop(folder, None)
        if listed and listed[0] == stamp_of_folder(os.fstat(fd)):
            _, found, folders = listed
        else:
            with os.scandir(fd) as inside:
                found = list(inside)
            folders = [entry for entry in found if entry.is_dir(follow_symlinks=False)]
        below = [join_path(folder, entry.name) for entry in folders]
        known = self.known.inside.get(folder, set())
        new = sum(entry.name not in known for entry in found) if known else len(found)
        if len(self.known.entries) + self._unindexed_count + new > self._most:
            if not known:
                self._shut(folder, OSError(errno.E2BIG, ""))
                return []
            self.crowded.add(folder)
            found = [entry for entry in found if entry.name in known]
        if not self.files.started and self._is_only_listed(len(found)):
            self._unmeasured.append(folder)
            self._unindexed[folder] = found
            self._unindexed_count += len(found)
            return below
        self.known.inside[folder] = names = {entry.name for entry in found}
        for name in known - names:
            self.known.remove(join_path(folder, name))
        if not self.files.started:
            self._measure(folder, [entry for entry in found if not entry.is_dir(follow_symlinks=False)])
            return below
        for entry in found:
            if self._is_cut_off():
                break
            if entry.is_dir(follow_symlinks=False):
                continue
            path = join_path(folder, entry.name)
            with suppress(FileNotFoundError):  # gone meanwhile: the next look will say so
                status = entry.stat(follow_symlinks=False)
                if path in self.known.stamps or not self.files.knows(path, Stamp.of(status)):
                    self.files.see(path, status, written=True)
        return below

    def _is_only_listed(self, count: int) -> bool:
        most = self._measured_at_start
        return most is not None and self.watches and len(self.known.stamps) + count > most

    def _measure(self, folder: str, files: list[os.DirEntry[str]]) -> None:
        """Examine files for the first time: as `FileScanner.see`, at a fifth of the cost for ordinary files."""
        entries, stamps, unread = self.known.entries, self.known.stamps, self.files.unread
        exact, endings, starts, length = PATTERNS.exact, PATTERNS.endings, PATTERNS.starts, PATTERNS.length
        is_plain = not is_masked(folder)
        fresh_ns = time.time_ns() - TICK_NS
        largest, within, is_file = self.files.largest, join_path(folder, ""), stat.S_ISREG
        for entry in files:
            name = entry.name
            path, low = f"{within}{name}", name.lower()
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone meanwhile: the next look will say so
            self.files.listed.discard(status.st_ino)
            may_be_secret = low in exact or low[low.rfind(".") :] in endings or low[:length] in starts
            if (
                is_plain
                and not may_be_secret
                and path not in stamps
                and is_file(mode := status.st_mode)
                and status.st_nlink == 1
                and (size := status.st_size) <= largest
                and (ctime_ns := status.st_ctime_ns) < fresh_ns
            ):
                mtime_ns = status.st_mtime_ns
                owner = status.st_uid, status.st_gid
                entries[path] = File(None, size, stat.S_IMODE(mode), owner, mtime_ns)
                stamps[path] = Stamp(status.st_ino, size, mtime_ns, ctime_ns, mode)
                unread.append(path)
            elif self.files.started:
                entries.pop(path, None)
                self.files.see(path, status, written=True)
                self.known.settle(path)
            else:
                self.files.see(path, status, written=True)

    def _shut(self, folder: str, error: OSError) -> None:
        """Record that a folder cannot be read."""
        status = None
        with suppress(OSError):
            status = self._top.status(folder)
        if status is None and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self.known.remove(folder)
        elif status and error.errno == errno.EACCES and folder in self.known.inside:
            # Its permissions were taken away. No process can enter it, so everything in it is as it was.
            self.known.note_folder(folder, Folder(mode_of(status), owner_of(status)))
        else:
            self._is_partial = True
            self.known.drop_below(folder)
            thing = status.st_ino if status else 0, 0, 0
            if self.known.entries.get(folder) != Uncovered("beyond the disk limit", thing, is_folder=True):
                self.known.note_folder(folder, Uncovered(reason(error), thing, is_folder=True))

    def _start_watching(self, fd: int, folder: str) -> bool:
        """Watch a folder. True if it was not watched until now."""
        if self.files.watch is None:
            return True
        try:
            is_new = self.files.watch.add(folder, fd)
        except OSError:
            # Too many watches. From now on every scan covers everything, this one too.
            self.files.watch.close()
            self.files.watch = None
            self.index_listed()
            self._enter("")
            return True
        self.files.watch.collect()  # or reading the folder itself would fill the event queue
        return is_new
