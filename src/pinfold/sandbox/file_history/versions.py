"""The history of a workspace's files, for undo. Host side: the session never sees the store.

Called from worker threads, one call at a time; only `fill`, which may take seconds, runs concurrently with the others.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from contextlib import suppress
from math import inf
from pathlib import Path
from threading import Lock
from time import sleep, thread_time

from pinfold.sandbox.contract import SandboxError, SandboxUnavailable
from pinfold.sandbox.file_history.entries import (
    Changes,
    Coverage,
    Delta,
    Missed,
    Restored,
    changes_of,
    coverage_of,
    digests,
    is_below,
    is_git,
    whole,
)
from pinfold.sandbox.file_history.file_restorer import FileRestorer
from pinfold.sandbox.file_history.file_scanner import Effort
from pinfold.sandbox.file_history.history import History, Journal, JournalState, Target, Users
from pinfold.sandbox.file_history.shared_contents import SETTLED_S, SharedContents, link_contents
from pinfold.sandbox.file_history.store import Store
from pinfold.sandbox.file_history.workspace_scanner import MEASURED_AT_START, WorkspaceScanner, is_installed
from pinfold.sandbox.guards.guarded_paths import Listings
from pinfold.sandbox.guards.new_names import Names
from pinfold.sandbox.kernel.safe_files import SafeFolder, is_partial

FILE_CAP = 64 << 20
"""Most bytes of one file; a larger file is not covered."""
TOTAL_CAP = 4 << 30
"""Most bytes of all stored contents together."""
ENTRY_CAP = 200_000
"""Most files and folders; a folder that would exceed this is not covered."""
CHANGE_CAP = 2_000_000
"""Most changed paths of all states together, some 300 bytes of memory each; beyond it the oldest states are dropped."""
LOOK_S, LOOK_BYTES = 10.0, 2 << 30
"""Limits for reading what one cell changed; the rest is not covered."""
WATCHES = 1 << 16
"""Most watched folders; in a workspace with more, every cell costs a walk over all files."""
PAUSE_S = 0.0005
"""Pause after each file of an installed package and each folder that was only listed: other threads go first."""


class StateUnknown(SandboxError):
    """The state or content never existed, or is no longer kept."""


class Versions:
    """`store` is a private folder outside the workspace. The caller numbers the cells, each higher than all before.

    Call begin and fill (which may run concurrently), then before and after for each cell; restore between cells; close.
    """

    def __init__(
        self,
        workspace: Path,
        store: Path,
        *,
        file_cap: int = FILE_CAP,
        total_cap: int = TOTAL_CAP,
        entry_cap: int = ENTRY_CAP,
        change_cap: int = CHANGE_CAP,
        watches: int = WATCHES,
        look_s: float = LOOK_S,
        look_bytes: int = LOOK_BYTES,
        is_lasting: bool = True,
        measured_at_start: int = MEASURED_AT_START,
        shared: Path | None = None,
        settled_s: float = SETTLED_S,
    ) -> None:
        """`shared`: a folder for contents that all histories of this workspace share.

        `is_lasting`: another process may continue with the store. If not, `begin` measures only about the first
        `measured_at_start` files and `fill` the rest.
        """
        if store.resolve().is_relative_to(workspace.resolve()):
            raise ValueError(f"{store} lies in the workspace, where a session could change it")
        self._store = Store(store, total=total_cap, largest=file_cap)
        self._store.remove_partials()
        try:
            self._top = SafeFolder(workspace)
        except OSError as error:
            raise SandboxUnavailable(f"{workspace} cannot be opened: {error.strerror}") from error
        self._shared: SharedContents | None = None
        if shared and self._top.tells_of_maps:  # otherwise a file can change and keep its stamp
            with suppress(OSError):
                place = link_contents(store, shared)
                self._shared = SharedContents(place, total=total_cap, largest=file_cap, settled_s=settled_s)
        self._store.source = self._shared
        self._change_cap = change_cap
        self._history = History()
        self._journal = Journal(store / "journal" if is_lasting else None)
        self._is_lasting = is_lasting
        self._lock = Lock()
        self._running: int | None = None
        self._is_going = False
        self._dropped: list[int] = []
        self._aside: set[str] = set()
        self._crowded: set[str] = set()  # those that were reported
        self._closed = False
        self._effort = Effort(look_s, look_bytes)
        self._seen = WorkspaceScanner(
            self._top,
            self._store,
            largest=file_cap,
            most=entry_cap,
            watches=watches,
            effort=self._effort,
            make_room=self._make_room,
            measured_at_start=None if is_lasting else measured_at_start,
        )
        self._seen.files.shared = self._shared
        self._now = self._seen.known

    def begin(self, listings: Listings | None = None) -> Coverage:
        """Record what is there now as state 0. Checks every file but reads hardly any, so the first cell waits little.

        If the store holds a history, continue it: what changed since counts as the user's, or as the cell's if one was
        running when its owner was lost; that cell becomes a state like any other.
        """
        with self._lock:
            told = self._journal.load()
            try:
                if told is None:
                    self._seen.start(listings or {})
                    if self._is_lasting:
                        # The stamps let another process recognise what has not changed.
                        sure = {path: it for path, it in self._now.stamps.items() if path not in self._now.unsure}
                        self._journal.start(dict(self._now.entries), sure)
                else:
                    self._resume(told)
            except OSError as error:
                words = f"the files of the workspace cannot be looked at: {error.strerror}"
                raise SandboxUnavailable(f"{words}; undo needs Linux 5.6 or newer") from error
            return self._coverage()

    def fill(self, on_own_read: Callable[[], object] = lambda: None, cpu_s: float = inf) -> Coverage:
        """Read the files that `begin` found, while cells run. Ends early when `close` is called.

        Calls `on_own_read` when only files of git and of package managers are left, or after `cpu_s` of work.
        """
        enough_s = thread_time() + cpu_s
        self._journal.write_start()
        with self._lock:
            if not self._closed:
                self._journal.go_on()
        self._recall_shared()
        is_own_read = False
        while True:
            if not is_own_read and (not self._seen.has_own_unread or thread_time() > enough_s):
                is_own_read = True
                if self._shared:
                    with suppress(OSError):
                        self._shared.flush()
                on_own_read()
            with self._lock:
                has_recalled = not self._closed and self._seen.files.recall_next()
                unread = None if self._closed or has_recalled else self._seen.files.next_unread()
                is_over = not has_recalled and unread is None and (self._closed or not self._seen.measure_next())
            if is_over:
                break
            if unread is None or is_installed(unread.path):
                sleep(PAUSE_S)
            if unread is None:
                continue
            found = self._seen.files.read_unread(unread)
            with self._lock:
                if self._closed:
                    os.close(unread.fd)
                elif self._seen.files.finish(unread, found):
                    self._journal.record_read(unread.path, self._now.entries[unread.path])
        with self._lock:
            current = set(self._now.stamps.values())
            self._seen.files.digests = {}
        if self._shared and not self._closed:
            with suppress(OSError):
                self._shared.clean(current)
            self._shared.rest()
        with self._lock:
            return self._coverage()

    def _recall_shared(self) -> None:
        if self._shared and not self._seen.files.digests:
            try:
                self._seen.files.digests = self._shared.load()
            except OSError:  # e.g. a file system without shared memory, or a full disk
                self._seen.files.shared = None

    @property
    def at(self) -> int:
        """The state the workspace is at, apart from what the user has changed since."""
        return self._history.head

    @property
    def last(self) -> int:
        """The highest number any cell ever had."""
        return self._history.last

    @property
    def states(self) -> tuple[int, ...]:
        """The states that can be restored."""
        return tuple(sorted(self._history.states))

    def before(self, cell: int) -> None:
        """Call before a cell runs: records what changed until now as the user's."""
        with self._lock:
            self._must_be_idle()
            if cell <= self._history.last:
                raise ValueError(f"cell {cell} does not come after cell {self._history.last}")
            self._look()
            self._note_users()
            self._running = cell
            self._journal.record_run(cell)

    def get_touched_names(self) -> Names:
        """Return the names that had events since the files were last scanned."""
        with self._lock:
            return self._seen.get_touched_names()

    def after(self, cell: int, *, spilled: bool = False) -> Changes:
        """Call when the cell has ended and the file guard has put back what it must: records the changes as the cell's.

        `spilled`: the cell was stopped for filling the disk, so undo removes what it made even where that is not kept.
        """
        with self._lock:
            if self._running != cell:
                raise ValueError(f"cell {cell} is not running")
            self._look(reads=not spilled)
            if spilled:
                self._now.give_up()
            return self._grow(cell)

    def hurry(self) -> None:
        """End the current scan soon, because a caller waits; what it has not read yet is not covered."""
        self._effort.is_over = True

    @property
    def is_quiet(self) -> bool:
        """True if nothing has happened to any file since the last scan. False while another thread scans."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            return self._seen.is_quiet
        finally:
            self._lock.release()

    def restore(self, to: int) -> Restored:
        """Restore the workspace to its state after cell `to`, back or forward. Keeps the user's own changes."""
        with self._lock:
            self._must_be_idle()
            self._seen.index_listed()
            self._look()
            self._note_users()
            if to not in self._history.states:
                raise StateUnknown(f"there is no saved version of the files after cell {to}")
            return self._go(to)

    def content(self, digest: str) -> bytes:
        """Return the content with this digest. Raises StateUnknown."""
        try:
            return self._store.read(digest)
        except OSError as error:
            raise StateUnknown(f"{digest} is not known, or no longer kept") from error

    def close(self) -> None:
        """Close without removing the store. Idempotent."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._seen.close()
                self._top.close()
                self._journal.close()
                if self._shared:
                    self._shared.close()

    def _resume(self, told: JournalState) -> None:
        self._history, self._aside = told.history, told.aside
        self._recall_shared()
        told.recall_contents(self._seen.files.digests)
        self._seen.resume(told.entries, told.stamps)
        if told.running is not None:
            self._grow(told.running)
        elif told.going is not None:
            self._finish_going(told.going)
        else:
            self._note_users()

    def _finish_going(self, to: int) -> None:
        """Finish the restore that was cut off. The user's changes since then cannot be told apart from it."""
        found = self._take_changes()
        self._journal.record_found(found)
        ours = {path for path, (old, _) in found.items() if old is None and is_partial(path)}
        self._aside |= ours
        self._go(to)
        for path in filter(self._now.is_file, ours):
            with suppress(OSError):
                self._top.remove(path, was=self._now.stamps[path])
        self._look()
        self._journal.record_found(self._take_changes())

    def _note_users(self) -> None:
        if delta := self._take_changes():
            self._history.record_user_change(delta)
            self._journal.record_user_change(delta)

    def _grow(self, cell: int) -> Changes:
        delta = self._take_changes()
        self._history.grow(cell, delta)
        self._journal.record_cell(cell, delta)
        self._running = None
        while delta and self._history.changed_paths > self._change_cap and self._drop_oldest():
            pass
        dropped, self._dropped = self._dropped, []
        crowded = self._seen.crowded - self._crowded
        self._crowded |= crowded
        return changes_of(delta, dropped, crowded, is_cut=self._seen.is_cut)

    def _go(self, to: int) -> Restored:
        self._journal.record_restore_start(to)
        target = self._history.target(to, self._now.entries)
        # If some of the user's changes stay, restored old times could make a build tool believe that what was built
        # from an undone version is up to date. Only a workspace that is wholly at one state can get that state's times.
        putting = FileRestorer(self._top, self._store, self._seen, keeps_times=not target.left, aside=self._aside)
        broken = self._without_what_breaks(putting, target)
        self._is_going = True
        try:
            putting.put(target.wanted)
            self._look()
        finally:
            self._is_going = False
        done, delta = putting.done, self._take_changes()
        users = self._users_since(target, delta, without={*self._aside, *done.aside.values()})
        self._aside = {path for path in (*self._aside, *done.aside.values()) if path in self._now.entries}
        self._history.arrive(to, users)
        self._journal.record_restore_end(to, users, delta, self._aside)
        missed = {**done.missed, **broken}
        return Restored(
            put_back=tuple(path for path in done.put_back if path in delta),
            left=tuple(target.left),
            replaced=tuple(done.replaced.items()),
            aside=tuple(done.aside.items()),
            missed=tuple(Missed(path=path, why=why) for path, why in sorted(missed.items())),
        )

    def _take_changes(self) -> Delta:
        """Return the changes since the last call. Old versions in shared contents are kept as long as this store."""
        delta = self._now.changes()
        if self._shared and (borrowed := [one for one in digests(delta) if not self._store.holds(one)]):
            with suppress(OSError):
                self._shared.keep(borrowed, self._store.folder)
        return delta

    def _look(self, *, reads: bool = True) -> None:
        if not self._top.is_there:
            raise SandboxUnavailable("the workspace was removed or replaced; undo does not reach its files any more")
        try:
            if not self._seen.is_quiet:
                self._effort.begin(reads=reads)
                self._seen.look()
        finally:
            self._effort.is_over = False

    def _must_be_idle(self) -> None:
        if self._running is not None:
            raise ValueError(f"cell {self._running} has not ended")

    def _users_since(self, target: Target, delta: Delta, *, without: Collection[str]) -> Users:
        """Return the user's changes, and all else that differs from the state: no later cell has caused it.

        `without`: paths that are or were put aside, which belong to no state."""
        users = Users()
        for path in target.state.keys() | delta.keys():
            if path not in target.state and is_below(path, without):
                continue
            now = self._now.entries.get(path)
            before = delta[path][0] if path in delta else now
            was = target.state.get(path, before)
            if now not in (before, target.wanted.get(path, before)):
                when = self._history.count + 1  # changed from outside, just now
            else:
                when = target.since.get(whole(path), 0)
            if now != was or when:
                users.delta[path] = (was, now)
                users.since[whole(path)] = max(when, users.since.get(whole(path), 0))
        return users

    def _without_what_breaks(self, putting: FileRestorer, target: Target) -> dict[str, str]:
        """Remove from `target` each git folder that cannot be restored as a whole. Return these, and why."""
        wanted = target.wanted
        changed = self._now.differs(wanted)
        broken: dict[str, str] = {}
        for path, entry in changed.items():
            folder = whole(path)
            if is_git(folder) and not putting.can_bring(path, entry, changed):
                broken[folder] = f"{path} was not covered, and git's files mean something only together"
        for path in [path for path in wanted if whole(path) in broken]:
            del wanted[path]
        return broken

    def _make_room(self, size: int) -> bool:
        """Drop the oldest states until `size` bytes fit; none while one of them is being restored."""
        while not self._store.has_room(size):
            if self._is_going or not self._drop_oldest():
                return False
        return True

    def _drop_oldest(self) -> bool:
        dropped = self._history.drop_oldest()
        if dropped:
            self._dropped += dropped
            self._journal.record_drop()
            self._store.drop({*self._history.digests(), *self._now.digests()})
        return bool(dropped)

    def _coverage(self) -> Coverage:
        return coverage_of(
            self._now.entries,
            self._seen.crowded,
            unread=self._seen.unread,
            watched=self._seen.watches,
            has_unmeasured=self._seen.has_unmeasured,
        )
