"""Keeps the states of a session: numbers its cells, saves their variables, and records the workspace's files.

A number is never used again, even after an undo. The cells whose effects are present form the path. `recovery.py` goes
back along it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import cast

import anyio
import anyio.to_thread
from msgspec.structs import replace

from pinfold.sandbox.contract import ChangedFiles, Resumed, SandboxError, SandboxUnavailable, UndoRefused
from pinfold.sandbox.file_history.session_history import FileHistory, describe_uncovered
from pinfold.sandbox.guards.new_names import NOTHING, Names
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import GuestProcess, JailedProcess
from pinfold.sandbox.session.guest_slot import GuestSlot, States
from pinfold.sandbox.session.saved_states import RESTORE_S, CellPath, SavedStates, Unsaved
from pinfold.sandbox.session.state_restore import DEPTH_S, StateSource, restore_guest, run_operation

SAVE_AFTER_S = 0.05
SAVE_SHARE = 0.2
"""Largest share of the time spent on saving while cells come and go."""
SAVE_AGAIN_S = 1.0
"""How often to try, while a cell runs, to save the state before it."""
CLOSING_S = 60.0
"""Time for saving the last state when the session ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Undone:
    cells: list[int]
    """The cells that one undo took back."""
    parked: Guest | None
    """A guest that still holds the state that was left, if no copy holds it."""
    files: bool
    """True if the workspace's files were restored as well."""


