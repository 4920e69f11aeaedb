"""The limits of a cell in time, and of a session in the growth of its writable folders.

Growth is counted while the session runs, so that a cell that adds too much can be stopped. The free space of the disk,
which other programs use too, only decides when to count. If counting is not possible (too many files, a folder that
cannot be opened), all space that the disk has lost counts as the session's.
"""

from __future__ import annotations

import asyncio
import os
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter

import anyio.to_thread

from pinfold.sandbox.contract import MOST_GROWTH, Limits, Spec, Status
from pinfold.sandbox.kernel.processes import descendants, find_deleted_maps, pid_of
from pinfold.sandbox.kernel.safe_files import FOLDER
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death, End

COUNTED_S = 0.001
"""Part of each wait that counts as the cell's own time; otherwise a cell that only makes calls would never time out."""
OVERDUE = "it could not be interrupted and its process was killed"


class Deadline:
    """Interrupts the guest after the time limit, and kills it after a further grace time."""

    def __init__(self, guest: Guest, limit_s: float, grace_s: float) -> None:
        self.passed = False
        self.why: str | None = None
        """Why it was stopped before the limit; None if it was not."""
        self._guest = guest
        self.grace_s = grace_s
        self._pauses = 0
        self._paused_at: float | None = None
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + limit_s
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._due, self._look)

    def pause(self) -> None:
        """Pause the clock, because the cell waits for the host. Pauses nest: it may wait for several answers."""
        self._pauses += 1
        if self._pauses == 1 and not (self.passed or self._is_over):
            # The timer keeps running: most pauses are short, and there may be thousands a second.
            self._paused_at = self._loop.time()

    def go_on(self) -> None:
        """End one pause."""
        self._pauses = max(0, self._pauses - 1)
        if not self._pauses:
            self.wake()

    def wake(self) -> None:
        """End all pauses."""
        self._pauses = 0
        if self._paused_at is not None:
            self._due += max(0.0, self._loop.time() - self._paused_at - COUNTED_S)
            self._paused_at = None
            if self._timer is None:
                self._timer = self._loop.call_at(self._due, self._look)

    def stop(self, why: str, grace_s: float) -> None:
        """Interrupt the guest before the limit. A second call does not restart the grace time."""
        if self.why is None and not (self.passed or self._is_over):
            self.why = why
            self.now(grace_s)

    def now(self, grace_s: float) -> None:
        self.passed = True
        self._paused_at = None
        self._stop()
        self._guest.interrupt()
        self._timer = self._loop.call_later(grace_s, self._guest.kill_busy, OVERDUE)

    def _look(self) -> None:
        self._timer = None
        if self._paused_at is not None:
            return  # `wake` sets it again
        if self._loop.time() < self._due:
            self._timer = self._loop.call_at(self._due, self._look)
        else:
            self.now(self.grace_s)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def cancel(self) -> None:
        self._is_over = True
        self._paused_at = None
        self._stop()


def verdict(
    end: End, limit_s: float | None, state: str, *, rolled_back: bool, why: str | None = None
) -> tuple[Status, str | None]:
    """Return the status and error text of a cell. `limit_s`: the limit if it passed; `why`: why the cell was stopped.

    `state` describes the variables, for when they are not as the cell left them.
    """
    if why is not None:
        if isinstance(end, Death):
            return "killed", f"{why}; {end.how}; {state}.\n"
        return "error", f"{why}; undo takes it back.\n{end.error or ''}"
    if isinstance(end, Death):
        if limit_s is not None and end.how == OVERDUE:
            return "timeout", f"The cell ran for more than {limit_s:g} s; {OVERDUE}; {state}.\n"
        return "killed", f"The interpreter is gone: {end.how}; {state}.\n"
    if rolled_back:
        return "killed", f"{end.error or ''}The cell ran out of memory; {state}.\n"
    if limit_s is not None and end.interrupted:
        said = f"The cell ran for more than {limit_s:g} s and was interrupted; variables are as it left them.\n"
        return "timeout", said + (end.error or "")
    if end.status in ("ok", "error", "interrupted"):
        return end.status, end.error
    raise AssertionError(f"the reader let {end.status!r} through as the end of a cell")


