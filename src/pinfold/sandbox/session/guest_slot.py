"""One guest at a time: started when it is needed, one request after the other, and what is said when it is lost.

What the requests are is the session's; how a guest is started, and what confines it, is the provider's: it comes in as
a Launcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Any, Literal, Protocol, Self

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import Capabilities, Limits, NotSupported, OnCall, SandboxUnavailable
from pinfold.sandbox.guards.new_names import Names
from pinfold.sandbox.guards.ports import WorkspaceGuard
from pinfold.sandbox.session.cell_calls import CellCalls
from pinfold.sandbox.session.channel import ASK_STATUSES, ChannelBroken, Reply, command_outcome
from pinfold.sandbox.session.deadline import Deadline
from pinfold.sandbox.session.deaths import Death, End
from pinfold.sandbox.session.growth import Growth
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess

GONE = "the variables are gone"
HASTE_S = 1.0
"""For looking at what a cell did that was cancelled."""
AFTER = "the variables are as after the last cell"
RESTLESS = "the session's processes do not stop, so nothing was run; end what it left running, or undo, and try again"
FOUGHT = "something it left running kept changing {}, which is guarded"


class Launcher(Protocol):
    """Where a session's guests come from."""

    async def launch(self) -> Guest:
        """A guest that has said hello. Raises SandboxUnavailable."""
        ...

    async def sweep(self) -> None:
        """End what a dead guest left running."""
        ...

    async def release(self) -> None:
        """The session is over: sweep, and remove what was made for it."""
        ...


