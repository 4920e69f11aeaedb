"""The agent loop: takes commands, records events. Its state is built from the log; its effects go through ports."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import TypeAlias, assert_never

import anyio
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pinfold.engine.actions import close_unstarted, perform_action
from pinfold.engine.compaction import compact_past
from pinfold.engine.core import Choice, CommandRefused, Core
from pinfold.engine.ports import Performed, Rewound
from pinfold.engine.state import State
from pinfold.engine.turn import run_turn
from pinfold.events import (
    Action,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    Clear,
    Command,
    Compact,
    Configure,
    ContextCompacted,
    Continue,
    Decide,
    Event,
    Execute,
    Interrupt,
    PinfoldError,
    Redo,
    Rename,
    Rewind,
    RunCell,
    Say,
    SessionChanged,
    SessionRewound,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    Unavailable,
    Undo,
    Usage,
    UserSpoke,
)

log = logging.getLogger(__name__)
_QUEUED = 1000
_UNKNOWN = (
    "This was started, then Pinfold stopped before its end was seen. It may or may not have taken effect. "
    "It was not run again; check before repeating it."
)
_NOT_RUN = "This was not run: the turn was cut off before it."
_BUSY = "this session is busy; interrupt it, or wait until it finishes"
_INTERRUPTED = "This was interrupted."
_Run: TypeAlias = Callable[[], Awaitable[Performed | None]]


class _Job(Struct, kw_only=True):
    """Work in the queue. It is created with its cancel scope, so an interrupt sent right after a command stops it."""

    id: str | None
    run: _Run
    catches: tuple[type[PinfoldError], ...] = ()
    """Errors passed on to the submitter, which waits for this job; any other error ends the session."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    done: anyio.Event = field(default_factory=anyio.Event)
    performed: Performed | None = None
    failed: PinfoldError | None = None


