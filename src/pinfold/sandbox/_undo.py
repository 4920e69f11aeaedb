"""A session that can go back: frozen copies of its process are kept by its init, each the state after one cell.

Cells are numbered once and for all; after an undo the numbers go on. The states that were gone through are a path.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NoReturn, Self, cast

import anyio

from pinfold.sandbox._body import Jailed
from pinfold.sandbox._branch import Branch, branched
from pinfold.sandbox._guest import Death, Guest
from pinfold.sandbox._history import FileHistory, uncovered
from pinfold.sandbox._making import DEPTH_S, done, remade, what_is_lost, woken
from pinfold.sandbox._saved import RESTORE_S, Saved, Unsaved
from pinfold.sandbox._session import GuestSession
from pinfold.sandbox.contract import (
    Resumed,
    SandboxError,
    SandboxUnavailable,
    Session,
    UndoRefused,
    What,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Undone:
    cells: list[int]
    """What one undo took back."""
    parked: Guest | None
    """Still in the state that was left, where no copy is."""
    files: bool
    """Whether those of the workspace went back as well."""


NO_COPY = "The process that held the state is gone: its variables come from what was saved."
BRANCHES_ENDED = (
    "The branches of the session have ended: the state it went to is not in the process they are copies of."
)
KEPT_BRANCH = "raise RuntimeError('a branch that was kept cannot be run again')"
SAVE_AFTER_S = 0.05
SAVE_SHARE = 0.2
"""Of the time, at most, is spent on saving while cells come and go."""
SAVE_AGAIN_S = 1.0
"""While a cell runs: to see whether the state before it is there to be saved."""
CLOSING_S = 60.0
"""For the last state to be saved when the session ends."""


class UndoableSession(GuestSession):
    """`history`, once it is there, is that of the workspace's files; a session that may not write to them has none."""

    def __init__(
        self,
        *,
        history: Callable[[], Awaitable[FileHistory | str]] | None = None,
        saved: Saved,
        **given: Any,
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
        self._undone: list[_Undone] = []
        """For `redo`, the last one last."""
        self._sources: dict[int, str] = {}
        self._again: set[int] = set()
        """Cells that left no copy: whatever says later that it is one of theirs is not."""
        self._branches: list[Branch] = []

    @property
    def path(self) -> tuple[int, ...]:
        return tuple(self._path)

    @property
    def resumed(self) -> Resumed | None:
        return self._resumed

    async def uncovered(self) -> tuple[str, ...]:
        async with self._lock:
            before, self._notices = self._notices, ()
            await self._with_history()
            said, self._notices = self._notices, before
            return said

    async def gone_on(self) -> Self:
        """From where another process left the session, if one did; else nothing is left of it."""
        try:
            await self._go_on()
        except BaseException:
            await self.close()
            raise
        return self

    async def _go_on(self) -> None:
        way = await anyio.to_thread.run_sync(self._saved.trail.told)
        if not way.number:
            self._saved.forget_all()
            return
        async with self._lock:
            self._number, self._path, self._sources = way.number, way.path, way.sources
            self._undone = [_Undone(cells=cells, parked=None, files=True) for cells in way.undone]
            if way.cut is not None:
                self._lose([way.cut])
            self._resumed = _without(await self._come_to_life(), way.cut, self._path)
            self._lose(self._resumed.missing)
            if self._path and self._guest:
                await done(self._guest, "copy", cell=self._path[-1])

    async def _come_to_life(self) -> Resumed:
        """As the path says, or as far as it can be had. A saved state that does not let itself be made is forgotten."""
        until = perf_counter() + RESTORE_S
        while True:
            guest = await self._live_guest()
            try:
                return await remade(guest, self._saved, self._sources, self._path)
            except UndoRefused:
                await guest.ended("it was given up")
                self._guest = None
                self._saved.forget_last_of(self._path)
                if perf_counter() > until:  # one gets in, with less of it
                    self._saved.forget_all()

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...]:
        async with self._lock:
            guest = await self._live_guest()
            length = self._length_after(to)
            if length == len(self._path):
                return ()
            await self._with_history()
            if what != "variables":
                await self._restore_files(self._path[:length])
            if what == "files":
                return self._told()
            await done(guest, "idle")  # or the state we leave could not be gone back to
            try:
                parked = await self._go(guest, self._path[:length])
            except UndoRefused:
                if what == "all":
                    await self._restore_files(self._path)
                raise
            self._undone.append(_Undone(cells=self._path[length:], parked=parked, files=what == "all"))
            del self._path[length:]
            self._note_way()
            return self._told()

    async def redo(self) -> tuple[str, ...]:
        async with self._lock:
            guest = await self._live_guest()
            if not self._undone:
                raise UndoRefused("nothing was undone since the last cell")
            await self._with_history()
            last = self._undone[-1]
            path = [*self._path, *last.cells]
            if last.parked is None:
                if left := await self._go(guest, path):
                    await end_parked(left)
            else:
                await guest.ended("it was undone")
                self._guest = last.parked
                last.parked.listen()
                self._kept_by(last.parked.keeper)
            self._path = path
            self._undone.pop()
            self._note_way()
            if last.files:
                await self._restore_files(path)
            return self._told()

    async def fork(self) -> Session:
        """A session over the same live data. While it is open, nobody may write to the workspace."""
        async with self._lock:
            guest = await self._live_guest()
            state = self._path[-1] if self._path else 0
            await cast("Jailed", guest.body).ask(b"expect", {"cell": state})
            await done(guest, "copy", cell=state)
            await done(guest, "idle")
            branch = await branched(guest, state, of=self, limits=self._limits)
            self._branches.append(branch)
            return branch

    async def keep(self, branch: Session) -> None:
        if not isinstance(branch, Branch) or branch not in self._branches:
            raise UndoRefused("only an open branch of this session can be kept")
        async with self._lock:
            guest = await self._live_guest()
            body = cast("Jailed", guest.body)
            kept = branch.given_up()
            self._branches.remove(branch)
            await self._close_branches()
            guest.leave()
            kept.leave()
            await body.ask(b"adopt", {"pid": branch.body.pid})
            branch.body.release()
            guest.let_go()
            self._guest = Guest(body, branch.channel, kept.stdout, kept.stderr, greeted=True)
            self._guest.keeper = guest.keeper
            await self._about_to_run(None)
            self._numbered(KEPT_BRANCH)
            await done(self._guest, "adopted")
            await done(self._guest, "copy", cell=self._number)
            await self._went_well(again=False)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            self._enough.set()
            if self._saved.is_durable and not self._closed:
                with anyio.move_on_after(CLOSING_S):
                    if self._saving is not None:
                        await asyncio.wait([self._saving])
                    await self._save_now(DEPTH_S)
            if self._saving is not None:
                self._saving.cancel()
                await asyncio.wait([self._saving])
            await self._close_branches()
            await self._forget_undone()
        await super().close()
        with anyio.CancelScope(shield=True):
            if self._history is not None:
                history, self._history = self._history, None
                await history.close()
            await self._saved.close()

    def _told(self) -> tuple[str, ...]:
        notices, self._notices = self._notices, ()
        return notices

    async def _close_branches(self) -> None:
        while self._branches:
            await self._branches.pop().close()

    def _length_after(self, to: int | None) -> int:
        """How much of the path is left."""
        if to is None:
            if not self._path:
                raise UndoRefused("there is no cell to undo")
            return len(self._path) - 1
        if to != 0 and to not in self._path:
            known = ", ".join(map(str, (0, *self._path)))
            raise UndoRefused(f"there is no state after cell {to} to go back to; there are {known}")
        return self._path.index(to) + 1 if to else 0

    async def _about_to_run(self, cell: int | None) -> None:
        if cell is not None and cell <= self._number:
            raise ValueError(f"cell {cell} does not come after cell {self._number}")
        await self._forget_undone()
        await self._with_history()
        self._next = cell or self._number + 1
        if self._history is not None:
            await self._history.before(self._next)

    def _numbered(self, code: str) -> dict[str, int]:
        self._number = self._next
        self._sources[self._number] = code
        self._path.append(self._number)
        self._saved.trail.runs(self._number, code)
        return {"cell": self._number}

    async def _went_well(self, *, again: bool) -> None:
        if again:
            self._again.add(self._number)
        if self._history is not None:
            await self._history.after()
        self._saved.trail.ended(self._number)
        self._save_soon()

    def _note_way(self) -> None:
        self._saved.trail.at(self._path, [one.cells for one in self._undone])

    def _lose(self, cells: Sequence[int]) -> None:
        """What these did to variables cannot be had again."""
        if cells:
            self._sources.update(dict.fromkeys(cells, ""))
            self._saved.trail.lost(cells)

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
            if self._cell_runs:
                self._save_at = max(self._save_at, now + SAVE_AGAIN_S)
            elif self._number == at:
                return

    async def _save_now(self, depth_s: float) -> None:
        """The state after the last cell that has ended; then those before it, until a cell runs or the time is up."""
        try:
            if self._cell_runs:
                guest, path = self._guest, self._path[:-1]
            else:
                async with self._lock:
                    guest, path = self._guest, self._path[:]
                    if guest is not None and guest.death is None:
                        await done(guest, "idle")
            path = self._with_copies(path)
            if path and guest is not None and guest.death is None:
                await self._saved.save_all(guest.body, path, depth_s, self._has_leisure)
        except (Unsaved, SandboxUnavailable) as error:
            self._notices += (f"{error}; after a restart they will be as they were saved last.",)

    def _with_copies(self, path: list[int]) -> list[int]:
        return [cell for cell in path if cell not in self._again]

    def _has_leisure(self) -> bool:
        return not self._lock.locked()

    async def _with_history(self) -> None:
        if self._begin_history is not None:
            begin, self._begin_history = self._begin_history, None
            history = await begin()
            if isinstance(history, FileHistory):
                self._history = history
                self._number = max(self._number, history.last)  # should only it know of earlier ones
                lacks = uncovered(history.coverage)
            else:
                lacks = history
            if lacks:
                self._notices += (lacks,)

    async def _restore_files(self, path: list[int]) -> None:
        """As they were after these cells. Raises UndoRefused."""
        if self._history is None:
            return
        try:
            self._notices += tuple(await self._history.restore(path[-1] if path else 0))
        except SandboxError as error:
            raise UndoRefused(str(error)) from error

    async def _forget_undone(self) -> None:
        undone, self._undone = self._undone, []
        for one in undone:
            for cell in one.cells:
                self._sources.pop(cell, None)
            if one.parked is not None:
                await end_parked(one.parked)

    async def _taken_back(self, guest: Guest) -> bool:
        cell = self._path.pop()
        try:
            left = await self._go(guest, self._path)
        except (SandboxUnavailable, UndoRefused):
            self._path.append(cell)
            return False
        if left is not None:
            await end_parked(left)
        self._sources.pop(cell, None)
        self._note_way()
        with suppress(UndoRefused):  # then they are as the code left them, and it is said
            await self._restore_files(self._path)
        return True

    async def _came_back(self, guest: Guest, death: Death, *, ran: bool) -> bool:
        if ran:
            self._path.pop()
            if self._history is not None:
                await self._history.after()
        try:
            if death.cells and self._path:
                with suppress(SandboxUnavailable, UndoRefused):  # the program has ended its copies as well
                    self._guest = await self._woken(guest, self._path)
            if self._guest is None:
                await self._begin_again(self._path, or_less=True)
        except (SandboxUnavailable, UndoRefused):
            self._lose(self._path)
        self._note_way()
        if death.cells and (self._guest is None or self._guest.body is not guest.body):
            guest.give_up_session()
        if self._guest is None:
            return False
        if ran:
            with suppress(UndoRefused):  # then they are as the code left them, and it is said
                await self._restore_files(self._path)
        return True

    async def _go(self, guest: Guest, path: list[int]) -> Guest | None:
        """Be in the state after these cells. What holds the state that was left, if it had to be begun again.

        Raises UndoRefused, and then nothing has changed.
        """
        guest.leave()
        try:
            copy = await self._woken(guest, path) if path else None
        except BaseException:
            guest.listen()
            raise
        if copy is not None:
            guest.hang_up_channel()
            self._guest = copy
            return None
        try:
            await self._begin_again(path)
        except BaseException:
            guest.listen()
            raise
        return guest

    async def _woken(self, guest: Guest, path: list[int]) -> Guest | None:
        copy, said = await woken(guest, self._saved, self._sources, path, self._with_copies(path))
        self._notices += said
        return copy

    async def _begin_again(self, path: list[int], *, or_less: bool = False) -> None:
        """From saved state, or the start, if what is missing can be run again. Raises UndoRefused, SandboxUnavailable."""
        fresh = await self._launcher.launch()
        try:
            back = await remade(fresh, self._saved, self._sources, path)
            _be_enough(back, path, or_less=or_less)
            self._lose(back.missing)
            if back.labels:
                await done(fresh, "copy", cell=path[-1])
            self._notices += (*(NO_COPY for _ in back.labels[:1] if or_less), *what_is_lost(back))
        except BaseException:
            await fresh.ended("it was given up")
            if fresh.keeper:
                fresh.keeper.close()
            raise
        self._guest = fresh
        self._keeper_left()  # the parked guest still has it, or its last one has closed it
        self._kept_by(fresh.keeper)
        if self._branches:
            await self._close_branches()
            self._notices += (BRANCHES_ENDED,)


async def end_parked(parked: Guest) -> None:
    parked.listen()
    await parked.ended("it was undone")
    if parked.keeper:
        parked.keeper.close()


def _without(back: Resumed, cut: int | None, path: list[int]) -> Resumed:
    """Of a cell that was cut off, the last of the path, nothing was done again."""
    if cut is None or back.cell != cut:
        return back
    return replace(back, cell=path[-2] if len(path) > 1 else 0, missing=(cut,))


def _be_enough(back: Resumed, path: list[int], *, or_less: bool) -> None:
    """`or_less`: whatever could be had of it, if that was anything. Raises UndoRefused."""
    if back.missing and not (or_less and back.cell):
        _not_kept(path)


def _not_kept(path: list[int]) -> NoReturn:
    raise UndoRefused(f"the state after cell {path[-1]} is no longer kept")
