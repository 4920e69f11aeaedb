"""What the workspace holds now, kept up to date by looking only where something happened. Contents go into the store.

A file counts as unchanged while its stamp is the same, with three exceptions, where the stamp says too little:
- it was changed so shortly before the stamp was taken that the next change could bear the same time: it is read again
  when anything, or nobody knows what, happened to it;
- somebody has it open for writing: through a shared map it changes without any event. Such a file's stamp is compared each
  time; it was synced before it was read, so that the next write through a map changes its times;
- the same where the file system does not note writes through maps (tmpfs): its content is compared each time.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import monotonic

from pinfold.sandbox.file_history.entries import (
    UNMEASURED,
    Entry,
    File,
    Folder,
    Link,
    Uncovered,
    Why,
    join_path,
    mode_of,
    name_of,
    owner_of,
    parent_of,
    whole,
)
from pinfold.sandbox.file_history.file_index import FileIndex
from pinfold.sandbox.file_history.file_reader import TICK_NS, ReadResult, file_of, is_fresh, read_file, reason
from pinfold.sandbox.file_history.sparse_files import count_written
from pinfold.sandbox.file_history.store import NoRoom, Store
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.guards.secret_files import PATTERNS, is_masked
from pinfold.sandbox.kernel.inotify import FILES, OPENED, WRITTEN, Watch
from pinfold.sandbox.kernel.safe_files import SafeFolder, Stamp, is_open_for_writing, reopen

LAST = frozenset({".git", ".tox", ".venv", "__pycache__", "node_modules", "site-packages", "venv"})
"""Folders that are looked into after all others at the start: what they hold a cell is least likely to change."""
MEASURED_AT_START = 2_000
"""Files; of a history that no other process goes on with, the rest is looked at beside the first cell."""
_START_SHARE = 0.75
"""Of the store, for the contents at the start; the rest is for what cells make of them."""


@dataclass(frozen=True, slots=True)
class Unread:
    """A file that is being read for the first time."""

    path: str
    fd: int
    stamp: Stamp


class Effort:
    """What one look at the workspace may cost. Any thread may end it."""

    def __init__(self, limit_s: float, size: int) -> None:
        self._limit_s = limit_s
        self._size = size
        self.is_over = False
        """Somebody waits: nothing more is looked at, until the look has ended."""
        self.begin()

    def begin(self, *, reads: bool = True) -> None:
        self._until = monotonic() + self._limit_s if reads else 0.0
        self._left = self._size

    def allows(self, size: int) -> bool:
        """Whether so much may still be read. If not, everything else is only looked at."""
        if self.is_over or monotonic() > self._until or size > self._left:
            return False
        self._left -= size
        return True


class WorkspaceScanner:
    """`make_room` is asked for bytes in the store and says whether there may be some now."""

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
        """`measured_at_start`: of more files `start` only lists the rest; until `measure_next` has seen one, it is not covered."""
        self.known = FileIndex(self._unwatch)
        self.crowded: set[str] = set()
        """Folders in which more was made than can be covered: only what was known before still is."""
        self._top = top
        self._store = store
        self._largest = largest
        self._most = most
        self._effort = effort
        self.is_cut = False
        """The last look was ended before it had seen everything; the next sees it."""
        self._make_room = make_room
        self._is_partial = False
        """There is a folder that is not looked into."""
        self._unread: list[str] = []
        self._unmeasured: list[str] = []
        """Folders with files that were only listed."""
        self._listed: set[int] = set()
        """The inodes of those files: wherever one turns up, it is not new, and never removed."""
        self._measured_at_start = measured_at_start
        self._started = False
        self._compares_held = not top.tells_of_maps
        self._watch: Watch | None = None
        with suppress(OSError):
            self._watch = Watch(watches, FILES)

    @property
    def watches(self) -> bool:
        return self._watch is not None

    @property
    def is_quiet(self) -> bool:
        known, watch = self.known, self._watch
        is_told = known.is_as_told and not self.is_cut
        return watch is not None and not known.held and is_told and watch.is_quiet

    @property
    def unread(self) -> int:
        return len(self._unread) + len(self._unmeasured)

    @property
    def has_unmeasured(self) -> bool:
        return bool(self._unmeasured)

    def close(self) -> None:
        if self._watch:
            self._watch.close()

    def start(self) -> None:
        """Everything is looked at and nothing read, but what could change again unseen."""
        self._enter("")
        self._started = True
        self.known.changes()
        # From the end: small ones first.
        self._unread.sort(key=lambda path: self.known.stamps[path].size, reverse=True)

    def resume(self, entries: dict[str, Entry], stamps: dict[str, Stamp]) -> None:
        """Everything is looked at; `changes` then says what is no longer as it was known."""
        self.known.recall(entries, stamps)
        self._unread = [path for path in entries if self.known.is_unread(path)]
        self._started = True
        self._walk()
        self.known.forget_moves()

    def sure_stamps(self) -> dict[str, Stamp]:
        """By which another process may know what has not changed."""
        return {path: stamp for path, stamp in self.known.stamps.items() if path not in self.known.unsure}

    def get_touched_names(self) -> Names:
        """Names to which something happened since the last look."""
        if self.is_quiet and not self._is_partial and not self.crowded:
            return NOTHING
        touched = self._watch.peek_touched() if self._watch else None
        if touched is None:
            return Names(is_lost=True)
        return Names(*touched, is_lost=bool(self.crowded), is_partial=self._is_partial)

    def look(self) -> None:
        happened = self._watch.take_events() if self._watch else None
        was_cut, self.is_cut = self.is_cut, False
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
                self._read(path)
            else:
                self._look_at(path, written=False)
        self.known.forget_moves()

    def _is_cut_off(self) -> bool:
        self.is_cut = self.is_cut or self._effort.is_over
        return self.is_cut

    def look_at(self, path: str) -> None:
        self._look_at(path, written=True)

    # The contents at the start

    def measure_next(self) -> bool:
        """Look at the files of one more folder that `start` only listed; False if none is left."""
        if not self._unmeasured or self._watch is None or self.is_cut:
            self._unmeasured.clear()  # what happened to them since nobody can say
            return False
        folder = self._unmeasured.pop(0)
        with suppress(OSError), self._top.open_below(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
            with os.scandir(fd) as inside:
                found = [
                    entry for entry in inside if self.known.entries.get(join_path(folder, entry.name)) is UNMEASURED
                ]
            for entry in found:
                with suppress(FileNotFoundError):
                    entry.stat(follow_symlinks=False)  # kept by the entry: it is older than what is asked next
            touched = self._watch.peek_paths()
            if touched is None:
                self._unmeasured.clear()
                return False
            self._measure(folder, [one for one in found if join_path(folder, one.name) not in touched])
        return True

    def next_unread(self) -> Unread | None:
        """Opened; to be given to `read` by any thread, then to `finish`."""
        while self._unread:
            path = self._unread.pop()
            if not self.known.is_unread(path):
                continue
            with suppress(OSError), self._top.open_below(path) as fd:
                if Stamp.of(os.fstat(fd)) == self.known.stamps[path]:
                    return Unread(path, reopen(fd), self.known.stamps[path])
            self._read(path)
        return None

    def read(self, unread: Unread) -> ReadResult:
        """Looks at nothing but the open file, so that cells need not wait for it."""
        return read_file(unread.fd, lambda fd: self._store.take(fd, share=_START_SHARE))

    def finish(self, unread: Unread, found: ReadResult) -> bool:
        """Whether it is read now, as it was at the start."""
        os.close(unread.fd)
        if self._watch:
            self._watch.collect(ours=unread.path)
        path, entry = unread.path, found.entry
        if not self.known.is_unread(path) or self.known.stamps[path] != unread.stamp:
            return False  # it was changed meanwhile, and looked at
        is_kept = not isinstance(entry, File) or self._store.has(entry.digest or "")
        if found.stamp == unread.stamp and is_kept:
            self.known.note(path, entry, unread.stamp)
            self._hold(path, found.is_held)
        else:  # it was changed, or room was made just when it was taken in
            self._read(path)
        return not self.known.has_changed(path) and not self.known.is_unread(path)

    # Looking

    def _walk(self) -> None:
        """At everything: nobody can say what happened."""
        self._enter("")
        if self._watch:
            # Events were lost, of opening as well.
            for path in filter(self.known.is_file, list(self.known.entries)):
                if self._is_cut_off():
                    break
                if not self._effort.allows(0):
                    self.is_cut = True
                    break
                self._probe(path)

    def _look_at(self, path: str, *, written: bool) -> None:
        if path and parent_of(path) not in self.known.inside:
            return  # in a folder that is not looked into, or is gone
        if path not in self.known.entries and len(self.known.entries) >= self._most:
            self.crowded.add(parent_of(path))
            return
        try:
            status = self._top.status(path)
        except OSError as error:
            if error.errno != errno.EACCES:  # a folder on the way was closed: see _shut
                self.known.remove(path)
                self.known.note_folder(path, Uncovered(reason(error), (0, 0, 0)))
            return
        if status is None:
            self.known.remove(path)
        elif stat.S_ISDIR(status.st_mode):
            self._enter(path, below=False)
        elif not self._see(path, status, written=written) and written and self.known.is_file(path):
            self._probe(path)

    def _enter(self, first: str, *, below: bool = True) -> None:
        """Looks into a folder and all below it; unless asked, only if something may have happened there unseen."""
        waiting = [first]
        while waiting and not (self._started and self._is_cut_off()):
            folder = waiting.pop()
            try:
                with self._top.open_below(folder, os.O_RDONLY | os.O_DIRECTORY) as fd:
                    status = os.fstat(fd)
                    is_new = self._start_watching(fd, folder)
                    self.known.note_folder(folder, Folder(mode_of(status), owner_of(status)))
                    if is_new or below or folder not in self.known.inside:
                        found = self._list(fd, folder)
                        if not self._started:
                            waiting[:0] = [one for one in found if name_of(one) in LAST]
                            found = [one for one in found if name_of(one) not in LAST]
                        waiting += found
            except OSError as error:
                self._shut(folder, error)

    def _list(self, fd: int, folder: str) -> list[str]:
        """Returns the folders in it."""
        with os.scandir(fd) as inside:
            found = list(inside)
        known = self.known.inside.get(folder, set())
        new = sum(entry.name not in known for entry in found) if known else len(found)
        if len(self.known.entries) + new > self._most:
            if not known:
                self._shut(folder, OSError(errno.E2BIG, ""))
                return []
            self.crowded.add(folder)
            found = [entry for entry in found if entry.name in known]
        self.known.inside[folder] = names = {entry.name for entry in found}
        for name in known - names:
            self.known.remove(join_path(folder, name))
        if not self._started:
            return self._list_first(folder, found)
        folders: list[str] = []
        for entry in found:
            if self._is_cut_off():
                break
            path = join_path(folder, entry.name)
            if entry.is_dir(follow_symlinks=False):
                folders.append(path)
                continue
            with suppress(FileNotFoundError):  # gone meanwhile: the next look will say so
                status = entry.stat(follow_symlinks=False)
                if path in self.known.stamps or not self._knows(path, Stamp.of(status)):
                    self._see(path, status, written=True)
        return folders

    def _list_first(self, folder: str, found: list[os.DirEntry[str]]) -> list[str]:
        files = [entry for entry in found if not entry.is_dir(follow_symlinks=False)]
        within, most = join_path(folder, ""), self._measured_at_start
        if most is not None and self._watch and len(self.known.stamps) + len(files) > most:
            self.known.entries.update(dict.fromkeys([f"{within}{entry.name}" for entry in files], UNMEASURED))
            self._unmeasured.append(folder)
            self._listed.update([entry.inode() for entry in files])
        else:
            self._measure(folder, files)
        if len(files) == len(found):
            return []
        return [f"{within}{entry.name}" for entry in found if entry.is_dir(follow_symlinks=False)]

    def _measure(self, folder: str, files: list[os.DirEntry[str]]) -> None:
        """For the first time: as `_see`, at a fifth of the cost for files that have nothing special about them."""
        entries, stamps, unread = self.known.entries, self.known.stamps, self._unread
        exact, endings, starts, length = PATTERNS.exact, PATTERNS.endings, PATTERNS.starts, PATTERNS.length
        is_plain = not is_masked(folder)
        fresh_ns = time.time_ns() - TICK_NS
        largest, within, is_file = self._largest, join_path(folder, ""), stat.S_ISREG
        for entry in files:
            name = entry.name
            path, low = f"{within}{name}", name.lower()
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # gone meanwhile: the next look will say so
            self._listed.discard(status.st_ino)
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
            elif self._started:
                entries.pop(path, None)
                self._see(path, status, written=True)
                self.known.settle(path)
            else:
                self._see(path, status, written=True)

    def _shut(self, folder: str, error: OSError) -> None:
        """A folder that cannot be looked into."""
        status = None
        with suppress(OSError):
            status = self._top.status(folder)
        if status is None and error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            self.known.remove(folder)
        elif status and error.errno == errno.EACCES and folder in self.known.inside:
            # It was just closed. Nobody gets in, so everything in it is as it was.
            self.known.note_folder(folder, Folder(mode_of(status), owner_of(status)))
        else:
            self._is_partial = True
            self.known.drop_below(folder)
            thing = status.st_ino if status else 0, 0, 0
            if self.known.entries.get(folder) != Uncovered("beyond the disk limit", thing, is_folder=True):
                self.known.note_folder(folder, Uncovered(reason(error), thing, is_folder=True))

    def _start_watching(self, fd: int, folder: str) -> bool:
        """Whether nobody watched it until now."""
        if self._watch is None:
            return True
        try:
            is_new = self._watch.add(folder, fd)
        except OSError:
            # Too many. From now on every look is at everything, this one too.
            self._watch.close()
            self._watch = None
            self._enter("")
            return True
        self._watch.collect()  # so that our own listing fills no queue
        return is_new

    def _unwatch(self, folder: str) -> None:
        if self._watch:
            self._watch.remove(folder)

    # Seeing one file

    def _see(self, path: str, status: os.stat_result, *, written: bool) -> bool:
        """Whether it was looked at closely. `written`: perhaps; what was only renamed or made has another stamp for sure."""
        stamp = Stamp.of(status)
        if self.known.stamps.get(path) == stamp and not (written and path in self.known.unsure):
            return False
        if status.st_ino in self._listed:
            self.known.note(path, Uncovered("changed before it was read", stamp.thing), stamp)
        elif stat.S_ISREG(status.st_mode):
            why = self._why_not(path, status)
            if why:
                self.known.note(path, Uncovered(why, stamp.thing), stamp)
            elif self._started and not self._effort.allows(status.st_blocks * 512):
                self.known.note(path, Uncovered("too much at once", stamp.thing), stamp)
            elif self._started or is_fresh(stamp):
                self._read(path)
            else:
                self.known.note(path, file_of(None, status), stamp)
                self._unread.append(path)
        elif stat.S_ISLNK(status.st_mode):
            with suppress(OSError), self._top.open_below(path) as fd:
                target = os.fsdecode(os.readlink(b"", dir_fd=fd))
                self.known.note(path, Link(target, owner_of(status)), stamp)
        else:
            self.known.note(path, Uncovered("special file", stamp.thing), stamp)
        return True

    def _why_not(self, path: str, status: os.stat_result) -> Why | None:
        if status.st_nlink > 1:
            return "hard link"
        if status.st_size > self._largest:
            return "too large"
        # Secrets are not copied anywhere. In a git folder such a name is a branch.
        return "secret" if whole(path) == path and is_masked(path) else None

    def _knows(self, path: str, stamp: Stamp) -> bool:
        """A file of a folder that was renamed: nothing about it changed but its path."""
        if not self._started or stamp not in self.known.files_by_stamp():
            return False
        entry, is_held = self.known.files_by_stamp()[stamp]
        self.known.note(path, entry, stamp)
        self._hold(path, is_held)
        return True

    def _read(self, path: str) -> None:
        with suppress(OSError), self._open_for_reading(path) as fd:
            if fd is not None:
                found = read_file(fd, self._take)
                self.known.note(path, found.entry, found.stamp, is_fresh=found.is_fresh)
                self._hold(path, found.is_held)

    def _take(self, fd: int) -> str:
        share = 1.0 if self._started else _START_SHARE
        try:
            return self._store.take(fd, share=share)
        except NoRoom:
            if not self._make_room(count_written(fd)):
                raise
            return self._store.take(fd, share=share)

    @contextmanager
    def _open_for_reading(self, path: str) -> Generator[int | None]:
        """The file, opened for reading; None: it cannot be, which is noted."""
        if self._watch:
            self._watch.collect()
        with self._top.open_below(path) as named:
            status = os.fstat(named)
            try:
                fd = reopen(named) if stat.S_ISREG(status.st_mode) else None
            except OSError as error:
                stamp = Stamp.of(status)
                self.known.note(path, Uncovered(reason(error), stamp.thing), stamp)
                fd = None
        try:
            yield fd
        finally:
            if fd is not None:
                os.close(fd)
            if self._watch:
                self._watch.collect(ours=path)

    def _probe(self, path: str) -> None:
        """Whether somebody has it open for writing."""
        with suppress(OSError), self._open_for_reading(path) as fd:
            self._hold(path, fd is not None and is_open_for_writing(fd))

    def _hold(self, path: str, is_held: bool) -> None:
        (self.known.held.add if is_held else self.known.held.discard)(path)
