"""Examines single files of the workspace: kind, content, and whether they are open for writing. Stores the contents."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import cast

from pinfold.sandbox.file_history.entries import File, FileIndex, Link, Uncovered, Why, owner_of, whole
from pinfold.sandbox.file_history.shared_contents import SHARE, SharedContents
from pinfold.sandbox.file_history.store import NoRoom, ReadResult, Store, count_written, file_of, read_file, reason
from pinfold.sandbox.guards.contents import is_fresh
from pinfold.sandbox.guards.named_files import is_masked
from pinfold.sandbox.kernel.inotify import FILES, Watch
from pinfold.sandbox.kernel.safe_files import SafeFolder, Stamp, is_open_for_writing, reopen

_AT_ONCE = 64
"""Most files recalled in one step, so that a cell does not wait long for the lock."""


@dataclass(slots=True)
class Unread:
    """A file that is being read for the first time."""

    path: str
    fd: int
    stamp: Stamp
    is_shared: bool = False
    """True if the content went into the shared contents."""


class Effort:
    """The budget of one scan of the workspace. Any thread may end it."""

    def __init__(self, limit_s: float, size: int) -> None:
        self._limit_s = limit_s
        self._size = size
        self.is_over = False
        """True if a caller waits, so this scan reads nothing more."""
        self.begin()

    def begin(self, *, reads: bool = True) -> None:
        self._until = monotonic() + self._limit_s if reads else 0.0
        self._left = self._size

    def allows(self, size: int) -> bool:
        """Take `size` bytes from the budget. False if it is used up: then files are noted without being read."""
        if self.is_over or monotonic() > self._until or size > self._left:
            return False
        self._left -= size
        return True


class FileScanner:
    """`make_room` frees bytes in the store and returns True if there may be room now."""

    def __init__(
        self,
        top: SafeFolder,
        store: Store,
        known: FileIndex,
        effort: Effort,
        *,
        largest: int,
        watches: int,
        make_room: Callable[[int], bool],
    ) -> None:
        self.known = known
        self.largest = largest
        self.unread: list[str] = []
        self.listed: set[int] = set()
        """Inodes of files that were only listed: under any name, such a file is not new, and undo never removes it."""
        self.started = False
        self.watch: Watch | None = None
        with suppress(OSError):
            self.watch = Watch(watches, FILES)
        self._top = top
        self._store = store
        self._effort = effort
        self._make_room = make_room
        self.shared: SharedContents | None = None
        """Where contents go that are read for the first time; None if they go into the store."""
        self.digests: Mapping[Stamp, str] = {}
        """The digests of files that an earlier session has read."""

    def recall_next(self) -> bool:
        """Fill in the next few files from what an earlier session has read; False if it has not read the next file.

        Opens each: a process that has the file open for writing could change it without an event.
        """
        opened: dict[str, int | None] = {}
        while self.unread and len(opened) < _AT_ONCE and self._find_digest(self.unread[-1]):
            path = self.unread.pop()
            opened[path] = None
            with suppress(OSError), self._top.open_below(path) as fd:
                opened[path] = reopen(fd)
        if self.watch:
            self.watch.collect(ours=opened)
        for path, fd in opened.items():
            if fd is not None and not is_open_for_writing(fd) and Stamp.of(os.fstat(fd)) == self.known.stamps[path]:
                entry = self.known.entries[path]
                self.known.entries[path] = replace(cast("File", entry), digest=self._find_digest(path))
            else:
                self.read(path)
            if fd is not None:
                os.close(fd)
        return bool(opened)

    def _find_digest(self, path: str) -> str | None:
        return self.digests.get(self.known.stamps[path]) if self.known.is_unread(path) else None

    def next_unread(self) -> Unread | None:
        """Open the next unread file. Pass it to `read_unread`, in any thread, then to `finish`."""
        while self.unread:
            path = self.unread.pop()
            if not self.known.is_unread(path):
                continue
            with suppress(OSError), self._top.open_below(path) as fd:
                stamp = self.known.stamps[path]
                if Stamp.of(os.fstat(fd)) == stamp:
                    return Unread(path, reopen(fd), stamp)
            self.read(path)
        return None

    def read_unread(self, unread: Unread) -> ReadResult:
        """Read the open file. Uses nothing else of the index, so cells need not wait for it."""

        def take(fd: int) -> str:
            unread.is_shared = False
            if self.shared and self.shared.trusts(unread.stamp):
                try:
                    digest = self.shared.take(fd)
                    unread.is_shared = True
                    return digest
                except NoRoom:
                    pass
                except OSError:
                    self.shared = None
            return self._store.take(fd, share=SHARE)

        return read_file(unread.fd, take)

    def finish(self, unread: Unread, found: ReadResult) -> bool:
        """Record what was read. True if this history's own store now has the file as it was at the start."""
        os.close(unread.fd)
        if self.watch:
            self.watch.collect(ours=(unread.path,))
        path, entry = unread.path, found.entry
        if not self.known.is_unread(path) or self.known.stamps[path] != unread.stamp:
            return False  # it changed meanwhile and was examined already
        digest = entry.digest if isinstance(entry, File) else None
        is_shared = digest is not None and unread.is_shared and not found.is_held
        if found.stamp == unread.stamp and (digest is None or is_shared or self._store.holds(digest)):
            self.known.note(path, entry, unread.stamp)
            self.hold(path, found.is_held)
            if self.shared and is_shared and digest:
                self.shared.note(unread.stamp, digest)
                return False
        else:  # it was changed or opened for writing, or its content was dropped to make room
            self.read(path)
        return not self.known.has_changed(path) and not self.known.is_unread(path)

    def see(self, path: str, status: os.stat_result, *, written: bool) -> bool:
        """Examine a path whose stamp changed. False if it looks unchanged.

        `written`: the file may have been written. A file that was only renamed or made surely has another stamp.
        """
        stamp = Stamp.of(status)
        if self.known.stamps.get(path) == stamp and not (written and path in self.known.unsure):
            return False
        if status.st_ino in self.listed:
            self.known.note(path, Uncovered("changed before it was read", stamp.thing), stamp)
        elif stat.S_ISREG(status.st_mode):
            why = self._why_not(path, status)
            if why:
                self.known.note(path, Uncovered(why, stamp.thing), stamp)
            elif self.started and not self._effort.allows(status.st_blocks * 512):
                self.known.note(path, Uncovered("too much at once", stamp.thing), stamp)
            elif self.started or is_fresh(stamp.ctime_ns):
                self.read(path)
            else:
                self.known.note(path, file_of(None, status), stamp)
                self.unread.append(path)
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
        if status.st_size > self.largest:
            return "too large"
        # Secrets are never copied. In a git folder such a name is that of a branch.
        return "secret" if whole(path) == path and is_masked(path) else None

    def knows(self, path: str, stamp: Stamp) -> bool:
        """Recognise an unchanged file at a new path, as in a renamed folder. False if it is not known."""
        if not self.started or stamp not in self.known.files_by_stamp():
            return False
        entry, is_held = self.known.files_by_stamp()[stamp]
        self.known.note(path, entry, stamp)
        self.hold(path, is_held)
        return True

    def read(self, path: str) -> None:
        with suppress(OSError), self._open_for_reading(path) as fd:
            if fd is not None:
                found = read_file(fd, self._take)
                self.known.note(path, found.entry, found.stamp, is_fresh=found.is_fresh)
                self.hold(path, found.is_held)

    def _take(self, fd: int) -> str:
        share = 1.0 if self.started else SHARE
        try:
            return self._store.take(fd, share=share)
        except NoRoom:
            if not self._make_room(count_written(fd)):
                raise
            return self._store.take(fd, share=share)

    @contextmanager
    def _open_for_reading(self, path: str) -> Generator[int | None]:
        """Open the file for reading; yield None if that fails, which is noted."""
        if self.watch:
            self.watch.collect()
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
            if self.watch:
                self.watch.collect(ours=(path,))

    def probe(self, path: str) -> None:
        """Note whether a process has the file open for writing."""
        with suppress(OSError), self._open_for_reading(path) as fd:
            self.hold(path, fd is not None and is_open_for_writing(fd))

    def hold(self, path: str, is_held: bool) -> None:
        (self.known.held.add if is_held else self.known.held.discard)(path)