class Engine:
    def __init__(self, core: Core) -> None:
        self.core = core
        self._inbox, self._queue = anyio.create_memory_object_stream[_Job](_QUEUED)
        self._jobs: deque[_Job] = deque()
        """Unfinished jobs, in order; the first one is running."""
        self._deciding = anyio.Lock()

    async def recover(self) -> None:
        """Record outcomes for actions that a crash left open. A started action that is not pure is never run again."""
        opened = self.core.state.opened
        is_foreign = opened is not None and opened.imported
        if is_foreign:
            await self._cut_off("it was cut off elsewhere")
        events: list[Event] = []
        for id_, item in self.core.state.open.items():
            if item.stage == "started":
                events.append(ActionFinished(id=id_, outcome="outcome_unknown", observation=_UNKNOWN))
            elif is_foreign or item.proposed.turn is None or item.proposed.parent:  # no turn or cell waits for it
                events.append(ActionFinished(id=id_, outcome="not_run", observation=_NOT_RUN))
        if events:
            await self.core.record(*events)

    async def submit(self, command: Command) -> None:
        """Accept a command; its effects appear in the log. Raises CommandRefused."""
        match command:
            case Interrupt(target=target):
                if job := next((job for job in self._jobs if target in (None, job.id)), None):
                    job.scope.cancel()
            case Decide():
                await self._decide(command)
            case Rename(title=title):
                await self.core.record(SessionChanged(title=title))
            case Undo() | Rewind() | Redo():
                await self._rewind(command)
            case Clear() | Compact():
                await self._compact(command)
            case Configure():
                await self._configure(command)
            case Say():
                self._take(command.turn, partial(self._say, command))
            case Continue():
                if self.core.state.turn is None:
                    raise CommandRefused("there is no interrupted turn to continue")
                self._take(self.core.state.turn.id, self._continue)
            case Execute():
                self._take(command.id, partial(self._execute, command))
            case _:
                assert_never(command)

    async def act(self, id_: ActionId, action: Action) -> Performed:
        """Perform an action for the user: in queue order, or at once if it is parallel-safe.

        Policy, approval and recording work as for any action. Cancelling interrupts it. Raises CommandRefused, Unavailable.
        """
        if self.core.runner.parallel_safe(action):
            return await self.act_now(id_, action)
        job = self._take(id_, partial(self._act, id_, action), catches=(Unavailable,))
        try:
            await job.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.submit(Interrupt(target=id_))
                await job.done.wait()
            raise
        if job.failed:
            raise job.failed
        return job.performed or Performed(outcome="interrupted", observation=_INTERRUPTED)

    async def _act(self, id_: ActionId, action: Action) -> Performed | None:
        with self._jobs[0].scope:
            return await self.act_now(id_, action)
        return None

    async def act_now(self, id_: ActionId, action: Action) -> Performed:
        """Like `act`, but at once and in the caller's task. The caller knows that no queued job conflicts with it."""
        await self.core.record(ActionProposed(id=id_, action=action, by="user"))
        try:
            return await perform_action(self.core, id_)
        finally:
            await close_unstarted(self.core, id_, _NOT_RUN)

    async def _configure(self, change: Configure) -> None:
        state = self.core.state
        if change.mode and "read-only" in (change.mode, state.mode) and change.mode != state.mode:
            raise CommandRefused(f"the session's files are mounted for mode {state.mode}; reopen it in {change.mode}")
        if unknown := [pattern for pattern in change.revoke if pattern not in state.granted]:
            raise CommandRefused(f"{unknown[0]!r} is not granted to this session")
        chosen = self._choose_model(change.model) if change.model else None
        await self.core.record(
            SessionChanged(
                title=state.title,
                checkpoints=change.checkpoints,
                mode=change.mode,
                revoked=change.revoke,
                model=chosen.model.name if chosen else "",
                prompt=chosen.prompt if chosen else "",
                plan=change.plan,
            )
        )
        if chosen:
            self.core.model = chosen.model

    def _choose_model(self, model: str) -> Choice:
        if self._jobs:
            raise CommandRefused(_BUSY)
        if self.core.choose is None:
            raise CommandRefused("the model of this session cannot be changed")
        return self.core.choose(model)

    async def _compact(self, command: Clear | Compact) -> None:
        if self._jobs:
            raise CommandRefused(_BUSY)
        if isinstance(command, Clear):
            event = ContextCompacted(summary=self.core.runner.inventory())
        else:
            event = compact_past(self.core, command.keep)
        await self._cut_off("the conversation was compacted")
        await self.core.record(event)

    def _take(self, id_: str | None, run: _Run, *, catches: tuple[type[PinfoldError], ...] = ()) -> _Job:
        job = _Job(id=id_, run=run, catches=catches)
        try:
            self._inbox.send_nowait(job)
        except anyio.WouldBlock:
            raise CommandRefused(f"{_QUEUED} messages are waiting already") from None
        self._jobs.append(job)
        return job

    async def _rewind(self, command: Undo | Rewind | Redo) -> None:
        """Undo, rewind or redo, and wait for the result: for these commands, the log does not show a refusal."""
        if self._jobs:
            raise CommandRefused(_BUSY)
        job = self._take(None, partial(self._go_back, command), catches=(PinfoldError,))
        await job.done.wait()
        if job.failed:
            raise CommandRefused(str(job.failed))

    async def serve(self) -> None:
        """Run the queued commands, one at a time, for as long as the session lives."""
        with self._inbox, self._queue:
            async for job in self._queue:
                try:
                    job.performed = await job.run()
                except job.catches as error:
                    job.failed = error
                finally:
                    job.done.set()
                self._jobs.popleft()
                self.core.touch()

    @property
    def is_busy(self) -> bool:
        """True while commands run or wait."""
        return bool(self._jobs)

    async def idle(self) -> None:
        """Wait until all commands are finished, or an action waits for approval."""
        while self._jobs and not any(item.stage == "asking" for item in self.core.state.open.values()):
            await self.core.wait_for_change()

    async def _say(self, say: Say) -> None:
        state = self.core.state
        if any(turn.id == say.turn for turn in state.turns):
            if state.turn and state.turn.id == say.turn:
                await self._turn(say.turn)
            return
        await self._cut_off("the process ended early")
        glance = await self.core.runner.summarize_files()
        private = bool(say.images) or self.core.runner.is_exposed
        tools = self.core.runner.hint(say.text)
        await self.core.record(
            UserSpoke(turn=say.turn, text=say.text, images=say.images, glance=glance, tools=tools, private=private)
        )
        await self._turn(say.turn)

    async def _continue(self) -> None:
        if turn := self.core.state.turn:
            await self._turn(turn.id)

    async def _turn(self, id_: TurnId) -> None:
        """Run the turn and record its end: answered, failed or interrupted."""

        def fail(error: str, **how: bool) -> TurnFailed:
            return TurnFailed(turn=id_, error=error, usage=self._current_usage(), **how)

        seconds = self.core.budget.max_seconds or math.inf
        end: Event | None = None
        with self._jobs[0].scope as scope:
            scope.deadline = anyio.current_time() + seconds
            try:
                end = await run_turn(self.core, id_)
            except PinfoldError as error:
                temporary = getattr(error, "temporary", error.exit_code == 75)
                end = fail(str(error), temporary=temporary, at_limit=getattr(error, "at_limit", False))
            except Exception as error:
                log.exception("turn %s", id_)
                end = fail(f"internal error, please report it: {type(error).__name__}: {error}")
        if end is None and anyio.current_time() >= scope.deadline:
            end = fail(f"stopped after {seconds:g} s, the limit for a turn", at_limit=True)
        await self._close(id_, end or self._interrupt_event(id_, "interrupted by the user"))

    def _interrupt_event(self, id_: TurnId, reason: str) -> TurnInterrupted:
        return TurnInterrupted(turn=id_, reason=reason, usage=self._current_usage())

    def _current_usage(self) -> Usage:
        return self.core.state.turn.usage if self.core.state.turn else Usage()

    async def _cut_off(self, reason: str) -> None:
        """End the open turn, if there is one."""
        if turn := self.core.state.turn:
            await self._close(turn.id, self._interrupt_event(turn.id, reason))

    async def _close(self, id_: TurnId, end: Event) -> None:
        """Record the turn's end, with an outcome for each of its open actions and unproposed calls."""
        state = self.core.state
        events: list[Event] = []
        for call in state.turn.unproposed if state.turn else ():
            events.append(ActionProposed(id=call.id, action=self.core.runner.action(call), turn=id_))
            events.append(ActionFinished(id=call.id, outcome="not_run", observation=_NOT_RUN))
        for open_id, item in state.open.items():
            if item.proposed.turn == id_:
                known = item.stage != "started" or item.effect == "pure"
                outcome, words = ("not_run", _NOT_RUN) if known else ("outcome_unknown", _UNKNOWN)
                events.append(ActionFinished(id=open_id, outcome=outcome, observation=words))
        with anyio.CancelScope(shield=True):
            await self.core.record(*events, end)

    async def _execute(self, command: Execute) -> None:
        if command.id in self.core.state.executed:
            return
        action = RunCell(code=command.code, timeout_s=command.timeout_s)
        with suppress(Unavailable):  # the outcome says so
            await self._act(command.id, action)

    async def _go_back(self, command: Undo | Rewind | Redo) -> None:
        cells, event = plan_rewind(self.core.state, command)
        with anyio.CancelScope(shield=True):  # all of it or nothing
            gone = await self.core.runner.rewind(cells) if cells else Rewound(to=event.to)
            if event.forgotten:
                await self._cut_off("the conversation went back to before it")
            effects = self.core.state.effects_of(gone.undone)
            await self.core.record(replace(event, effects=effects, **asdict(gone)))

    async def _decide(self, decide: Decide) -> None:
        # One at a time: of two concurrent decisions, the second must see the first.
        async with self._deciding:
            item = self.core.state.open.get(decide.id)
            if item is None or item.asked is None or item.stage != "asking":
                raise CommandRefused(f"no approval is waiting for {decide.id}; it was answered already or never asked")
            asked = item.asked
            if decide.digest != asked.digest:
                raise CommandRefused(f"the approval for {decide.id} has changed since it was answered")
            if decide.verdict == "allow" and decide.scope != "once":
                if not asked.pattern:
                    raise CommandRefused(f"{decide.id} can only be allowed once")
                if decide.scope == "always":
                    if not asked.stored:
                        raise CommandRefused(f"{decide.id} can be allowed for this session at most")
                    await self.core.runner.grant(asked.pattern)
            await self.core.record(
                ApprovalDecided(id=decide.id, verdict=decide.verdict, scope=decide.scope, words=decide.words)
            )
        turn = self.core.state.turn
        if turn and item.proposed.turn == turn.id and all(job.id != turn.id for job in self._jobs):
            await self.submit(Continue())


