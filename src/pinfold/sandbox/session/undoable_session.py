"""A session that can go back: frozen copies of its process are kept by its init, each the state after one cell."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NoReturn, cast

import anyio

from pinfold.sandbox.contract import Resumed, SandboxUnavailable, Session, UndoRefused, What
from pinfold.sandbox.session.branch import Branch, open_branch
from pinfold.sandbox.session.deaths import Death
from pinfold.sandbox.session.durable_session import DurableSession, Undone, end_parked
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess
from pinfold.sandbox.session.state_restore import describe_lost, restore_guest, run_operation, wake_snapshot

NO_COPY = "The process that held the state is gone: its variables come from what was saved."
BRANCHES_ENDED = (
    "The branches of the session have ended: the state it went to is not in the process they are copies of."
)
KEPT_BRANCH = "raise RuntimeError('a branch that was kept cannot be run again')"


class UndoableSession(DurableSession):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._branches: list[Branch] = []

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...]:
        async with self._lock:
            guest = await self._live_guest()
            length = self._length_after(to)
            if length == len(self._path):
                return ()
            await self._with_history()
            if what != "files":
                await run_operation(guest, "idle")  # or the state we leave could not be gone back to
            stays = what != "files" and await self._can_stay(guest, self._path[length:])
            if what != "variables":
                await self._restore_files(self._path[:length])
            if what == "files":
                return self._take_notices()
            try:
                parked = None if stays else await self._go(guest, self._path[:length])
            except UndoRefused:
                if what == "all":
                    await self._restore_files(self._path)
                raise
            self._undone.append(Undone(cells=self._path[length:], parked=parked, files=what == "all"))
            del self._path[length:]
            self._record_path()
            return self._take_notices()

    async def redo(self) -> tuple[str, ...]:
        async with self._lock:
            guest = await self._live_guest()
            if not self._undone:
                raise UndoRefused("nothing was undone since the last cell")
            await self._with_history()
            last = self._undone[-1]
            path = [*self._path, *last.cells]
            if last.parked is None and self._are_commands(last.cells):
                pass  # to variables they did nothing
            elif last.parked is None:
                if left := await self._go(guest, path):
                    await end_parked(left)
            else:
                await guest.kill_and_wait("it was undone")
                self._guest = last.parked
                last.parked.listen()
                self._set_guard(last.parked.keeper)
            self._path = path
            self._undone.pop()
            self._record_path()
            if last.files:
                await self._restore_files(path)
            return self._take_notices()

    async def fork(self) -> Session:
        """A session over the same live data. While it is open, nobody may write to the workspace."""
        async with self._lock:
            guest = await self._live_guest()
            state = self._path[-1] if self._path else 0
            await cast("JailedProcess", guest.body).ask(b"expect", {"cell": state})
            await self._have_copied(guest, state)
            await run_operation(guest, "idle")
            branch = await open_branch(guest, state, of=self, limits=self._limits)
            self._branches.append(branch)
            return branch

    async def keep(self, branch: Session) -> None:
        if not isinstance(branch, Branch) or branch not in self._branches:
            raise UndoRefused("only an open branch of this session can be kept")
        async with self._lock:
            guest = await self._live_guest()
            body = cast("JailedProcess", guest.body)
            kept = branch.hand_over()
            self._branches.remove(branch)
            await self._close_branches()
            guest.leave()
            kept.leave()
            await body.ask(b"adopt", {"pid": branch.body.pid})
            branch.body.release()
            guest.let_go()
            self._guest = Guest(body, branch.channel, kept.stdout, kept.stderr, greeted=True)
            self._guest.keeper, self._guest.copies = guest.keeper, guest.copies
            await self._about_to_run(None)
            self._number_cell(KEPT_BRANCH)
            await run_operation(self._guest, "adopted")
            await self._have_copied(self._guest, self._number)
            await self._on_success(again=False)

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self._close_branches()
        await super().close()

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

    async def _can_stay(self, guest: Guest, undone: list[int]) -> bool:
        """To take back commands alone, the interpreter need not change; what they left running has ended then."""
        if not self._are_commands(undone):
            return False
        began = [self._processes[cell] for cell in undone if cell in self._processes]
        pids = [pid for body, pid in began if body is guest.body]
        return not pids or await self._end_processes(guest, pids)

    async def _end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """What these commands started; with it goes whatever else began later. Whether all of that has ended."""
        answer, _ = await cast("JailedProcess", guest.body).ask(b"since", {"pid": min(pids)})
        return bool(answer.get("ended"))

    async def _roll_back(self, guest: Guest) -> bool:
        cell = self._path.pop()
        try:
            left = await self._go(guest, self._path)
        except (SandboxUnavailable, UndoRefused):
            self._path.append(cell)
            return False
        if left is not None:
            await end_parked(left)
        self._sources.pop(cell, None)
        self._record_path()
        with suppress(UndoRefused):  # then they are as the code left them, and it is said
            await self._restore_files(self._path)
        return True

    async def _recover(self, guest: Guest, death: Death, *, ran: bool) -> bool:
        if ran:
            self._path.pop()
            if self._history is not None:
                await self._history.after(spilled=self._stopped_for is not None)
        try:
            if death.cells and self._path:
                with suppress(SandboxUnavailable, UndoRefused):  # the program has ended its copies as well
                    self._guest = await self._wake(guest, self._path)
            if self._guest is None:
                await self._restart(self._path, or_less=True)
        except (SandboxUnavailable, UndoRefused):
            self._lose(self._path)
        self._record_path()
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
            copy = await self._wake(guest, path) if path else None
        except BaseException:
            guest.listen()
            raise
        if copy is not None:
            guest.hang_up_channel()
            self._guest = copy
            return None
        try:
            await self._restart(path)
        except BaseException:
            guest.listen()
            raise
        return guest

    async def _wake(self, guest: Guest, path: list[int]) -> Guest | None:
        copy, said = await wake_snapshot(guest, self._saved, self._sources, path)
        self._notices += said
        return copy

    async def _restart(self, path: list[int], *, or_less: bool = False) -> None:
        """From saved state, or the start, if what is missing can be run again. Raises UndoRefused, SandboxUnavailable."""
        fresh = await self._launcher.launch()
        try:
            back = await restore_guest(fresh, self._saved, self._sources, path)
            _be_enough(back, path, or_less=or_less)
            self._lose(back.missing)
            if back.labels:
                await self._have_copied(fresh, path[-1])
            self._notices += (*(NO_COPY for _ in back.labels[:1] if or_less), *describe_lost(back))
        except BaseException:
            await fresh.kill_and_wait("it was given up")
            if fresh.keeper:
                fresh.keeper.close()
            raise
        self._guest = fresh
        self._release_guard()  # the parked guest still has it, or its last one has closed it
        self._set_guard(fresh.keeper)
        if self._branches:
            await self._close_branches()
            self._notices += (BRANCHES_ENDED,)


def _be_enough(back: Resumed, path: list[int], *, or_less: bool) -> None:
    """`or_less`: whatever could be had of it, if that was anything. Raises UndoRefused."""
    if back.missing and not (or_less and back.cell):
        _refuse_not_kept(path)


def _refuse_not_kept(path: list[int]) -> NoReturn:
    raise UndoRefused(f"the state after cell {path[-1]} is no longer kept")