TICK_S, IDLE_S = 0.2, 0.5
"""How often the disk is checked: while something runs, and while idle."""
IDLE_MUCH_S, MUCH = 2.0, 8 << 30
"""How often while idle, with at least this much room, which no disk fills in that time."""
SHARE = 0.05
"""Largest share of the time spent on counting while the disk's free space does not shrink."""
COUNT_S = 3.0
"""Time limit of one count."""
FEW = 200
"""Up to this many files and folders, counting is faster than starting a thread."""
SLACK = 1 << 20
"""How much a session over its limit may grow in one cell, so that it can still clean up."""
STAMPS_LAG_S = 0.02
"""How far the kernel's time stamps of files may be behind the clock."""
_LONG = 200
"""Path length from which a file descriptor becomes the new base: a path may be longer than the kernel accepts."""
_DESCRIPTORS = 100
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Count:
    allocated: int
    """Bytes on disk, without holes."""
    closed: int
    """Folders that could not be opened."""
    is_whole: bool
    old: int = 0
    """The part of `allocated` in files that did not change since the given moment."""


class Growth:
    """Measures the growth of one session's folders. Calls `on_excess` with a message when and while it is too much."""

    def __init__(self, folders: Iterable[str], limits: Limits) -> None:
        self._given = list(folders)
        self._scratch: str = ""
        self._limits = limits
        self._grown = self._held = self._held_before = 0
        self._disks = self._one_of_each_disk()
        self._set_limit()
        self._start: Count | None = None
        self._took_s = 0.0
        self._counted_at = 0.0
        self._runs = self._has_changed = False
        self._body: int | None = None
        self._on_excess: Callable[[str], None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._look: asyncio.Task[None] | None = None
        self._lock = asyncio.Lock()

    @property
    def words(self) -> str:
        return f"stopped: the workspace grew by more than {self.limit >> 20:,} MB ([limits] disk_mb)"

    @property
    def _folders(self) -> list[str]:
        return [*self._given, self._scratch] if self._scratch else self._given

    def _set_limit(self) -> None:
        self._mark_start()
        self._free_then = self._free_at_start
        self.limit = self._limits.disk_bytes or max(SLACK, min(MOST_GROWTH, self._free_at_start // 2))
        self._allowed = self.limit

    def _mark_start(self) -> None:
        """Take this moment as the one that growth is estimated from, as long as nothing was counted."""
        self._free_at_start = self._free()
        self._since_s = time.time() - STAMPS_LAG_S

    def begin(self, body: int | None, scratch: str, on_excess: Callable[[str], None]) -> None:
        """Start watching a run of the process behind the pidfd `body`, which may have a private folder `scratch`."""
        self._has_changed |= self._runs  # the last run did not get as far as `finish`
        self._body, self._runs = body, True
        if scratch != self._scratch:
            before, self._scratch = self._free(), scratch
            self._disks = self._one_of_each_disk()
            if not self._given:
                self._set_limit()
            else:
                self._free_at_start += self._free() - before  # non-zero if `scratch` is on a disk of its own
                self._free_then = self._free()
        self._allowed = max(self.limit, self._grown + SLACK) if self._grown > self.limit else self.limit
        self._held_before = self._held
        if self._start is None and not self._has_changed:
            self._mark_start()
        if self._timer is None:
            self._on_excess = on_excess
            self._start = count_usage(self._folders, most=FEW)
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
            if self._start is None:
                # Counting takes a while, so it starts later: a short cell that changes nothing need not wait for it.
                self._counted_at, self._took_s = perf_counter(), TICK_S * SHARE

    @property
    def is_too_much(self) -> bool:
        """True if the last count was over the limit."""
        return self._grown > self.limit

    async def finish(self, *, has_changed: bool | None) -> str | None:
        """End a run. Returns a message if it grew too much. `has_changed`: workspace files changed; None if unknown."""
        self._runs = False
        if has_changed is False and len(self._folders) == 1:
            return None  # the fast path of most cells
        self._has_changed = True
        if not self._is_due(has_changed=bool(has_changed)):
            return None
        await self.count()
        return self.words if self._grown > self._allowed else None

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._look is not None:
            self._look.cancel()

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        # All idle sessions of a process check at the same moments, so a hundred of them wake it no more often than one.
        idle_s = IDLE_S if self._room < MUCH else IDLE_MUCH_S
        after_s = TICK_S if self._runs else idle_s - loop.time() % idle_s
        self._timer = loop.call_at(round(loop.time() + after_s, 6), self._tick)
        if (self._look is None or self._look.done()) and self._is_due(has_changed=self._runs):
            self._look = loop.create_task(self.count(self._on_excess))

    @property
    def _room(self) -> int:
        return max(SLACK, self._allowed - self._grown)

    def _is_due(self, *, has_changed: bool) -> bool:
        """Return True if the disk has lost much space since the last count, or files changed and time has passed."""
        if self._free_then - self._free() > self._room // 2:
            return True
        return has_changed and perf_counter() - self._counted_at > self._took_s / SHARE

    async def count(self, on_excess: Callable[[str], None] | None = None) -> None:
        """Count the growth, and call `on_excess` if it is too much."""
        async with self._lock:
            began, free = perf_counter(), self._free()
            count = count_usage(self._folders, most=FEW, before=self._since_s)
            if count is None:
                count_all = partial(count_usage, self._folders, until=began + COUNT_S, before=self._since_s)
                count = await anyio.to_thread.run_sync(count_all)
                assert count is not None
            lost = self._free_at_start - free
            if self._start is None:
                # An estimate: files changed since the start are new, but some may only have been appended to.
                allocated = max(count.old, count.allocated - max(0, lost))
                self._start = replace(count, allocated=allocated)
            grown, held = count.allocated - self._start.allocated, 0
            if not count.is_whole or count.closed > self._start.closed:
                grown = max(grown, lost)
            elif self._body is not None and (self._runs or lost - grown > self._allowed):
                held, mapped = await anyio.to_thread.run_sync(count_unlinked, self._body, self._folders)
                held += max(0, min(mapped, lost - grown - held))
            self._grown, self._held, self._free_then = grown + held, held, free
            # A process of an undone cell still holds its files until it ends; releasing them does not make room.
            self._allowed = max(self.limit, self._allowed - max(0, self._held_before - held))
            self._held_before = min(self._held_before, held)
            self._counted_at = perf_counter()
            self._took_s = self._counted_at - began
        if on_excess and self._grown > self._allowed:
            on_excess(self.words)

    def _free(self) -> int:
        free = 0
        for folder in self._disks:
            with suppress(OSError):
                status = os.statvfs(folder)
                free += status.f_bavail * status.f_frsize
        return free

    def _one_of_each_disk(self) -> tuple[str, ...]:
        found: dict[int, str] = {}
        for folder in self._folders:
            with suppress(OSError):
                found.setdefault(os.stat(folder).st_dev, folder)
        return tuple(found.values())


def growth_of(spec: Spec) -> Growth:
    """Return the growth of the session to be opened."""
    folders = [str(spec.view or spec.workspace)] if spec.writable else []
    return Growth([*folders, *(str(mount.path) for mount in spec.mounts if mount.writable)], spec.limits)


def count_usage(
    folders: Iterable[str], *, most: int | None = None, until: float = float("inf"), before: float = 0.0
) -> Count | None:
    """Count what the folders hold. Returns None for more than `most` entries; not whole if it would last past `until`.

    `before`: files that last changed before this time count as `old`. A program can set the time of the last write, but
    not that of the last change.
    """
    allocated = old = closed = seen = bases = 0
    with ExitStack() as held:
        waiting: list[tuple[str, int | None]] = [(folder, None) for folder in folders]
        is_whole = True
        while waiting and is_whole:
            path, device = waiting.pop()
            try:
                fd = os.open(path, FOLDER)
            except OSError:
                closed += os.path.lexists(path)
                continue
            try:
                status = os.fstat(fd)
                if device not in (None, status.st_dev):
                    continue
                allocated += status.st_blocks
                old += status.st_blocks
                if len(path) > _LONG and bases < _DESCRIPTORS:
                    base = os.dup(fd)
                    held.callback(os.close, base)
                    bases += 1
                    path = f"/proc/self/fd/{base}"
                with os.scandir(fd) as inside:
                    for entry in inside:
                        seen += 1
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append((f"{path}/{entry.name}", status.st_dev))
                            continue
                        with suppress(OSError):
                            found = entry.stat(follow_symlinks=False)
                            # Divided among the hard links, so that another link is no growth.
                            share = found.st_blocks // (found.st_nlink or 1)
                            allocated += share
                            old += share if found.st_ctime < before else 0
            finally:
                os.close(fd)
            if most is not None and seen + len(waiting) > most:
                return None
            is_whole = perf_counter() < until
    return Count(allocated * _BLOCK, closed, is_whole, old * _BLOCK)


def count_unlinked(body: int, folders: Iterable[str]) -> tuple[int, int]:
    """Return the bytes of deleted files that the session's processes still hold open, on the disks of these folders.

    The second number is for files that are only mapped: their mapped size, since their size on disk is unknown.
    """
    devices = {os.stat(folder).st_dev for folder in filter(os.path.exists, folders)}
    held: dict[tuple[int, int], int] = {}
    mapped: dict[tuple[int, int], int] = {}
    for pid in descendants(pid_of(body)):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    status = os.stat(f"/proc/{pid}/fd/{name}")
                    if stat.S_ISREG(status.st_mode) and not status.st_nlink and status.st_dev in devices:
                        held[status.st_dev, status.st_ino] = status.st_blocks * _BLOCK
        for device, inode, size in find_deleted_maps(pid):
            if device in devices:
                mapped[device, inode] = max(size, mapped.get((device, inode), 0))
    return sum(held.values()), sum(size for file, size in mapped.items() if file not in held)
