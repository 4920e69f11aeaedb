"""The one live guest of a session: started when needed, given one request at a time, replaced when it dies.

The session makes the requests, except lists and pages of variables. The provider starts and confines guests, through a
Launcher.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from typing import Literal, Protocol, TypeAlias, TypeVar

import anyio
import anyio.to_thread
from msgspec.structs import asdict

from pinfold.sandbox.abilities import MOST_ROWS, PageQuery, PageRefused, VariablePage
from pinfold.sandbox.contract import ChangedFiles, Limits, NotSupported, OnCall, Resumed, SandboxUnavailable, Variable
from pinfold.sandbox.guards.new_names import Names
from pinfold.sandbox.guards.ports import WorkspaceGuard
from pinfold.sandbox.session.cell_calls import CellCalls
from pinfold.sandbox.session.channel import (
    ASK_STATUSES,
    INVENTORY_BYTES,
    PAGE_BYTES,
    ChannelBroken,
    Reply,
    command_outcome,
    inventory,
    variable_page,
)
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death, End, JailedProcess
from pinfold.sandbox.session.limits import Deadline, Growth

GONE = "the variables are gone"
HASTE_S = 1.0
"""Time to look for a cancelled cell's file changes before that is hurried."""
AFTER = "the variables are as after the last cell"
RESTLESS = "the session's processes do not stop, so nothing was run; end what it left running, or undo, and try again"
FOUGHT = "a process it left running kept changing {}, which is guarded"
Runs: TypeAlias = Literal["cell", "step", "aside"]
"""What runs in a guest: a cell, a command that counts as a cell, or a command that does not."""
Recover: TypeAlias = Callable[[Guest, Death, bool], Awaitable[bool]]
"""Restores the state after the last cell that ended well; False if that is not possible.

The flag is true if a cell was running when the guest died.
"""


class Launcher(Protocol):
    """Starts the guests of a session."""

    async def launch(self) -> Guest:
        """Start a guest and wait for its hello. Raises SandboxUnavailable."""
        ...

    async def sweep(self) -> None:
        """End what a dead guest left running."""

    async def release(self) -> None:
        """At the end of the session: sweep, and remove what was made for it."""


