"""A session with one guest at a time: cells, commands, files, undo and branches, composed of parts.

A `GuestSlot` holds the guest. A `StateHistory` keeps its states, and `Recovery` goes back to them; a session
without these two can neither be saved nor undone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, ExitStack, nullcontext
from functools import partial
from pathlib import Path
from time import perf_counter

import anyio
import anyio.to_thread
from msgspec.structs import replace

from pinfold.sandbox.abilities import PageQuery, VariablePage
from pinfold.sandbox.contract import (
    Capabilities,
    ChangedFiles,
    CommandOutcome,
    FileRefused,
    NotSupported,
    OnCall,
    OnOutput,
    Outcome,
    Resumed,
    SandboxUnavailable,
    Session,
    Spec,
    UndoRefused,
    Variable,
    What,
)
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.session.branch import (
    BRANCHES,
    MID_CELL_STATES,
    MOST_BRANCHES,
    BranchLauncher,
    BranchView,
    adopt_branch,
    open_branch,
)
from pinfold.sandbox.session.cell_calls import Command, not_run
from pinfold.sandbox.session.channel import (
    ASK_STATUSES,
    CELL_BYTES,
    RAN_BYTES,
    REFUSAL_BYTES,
    GuestStatus,
    Reply,
    command_outcome,
)
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death
from pinfold.sandbox.session.guest_slot import GONE, GuestSlot, Launcher, decode_reply, list_variables, read_page
from pinfold.sandbox.session.limits import Deadline, growth_of, verdict
from pinfold.sandbox.session.output import OutputListener
from pinfold.sandbox.session.recovery import Recovery
from pinfold.sandbox.session.saved_states import COMMAND, SavedStates
from pinfold.sandbox.session.state_history import StateHistory
from pinfold.sandbox.session.state_restore import StateSource, run_operation

CELL_STATUSES = frozenset[GuestStatus]({"ok", "error", "interrupted"})
BEFORE = "the variables are as before the cell"
NO_UNDO = "this sandbox keeps no snapshots, so nothing can be undone"
BACK = "variables and files are as before it"
KEPT_BRANCH = "raise RuntimeError('a branch that was kept cannot be run again')"
VIEW_BYTES = 1 << 30
"""Memory for the file changes of one fork."""
BeginFiles = Callable[[], Awaitable[FileHistory | str]]
"""Begins the history of the workspace's files, or returns why there is none."""