class StateHistory(States):
    """The states of one session. `begin_files` begins the history of its files; None for a read-only session."""

    def __init__(
        self,
        slot: GuestSlot,
        saved: SavedStates,
        source: type[StateSource],
        begin_files: Callable[[], Awaitable[FileHistory | str]] | None = None,
    ) -> None:
        self.cells = CellPath()
        self.saved = saved
        self.source = source(slot, saved, self.cells)
        self.undone: list[Undone] = []
        """Undos that `redo` can take back; the last undo comes last."""
        self.processes: dict[int, tuple[GuestProcess, int]] = {}
        """For each command that counted as a cell: the session it ran in, and its process number there."""
        self._slot = slot
        self._next = 0
        self._begin_files = begin_files
        self._files: FileHistory | None = None
        self._saving: asyncio.Task[None] | None = None
        self._is_ending = asyncio.Event()
        self._save_at = 0.0
        """The earliest time of the next save."""

    @property
    def path(self) -> tuple[int, ...]:
        return tuple(self.cells.path)

    @property
    def changed_files(self) -> ChangedFiles:
        return self._files.changed if self._files else ChangedFiles()

    @property
    def has_changed_files(self) -> bool | None:
        return None if self._files is None else not self._files.is_quiet

    async def describe_uncovered(self) -> tuple[str, ...]:
        async with self._slot.lock:
            before, self._slot.notices = self._slot.notices, ()
            await self.with_files()
            said, self._slot.notices = self._slot.notices, before
            return said

    async def resume(self) -> None:
        """Restore the session as another process left it, if one did."""
        if not self.saved.is_durable:
            return
        way = await anyio.to_thread.run_sync(self.saved.trail.load)
        if not way.number:
            self.saved.forget_all()
            return
        cells = self.cells
        async with self._slot.lock:
            cells.number, cells.path, cells.sources = way.number, way.path, way.sources
            self.undone = [Undone(cells=undone, parked=None, files=True) for undone in way.undone]
            cut = None if cells.are_commands([way.cut or 0]) else way.cut
            if cut is not None:
                self.lose([cut])
            back = await self._revive()
            if cut is not None and back.cell == cut:  # the cut-off cell is last on the path, and was not run again
                back = replace(back, cell=cells.path[-2] if len(cells.path) > 1 else 0, missing=(cut,))
            self.resumed = back
            self.lose(back.missing)
            if cells.path and self._slot.guest:
                await self.have_copied(self._slot.guest, cells.path[-1])

    async def _revive(self) -> Resumed:
        """Restore the state of the path, or as much as possible. A saved state that cannot be restored is forgotten."""
        until = perf_counter() + RESTORE_S
        while True:
            guest = await self._slot.live_guest()
            try:
                return await restore_guest(guest, self.saved, self.cells.sources, self.cells.path)
            except UndoRefused:
                await guest.kill_and_wait("it was given up")
                self._slot.guest = None
                if last := next((cell for cell in reversed(self.cells.path) if cell in self.saved.cells), None):
                    self.saved.store.forget(last)
                if perf_counter() > until:  # open the session with what is left
                    self.saved.forget_all()

    @staticmethod
    async def have_copied(guest: Guest, cell: int) -> None:
        guest.copies.add(cell)
        await run_operation(guest, "copy", cell=cell)

    async def copy_now(self, guest: Guest) -> int:
        """Keep a copy of the present state, and return the cell it belongs to."""
        state = self.cells.path[-1] if self.cells.path else 0
        await cast("JailedProcess", guest.body).ask(b"expect", {"cell": state})
        await self.have_copied(guest, state)
        await run_operation(guest, "idle")
        return state

    # Around a cell

    def touched_names(self) -> Names | None:
        guard = self._slot.guard
        if guard is not None and guard.sees_names:
            return NOTHING
        return self._files.get_touched_names() if self._files else None

    def hurry(self) -> None:
        if self._files is not None:
            self._files.hurry()

    async def prepare_cell(self, cell: int | None) -> None:
        await self.source.before_cell()
        if self.undone:
            await self._forget_undone()
        await self.with_files()
        self._next = max(cell or 0, self.cells.number + 1)  # a damaged log may not know the last cells
        if self._files is not None:
            names = self.touched_names()
            if self._slot.guard and names is not NOTHING:
                self._slot.guard.on_names_changed(names)
            await self._files.before(self._next)

    def begin_cell(self, code: str) -> Mapping[str, int]:
        self.cells.number = number = self._next
        self.cells.sources[number] = code
        self.cells.path.append(number)
        self.saved.trail.write("runs", number, code)
        return {"cell": number}

    def note_process(self, guest: Guest, pid: int) -> None:
        if pid:
            self.processes[self.cells.number] = guest.body, pid

    async def end_cell(self, *, again: bool) -> None:
        if not again and self._slot.guest is not None:
            self._slot.guest.copies.add(self.cells.number)
        try:
            if self._files is not None:
                await self.end_files()
                self._slot.notices += self._files.said
        finally:
            self.saved.trail.write("ended", self.cells.number)
            if self.saved.is_durable and (self._saving is None or self._saving.done()):
                self._saving = asyncio.get_running_loop().create_task(self._save_in_time())

    # Files

    async def with_files(self) -> None:
        """Begin the history of the workspace's files, if that is possible and not done yet."""
        if self._begin_files is None:
            return
        begin, self._begin_files = self._begin_files, None
        files = await begin()
        if isinstance(files, FileHistory):
            self._files = files
            self.cells.number = max(self.cells.number, files.last)  # the journal may be lost, the files' history not
            lacks = [files.describe_tracked_secrets()]
            if self.resumed is None:  # a resumed session reported it when it began
                lacks.insert(0, describe_uncovered(files.coverage))
        else:
            lacks = [files]
        self._slot.notices += tuple(filter(None, lacks))

    async def end_files(self) -> None:
        """Attribute all changes until now to the cell that ran."""
        if self._files is not None:
            await self._files.after(spilled=self._slot.stopped_for is not None)

    async def restore_files(self, path: Sequence[int]) -> None:
        """Restore the files as they were after these cells. Raises UndoRefused."""
        if self._files is None:
            return
        guard = self._slot.guard
        if guard:  # a saved version may hold a planted file, which must not be taken for the user's
            guard.before()
        try:
            self._slot.notices += tuple(await self._files.restore(path[-1] if path else 0))
        except SandboxError as error:
            raise UndoRefused(str(error)) from error
        finally:
            if guard:
                self._slot.notices += guard.settle()

    # The path

    def record_path(self) -> None:
        self.saved.trail.write("at", self.cells.path, [one.cells for one in self.undone])

    def lose(self, cells: Sequence[int]) -> None:
        """Record that the effects of these cells on variables are lost."""
        if cells:
            self.cells.sources.update(dict.fromkeys(cells, ""))
            self.saved.trail.write("lost", cells)

    async def _forget_undone(self) -> None:
        undone, self.undone = self.undone, []
        for one in undone:
            for cell in one.cells:
                self.cells.sources.pop(cell, None)
                self.processes.pop(cell, None)
            if one.parked is not None:
                await end_parked(one.parked)
        guest = self._slot.guest
        if undone and guest is not None and guest.death is None:
            await self.source.drop(guest)

    # Saving

    def pause_saving(self) -> AbstractAsyncContextManager[None]:
        return self.saved.idle()

    async def save(self) -> None:
        if self.saved.is_durable and not self._slot.is_closed:
            await self.source.save(0)

    async def _save_in_time(self) -> None:
        while True:
            with suppress(TimeoutError):
                pause_s = max(SAVE_AFTER_S, self._save_at - perf_counter())
                await asyncio.wait_for(self._is_ending.wait(), pause_s)
                return
            started, at = perf_counter(), self.cells.number
            await self.source.save(math.inf)
            now = perf_counter()
            self._save_at = now + (now - started) / SAVE_SHARE
            if self._slot.runs:
                self._save_at = max(self._save_at, now + SAVE_AGAIN_S)
            elif self.cells.number == at:
                return

    async def _save_undone(self) -> None:
        """Save the undone states, so that another process can still redo them."""
        holder = self._slot.guest
        for one in reversed(self.undone):
            holder = one.parked or holder
            kept = [cell for cell in one.cells if holder and cell in holder.copies]
            if holder and kept:
                with suppress(Unsaved, SandboxUnavailable, OSError):  # then `redo` reports it
                    await self.saved.save_all(holder.body, kept, DEPTH_S)

    async def finish(self) -> None:
        self._is_ending.set()
        if self.saved.is_durable and not self._slot.is_closed:
            with anyio.move_on_after(CLOSING_S):
                if self._saving is not None:
                    await asyncio.wait([self._saving])
                await self.source.save(DEPTH_S)
                await self._save_undone()
        if self._saving is not None:
            self._saving.cancel()
            await asyncio.wait([self._saving])
        await self._forget_undone()

    async def close(self) -> None:
        if self._files is not None:
            files, self._files = self._files, None
            await files.close()
        await self.saved.close()


async def end_parked(parked: Guest) -> None:
    parked.listen()
    await parked.kill_and_wait("it was undone")
    if parked.guard:
        parked.guard.close()