class GuestSlot:
    """What runs in it is a cell, or a command."""

    def __init__(
        self, *, launcher: Launcher, capabilities: Capabilities, limits: Limits, growth: Growth | None = None
    ) -> None:
        self._launcher = launcher
        self._growth = growth
        """Of the folders it may change."""
        self._capabilities = capabilities
        self._limits = limits
        self._lock = asyncio.Lock()
        self._guest: Guest | None = None
        self._runs: Literal["cell", "step", "aside"] | None = None
        """Now: a cell, a command that counts as one, or a command that does not."""
        self._answering: CellCalls | None = None
        """The calls of the cell that runs."""
        self._deadline: Deadline | None = None
        """Of what runs."""
        self._stopped_for: str | None = None
        """What has just run, before its time."""
        self._closed = False
        self._keeper: WorkspaceGuard | None = None
        self._notices: tuple[str, ...] = ()
        """What the keeper said, until a cell's outcome has."""
        self._parting: tuple[str, ...] = ()
        self._lost_files: tuple[str, ...] = ()
        self._lost: str | None = None
        """Why the variables are gone, until a cell's outcome has said so."""

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def _set_guard(self, keeper: WorkspaceGuard | None) -> None:
        """From now on `keeper` looks after the workspace, around each cell and when it is woken."""
        loop = asyncio.get_running_loop()
        before = self._release_guard()
        if before:
            before.close()
        self._keeper = keeper
        if keeper and keeper.fd is not None:
            loop.add_reader(keeper.fd, self._look_after_files)

    def _look_after_files(self) -> None:
        """Something happened to a name. What fights over a guarded file while no cell runs is ended."""
        if self._keeper:
            self._keeper.on_names_changed()
            if (path := self._keeper.fought) and not self._runs and self._guest is not None:
                self._guest.kill(FOUGHT.format(path))

    def _names(self) -> Names | None:
        """What happened to names in the workspace since they were last looked at; None where nobody tells."""
        return None

    async def _end_fight(self, guest: Guest, end: End) -> End:
        """What keeps a guarded file from being put back is ended, whatever it is."""
        if self._keeper is None or self._keeper.fought is None:
            return end
        if not isinstance(end, Death):
            end = await guest.stop_program(FOUGHT.format(self._keeper.fought))
        self._notices += self._keeper.settle()
        return end

    def allow_edit(self, path: str) -> None:
        """The host is about to change this file of the workspace, as the user agreed."""
        if self._keeper:
            self._keeper.allow(path)

    @property
    def parting(self) -> tuple[str, ...]:
        """Once it is closed: what the user must know of the workspace."""
        return tuple(dict.fromkeys(self._parting))

    @property
    def lost_files(self) -> tuple[str, ...]:
        """Once it is closed: guarded files that could not be put back, a line each."""
        return self._lost_files

    def _release_guard(self) -> WorkspaceGuard | None:
        """The keeper, which is not woken any more, but can be again."""
        keeper, self._keeper = self._keeper, None
        if keeper:
            self._parting += keeper.final_notices()
            self._lost_files += keeper.lost
        if keeper and keeper.fd is not None:
            asyncio.get_running_loop().remove_reader(keeper.fd)
        return keeper

    @classmethod
    async def start(cls, launcher: Launcher, capabilities: Capabilities, limits: Limits, **more: Any) -> Self:
        """A session whose first guest has said hello, or nothing left behind. Raises SandboxUnavailable."""
        session = cls(launcher=launcher, capabilities=capabilities, limits=limits, **more)
        try:
            async with session._lock:
                await session._live_guest()
        except BaseException:
            await session.close()
            raise
        return session

    @contextmanager
    def pause_clock(self) -> Generator[None]:
        deadline = self._deadline if self._runs == "cell" else None
        if deadline:
            deadline.pause()
        try:
            yield
        finally:
            if deadline:
                deadline.go_on()

    @asynccontextmanager
    async def freeze(self) -> AsyncGenerator[None]:
        is_cells = self._answering is not None and self._answering.is_open  # which holds the lock, and waits for us
        async with nullcontext() if is_cells else self._lock:
            guest = self._guest if is_cells else await self._live_guest()
            body = guest.body if guest else None
            if not isinstance(body, JailedProcess):
                raise NotSupported("the processes of this sandbox cannot be stopped")
            try:
                if not await body.freeze():
                    raise SandboxUnavailable(RESTLESS)
                yield
            finally:
                with anyio.CancelScope(shield=True), suppress(SandboxUnavailable):  # it has ended meanwhile
                    await body.thaw()

    async def interrupt(self) -> None:
        if self._runs and self._guest is not None:
            if self._deadline:
                self._deadline.wake()  # the wait for an answer is over, or the program's own choice
            self._guest.interrupt()
        elif not self._runs:
            self._hurry()

    def _hurry(self) -> None:
        """What has run is being looked at, and somebody waits: no longer than it takes to stop."""

    def _is_too_much(self, why: str) -> None:
        """The workspace grows beyond its limit: what runs is stopped. If nothing does, it is what was left running."""
        if self._guest is None:
            return
        if self._runs and self._deadline:
            self._deadline.stop(why, self._limits.interrupt_grace_s)
        elif not self._lock.locked():
            self._guest.kill(why)

    async def _check_growth(self) -> str | None:
        """What has just run, in words."""
        if self._growth is None:
            return None
        return await self._growth.finish(has_changed=self._has_changed_files())

    def _has_changed_files(self) -> bool | None:
        """What has just run, of the workspace; None if nobody knows."""
        return None

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._growth:
            self._growth.close()
        with anyio.CancelScope(shield=True):
            if self._guest is not None and self._runs:
                self._guest.kill("the session was closed")
            async with self._lock:
                if self._keeper:
                    self._keeper.on_names_changed(self._names())
                if self._guest is not None:
                    await self._retire(self._guest)
                if self._keeper:  # nothing runs any more: what is put back now stays so
                    names = self._names()
                    self._parting += await anyio.to_thread.run_sync(self._keeper.settle_all, names)
                await self._launcher.release()
                self._set_guard(None)

    async def _retire(self, guest: Guest) -> None:
        """Lets the guest close the program's files, bounded, then ends it."""
        guest.hang_up()
        grace_s = self._limits.interrupt_grace_s
        timer = asyncio.get_running_loop().call_later(grace_s, guest.kill, "the session was closed")
        try:
            await guest.end()
        finally:
            timer.cancel()
            guest.give_up_copies()
            self._guest = None

    async def _live_guest(self) -> Guest:
        """The guest, or a fresh one in place of a dead one: then `_lost` holds what is to be said."""
        if self._closed:
            raise SandboxUnavailable("the session is closed; open a new one")
        guest = self._guest
        if guest is not None and guest.death is not None:
            self._forget(f"died between cells: {guest.death.how}")
            if self._keeper:
                self._keeper.on_names_changed(self._names())
                self._notices += self._keeper.settle()
            if await self._recover(guest, guest.death, ran=False):
                self._notices += (f"The interpreter died between cells: {guest.death.how}; {AFTER}.",)
                self._lost = None
        if self._guest is None:
            await self._launcher.sweep()
            self._guest = await self._launcher.launch()
            self._set_guard(self._guest.keeper)
        await self._guest.settle_interrupt()
        return self._guest

    async def _ask(self, op: str, body: bytes, reply_bytes: int, **fields: str | int) -> Reply:
        """Anything that is not a cell."""
        async with self._lock:
            guest = await self._live_guest()
            guest.post(op, body, ASK_STATUSES, reply_bytes, fields)
            deadline = Deadline(guest, self._limits.reply_s, 0.0)
            end = await self._await_end(guest, deadline)
            if isinstance(end, Death):
                self._forget(f"died while it served {op!r}: {end.how}")
                raise SandboxUnavailable(f"the guest died while it served {op!r}: {end.how}; {GONE}")
            return end

    async def _await_end(self, guest: Guest, deadline: Deadline, on_call: OnCall | None = None) -> End:
        """The end of the open request. A cancellation goes on only after it, so the next request finds order."""
        try:
            if on_call is not None:
                self._answering = CellCalls(guest, deadline, on_call)
                await self._answering.serve()
            return await guest.end()
        except BaseException:  # cancelled, or a failure of `on_call`
            deadline.now(self._limits.interrupt_grace_s)
            await self._await_stop(guest)
            raise
        finally:
            self._answering = None
            deadline.cancel()

    async def _await_stop(self, guest: Guest) -> None:
        with anyio.CancelScope(shield=True):
            try:
                end = await guest.end()
            except asyncio.CancelledError:  # asyncio's own second cancel, which no shield stops
                guest.kill("it was cancelled twice")
                raise
            haste = asyncio.get_running_loop().call_later(HASTE_S, self._hurry)
            try:
                await self._end_stopped(guest, end)
            finally:
                haste.cancel()

    async def _end_stopped(self, guest: Guest, end: End) -> None:
        if isinstance(end, Death):
            self._forget(f"was cancelled: {end.how}")
            if await self._recover(guest, end, ran=self._runs in ("cell", "step")):
                self._lost = None
        elif self._runs == "cell":
            await self._on_success(again=end.again)
        elif self._runs == "step":
            with suppress(ChannelBroken):  # what is wrong with it nobody will read
                self._began(guest, command_outcome(end.body).pid)
            await self._on_success(again=True)

    def _forget(self, how: str) -> None:
        self._guest = None
        self._lost = f"The interpreter {how}; {GONE}."

    async def _about_to_run(self, cell: int | None) -> None:
        """A cell, if nothing comes between; `cell` is its number, if the caller has one."""

    def _number_cell(self, code: str) -> Mapping[str, int]:  # noqa: ARG002 - for those who keep states
        """What a cell's request says besides; it runs now."""
        return {}

    def _began(self, guest: Guest, pid: int) -> None:
        """The command that is a step was this process inside."""

    async def _on_success(self, *, again: bool) -> None:
        """The cell has ended, and its interpreter has not. `again`: it left no copy, for it can be run again."""

    async def _roll_back(self, guest: Guest) -> bool:  # noqa: ARG002
        """What the cell that has just ended did, if there is a way."""
        return False

    async def _recover(self, guest: Guest, death: Death, *, ran: bool) -> bool:  # noqa: ARG002
        """Be in the state after the last cell that ended well, if there is a way. `ran`: another cell did, which ended it."""
        return False