class GuestSession:
    """The session of every provider whose guest is one process on this machine."""

    def __init__(self, slot: GuestSlot, capabilities: Capabilities, history: StateHistory | None = None) -> None:
        self.slot = slot
        self.capabilities = capabilities
        self.spec: Spec | None = None
        """The spec it was opened with; None for a fork."""
        self._history = history
        self._recovery: Recovery | None = None
        if history is not None:
            self._recovery = Recovery(slot, history)
            slot.states, slot.recover = history, self._recovery.recover
        self.interrupt, self.pause_clock, self.freeze = slot.interrupt, slot.pause_clock, slot.freeze
        self.save, self.describe_uncovered = slot.states.save, slot.states.describe_uncovered

    @classmethod
    async def open(
        cls,
        launcher: Launcher,
        capabilities: Capabilities,
        spec: Spec,
        source: type[StateSource] | None,
        begin_files: BeginFiles | None = None,
    ) -> GuestSession:
        """Open a session whose first guest has said hello. Raises SandboxUnavailable and then leaves nothing behind.

        `source`: where states come from; without it, none are kept. `begin_files`: None for a read-only session.
        """
        slot = GuestSlot(launcher, spec.limits, growth_of(spec))
        history = StateHistory(slot, SavedStates(spec.state), source, begin_files) if source else None
        session = cls(slot, capabilities, history)
        session.spec = spec
        async with AsyncExitStack() as on_failure:
            on_failure.push_async_callback(session.close)
            async with slot.lock:
                await slot.live_guest()
            if history is not None:
                await history.resume()
            on_failure.pop_all()
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
        slot = self.slot
        async with slot.lock:
            guest = await slot.live_guest()
            if slot.loss is not None:
                lost, slot.loss = slot.loss, None
                return Outcome(status="killed", error=f"{lost} This cell did not run.\n", state_lost=True)
            await self._prepare(cell, is_cell=True)
            limit_s = slot.limits.cell_s if timeout_s is None else timeout_s
            return await self._cell(guest, code, limit_s, on_output, on_call if self.capabilities.calls else None)

    async def _prepare(self, cell: int | None, *, is_cell: bool) -> None:
        slot = self.slot
        if slot.growth and slot.growth.is_too_much:
            await slot.growth.count()  # an undo may have reduced it
        if is_cell:
            await slot.states.prepare_cell(cell)
        # A caller that is already cancelled must not start anything.
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def _cell(
        self, guest: Guest, code: str, limit_s: float, on_output: OnOutput | None, on_call: OnCall | None
    ) -> Outcome:
        slot = self.slot
        if slot.guard:
            slot.guard.before()
        started = perf_counter()
        listener = OutputListener(on_output)
        guest.stdout.begin(listener)
        guest.stderr.begin(listener)
        source = code.encode("utf-8", "surrogatepass")
        fields = slot.states.begin_cell(code)
        post = partial(guest.post, "run", source, CELL_STATUSES, CELL_BYTES, fields, calls=on_call is not None)
        try:
            end, notices = await slot.perform(
                guest, "cell", post, partial(Deadline, guest, limit_s, slot.limits.interrupt_grace_s), on_call
            )
            slot.notices += notices
        finally:
            (stdout, dropped_out), (stderr, dropped_err) = guest.stdout.take(), guest.stderr.take()
        has_passed = slot.deadline is not None and slot.deadline.passed
        end = await slot.settle(guest, end)
        if isinstance(end, Death):
            slot.guest = None
            rolled_back = await slot.recover(guest, end, True)
        else:
            await slot.states.end_cell(again=end.again)
            rolled_back = end.out_of_memory and self._recovery is not None and await self._recovery.roll_back(guest)
        listener.finish()
        why, slot.stopped_for = slot.stopped_for, None
        status, error = verdict(
            end, limit_s if has_passed else None, BEFORE if rolled_back else GONE, rolled_back=rolled_back, why=why
        )
        reply = None if isinstance(end, Death) else end
        return Outcome(
            status=status,
            value=reply.value if reply else None,
            stdout=stdout,
            stderr=stderr,
            error=error,
            duration_s=perf_counter() - started,
            rolled_back=rolled_back,
            displays=reply.displays if reply else (),
            state_lost=reply is None and not rolled_back,
            lost=reply.lost if reply else (),
            missing=reply.missing if reply else "",
            dropped_bytes=dropped_out + dropped_err,
            notices=slot.take_notices(),
        )

    async def undo(self, to: int | None = None, what: What = "all") -> tuple[str, ...]:
        if self._recovery is None:
            raise NotSupported(NO_UNDO)
        return await self._recovery.undo(to, what)

    async def redo(self) -> tuple[str, ...]:
        if self._recovery is None:
            raise NotSupported(NO_UNDO)
        return await self._recovery.redo()

    @property
    def path(self) -> tuple[int, ...]:
        return self.slot.states.path

    @property
    def changed_files(self) -> ChangedFiles:
        return self.slot.states.changed_files

    @property
    def resumed(self) -> Resumed | None:
        return self.slot.states.resumed

    async def fork(self, view: Path | None = None) -> Session:
        """Return a session over the same live data. While it is open, the workspace is read-only for both.

        If a cell waits for a call, the fork has that cell's variables as they are now. With `view`, an empty host
        folder, the fork has its own workspace at `workspace`, and its changes can be merged from `view` until
        `release_view`.
        """
        slot, history = self.slot, self._history
        if history is None or not self.capabilities.fork:
            raise NotSupported("this sandbox cannot fork a live session")
        is_cells = slot.calls is not None and slot.calls.is_open  # the waiting cell already holds the lock
        async with slot.forking, nullcontext() if is_cells else slot.lock:
            own = await self._open_view(view) if view else None
            with ExitStack() as on_failure:
                if own:
                    on_failure.callback(own.close)
                guest = slot.guest if is_cells and slot.guest else await slot.live_guest()
                if is_cells:
                    slot.forks += 1
                state = MID_CELL_STATES + slot.forks if is_cells else await history.copy_now(guest)
                forked, notices = await open_branch(guest, state, slot.limits, own)
                on_failure.pop_all()
            branch = GuestSlot(BranchLauncher(forked, own), slot.limits)
            branch.guest, branch.notices = forked, notices
            slot.branches.append(branch)
            return GuestSession(branch, replace(self.capabilities, fork=False))

    async def _open_view(self, folder: Path) -> BranchView:
        """Give a fork its own view of the workspace, in a free place. Raises NotSupported, UndoRefused."""
        if not self.capabilities.files_view or self.spec is None:
            raise NotSupported("this sandbox cannot give a fork files of its own")
        branches = self.slot.branches
        branches[:] = [one for one in branches if not one.is_closed or one.lock.locked()]
        views = [one.launcher.view for one in branches if isinstance(one.launcher, BranchLauncher)]
        taken = {view.place for view in views if view}
        free = [one for one in range(1, MOST_BRANCHES + 1) if f"{BRANCHES}/{one}" not in taken]
        if not free:
            raise UndoRefused(f"{MOST_BRANCHES} forks with files of their own are open, and no more are possible")
        workspace = self.spec.workspace
        make = partial(BranchView, folder, workspace, str(workspace), free[0], VIEW_BYTES)
        return await anyio.to_thread.run_sync(make)

    @property
    def workspace(self) -> str:
        """Where a fork with its own files sees them; empty for other sessions."""
        view = self.slot.launcher.view if isinstance(self.slot.launcher, BranchLauncher) else None
        return view.place if view else ""

    def release_view(self) -> None:
        """Drop the file changes of this fork."""
        if isinstance(self.slot.launcher, BranchLauncher) and self.slot.launcher.view:
            self.slot.launcher.view.close()

    async def keep(self, branch: Session) -> None:
        slot, history = self.slot, self._history
        if history is None or not self.capabilities.fork:
            raise NotSupported(f"this sandbox has no branches to keep, such as {branch!r}")
        if not isinstance(branch, GuestSession) or branch.slot not in slot.branches:
            raise UndoRefused("only an open branch of this session can be kept")
        async with slot.lock:
            guest = await slot.live_guest()
            kept, branch.slot.guest, branch.slot.is_closed = branch.slot.guest, None, True
            if kept is None or kept.death is not None:
                raise SandboxUnavailable("the branch has ended, so it cannot be kept")
            slot.branches.remove(branch.slot)
            await slot.close_branches()
            slot.guest = await adopt_branch(guest, kept)
            await history.prepare_cell(None)
            history.begin_cell(KEPT_BRANCH)
            await run_operation(slot.guest, "adopted")
            await history.have_copied(slot.guest, history.cells.number)
            await history.end_cell(again=False)

    async def variables(self) -> tuple[Variable, ...]:
        return await list_variables(self.slot)

    async def variable_page(self, name: str, query: PageQuery) -> VariablePage:
        return await read_page(self.slot, name, query)

    async def put(self, path: str, data: bytes) -> None:
        limit = self.slot.limits.file_bytes
        if len(data) > limit:
            raise FileRefused(f"{path!r} has {len(data)} bytes; the limit is {limit}")
        await self._ask_file("put", data, REFUSAL_BYTES, path)

    async def get(self, path: str) -> bytes:
        limit = self.slot.limits.file_bytes
        return await self._ask_file("get", b"", limit + REFUSAL_BYTES, path, limit=limit)

    async def _ask_file(self, op: str, data: bytes, reply_bytes: int, path: str, **fields: int) -> bytes:
        # JSON cannot hold lone surrogates, and no file Pinfold handles has such a name.
        sendable = path.encode("utf-8", "replace").decode()
        reply = await self.slot.ask(op, data, reply_bytes, path=sendable, **fields)
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
        slot = self.slot
        if not self.capabilities.commands:
            raise NotSupported("this sandbox runs cells only, no programs beside them")
        command = Command(
            argv,
            limits=slot.limits,
            timeout_s=timeout_s,
            env=env,
            stdin=stdin,
            workdir=workdir,
            on_output=on_output,
            read_only=read_only,
        )
        is_step = cell is not None and self._history is not None
        try:
            if slot.calls is not None and slot.calls.is_open:
                return await slot.calls.run(command, slot.limits.reply_s)
            async with slot.lock:
                guest = await slot.live_guest()
                await self._prepare(cell, is_cell=is_step)
                return await self._run_command(guest, command, is_step=is_step)
        finally:
            command.finish()

    async def _run_command(self, guest: Guest, command: Command, *, is_step: bool) -> CommandOutcome:
        slot = self.slot
        if slot.guard:
            slot.guard.before()
        if is_step:
            slot.states.begin_cell(COMMAND)
        started = perf_counter()
        fields = {"head": len(command.head), "tell": command.heard is not None}
        post = partial(guest.post, "command", command.body, ASK_STATUSES, RAN_BYTES, fields, on_piece=command.on_piece)
        # The guest enforces the limit itself; if it does not, it is killed.
        deadline = partial(Deadline, guest, command.timeout_s + slot.limits.reply_s, 0.0)
        end, notices = await slot.perform(guest, "step" if is_step else "aside", post, deadline)
        end = await slot.settle(guest, end)
        try:
            if isinstance(end, Death):
                slot.notices += notices
                return await self._on_command_death(guest, end, command.name, is_step=is_step)
            outcome = await self._end_command(guest, end, notices, is_step=is_step)
            return replace(outcome, duration_s=perf_counter() - started)
        finally:
            slot.stopped_for = None

    async def _end_command(
        self, guest: Guest, reply: Reply, notices: tuple[str, ...], *, is_step: bool
    ) -> CommandOutcome:
        slot = self.slot
        ran = decode_reply(slot, command_outcome, reply)
        if is_step:
            slot.states.note_process(guest, ran.pid)
            await slot.states.end_cell(again=True)
            notices += slot.take_notices()
        outcome = replace(ran.outcome, notices=notices)
        if why := slot.stopped_for:
            back = "; undo takes it back" if is_step else ""
            outcome = replace(outcome, status="error", stderr=outcome.stderr + f"{why}{back}\n".encode())
        return outcome

    async def _on_command_death(self, guest: Guest, death: Death, name: str, *, is_step: bool) -> CommandOutcome:
        """Roll back a step and return its outcome. Raises SandboxUnavailable if that is not possible."""
        slot = self.slot
        how = f"the interpreter died while it ran {name!r}: {slot.stopped_for or death.how}"
        if is_step:
            slot.forget(f"died while it ran {name!r}: {death.how}")
            if await slot.recover(guest, death, True):
                slot.loss = None
                return replace(not_run(f"{how}; {BACK}"), rolled_back=True, notices=slot.take_notices())
        raise SandboxUnavailable(how)  # the next request recovers what it can and reports it

    def allow_edit(self, path: str) -> None:
        """Let the host change this file of the workspace, after the user's approval."""
        if self.slot.guard:
            self.slot.guard.allow(path)

    @property
    def parting(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(self.slot.final_notices))

    @property
    def lost_files(self) -> tuple[str, ...]:
        return self.slot.lost_files

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            await self.slot.close_branches()
            await self.slot.states.finish()
        await self.slot.close()
        with anyio.CancelScope(shield=True):
            await self.slot.states.close()
