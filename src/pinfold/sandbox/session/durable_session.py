"""A session that lasts: its cells are numbered once and for all, its states saved beside it, its files looked after.

After an undo the numbers go on. The cells whose effects are there are a path. Going back is in `_undo.py`.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Self, cast

import anyio
from msgspec.structs import replace

from pinfold.sandbox.contract import ChangedFiles, Resumed, SandboxError, SandboxUnavailable, UndoRefused
from pinfold.sandbox.file_history.session_history import FileHistory, describe_uncovered
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.session.cell_journal import COMMAND
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import GuestProcess, JailedProcess
from pinfold.sandbox.session.saved_states import RESTORE_S, SavedStates, Unsaved
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.session.state_restore import DEPTH_S, restore_guest, run_operation

SAVE_AFTER_S = 0.05
SAVE_SHARE = 0.2
"""Of the time, at most, is spent on saving while cells come and go."""
SAVE_AGAIN_S = 1.0
"""While a cell runs: to see whether the state before it is there to be saved."""
CLOSING_S = 60.0
"""For the last state to be saved when the session ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    cells: list[int]
    """What one undo took back."""
    parked: Guest | None
    """Still in the state that was left, where no copy is."""
    files: bool
    """Whether those of the workspace went back as well."""


class DurableSession(GuestSession):
    """`history`, once it is there, is that of the workspace's files; a session that may not write to them has none."""

    def __init__(
        self, *, history: Callable[[], Awaitable[FileHistory | str]] | None = None, saved: SavedStates, **given: Any
    ) -> None:
        super().__init__(**given)
        self._saved = saved
        self._resumed: Resumed | None = None
        self._saving: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        """The session ends."""
        self._save_at = 0.0
        """Not before."""
        self._begin_history = history
        self._history: FileHistory | None = None
        self._number = 0
        """Of the last cell."""
        self._path: list[int] = []
        """The cells whose effects are there, in order."""
        self._undone: list[Undone] = []
        """For `redo`, the last one last."""
        self._sources: dict[int, str] = {}
        self._processes: dict[int, tuple[GuestProcess, int]] = {}
        """Of the steps that were commands: in which session, and its number there."""

    @property
    def path(self) -> tuple[int, ...]:
        return tuple(self._path)

    @property
    def changed_files(self) -> ChangedFiles:
        return self._history.changed if self._history else ChangedFiles()

    @property
    def resumed(self) -> Resumed | None:
        return self._resumed

    async def describe_uncovered(self) -> tuple[str, ...]:
        async with self._lock:
            before, self._notices = self._notices, ()
            await self._with_history()
            said, self._notices = self._notices, before
            return said

    async def resume(self) -> Self:
        """From where another process left the session, if one did; else nothing is left of it."""
        try:
            await self._resume()
        except BaseException:
            await self.close()
            raise
        return self

    async def _resume(self) -> None:
        if not self._saved.is_durable:
            return
        way = await anyio.to_thread.run_sync(self._saved.trail.load)
        if not way.number:
            self._saved.forget_all()
            return
        async with self._lock:
            self._number, self._path, self._sources = way.number, way.path, way.sources
            self._undone = [Undone(cells=cells, parked=None, files=True) for cells in way.undone]
            cut = None if self._are_commands([way.cut or 0]) else way.cut
            if cut is not None:
                self._lose([cut])
            self._resumed = _without(await self._revive(), cut, self._path)
            self._lose(self._resumed.missing)
            if self._path and self._guest:
                await self._have_copied(self._guest, self._path[-1])

    @staticmethod
    async def _have_copied(guest: Guest, cell: int) -> None:
        guest.copies.add(cell)
        await run_operation(guest, "copy", cell=cell)

    async def _revive(self) -> Resumed:
        """As the path says, or as far as it can be had. A saved state that does not let itself be made is forgotten."""
        until = perf_counter() + RESTORE_S
        while True:
            guest = await self._live_guest()
            try:
                return await restore_guest(guest, self._saved, self._sources, self._path)
            except UndoRefused:
                await guest.kill_and_wait("it was given up")
                self._guest = None
                self._saved.forget_last_of(self._path)
                if perf_counter() > until:  # one gets in, with less of it
                    self._saved.forget_all()

    @asynccontextmanager
    async def freeze(self) -> AsyncGenerator[None]:
        async with self._saved.idle(), super().freeze():
            yield

    async def save(self) -> None:
        if self._saved.is_durable and not self._closed:
            await self._save_now(0)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            self._enough.set()
            if self._saved.is_durable and not self._closed:
                with anyio.move_on_after(CLOSING_S):
                    if self._saving is not None:
                        await asyncio.wait([self._saving])
                    await self._save_now(DEPTH_S)
                    await self._save_undone()
            if self._saving is not None:
                self._saving.cancel()
                await asyncio.wait([self._saving])
            await self._forget_undone()
        await super().close()
        with anyio.CancelScope(shield=True):
            if self._history is not None:
                history, self._history = self._history, None
                await history.close()
            await self._saved.close()

    def _hurry(self) -> None:
        if self._history is not None:
            self._history.hurry()

    def _names(self) -> Names | None:
        if self._keeper is not None and self._keeper.sees_names:
            return NOTHING
        return self._history.get_touched_names() if self._history else None

    def _take_notices(self) -> tuple[str, ...]:
        notices, self._notices = self._notices, ()
        return notices

    async def _about_to_run(self, cell: int | None) -> None:
        if self._undone:
            await self._forget_undone()
        if self._begin_history is not None:
            await self._with_history()
        self._next = max(cell or 0, self._number + 1)  # a log that was damaged may not know of the last ones
        if self._history is not None:
            names = self._names()
            if self._keeper and names is not NOTHING:
                self._keeper.on_names_changed(names)
            await self._history.before(self._next)

    def _number_cell(self, code: str) -> dict[str, int]:
        self._number = self._next
        self._sources[self._number] = code
        self._path.append(self._number)
        self._saved.trail.record_run(self._number, code)
        return {"cell": self._number}

    def _began(self, guest: Guest, pid: int) -> None:
        if pid:
            self._processes[self._number] = guest.body, pid

    def _are_commands(self, cells: Sequence[int]) -> bool:
        """All of them: then the variables are the same before and after."""
        return all(self._sources.get(cell) == COMMAND for cell in cells)

    async def _on_success(self, *, again: bool) -> None:
        if not again and self._guest is not None:
            self._guest.copies.add(self._number)
        try:
            if self._history is not None:
                await self._history.after(spilled=self._stopped_for is not None)
                self._notices += self._history.said
        finally:
            self._saved.trail.record_end(self._number)
            self._save_soon()

    def _has_changed_files(self) -> bool | None:
        return None if self._history is None else not self._history.is_quiet

    def _record_path(self) -> None:
        self._saved.trail.record_path(self._path, [one.cells for one in self._undone])

    def _lose(self, cells: Sequence[int]) -> None:
        """What these did to variables cannot be had again."""
        if cells:
            self._sources.update(dict.fromkeys(cells, ""))
            self._saved.trail.record_lost(cells)

    def _save_soon(self) -> None:
        if self._saved.is_durable and (self._saving is None or self._saving.done()):
            self._saving = asyncio.get_running_loop().create_task(self._save_in_time())

    async def _save_in_time(self) -> None:
        while True:
            with suppress(TimeoutError):
                pause_s = max(SAVE_AFTER_S, self._save_at - perf_counter())
                await asyncio.wait_for(self._enough.wait(), pause_s)
                return
            started, at = perf_counter(), self._number
            await self._save_now(math.inf)
            now = perf_counter()
            self._save_at = now + (now - started) / SAVE_SHARE
            if self._runs:
                self._save_at = max(self._save_at, now + SAVE_AGAIN_S)
            elif self._number == at:
                return

    async def _save_now(self, depth_s: float) -> None:
        """The state after the last cell that has ended; then those before it, until a cell runs or the time is up."""
        try:
            if self._runs:
                guest, path = self._guest, self._path[: None if self._runs == "aside" else -1]
            else:
                async with self._lock:
                    guest, path = self._guest, self._path[:]
                    if guest is not None and guest.death is None:
                        await run_operation(guest, "idle")
            if guest is not None and guest.death is None:
                kept = [cell for cell in path if cell in guest.copies]
                await self._saved.save_all(guest.body, kept, depth_s, self._has_leisure)
        except (Unsaved, SandboxUnavailable, OSError) as error:
            self._notices += (f"{error}; after a restart they will be as they were saved last.",)

    async def _save_undone(self) -> None:
        """What can be redone still can be in the process that goes on."""
        holder = self._guest
        for one in reversed(self._undone):
            holder = one.parked or holder
            kept = [cell for cell in one.cells if holder and cell in holder.copies]
            if holder and kept:
                with suppress(Unsaved, SandboxUnavailable, OSError):  # then `redo` says so
                    await self._saved.save_all(holder.body, kept, DEPTH_S)

    def _has_leisure(self) -> bool:
        return not self._lock.locked()

    async def _with_history(self) -> None:
        if self._begin_history is not None:
            begin, self._begin_history = self._begin_history, None
            history = await begin()
            if isinstance(history, FileHistory):
                self._history = history
                self._number = max(self._number, history.last)  # should only it know of earlier ones
                lacks = [history.describe_tracked_secrets()]
                if self._resumed is None:  # else it was said when the session began
                    lacks.insert(0, describe_uncovered(history.coverage))
            else:
                lacks = [history]
            self._notices += tuple(filter(None, lacks))

    async def _restore_files(self, path: list[int]) -> None:
        """As they were after these cells. Raises UndoRefused."""
        if self._history is None:
            return
        keeper = self._keeper
        if keeper:  # a version may hold what was planted before it could be put back: it is not the user's
            keeper.before()
        try:
            self._notices += tuple(await self._history.restore(path[-1] if path else 0))
        except SandboxError as error:
            raise UndoRefused(str(error)) from error
        finally:
            if keeper:
                self._notices += keeper.settle()

    async def _forget_undone(self) -> None:
        undone, self._undone = self._undone, []
        for one in undone:
            for cell in one.cells:
                self._sources.pop(cell, None)
                self._processes.pop(cell, None)
            if one.parked is not None:
                await end_parked(one.parked)
        if undone and self._guest is not None and self._guest.death is None:
            await self._drop_copies(self._guest)

    async def _drop_copies(self, guest: Guest) -> None:
        """Of states that nobody can go to any more."""
        with suppress(SandboxUnavailable):  # the cell to come will say so
            await cast("JailedProcess", guest.body).ask(b"forget", {"known": sorted(self._sources)})


async def end_parked(parked: Guest) -> None:
    parked.listen()
    await parked.kill_and_wait("it was undone")
    if parked.keeper:
        parked.keeper.close()


def _without(back: Resumed, cut: int | None, path: list[int]) -> Resumed:
    """Of a cell that was cut off, the last of the path, nothing was done again."""
    if cut is None or back.cell != cut:
        return back
    return replace(back, cell=path[-2] if len(path) > 1 else 0, missing=(cut,))
