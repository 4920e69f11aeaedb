"""A session that goes back without frozen copies: each state is told by a fork of the guest, saved, and made again."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import Capabilities, NotSupported, Session, Spec, What
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.session.commands import end_group
from pinfold.sandbox.session.durable_session import end_parked
from pinfold.sandbox.session.growth import growth_of
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_slot import Launcher
from pinfold.sandbox.session.saved_states import SavedStates, Unsaved
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.session.state_restore import run_operation
from pinfold.sandbox.session.undoable_session import UndoableSession

WAIT_S = 0.1
"""For a state that is still being saved; then the next one is not."""


class SavedStateSession(UndoableSession):
    """Only of what is saved anything comes back; one state is being saved at a time, beside the cells."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self._receiving: asyncio.Task[None] | None = None
        self._has_gap = False
        """A state was not saved, so that those after it cannot be had by running cells again."""

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...]:
        at = self._path.index(to) + 1 if to in self._path else len(self._path) - 1 if to is None else 0
        if not self._are_commands(self._path[at:]):
            await self._save_now(0)  # or there would be nothing to come back to
        return await super().undo(to, what)

    async def fork(self) -> Session:
        raise NotSupported("this sandbox cannot fork a live session")

    async def keep(self, branch: Session) -> None:
        raise NotSupported(f"this sandbox has no branches to keep, such as {branch!r}")

    async def _about_to_run(self, cell: int | None) -> None:
        await self._begin_to_save()
        await super()._about_to_run(cell)

    async def _begin_to_save(self) -> None:
        """The state as it is now, unless it can be run again or another is still being saved."""
        guest, cell = self._guest, self._last_cell()
        if guest is None or guest.death is not None or cell is None or cell in self._saved.cells:
            return
        if self._receiving is not None:
            await asyncio.wait((self._receiving,), timeout=WAIT_S)
            if not self._receiving.done():
                self._has_gap = True
                return
        told = await self._saved.fork_saver(guest, anyway=self._has_gap)
        if told is not None:
            self._has_gap = False
            self._receiving = asyncio.get_running_loop().create_task(self._receive(cell, told))

    def _last_cell(self) -> int | None:
        """Whose state it is: commands since then have not changed it."""
        return next((cell for cell in reversed(self._path) if not self._are_commands([cell])), None)

    async def _receive(self, cell: int, told: socket.socket) -> None:
        try:
            await self._saved.take(cell, told)
        except Unsaved as error:
            self._notices += (f"{error}; it cannot be gone back to.",)

    async def _save_now(self, depth_s: float) -> None:  # noqa: ARG002 - states before it are saved or gone
        if not self._runs:
            async with self._lock:
                await self._begin_to_save()
        if self._receiving is not None:
            with anyio.CancelScope(shield=True):
                await self._receiving

    async def _wake(self, guest: Guest, path: list[int]) -> Guest | None:  # noqa: ARG002
        return None

    async def _end_processes(self, guest: Guest, pids: list[int]) -> bool:
        """As far as they are still in the process groups of the commands."""
        return all([await end_group(guest, pid) for pid in pids])

    async def _drop_copies(self, guest: Guest) -> None:
        """There are none."""

    async def _go(self, guest: Guest, path: list[int]) -> Guest | None:
        left = await super()._go(guest, path)
        if left is not None:
            await end_parked(left)


class _Prepared:
    """Guests of a launcher, each ready to be saved before any code of the program's runs in it."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.sweep = launcher.sweep
        self.release = launcher.release

    async def launch(self) -> Guest:
        guest = await self._launcher.launch()
        await run_operation(guest, "prepare")
        return guest


async def open_saved_state_session(launcher: Launcher, capabilities: Capabilities, spec: Spec) -> Session:
    """A session of guests that cannot be copied. With a place to keep it in it goes on, and can go back."""
    if spec.state is None or not capabilities.durable:
        return await GuestSession.start(launcher, capabilities, spec.limits, growth=growth_of(spec))
    files = spec.state / "files"

    async def history() -> FileHistory | str:
        return await anyio.to_thread.run_sync(FileHistory.create_if_possible, spec.workspace, files)

    session = await SavedStateSession.start(
        _Prepared(launcher),
        capabilities,
        spec.limits,
        history=history if spec.writable else None,
        saved=SavedStates(spec.state),
        growth=growth_of(spec),
    )
    return await session.resume()
