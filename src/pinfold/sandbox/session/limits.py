"""The limits of a cell: how it ends, in time or not, and how much a session has added to the folders it may change.

That is counted beside the session, so that too much ends what does it. Nothing here trusts the free space of the disk, which
others use too: it only says when to count. Where not all can be counted (too many files for the time, a folder that was
closed), what the disk has lost is taken for the session's.
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
"""Of each wait, that is the cell's own time: or one that makes call after call would never be overdue."""
OVERDUE = "it could not be interrupted and its process was killed"


class Deadline:
    """Interrupts the guest when the limit has passed, kills it when the grace has too."""

    def __init__(self, guest: Guest, limit_s: float, grace_s: float) -> None:
        self.passed = False
        self.why: str | None = None
        """It was stopped before its time."""
        self._guest = guest
        self.grace_s = grace_s
        self._pauses = 0
        self._paused_at: float | None = None
        self._is_over = False
        self._loop = asyncio.get_running_loop()
        self._due = self._loop.time() + limit_s
        self._timer: asyncio.TimerHandle | None = self._loop.call_at(self._due, self._look)

    def pause(self) -> None:
        """The cell waits for us, which is not its own time; perhaps for several answers at once."""
        self._pauses += 1
        if self._pauses == 1 and not (self.passed or self._is_over):
            # The timer goes on: a pause is short as a rule, and there may be thousands a second.
            self._paused_at = self._loop.time()

    def go_on(self) -> None:
        """One of the waits is over."""
        self._pauses = max(0, self._pauses - 1)
        if not self._pauses:
            self.wake()

    def wake(self) -> None:
        """Whatever it waits for."""
        self._pauses = 0
        if self._paused_at is not None:
            self._due += max(0.0, self._loop.time() - self._paused_at - COUNTED_S)
            self._paused_at = None
            if self._timer is None:
                self._timer = self._loop.call_at(self._due, self._look)

    def stop(self, why: str, grace_s: float) -> None:
        """Whatever time is left. Once; the grace is not begun anew."""
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
    """What a cell's end is called; `limit_s` when it had passed, `why` if it was stopped before.

    `state`: of the variables, should they not be as it left them.
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
"""How often the disk is looked at: while something runs, and between."""
IDLE_MUCH_S, MUCH = 2.0, 8 << 30
"""And between, while there is so much room that no disk fills it in that time."""
SHARE = 0.05
"""Of the time, at most, is spent on counting while the disk does not shrink."""
COUNT_S = 3.0
"""For one count."""
FEW = 200
"""Files and folders that are counted sooner than a thread is reached."""
SLACK = 1 << 20
"""By which a session that has too much may grow in one cell, so that it can still be tidied up."""
_LONG = 200
"""Characters of a path, after which it is gone on from a descriptor: paths may be longer than the kernel takes."""
_DESCRIPTORS = 100
_BLOCK = 512


@dataclass(frozen=True, slots=True)
class Count:
    allocated: int
    """Bytes on disk; holes are none."""
    closed: int
    """Folders that could not be looked into."""
    is_whole: bool
    old: int = 0
    """Of `allocated`, what was not written since the moment that was asked for."""


class Growth:
    """Of one session. `on_excess` is called when it is too much, with words for it; again while it grows on."""

    def __init__(self, folders: Iterable[str], limits: Limits) -> None:
        self._given = list(folders)
        self._scratch: str = ""
        self._limits = limits
        self._grown = self._held = self._held_before = 0
        self._disks = self._one_of_each_disk()
        self._set_limit()
        self._start: Count | None = None
        self._since_s = time.time()
        self._took_s = 0.0
        self._counted_at = 0.0
        self._runs = False
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
        self._free_at_start = self._free_then = self._free()
        self.limit = self._limits.disk_bytes or max(SLACK, min(MOST_GROWTH, self._free_at_start // 2))
        self._allowed = self.limit

    def begin(self, body: int | None, scratch: str, on_excess: Callable[[str], None]) -> None:
        """Something is about to run, below the process of this descriptor, which has this folder to itself, if any."""
        self._body, self._runs = body, True
        if scratch != self._scratch:
            before, self._scratch = self._free(), scratch
            self._disks = self._one_of_each_disk()
            if not self._given:
                self._set_limit()
            else:
                self._free_at_start += self._free() - before  # if it is on a disk of its own
                self._free_then = self._free()
        self._allowed = max(self.limit, self._grown + SLACK) if self._grown > self.limit else self.limit
        self._held_before = self._held
        if self._timer is None:
            self._on_excess = on_excess
            self._start = count_usage(self._folders, most=FEW)
            self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
            if self._start is None:
                # It takes a while: a cell that ends sooner, and changes nothing, is not held up by it.
                self._counted_at, self._took_s = perf_counter(), TICK_S * SHARE

    @property
    def is_too_much(self) -> bool:
        """As last counted."""
        return self._grown > self.limit

    async def finish(self, *, has_changed: bool | None) -> str | None:
        """What ran has ended. Words, if it is too much. `has_changed`: files of the workspace; None if not known."""
        self._runs = False
        if has_changed is False and len(self._folders) == 1:
            return None  # most cells, which wait for nothing here
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
        # All idle sessions of a process look at the same moments: a hundred of them wake it no more often than one.
        idle_s = IDLE_S if self._room < MUCH else IDLE_MUCH_S
        after_s = TICK_S if self._runs else idle_s - loop.time() % idle_s
        self._timer = loop.call_at(round(loop.time() + after_s, 6), self._tick)
        if (self._look is None or self._look.done()) and self._is_due(has_changed=self._runs):
            self._look = loop.create_task(self.count(self._on_excess))

    @property
    def _room(self) -> int:
        return max(SLACK, self._allowed - self._grown)

    def _is_due(self, *, has_changed: bool) -> bool:
        """By what the disk has lost since the last count, or because it is time."""
        if self._free_then - self._free() > self._room // 2:
            return True
        return has_changed and perf_counter() - self._counted_at > self._took_s / SHARE

    async def count(self, on_excess: Callable[[str], None] | None = None) -> None:
        """`on_excess` is called if it is too much."""
        async with self._lock:
            began, free = perf_counter(), self._free()
            count = count_usage(self._folders, most=FEW, before=self._since_s)
            if count is None:
                count_all = partial(count_usage, self._folders, until=began + COUNT_S, before=self._since_s)
                count = await anyio.to_thread.run_sync(count_all)
                assert count is not None
            lost = self._free_at_start - free
            if self._start is None:
                # What was written since the beginning is no part of what was there, unless it only was added to.
                allocated = max(count.old, count.allocated - max(0, lost))
                self._start = replace(count, allocated=allocated)
            grown, held = count.allocated - self._start.allocated, 0
            if not count.is_whole or count.closed > self._start.closed:
                grown = max(grown, lost)
            elif self._body is not None and (self._runs or lost - grown > self._allowed):
                held, mapped = await anyio.to_thread.run_sync(count_unlinked, self._body, self._folders)
                held += max(0, min(mapped, lost - grown - held))
            self._grown, self._held, self._free_then = grown + held, held, free
            # What an undo took back is held until its process is gone: it does not make room.
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
    """Of the session that is to be opened."""
    folders = [str(spec.view or spec.workspace)] if spec.writable else []
    return Growth([*folders, *(str(mount.path) for mount in spec.mounts if mount.writable)], spec.limits)


def count_usage(
    folders: Iterable[str], *, most: int | None = None, until: float = float("inf"), before: float = 0.0
) -> Count | None:
    """What they hold. None if that is more than `most`; not whole if it took too long. `before`: the moment for `old`."""
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
                            # Under each of its names its share: a second name is no growth.
                            share = found.st_blocks // (found.st_nlink or 1)
                            allocated += share
                            old += share if found.st_mtime < before else 0
            finally:
                os.close(fd)
            if most is not None and seen + len(waiting) > most:
                return None
            is_whole = perf_counter() < until
    return Count(allocated * _BLOCK, closed, is_whole, old * _BLOCK)


def count_unlinked(body: int, folders: Iterable[str]) -> tuple[int, int]:
    """Bytes on the disks of these folders, of files without a name that a process of the session still holds open.

    And of those that are only mapped, as much as is mapped: how much of that is on the disk is not known.
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
