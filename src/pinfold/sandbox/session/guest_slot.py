"""The one live guest of a session: started when needed, one request after the other, replaced when it dies.

What the requests are is the session's business, but for lists and pages of variables; how a guest is started and confined is
the provider's: it comes in as a Launcher.
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
"""For looking at what a cancelled cell did."""
AFTER = "the variables are as after the last cell"
RESTLESS = "the session's processes do not stop, so nothing was run; end what it left running, or undo, and try again"
FOUGHT = "something it left running kept changing {}, which is guarded"
Runs: TypeAlias = Literal["cell", "step", "aside"]
"""What runs in a guest: a cell, a command that counts as one, or a command that does not."""
Recover: TypeAlias = Callable[[Guest, Death, bool], Awaitable[bool]]
"""Brings the session into the state after the last cell that ended well; False if that is not possible.

The flag says that a cell ran, which ended the guest.
"""


class Launcher(Protocol):
    """Starts the guests of a session."""

    async def launch(self) -> Guest:
        """A guest that has said hello. Raises SandboxUnavailable."""
        ...

    async def sweep(self) -> None:
        """End what a dead guest left running."""

    async def release(self) -> None:
        """The session is over: sweep, and remove what was made for it."""


class States:
    """What a session keeps of its states. This one keeps none; `StateHistory` does."""

    resumed: Resumed | None = None
    """What came back from another process."""

    @property
    def path(self) -> tuple[int, ...]:
        return ()

    @property
    def changed_files(self) -> ChangedFiles:
        return ChangedFiles()

    @property
    def has_changed_files(self) -> bool | None:
        """Whether what has just run changed files of the workspace; None if that is not known."""
        return None

    def touched_names(self) -> Names | None:
        """Names in the workspace to which something happened since the last look; None if that is not known."""
        return None

    def hurry(self) -> None:
        """A caller waits while the files are looked at: stop as soon as possible."""

    async def prepare_cell(self, cell: int | None) -> None:
        """A cell is about to run; `cell` is its number, if the caller has one."""

    def begin_cell(self, code: str) -> Mapping[str, int]:  # noqa: ARG002
        """A cell runs now. Returns what its request says besides the code."""
        return {}

    def note_process(self, guest: Guest, pid: int) -> None:
        """The command that counts as a cell was this process inside."""

    async def end_cell(self, *, again: bool) -> None:
        """The cell has ended, and its interpreter has not. `again`: it left no copy, because it can be run again."""

    def pause_saving(self) -> AbstractAsyncContextManager[None]:
        return nullcontext()

    async def save(self) -> None: ...

    async def describe_uncovered(self) -> tuple[str, ...]:
        return ()

    async def finish(self) -> None:
        """The session is about to close."""

    async def close(self) -> None: ...


async def _no_recovery(_guest: Guest, _death: Death, _ran: bool) -> bool:
    return False


class GuestSlot:
    """Holds the guest, what guards its files, and what the next outcome must report."""

    def __init__(self, launcher: Launcher, limits: Limits, growth: Growth | None = None) -> None:
        self.launcher = launcher
        self.limits = limits
        self.growth = growth
        """Of the folders it may change."""
        self.states = States()
        self.recover: Recover = _no_recovery
        self.lock = asyncio.Lock()
        self.guest: Guest | None = None
        self.runs: Runs | None = None
        self.calls: CellCalls | None = None
        """Of the cell that runs."""
        self.deadline: Deadline | None = None
        """Of what runs."""
        self.stopped_for: str | None = None
        """Why what has just run was stopped before its time."""
        self.is_closed = False
        self.guard: WorkspaceGuard | None = None
        self.notices: tuple[str, ...] = ()
        """For the next outcome."""
        self.final_notices: tuple[str, ...] = ()
        self.lost_files: tuple[str, ...] = ()
        self.loss: str | None = None
        """Why the variables are gone, until an outcome has said so."""
        self.branches: list[GuestSlot] = []
        self.forking = asyncio.Lock()
        self.forks = 0
        """Made of cells that ran."""

    def take_notices(self) -> tuple[str, ...]:
        notices, self.notices = self.notices, ()
        return notices

    def set_guard(self, guard: WorkspaceGuard | None) -> None:
        """From now on `guard` looks after the workspace, around each cell and whenever names change."""
        if before := self.release_guard():
            before.close()
        self.guard = guard
        if guard and guard.fd is not None:
            asyncio.get_running_loop().add_reader(guard.fd, self._on_names_changed)

    def release_guard(self) -> WorkspaceGuard | None:
        """The guard, which is no longer called, but can be set again."""
        guard, self.guard = self.guard, None
        if guard:
            self.final_notices += guard.final_notices()
            self.lost_files += guard.lost
            if guard.fd is not None:
                asyncio.get_running_loop().remove_reader(guard.fd)
        return guard

    def _on_names_changed(self) -> None:
        """While no cell runs, what fights over a guarded file is ended."""
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
        """Run a cell or a command that `post` sends, within its deadline. Returns its end and the guard's notices."""
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
        """After what ran: end whatever fights over a guarded file, and check how much the folders grew."""
        if self.guard and self.guard.fought is not None:
            if not isinstance(end, Death):
                end = await guest.stop_program(FOUGHT.format(self.guard.fought))
            self.notices += self.guard.settle()
        if self.growth:
            why = await self.growth.finish(has_changed=self.states.has_changed_files)
            self.stopped_for = why or self.stopped_for
        return end

    def _on_excess(self, why: str) -> None:
        """The folders grow beyond their limit: stop what runs, or, if nothing does, what was left running."""
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
            is_cells = self.calls is not None and self.calls.is_open  # the cell holds the lock, and waits for us
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
                    with anyio.CancelScope(shield=True), suppress(SandboxUnavailable):  # it has ended meanwhile
                        await body.ask(b"thaw", {})

    async def interrupt(self) -> None:
        if self.runs and self.guest is not None:
            if self.deadline:
                self.deadline.wake()  # the wait for an answer is over, or the program's own choice
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
                if self.guard:  # nothing runs any more: what is put back now stays so
                    names = self.states.touched_names()
                    self.final_notices += await anyio.to_thread.run_sync(self.guard.settle, names)
                await self.launcher.release()
                self.set_guard(None)

    async def close_branches(self) -> None:
        while self.branches:
            await self.branches.pop().close()

    async def _retire(self, guest: Guest) -> None:
        """Lets the guest close the program's files, bounded, then ends it."""
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
        """The guest, or a fresh one in place of a dead one: then `loss` or a notice says so."""
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
        """Send a request that is neither cell nor command. If the guest dies of it, the next one recovers what can be."""
        async with self.lock:
            guest = await self.live_guest()
            guest.post(op, body, ASK_STATUSES, reply_bytes, fields)
            end = await self._await_end(guest, Deadline(guest, limit_s or self.limits.reply_s, grace_s))
            if isinstance(end, Death):
                raise SandboxUnavailable(f"the guest died while it served {op!r}: {end.how}")
            return end

    async def _await_end(self, guest: Guest, deadline: Deadline, on_call: OnCall | None = None) -> End:
        """The end of the open request. A cancellation goes on only after it, so the next request finds order."""
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
            self.notices += self._end_run()  # or the guard of another guest takes what was planted for the user's
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
"""How long a library may take until it notices: no signal stops its sorting, and killing it would lose variables."""
_T = TypeVar("_T")


async def list_variables(slot: GuestSlot) -> tuple[Variable, ...]:
    return decode_reply(slot, inventory, await slot.ask("variables", b"", INVENTORY_BYTES))


async def read_page(slot: GuestSlot, name: str, query: PageQuery) -> VariablePage:
    """Raises PageRefused, SandboxUnavailable."""
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
    """Raises SandboxUnavailable, and the guest is killed, if it makes no sense."""
    try:
        return decode(reply.body)
    except ChannelBroken as broken:
        if slot.guest is not None:
            slot.guest.kill(f"its channel was broken: {broken}")
        raise SandboxUnavailable(f"the guest broke its channel: {broken}") from broken