class States:
    """The states a session keeps. This base class keeps none; `StateHistory` does."""

    resumed: Resumed | None = None
    """What was restored from another process."""

    @property
    def path(self) -> tuple[int, ...]:
        return ()

    @property
    def changed_files(self) -> ChangedFiles:
        return ChangedFiles()

    @property
    def has_changed_files(self) -> bool | None:
        """True if the last run changed files of the workspace; None if unknown."""
        return None

    def touched_names(self) -> Names | None:
        """Return names in the workspace that changed since the last call; None if unknown."""
        return None

    def hurry(self) -> None:
        """Finish looking at the files as soon as possible, because a caller waits."""

    async def prepare_cell(self, cell: int | None) -> None:
        """Prepare for a cell; `cell` is its number, if the caller has one."""

    def begin_cell(self, code: str) -> Mapping[str, int]:  # noqa: ARG002
        """Record that a cell starts. Returns fields to add to its request."""
        return {}

    def note_process(self, guest: Guest, pid: int) -> None:
        """Record the inner process number of a command that counts as a cell."""

    async def end_cell(self, *, again: bool) -> None:
        """Record that a cell ended and its guest lives. `again`: it left no copy, because it can be run again."""

    def pause_saving(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def save(self) -> None: ...

    async def describe_uncovered(self) -> tuple[str, ...]:
        return ()

    async def finish(self) -> None:
        """Save what is left before the session closes."""

    async def close(self) -> None: ...


async def _no_recovery(_guest: Guest, _death: Death, _ran: bool) -> bool:
    return False


class GuestSlot:
    """Holds the guest, the guard of its files, and the notices for the next outcome."""

    def __init__(self, launcher: Launcher, limits: Limits, growth: Growth | None = None) -> None:
        self.launcher = launcher
        self.limits = limits
        self.growth = growth
        """Growth of the writable folders."""
        self.states = States()
        self.recover: Recover = _no_recovery
        self.lock = asyncio.Lock()
        self.guest: Guest | None = None
        self.runs: Runs | None = None
        self.calls: CellCalls | None = None
        """Calls of the running cell."""
        self.deadline: Deadline | None = None
        """Deadline of the running cell or command."""
        self.stopped_for: str | None = None
        """Why the last cell or command was stopped early."""
        self.is_closed = False
        self.guard: WorkspaceGuard | None = None
        self.notices: tuple[str, ...] = ()
        """Notices for the next outcome."""
        self.final_notices: tuple[str, ...] = ()
        self.lost_files: tuple[str, ...] = ()
        self.loss: str | None = None
        """Why the variables are gone, until an outcome has reported it."""
        self.branches: list[GuestSlot] = []
        self.forking = asyncio.Lock()
        self.forks = 0
        """The number of forks made while a cell ran."""

    def take_notices(self) -> tuple[str, ...]:
        notices, self.notices = self.notices, ()
        return notices

    def set_guard(self, guard: WorkspaceGuard | None) -> None:
        """Let `guard` guard the workspace from now on, around each cell and whenever names change."""
        if before := self.release_guard():
            before.close()
        self.guard = guard
        if guard and guard.fd is not None:
            asyncio.get_running_loop().add_reader(guard.fd, self._on_names_changed)

    def release_guard(self) -> WorkspaceGuard | None:
        """Detach and return the guard. It can be set again."""
        guard, self.guard = self.guard, None
        if guard:
            self.final_notices += guard.final_notices()
            self.lost_files += guard.lost
            if guard.fd is not None:
                asyncio.get_running_loop().remove_reader(guard.fd)
        return guard

    def _on_names_changed(self) -> None:
        """Call the guard. If no cell runs, kill a guest whose processes keep changing a guarded file."""
        if self.guard:
            self.guard.on_names_changed()
            if (path := self.guard.fought) and not self.runs and self.guest is not None:
                self.guest.kill(FOUGHT.format(path))

    async def perform(
        self,
        guest: Guest,
        kind: Runs,
        post: Callable[[], None],
        deadline: Callable[[], Deadline],
        on_call: OnCall | None = None,
    ) -> tuple[End, tuple[str, ...]]:
        """Run the cell or command that `post` sends, within its deadline. Returns its end and the guard's notices."""
        if self.growth:
            self.growth.begin(guest.body.fd, guest.scratch, self._on_excess)
        post()
        self.runs = kind
        self.deadline = deadline()
        try:
            end = await self._await_end(guest, self.deadline, on_call)
        except BaseException:
            self.notices += self._end_run()
            raise
        self.stopped_for = self.deadline.why
        return end, self._end_run()

    def _end_run(self) -> tuple[str, ...]:
        self.runs = None
        return self.guard.after(self.states.touched_names()) if self.guard else ()

    async def settle(self, guest: Guest, end: End) -> End:
        """After a run: end a program that keeps changing a guarded file, and check how much the folders grew."""
        if self.guard and self.guard.fought is not None:
            if not isinstance(end, Death):
                end = await guest.stop_program(FOUGHT.format(self.guard.fought))
            self.notices += self.guard.settle()
        if self.growth:
            why = await self.growth.finish(has_changed=self.states.has_changed_files)
            self.stopped_for = why or self.stopped_for
        return end

    def _on_excess(self, why: str) -> None:
        """Stop what runs, or else what was left running, because the folders grew beyond their limit."""
        if self.guest is None:
            return
        if self.runs and self.deadline:
            self.deadline.stop(why, self.limits.interrupt_grace_s)
        elif not self.lock.locked():
            self.guest.kill(why)

    @contextmanager
    def pause_clock(self) -> Generator[None]:
        deadline = self.deadline if self.runs == "cell" else None
        if deadline:
            deadline.pause()
        try:
            yield
        finally:
            if deadline:
                deadline.go_on()

    @asynccontextmanager
    async def freeze(self) -> AsyncGenerator[None]:
        async with self.states.pause_saving():
            is_cells = self.calls is not None and self.calls.is_open  # the waiting cell already holds the lock
            async with nullcontext() if is_cells else self.lock:
                guest = self.guest if is_cells else await self.live_guest()
                body = guest.body if guest else None
                if not isinstance(body, JailedProcess):
                    raise NotSupported("the processes of this sandbox cannot be stopped")
                try:
                    answer, _ = await body.ask(b"freeze", {})
                    if answer.get("frozen") is not True:
                        raise SandboxUnavailable(RESTLESS)
                    yield
                finally:
                    with anyio.CancelScope(shield=True), suppress(SandboxUnavailable):  # the session may have ended
                        await body.ask(b"thaw", {})

    async def interrupt(self) -> None:
        if self.runs and self.guest is not None:
            if self.deadline:
                self.deadline.wake()  # if the program still waits for an answer, that now counts as its own time
            self.guest.interrupt()
        elif not self.runs:
            self.states.hurry()

    async def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        if self.growth:
            self.growth.close()
        with anyio.CancelScope(shield=True):
            if self.guest is not None and self.runs:
                self.guest.kill("the session was closed")
            async with self.lock:
                if self.guard:
                    self.guard.on_names_changed(self.states.touched_names())
                if self.guest is not None:
                    await self._retire(self.guest)
                if self.guard:  # no process is left, so what is put back now stays
                    names = self.states.touched_names()
                    self.final_notices += await anyio.to_thread.run_sync(self.guard.settle, names)
                await self.launcher.release()
                self.set_guard(None)

    async def close_branches(self) -> None:
        while self.branches:
            await self.branches.pop().close()

    async def _retire(self, guest: Guest) -> None:
        """Let the guest close the program's files within the grace time, then end it."""
        guest.hang_up()
        grace_s = self.limits.interrupt_grace_s
        timer = asyncio.get_running_loop().call_later(grace_s, guest.kill, "the session was closed")
        try:
            await guest.end()
        finally:
            timer.cancel()
            guest.give_up_copies()
            self.guest = None

    async def live_guest(self) -> Guest:
        """Return the guest. A dead one is replaced, which `loss` or a notice reports."""
        if self.is_closed:
            raise SandboxUnavailable("the session is closed; open a new one")
        guest = self.guest
        if guest is not None and guest.death is not None:
            self.forget(f"died between cells: {guest.death.how}")
            if self.guard:
                self.guard.on_names_changed(self.states.touched_names())
                self.notices += self.guard.settle()
            if await self.recover(guest, guest.death, False):
                self.notices += (f"The interpreter died between cells: {guest.death.how}; {AFTER}.",)
                self.loss = None
        if self.guest is None:
            await self.launcher.sweep()
            self.guest = await self.launcher.launch()
            self.set_guard(self.guest.guard)
        await self.guest.settle_interrupt()
        return self.guest

    async def ask(
        self,
        op: str,
        body: bytes,
        reply_bytes: int,
        *,
        limit_s: float | None = None,
        grace_s: float = 0.0,
        **fields: str | int,
    ) -> Reply:
        """Send a request that is neither cell nor command. If it kills the guest, the next request recovers."""
        async with self.lock:
            guest = await self.live_guest()
            guest.post(op, body, ASK_STATUSES, reply_bytes, fields)
            end = await self._await_end(guest, Deadline(guest, limit_s or self.limits.reply_s, grace_s))
            if isinstance(end, Death):
                raise SandboxUnavailable(f"the guest died while it served {op!r}: {end.how}")
            return end

    async def _await_end(self, guest: Guest, deadline: Deadline, on_call: OnCall | None = None) -> End:
        """Wait for the end of the open request. A cancellation waits for it too, so the next request can start."""
        try:
            if on_call is not None:
                self.calls = CellCalls(guest, deadline, on_call)
                await self.calls.serve()
            return await guest.end()
        except BaseException:  # cancelled, or a failure of `on_call`
            deadline.now(max(deadline.grace_s, self.limits.interrupt_grace_s))
            await self._await_stop(guest)
            raise
        finally:
            self.calls = None
            deadline.cancel()

    async def _await_stop(self, guest: Guest) -> None:
        with anyio.CancelScope(shield=True):
            try:
                end = await guest.end()
            except asyncio.CancelledError:  # asyncio's own second cancel, which no shield stops
                guest.kill("it was cancelled twice")
                raise
            haste = asyncio.get_running_loop().call_later(HASTE_S, self.states.hurry)
            try:
                await self._end_stopped(guest, end)
            finally:
                haste.cancel()

    async def _end_stopped(self, guest: Guest, end: End) -> None:
        if isinstance(end, Death):
            runs = self.runs
            self.notices += self._end_run()  # now: the next guest's guard would take planted files for the user's
            self.forget(f"was cancelled: {end.how}")
            if await self.recover(guest, end, runs in ("cell", "step")):
                self.loss = None
        elif self.runs == "cell":
            await self.states.end_cell(again=end.again)
        elif self.runs == "step":
            with suppress(ChannelBroken):  # the outcome of a cancelled command is not reported
                self.states.note_process(guest, command_outcome(end.body).pid)
            await self.states.end_cell(again=True)

    def forget(self, how: str) -> None:
        self.guest = None
        self.loss = f"The interpreter {how}; {GONE}."


PAGE_S = 10.0
"""How long a page may take before it is interrupted."""
PAGE_GRACE_S = 30.0
"""Time for a library to notice the interrupt: a signal does not stop a sort, and killing the guest loses variables."""
_T = TypeVar("_T")


async def list_variables(slot: GuestSlot) -> tuple[Variable, ...]:
    return decode_reply(slot, inventory, await slot.ask("variables", b"", INVENTORY_BYTES))


async def read_page(slot: GuestSlot, name: str, query: PageQuery) -> VariablePage:
    """Ask for a page of a variable. Raises PageRefused, SandboxUnavailable."""
    if not 1 <= query.limit <= MOST_ROWS:
        raise PageRefused(f"limit is {query.limit}; give 1 to {MOST_ROWS}")
    if query.offset < 0:
        raise PageRefused(f"offset is {query.offset}; give 0 or more")
    body = json.dumps({"name": name, **asdict(query)}).encode()
    reply = await slot.ask("page", body, PAGE_BYTES, limit_s=PAGE_S, grace_s=PAGE_GRACE_S)
    if reply.status == "refused":
        raise PageRefused(reply.body.decode("utf-8", "replace"))
    return decode_reply(slot, variable_page, reply)


def decode_reply(slot: GuestSlot, decode: Callable[[bytes], _T], reply: Reply) -> _T:
    """Decode a reply. If it is malformed, kill the guest and raise SandboxUnavailable."""
    try:
        return decode(reply.body)
    except ChannelBroken as broken:
        if slot.guest is not None:
            slot.guest.kill(f"its channel was broken: {broken}")
        raise SandboxUnavailable(f"the guest broke its channel: {broken}") from broken
