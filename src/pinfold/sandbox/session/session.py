"""The session over one guest at a time: cells, commands, files, and what each of them came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import perf_counter

import anyio
from msgspec.structs import replace

from pinfold.sandbox.contract import (
    CommandOutcome,
    FileRefused,
    NotSupported,
    OnCall,
    OnOutput,
    Outcome,
    SandboxUnavailable,
    Session,
    Variable,
    What,
)
from pinfold.sandbox.session.cell_journal import COMMAND
from pinfold.sandbox.session.channel import (
    ASK_STATUSES,
    CELL_BYTES,
    INVENTORY_BYTES,
    RAN_BYTES,
    REFUSAL_BYTES,
    ChannelBroken,
    GuestStatus,
    Reply,
    command_outcome,
    inventory,
)
from pinfold.sandbox.session.commands import Command, not_run
from pinfold.sandbox.session.deadline import Deadline, verdict
from pinfold.sandbox.session.deaths import Death, End
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_slot import GONE, GuestSlot

CELL_STATUSES = frozenset[GuestStatus]({"ok", "error", "interrupted"})
BEFORE = "the variables are as before the cell"
BACK = "variables and files are as before it"


class GuestSession(GuestSlot):
    """The Session of every provider whose guest is one process on this machine. No fork, no undo."""

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
            if self._growth and self._growth.is_too_much:
                await self._growth.count()  # an undo may have taken it back
            await self._about_to_run(cell)
            limit_s = self._limits.cell_s if timeout_s is None else timeout_s
            # A caller that is cancelled already must not start anything.
            await anyio.lowlevel.checkpoint_if_cancelled()
            if not self._capabilities.calls:
                on_call = None
            return await self._cell(guest, code, limit_s, on_output, on_call)

    async def _cell(
        self, guest: Guest, code: str, limit_s: float, on_output: OnOutput | None, on_call: OnCall | None
    ) -> Outcome:
        if self._keeper:
            self._keeper.before()
        started = perf_counter()
        guest.stdout.begin(on_output)
        guest.stderr.begin(on_output)
        source = code.encode("utf-8", "surrogatepass")
        fields = self._number_cell(code)
        if self._growth:
            self._growth.begin(guest.body.fd, guest.scratch, self._is_too_much)
        guest.post("run", source, CELL_STATUSES, CELL_BYTES, fields, calls=on_call is not None)
        self._runs = "cell"
        self._deadline = deadline = Deadline(guest, limit_s, self._limits.interrupt_grace_s)
        try:
            end = await self._await_end(guest, deadline, on_call)
            self._stopped_for = deadline.why
        finally:
            self._runs = None
            if self._keeper:
                self._notices += self._keeper.after(self._names())
            (stdout, dropped_out), (stderr, dropped_err) = guest.stdout.take(), guest.stderr.take()
        rolled_back = False
        end = await self._end_fight(guest, end)
        self._stopped_for = await self._check_growth() or self._stopped_for
        if isinstance(end, Death):
            self._guest = None
            rolled_back = await self._recover(guest, end, ran=True)
        else:
            await self._on_success(again=end.again)
            if end.out_of_memory:
                rolled_back = await self._roll_back(guest)
        for output in (guest.stdout, guest.stderr):
            if output.failure is not None:
                raise output.failure
        why, self._stopped_for = self._stopped_for, None
        status, error = verdict(
            end, limit_s if deadline.passed else None, BEFORE if rolled_back else GONE, rolled_back=rolled_back, why=why
        )
        notices, self._notices = self._notices, ()
        return Outcome(
            status=status,
            value=end.value if isinstance(end, Reply) else None,
            stdout=stdout,
            stderr=stderr,
            error=error,
            displays=end.displays if isinstance(end, Reply) else (),
            lost=end.lost if isinstance(end, Reply) else (),
            duration_s=perf_counter() - started,
            rolled_back=rolled_back,
            state_lost=isinstance(end, Death) and not rolled_back,
            dropped_bytes=dropped_out + dropped_err,
            notices=notices,
            missing=end.missing if isinstance(end, Reply) else "",
        )

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
        read_only: bool = False,
    ) -> CommandOutcome:
        if not self._capabilities.commands:
            raise NotSupported("this sandbox runs cells only, no programs beside them")
        command = Command.create(
            argv,
            limits=self._limits,
            timeout_s=timeout_s,
            env=env,
            stdin=stdin,
            workdir=workdir,
            on_output=on_output,
            read_only=read_only,
        )
        try:
            if self._answering is not None and self._answering.is_open:
                return await self._answering.run(command, self._limits.reply_s)
            async with self._lock:
                guest = await self._live_guest()
                if self._growth and self._growth.is_too_much:
                    await self._growth.count()
                if cell is not None:
                    await self._about_to_run(cell)
                # A caller that is cancelled already must not start anything.
                await anyio.lowlevel.checkpoint_if_cancelled()
                return await self._run_command(guest, command, is_step=cell is not None)
        finally:
            command.finish()

    async def _run_command(self, guest: Guest, command: Command, *, is_step: bool) -> CommandOutcome:
        if self._keeper:
            self._keeper.before()
        if is_step:
            self._number_cell(COMMAND)
        started = perf_counter()
        fields = {"head": len(command.head), "tell": command.heard is not None}
        if self._growth:
            self._growth.begin(guest.body.fd, guest.scratch, self._is_too_much)
        guest.post("command", command.body, ASK_STATUSES, RAN_BYTES, fields, on_piece=command.on_piece)
        self._runs = "step" if is_step else "aside"
        notices: tuple[str, ...] = ()
        # The guest keeps to the limit by itself; should it not, it is given up.
        self._deadline = deadline = Deadline(guest, command.timeout_s + self._limits.reply_s, 0.0)
        try:
            end = await self._await_end(guest, deadline)
        finally:
            self._runs = None
            if self._keeper:
                notices = self._keeper.after(self._names())
        end = await self._end_fight(guest, end)
        self._stopped_for = await self._check_growth() or deadline.why
        try:
            return await self._finish_command(guest, end, command, notices, is_step=is_step, started=started)
        finally:
            self._stopped_for = None

    async def _finish_command(
        self, guest: Guest, end: End, command: Command, notices: tuple[str, ...], *, is_step: bool, started: float
    ) -> CommandOutcome:
        if isinstance(end, Death):
            self._notices += notices
            return await self._on_command_death(guest, end, command.name, is_step=is_step)
        try:
            ran = command_outcome(end.body)
        except ChannelBroken as broken:
            guest.kill(f"its channel was broken: {broken}")
            raise SandboxUnavailable(f"the guest broke its channel: {broken}") from broken
        if is_step:
            self._began(guest, ran.pid)
            await self._on_success(again=True)
            notices, self._notices = notices + self._notices, ()
        outcome = replace(ran.outcome, duration_s=perf_counter() - started, notices=notices)
        if why := self._stopped_for:
            back = "; undo takes it back" if is_step else ""
            outcome = replace(outcome, status="error", stderr=outcome.stderr + f"{why}{back}\n".encode())
        return outcome

    async def _on_command_death(self, guest: Guest, death: Death, name: str, *, is_step: bool) -> CommandOutcome:
        """Raises SandboxUnavailable, unless it is a step that could be taken back."""
        how = f"the interpreter died while it ran {name!r}: {self._stopped_for or death.how}"
        if is_step:
            self._forget(f"died while it ran {name!r}: {death.how}")
            if await self._recover(guest, death, ran=True):
                self._lost = None
                notices, self._notices = self._notices, ()
                return replace(not_run(f"{how}; {BACK}"), rolled_back=True, notices=notices)
        raise SandboxUnavailable(how)  # the next request brings back what can be, and says so


def _sendable(path: str) -> str:
    """Lone surrogates have no place in JSON; no file of ours has such a name."""
    return path.encode("utf-8", "replace").decode()