def plan_rewind(state: State, command: Undo | Rewind | Redo) -> tuple[Undo | Redo | None, SessionRewound]:
    """Return the undo or redo of variables and files, if any, and the event to record. Raises CommandRefused."""
    event = SessionRewound(to=state.path[-1] if state.path else 0)
    match command:
        case Undo():
            return command, replace(event, what=command.what)
        case Redo():
            last = state.taken[-1] if state.taken else None
            event = replace(event, again=True, recalled=tuple(turn.id for turn in last.turns) if last else ())
            return (None, replace(event, what="chat")) if last and not last.cells else (command, event)
        case Rewind(what=what):
            turns = tuple(state.turns)
            place = next((place for place, turn in enumerate(turns) if turn.id == command.turn), None)
            if place is None:
                raise CommandRefused(f"this session has no turn {command.turn}")
            with_chat = what in ("all", "chat")
            if with_chat and not turns[place].messages:
                raise CommandRefused("the conversation was cleared after that; only files and variables can go back")
            event = replace(event, what=what, forgotten=tuple(turn.id for turn in turns[place:]) if with_chat else ())
            then = turns[place].cells_before
            if what != "chat" and any(cell > then for cell in state.path):
                return Undo(to=max((cell for cell in state.path if cell <= then), default=0), what=what), event
            if not with_chat:
                raise CommandRefused("there is nothing to undo: no cell has run since that turn began")
            return None, replace(event, what="chat")
