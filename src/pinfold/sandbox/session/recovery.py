"""Going back: undo and redo, and recovery after a cell that ended its interpreter or ran out of memory."""

from __future__ import annotations

from contextlib import AsyncExitStack, ExitStack, suppress

from pinfold.sandbox.contract import SandboxUnavailable, UndoRefused, What
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death
from pinfold.sandbox.session.guest_slot import GuestSlot
from pinfold.sandbox.session.state_history import StateHistory, Undone, end_parked
from pinfold.sandbox.session.state_restore import describe_lost, restore_guest, run_operation

NO_COPY = "The process that held the state is gone: its variables come from what was saved."
FILES_STAY = "The files stay as the code left them: {}."
BRANCHES_ENDED = (
    "The branches of the session have ended: the state it went to is not in the process they are copies of."
)


class Recovery:
    def __init__(self, slot: GuestSlot, history: StateHistory) -> None:
        self._slot = slot
        self._history = history
        self._cells = history.cells

    async def undo(self, to: int | None, what: What) -> tuple[str, ...]:
        slot, history, cells = self._slot, self._history, self._cells
        await history.source.before_undo(to)
        async with slot.lock:
            guest = await slot.live_guest()
            length = self._length_after(to)
            if length == len(cells.path):
                return ()
            await history.with_files()
            if what != "files":
                await run_operation(guest, "idle")  # otherwise redo could not return to the present state
            stays = what != "files" and await self._can_stay(guest, cells.path[length:])
            if what != "variables":
                await history.restore_files(cells.path[:length])
            if what == "files":
                return slot.take_notices()
            try:
                parked = None if stays else await self._go(guest, cells.path[:length])
            except UndoRefused:
                if what == "all":
                    await history.restore_files(cells.path)
                raise
            history.undone.append(Undone(cells=cells.path[length:], parked=parked, files=what == "all"))
            del cells.path[length:]
            history.record_path()
            return slot.take_notices()

    async def redo(self) -> tuple[str, ...]:
        slot, history = self._slot, self._history
        async with slot.lock:
            guest = await slot.live_guest()
            if not history.undone:
                raise UndoRefused("nothing was undone since the last cell")
            await history.with_files()
            last = history.undone[-1]
            path = [*self._cells.path, *last.cells]
            if last.parked is not None:
                await guest.kill_and_wait("it was undone")
                slot.guest = last.parked
                last.parked.listen()
                slot.set_guard(last.parked.guard)
            # Commands do not change variables.
            elif not self._cells.are_commands(last.cells) and (left := await self._go(guest, path)):
                await end_parked(left)
            self._cells.path = path
            history.undone.pop()
            history.record_path()
            if last.files:
                await history.restore_files(path)
            return slot.take_notices()

    async def roll_back(self, guest: Guest) -> bool:
        """Undo the cell that has just ended. Returns False if that is not possible."""
        cell = self._cells.path.pop()
        try:
            left = await self._go(guest, self._cells.path)
        except (SandboxUnavailable, UndoRefused):
            self._cells.path.append(cell)
            return False
        if left is not None:
            await end_parked(left)
        self._cells.sources.pop(cell, None)
        self._history.record_path()
        await self._restore_files()
        return True

    async def recover(self, guest: Guest, death: Death, ran: bool) -> bool:
        """Restore the state after the last cell that ended well. Returns False if that is not possible."""
        slot, history, cells = self._slot, self._history, self._cells
        if ran:
            cells.path.pop()
            await history.end_files()
        try:
            if death.cells and cells.path:
                with suppress(SandboxUnavailable, UndoRefused):  # the program may have ended its copies as well
                    slot.guest = await history.source.wake(guest, cells.path)
            if slot.guest is None:
                await self._restart(cells.path, or_less=True)
        except (SandboxUnavailable, UndoRefused):
            history.lose(cells.path)
        history.record_path()
        if slot.guest is None or slot.guest.body is not guest.body:
            guest.give_up_copies()
        if slot.guest is None:
            return False
        if ran:
            await self._restore_files()
        return True

    async def _restore_files(self) -> None:
        """Restore the files after a failed cell, or add a notice that they stay as the code left them."""
        try:
            await self._history.restore_files(self._cells.path)
        except UndoRefused as error:
            self._slot.notices += (FILES_STAY.format(error),)

    def _length_after(self, to: int | None) -> int:
        """Return how many cells of the path remain after the undo. Raises UndoRefused."""
        path = self._cells.path
        if to is None and not path:
            raise UndoRefused("there is no cell to undo")
        if to is None:
            return len(path) - 1
        if to != 0 and to not in path:
            known = ", ".join(map(str, (0, *path)))
            raise UndoRefused(f"there is no state after cell {to} to go back to; there are {known}")
        return path.index(to) + 1 if to else 0

    async def _can_stay(self, guest: Guest, undone: list[int]) -> bool:
        """If all undone steps were commands, end what they left running. True if the interpreter can then stay."""
        if not self._cells.are_commands(undone):
            return False
        processes = self._history.processes
        pids = [processes[cell][1] for cell in undone if cell in processes and processes[cell][0] is guest.body]
        return not pids or await self._history.source.end_processes(guest, pids)

    async def _go(self, guest: Guest, path: list[int]) -> Guest | None:
        """Switch to the state after these cells. Returns the old guest if it still holds the state that was left.

        Raises UndoRefused, and then nothing has changed.
        """
        guest.leave()
        with ExitStack() as on_failure:
            on_failure.callback(guest.listen)
            copy = await self._history.source.wake(guest, path) if path else None
            if copy is None:
                await self._restart(path)
            on_failure.pop_all()
        if copy is not None:
            guest.channel.close()
            self._slot.guest = copy
            return None
        if not self._history.source.parks:
            await end_parked(guest)
            return None
        return guest

    async def _restart(self, path: list[int], *, or_less: bool = False) -> None:
        """Start a guest and restore the state after these cells in it. Raises UndoRefused, SandboxUnavailable.

        `or_less`: accept the state after the last cell that can be restored.
        """
        slot, history = self._slot, self._history
        fresh = await slot.launcher.launch()
        async with AsyncExitStack() as on_failure:
            if fresh.guard:
                on_failure.callback(fresh.guard.close)
            on_failure.push_async_callback(fresh.kill_and_wait, "it was given up")
            back = await restore_guest(fresh, history.saved, self._cells.sources, path)
            if back.missing and not (or_less and back.cell):
                raise UndoRefused(f"the state after cell {path[-1]} is no longer kept")
            history.lose(back.missing)
            if back.labels:
                await history.have_copied(fresh, path[-1])
            slot.notices += (*(NO_COPY for _ in back.labels[:1] if or_less), *describe_lost(back))
            on_failure.pop_all()
        slot.guest = fresh
        slot.release_guard()  # not closed here: a parked guest still has it, or its last guest has closed it
        slot.set_guard(fresh.guard)
        slot.branches[:] = [one for one in slot.branches if not one.is_closed]
        if slot.branches:
            await slot.close_branches()
            slot.notices += (BRANCHES_ENDED,)
