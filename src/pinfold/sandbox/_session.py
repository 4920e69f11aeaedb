"""A session over one guest at a time: cells, interrupts, limits, and what is said when a guest is lost.

How a guest is started, and what confines it, is the provider's: it comes in as a Launcher.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal, Protocol, Self

import anyio

from pinfold.sandbox._answering import Answering
from pinfold.sandbox._commands import Command, not_run
from pinfold.sandbox._endings import Deadline, verdict
from pinfold.sandbox._guest import Death, End, Guest
from pinfold.sandbox._keeping import Keeping
from pinfold.sandbox._trail import COMMAND
from pinfold.sandbox.channel import (
    ASK_STATUSES,
    CELL_BYTES,
    INVENTORY_BYTES,
    RAN_BYTES,
    REFUSAL_BYTES,
    ChannelBroken,
    GuestCall,
    GuestStatus,
    Reply,
    command_outcome,
    inventory,
)
from pinfold.sandbox.contract import (
    Capabilities,
    CommandOutcome,
    FileRefused,
    Limits,
    NotSupported,
    OnCall,
    OnOutput,
    Outcome,
    SandboxUnavailable,
    Session,
    Variable,
    What,
)

CELL_STATUSES = frozenset[GuestStatus]({"ok", "error", "interrupted"})
GIVE_WAY_S = 0.005
GONE = "the variables are gone"
BEFORE = "the variables are as before the cell"
AFTER = "the variables are as after the last cell"
BACK = "variables and files are as before it"


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


class GuestSession:
    """The Session of every provider whose guest is one process on this machine. No fork, no undo."""

    def __init__(
        self,
        *,
        launcher: Launcher,
        capabilities: Capabilities,
        limits: Limits,
    ) -> None:
        self._launcher = launcher
        self._capabilities = capabilities
        self._limits = limits
        self._lock = asyncio.Lock()
        self._guest: Guest | None = None
        self._runs: Literal["cell", "step", "aside"] | None = None
        """Now: a cell, a command that counts as one, or a command that does not."""
        self._answering: Answering | None = None
        """Of the cell that runs."""
        self._deadline: Deadline | None = None
        """Of the cell that runs."""
        self._closed = False
        self._way_at = 0.0
        self._keeper: Keeping | None = None
        self._notices: tuple[str, ...] = ()
        """What the keeper said, until a cell's outcome has."""
        self._lost: str | None = None
        """Why the variables are gone, until a cell's outcome has said so."""

    @property
    def capabilities(self) -> Capabilities:
        return self._capabilities

    def _kept_by(self, keeper: Keeping | None) -> None:
        """From now on `keeper` looks after the workspace, around each cell and when it is woken."""
        loop = asyncio.get_running_loop()
        before = self._keeper_left()
        if before:
            before.close()
        self._keeper = keeper
        if keeper and keeper.fd is not None:
            loop.add_reader(keeper.fd, keeper.noticed)

    def _keeper_left(self) -> Keeping | None:
        """The keeper, which is not woken any more, but can be again."""
        keeper, self._keeper = self._keeper, None
        if keeper and keeper.fd is not None:
            asyncio.get_running_loop().remove_reader(keeper.fd)
        return keeper

    @classmethod
    async def opened(
        cls,
        launcher: Launcher,
        capabilities: Capabilities,
        limits: Limits,
        **more: Any,
    ) -> Self:
        """A session whose first guest has said hello, or nothing left behind. Raises SandboxUnavailable."""
        session = cls(launcher=launcher, capabilities=capabilities, limits=limits, **more)
        try:
            async with session._lock:
                await session._live_guest()
        except BaseException:
            await session.close()
            raise
        return session

    async def run(
        self,
        code: str,
        *,
        timeout_s: float | None = None,
        on_output: OnOutput | None = None,
        on_call: OnCall | None = None,
        cell: int | None = None,
    ) -> Outcome:
        async with self._lock:
            guest = await self._live_guest()
            if self._lost is not None:
                lost, self._lost = self._lost, None
                return Outcome(status="killed", error=f"{lost} This cell did not run.\n", state_lost=True)
            await self._about_to_run(cell)
            limit_s = self._limits.cell_s if timeout_s is None else timeout_s
            # A caller that is cancelled already must not start anything.
            await anyio.lowlevel.checkpoint_if_cancelled()
            if not self._capabilities.calls:
                on_call = None
            outcome = await self._cell(guest, code, limit_s, on_output, on_call)
        await self._give_way()
        return outcome

    async def _give_way(self) -> None:
        """Short cells end without a turn of the event loop; others get theirs all the same."""
        now = perf_counter()
        if now >= self._way_at:
            self._way_at = now + GIVE_WAY_S
            await asyncio.sleep(0)

    async def _cell(
        self, guest: Guest, code: str, limit_s: float, on_output: OnOutput | None, on_call: OnCall | None
    ) -> Outcome:
        if self._keeper:
            self._keeper.before()
        started = perf_counter()
        guest.stdout.begin(on_output)
        guest.stderr.begin(on_output)
        source = code.encode("utf-8", "surrogatepass")
        fields = self._numbered(code)
        guest.post("run", source, CELL_STATUSES, CELL_BYTES, fields, calls=on_call is not None)
        self._runs = "cell"
        overdue = False
        try:
            guest.look()
            if guest.is_busy:
                self._deadline = deadline = Deadline(guest, limit_s, self._limits.interrupt_grace_s)
                end = await self._settled(guest, deadline, on_call)
                overdue = deadline.passed
            else:
                end = await guest.end()
        finally:
            self._runs = None
            if self._keeper:
                self._notices += self._keeper.after()
            (stdout, dropped_out), (stderr, dropped_err) = guest.stdout.take(), guest.stderr.take()
        rolled_back = False
        if isinstance(end, Death):
            self._guest = None
            rolled_back = await self._came_back(guest, end, ran=True)
        else:
            await self._went_well(again=end.again)
            if end.out_of_memory:
                rolled_back = await self._taken_back(guest)
        for output in (guest.stdout, guest.stderr):
            if output.failure is not None:
                raise output.failure
        status, error = verdict(
            end, limit_s if overdue else None, BEFORE if rolled_back else GONE, rolled_back=rolled_back
        )
        notices, self._notices = self._notices, ()
        return Outcome(
            status=status,
            value=end.value if isinstance(end, Reply) else None,
            stdout=stdout,
            stderr=stderr,
            error=error,
            displays=end.displays if isinstance(end, Reply) else (),
            duration_s=perf_counter() - started,
            rolled_back=rolled_back,
            state_lost=isinstance(end, Death) and not rolled_back,
            dropped_bytes=dropped_out + dropped_err,
            notices=notices,
        )

    async def _about_to_run(self, cell: int | None) -> None:
        """A cell, if nothing comes between; `cell` is its number, if the caller has one."""

    def _numbered(self, code: str) -> Mapping[str, int]:  # noqa: ARG002 - for those who keep states
        """What a cell's request says besides; it runs now."""
        return {}

    def _began(self, guest: Guest, pid: int) -> None:
        """The command that is a step was this process inside."""

    async def _went_well(self, *, again: bool) -> None:
        """The cell has ended, and its interpreter has not. `again`: it left no copy, for it can be run again."""

    async def _taken_back(self, guest: Guest) -> bool:  # noqa: ARG002
        """What the cell that has just ended did, if there is a way."""
        return False

    async def _came_back(self, guest: Guest, death: Death, *, ran: bool) -> bool:  # noqa: ARG002
        """Be in the state after the last cell that ended well, if there is a way. `ran`: another cell did, which ended it."""
        return False

    async def interrupt(self) -> None:
        if self._runs and self._guest is not None:
            if self._deadline:
                self._deadline.go_on()  # the wait for an answer is over, or the program's own choice
            self._guest.interrupt()

    async def fork(self) -> Session:
        raise NotSupported("this sandbox cannot fork a live session")

    async def keep(self, branch: Session) -> None:
        raise NotSupported(f"this sandbox has no branches to keep, such as {branch!r}")

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...]:
        raise NotSupported(f"this sandbox keeps no snapshots to undo to (asked: {to!r}, {what!r})")

    async def redo(self) -> tuple[str, ...]:
        raise NotSupported("this sandbox keeps no snapshots, so nothing was undone")

    async def variables(self) -> tuple[Variable, ...]:
        reply = await self._ask("variables", b"", INVENTORY_BYTES)
        try:
            return inventory(reply.body)
        except ChannelBroken as broken:
            if self._guest is not None:
                self._guest.kill(f"its channel was broken: {broken}")
            raise SandboxUnavailable(f"the guest broke its channel: {broken}") from broken

    async def put(self, path: str, data: bytes) -> None:
        if len(data) > self._limits.file_bytes:
            raise FileRefused(f"{path!r} has {len(data)} bytes; the limit is {self._limits.file_bytes}")
        reply = await self._ask("put", data, REFUSAL_BYTES, path=_sendable(path))
        if reply.status == "refused":
            raise FileRefused(reply.body.decode("utf-8", "replace"))

    async def get(self, path: str) -> bytes:
        limit = self._limits.file_bytes
        reply = await self._ask("get", b"", limit + REFUSAL_BYTES, path=_sendable(path), limit=limit)
        if reply.status == "refused":
            raise FileRefused(reply.body.decode("utf-8", "replace"))
        return reply.body

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
        workdir: str = "",
        on_output: OnOutput | None = None,
        cell: int | None = None,
    ) -> CommandOutcome:
        if not self._capabilities.commands:
            raise NotSupported("this sandbox runs cells only, no programs beside them")
        command = Command.checked(
            argv,
            limits=self._limits,
            timeout_s=timeout_s,
            env=env,
            stdin=stdin,
            workdir=workdir,
            on_output=on_output,
        )
        try:
            if self._answering is not None:
                return await self._answering.run(command, self._limits.reply_s)
            async with self._lock:
                guest = await self._live_guest()
                if cell is not None:
                    await self._about_to_run(cell)
                # A caller that is cancelled already must not start anything.
                await anyio.lowlevel.checkpoint_if_cancelled()
                return await self._commanded(guest, command, is_step=cell is not None)
        finally:
            command.over()

    async def _commanded(self, guest: Guest, command: Command, *, is_step: bool) -> CommandOutcome:
        if self._keeper:
            self._keeper.before()
        if is_step:
            self._numbered(COMMAND)
        started = perf_counter()
        fields = {"head": len(command.head), "tell": command.heard is not None}
        guest.post("command", command.body, ASK_STATUSES, RAN_BYTES, fields, on_piece=command.on_piece)
        self._runs = "step" if is_step else "aside"
        notices: tuple[str, ...] = ()
        try:
            # The guest keeps to the limit by itself; should it not, it is given up.
            end = await self._settled(guest, Deadline(guest, command.timeout_s + self._limits.reply_s, 0.0))
        finally:
            self._runs = None
            if self._keeper:
                notices = self._keeper.after()
        if isinstance(end, Death):
            self._notices += notices
            return await self._died_under(guest, end, command.name, is_step=is_step)
        try:
            ran = command_outcome(end.body)
        except ChannelBroken as broken:
            guest.kill(f"its channel was broken: {broken}")
            raise SandboxUnavailable(f"the guest broke its channel: {broken}") from broken
        if is_step:
            self._began(guest, ran.pid)
            await self._went_well(again=True)
            notices, self._notices = notices + self._notices, ()
        return replace(ran.outcome, duration_s=perf_counter() - started, notices=notices)

    async def _died_under(self, guest: Guest, death: Death, name: str, *, is_step: bool) -> CommandOutcome:
        """Raises SandboxUnavailable, unless it is a step that could be taken back."""
        how = f"the interpreter died while it ran {name!r}: {death.how}"
        if is_step:
            self._forget(f"died while it ran {name!r}: {death.how}")
            if await self._came_back(guest, death, ran=True):
                self._lost = None
                notices, self._notices = self._notices, ()
                return replace(not_run(f"{how}; {BACK}"), rolled_back=True, notices=notices)
        raise SandboxUnavailable(how)  # the next request brings back what can be, and says so

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._guest is not None and self._runs:
                self._guest.kill("the session was closed")
            async with self._lock:
                if self._guest is not None:
                    await self._retire(self._guest)
                await self._launcher.release()
                self._kept_by(None)

    async def _retire(self, guest: Guest) -> None:
        """Lets the guest close the program's files, bounded, then ends it."""
        guest.hang_up()
        grace_s = self._limits.interrupt_grace_s
        timer = asyncio.get_running_loop().call_later(grace_s, guest.kill, "the session was closed")
        try:
            await guest.end()
        finally:
            timer.cancel()
            self._guest = None

    async def _live_guest(self) -> Guest:
        """The guest, or a fresh one in place of a dead one: then `_lost` holds what is to be said."""
        if self._closed:
            raise SandboxUnavailable("the session is closed; open a new one")
        guest = self._guest
        if guest is not None and guest.death is not None:
            self._forget(f"died between cells: {guest.death.how}")
            if await self._came_back(guest, guest.death, ran=False):
                self._notices += (f"The interpreter died between cells: {guest.death.how}; {AFTER}.",)
                self._lost = None
        if self._guest is None:
            await self._launcher.sweep()
            self._guest = await self._launcher.launch()
            self._kept_by(self._guest.keeper)
        return self._guest

    async def _ask(self, op: str, body: bytes, reply_bytes: int, **fields: str | int) -> Reply:
        """Anything that is not a cell."""
        async with self._lock:
            guest = await self._live_guest()
            guest.post(op, body, ASK_STATUSES, reply_bytes, fields)
            deadline = Deadline(guest, self._limits.reply_s, 0.0)
            end = await self._settled(guest, deadline)
            if isinstance(end, Death):
                self._forget(f"died while it served {op!r}: {end.how}")
                raise SandboxUnavailable(f"the guest died while it served {op!r}: {end.how}; {GONE}")
            return end

    async def _settled(self, guest: Guest, deadline: Deadline, on_call: OnCall | None = None) -> End:
        """The end of the open request. A cancellation goes on only after it, so the next request finds order."""
        try:
            if on_call is not None:
                while (call := await guest.called()) is not None:
                    await self._answered(guest, call, deadline, on_call)
            return await guest.end()
        except BaseException:  # cancelled, or a failure of `on_call`
            deadline.now(self._limits.interrupt_grace_s)
            await self._stopped(guest)
            raise
        finally:
            deadline.cancel()

    async def _answered(self, guest: Guest, call: GuestCall, deadline: Deadline, on_call: OnCall) -> None:
        self._answering = Answering(guest, call, deadline)
        try:
            await self._answering.answer(on_call)
        finally:
            self._answering = None

    async def _stopped(self, guest: Guest) -> None:
        with anyio.CancelScope(shield=True):
            try:
                end = await guest.end()
            except asyncio.CancelledError:  # asyncio's own second cancel, which no shield stops
                guest.kill("it was cancelled twice")
                raise
            if isinstance(end, Death):
                self._forget(f"was cancelled: {end.how}")
                if await self._came_back(guest, end, ran=self._runs in ("cell", "step")):
                    self._lost = None
            elif self._runs == "cell":
                await self._went_well(again=end.again)
            elif self._runs == "step":
                with suppress(ChannelBroken):  # what is wrong with it nobody will read
                    self._began(guest, command_outcome(end.body).pid)
                await self._went_well(again=True)

    def _forget(self, how: str) -> None:
        self._guest = None
        self._lost = f"The interpreter {how}; {GONE}."


def _sendable(path: str) -> str:
    """Lone surrogates have no place in JSON; no file of ours has such a name."""
    return path.encode("utf-8", "replace").decode()
