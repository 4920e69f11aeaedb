"""The one loop: commands in, events out. Everything it knows is in the log; everything it does goes through a port."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import TypeAlias, assert_never

import anyio

from pinfold.engine.actions import carry, settle
from pinfold.engine.core import Choice, CommandRefused, Core, TurnStopped
from pinfold.engine.model_call import ask
from pinfold.engine.ports import Performed, Rewound, Spent
from pinfold.engine.rewind import way_back
from pinfold.engine.state import Turn
from pinfold.events import (
    Action,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    Clear,
    Command,
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
    TurnEnded,
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
_Work: TypeAlias = "Say | Continue | Execute | _Rewind | _Act"
_UNKNOWN = (
    "This was started, then Pinfold stopped before its end was seen. It may or may not have taken effect. "
    "It was not run again; check before repeating it."
)
_NOT_RUN = "This was not run: the turn was cut off before it."
_BUSY = "something runs in this session; interrupt it, or wait for its end"
_INTERRUPTED = "This was interrupted."


def within(span: str, spent: Spent, tokens: int | None, cost: float | None) -> None:
    """Raises TurnStopped once a limit is reached."""
    if tokens is not None and spent.tokens >= tokens:
        raise TurnStopped(f"stopped after {spent.tokens:,} tokens {span}, the limit is {tokens:,}")
    if cost is None:
        return
    if spent.cost is None:
        raise TurnStopped(f"stopped: a cost limit for {span} is set but the price of a model is not known")
    if spent.cost >= cost:
        raise TurnStopped(f"stopped after ${spent.cost:.4f} {span}, the limit is ${cost:.4f}")


def _answer(text: str, without: Sequence[str]) -> str:
    return f"{text.rstrip()}\n\n(Done without {'; without '.join(without)}.)".lstrip() if without else text


class _Rewind:
    """A way back, or forth again, that somebody waits for."""

    def __init__(self, command: Undo | Rewind | Redo) -> None:
        self.command = command
        self.done = anyio.Event()
        self.refused: str | None = None


class _Act:
    """An action of the user's own that somebody waits for."""

    def __init__(self, id_: ActionId, action: Action) -> None:
        self.id = id_
        self.action = action
        self.done = anyio.Event()
        self.performed: Performed | None = None
        self.failed: Unavailable | None = None


class Engine:
    def __init__(self, core: Core) -> None:
        self.core = core
        self._inbox, self._commands = anyio.create_memory_object_stream[_Work](_QUEUED)
        self._taken: deque[tuple[str | None, anyio.CancelScope]] = deque()
        """Commands not yet worked through, in order, each with its scope from the start: an interrupt right
        behind a command stops it even if it has not begun."""
        self._deciding = anyio.Lock()

    async def recover(self) -> None:
        """Name what a crash left open: nothing that had begun is ever run again by itself."""
        opened = self.core.state.opened
        is_foreign = opened is not None and opened.imported
        if is_foreign:
            await self._cut_off("it was cut off elsewhere")
        events: list[Event] = []
        for id_, item in self.core.state.open.items():
            if item.stage == "started":
                events.append(ActionFinished(id=id_, outcome="outcome_unknown", observation=_UNKNOWN))
            elif is_foreign or item.proposed.turn is None or item.proposed.parent:  # nobody here waits for it
                events.append(ActionFinished(id=id_, outcome="not_run", observation=_NOT_RUN))
        if events:
            await self.core.record(*events)

    async def submit(self, command: Command) -> None:
        """Take a command. What it leads to is seen in the log. Raises CommandRefused."""
        match command:
            case Interrupt(target=target):
                for id_, scope in self._taken:
                    if target in (None, id_):
                        scope.cancel()
                        break
            case Decide():
                await self._decide(command)
            case Rename(title=title):
                await self.core.record(SessionChanged(title=title))
            case Undo() | Rewind() | Redo():
                await self._rewind(command)
            case Clear():
                await self._clear()
            case Configure():
                await self._configure(command)
            case Say() | Continue() | Execute():
                if isinstance(command, Continue) and self.core.state.turn is None:
                    raise CommandRefused("there is no turn to go on with")
                self._take(command)
            case _:
                assert_never(command)

    async def act(self, id_: ActionId, action: Action) -> Performed:
        """Do something on the user's own behalf: in its turn, or at once where it may run beside others.

        Judged, asked about and recorded as any action. Cancelling interrupts it. Raises CommandRefused, Unavailable.
        """
        if self.core.hands.parallel_safe(action):
            return await self.act_beside(id_, action)
        work = _Act(id_, action)
        self._take(work)
        try:
            await work.done.wait()
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self.submit(Interrupt(target=id_))
                await work.done.wait()
            raise
        if work.failed:
            raise work.failed
        return work.performed or Performed(outcome="interrupted", observation=_INTERRUPTED)

    async def act_beside(self, id_: ActionId, action: Action) -> Performed:
        """As `act`, but at once and in the caller's own task: whoever knows that nothing in the session stands in its way."""
        await self.core.record(ActionProposed(id=id_, action=action, by="user"))
        try:
            return await carry(self.core, id_)
        finally:
            left = self.core.state.open.get(id_)
            if left and left.stage != "started":  # it was given up before it began
                with anyio.CancelScope(shield=True):
                    await self.core.record(ActionFinished(id=id_, outcome="not_run", observation=_NOT_RUN))

    async def _configure(self, change: Configure) -> None:
        state = self.core.state
        if change.mode and "read-only" in (change.mode, state.mode) and change.mode != state.mode:
            raise CommandRefused(
                f"the session is open in mode {state.mode}, and its files were mounted so; reopen it in {change.mode}"
            )
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
            )
        )
        if chosen:
            self.core.model = chosen.model

    def _choose_model(self, model: str) -> Choice:
        if self._taken:
            raise CommandRefused(_BUSY)
        if self.core.choose is None:
            raise CommandRefused("the model of this session cannot be changed")
        return self.core.choose(model)

    async def _clear(self) -> None:
        if self._taken:
            raise CommandRefused(_BUSY)
        await self._cut_off("the conversation was begun anew")
        await self.core.record(ContextCompacted(summary=self.core.hands.inventory()))

    def _take(self, work: _Work) -> None:
        try:
            self._inbox.send_nowait(work)
        except anyio.WouldBlock:
            raise CommandRefused(f"{_QUEUED} messages are waiting already") from None
        self._taken.append((self._id_of(work), anyio.CancelScope()))

    async def _rewind(self, command: Undo | Rewind | Redo) -> None:
        """Seen in the log when this returns, unlike other commands: only whoever asked must know that it was refused."""
        if self._taken:
            raise CommandRefused(_BUSY)
        rewind = _Rewind(command)
        self._take(rewind)
        await rewind.done.wait()
        if rewind.refused is not None:
            raise CommandRefused(rewind.refused)

    async def serve(self) -> None:
        """Work through the commands, one at a time, for as long as the session lives."""
        with self._inbox, self._commands:
            async for command in self._commands:
                await self._work(command)
                self._taken.popleft()
                self.core.touch()

    @property
    def is_busy(self) -> bool:
        """Something that was taken is not worked through yet."""
        return bool(self._taken)

    async def idle(self) -> None:
        """Wait until all that was taken is worked through, or waits for somebody's decision."""
        while self._taken and not any(item.stage == "asking" for item in self.core.state.open.values()):
            await self.core.wait_for_change()

    def _id_of(self, command: _Work) -> str | None:
        match command:
            case _Rewind():
                return None
            case Say(turn=id_) | Execute(id=id_):
                return id_
            case _Act():
                return command.id
            case Continue():
                return self.core.state.turn.id if self.core.state.turn else None

    async def _work(self, command: _Work) -> None:
        match command:
            case _Rewind():
                await self._go_back(command)
            case Say():
                await self._say(command)
            case Continue():
                if turn := self.core.state.turn:
                    await self._turn(turn.id)
            case Execute():
                await self._execute(command)
            case _Act():
                await self._do(command)
            case _:
                assert_never(command)

    async def _do(self, work: _Act) -> None:
        try:
            with self._taken[0][1]:
                work.performed = await self.act_beside(work.id, work.action)
        except Unavailable as failure:
            work.failed = failure
        finally:
            work.done.set()

    async def _say(self, say: Say) -> None:
        state = self.core.state
        if state.turn and state.turn.id == say.turn:
            return await self._turn(say.turn)
        if any(turn.id == say.turn for turn in state.turns):
            return None
        await self._cut_off("the process ended early")
        glance = await self.core.hands.summarize_files()
        private = bool(say.images) or self.core.hands.is_exposed
        tools = self.core.hands.hint(say.text)
        await self.core.record(
            UserSpoke(turn=say.turn, text=say.text, images=say.images, glance=glance, tools=tools, private=private)
        )
        return await self._turn(say.turn)

    async def _turn(self, id_: TurnId) -> None:
        """From the state as it is to the end of the turn, whatever that end is."""
        seconds = self.core.budget.max_seconds or math.inf
        end: Event | None = None
        with self._taken[0][1] as scope:
            scope.deadline = anyio.current_time() + seconds
            try:
                end = await self._steps(id_)
            except TurnStopped as stop:
                end = TurnFailed(turn=id_, error=str(stop), temporary=stop.temporary, usage=self._current_usage())
            except PinfoldError as error:
                later = error.exit_code == 75
                end = TurnFailed(turn=id_, error=str(error), temporary=later, usage=self._current_usage())
            except Exception as error:
                log.exception("turn %s", id_)
                words = f"internal error, please report it: {type(error).__name__}: {error}"
                end = TurnFailed(turn=id_, error=words, usage=self._current_usage())
        if end is None and anyio.current_time() >= scope.deadline:
            words = f"stopped after {seconds:g} s, the limit for a turn"
            end = TurnFailed(turn=id_, error=words, usage=self._current_usage())
        if end is None:
            end = TurnInterrupted(turn=id_, reason="interrupted by the user", usage=self._current_usage())
        await self._close(id_, end)

    async def _steps(self, id_: TurnId) -> Event:
        while True:
            await settle(self.core, id_)
            turn = self.core.state.turn
            if turn is None:
                raise TurnStopped("the turn ended from outside")
            if turn.answer is not None:
                if fault := self.core.fault_of(turn.answer):
                    raise TurnStopped(fault)
                if turn.unusable:
                    raise TurnStopped(f"{turn.model} gave no answer that can be used: {turn.unusable}")
                return self._turn_ended_event(turn, self._final_answer(turn.answer, turn.without))
            if (printed := self.core.printed_by(turn)) is not None:
                return self._turn_ended_event(turn, printed, printed=True)
            self._check_budget(turn)
            if turn.is_failing or turn.is_stuck:
                from pinfold.engine.progress import progress

                turn = await progress(self.core, turn)
            await ask(self.core, turn)

    @staticmethod
    def _turn_ended_event(turn: Turn, text: str, *, printed: bool = False) -> TurnEnded:
        return TurnEnded(
            turn=turn.id, text=text, usage=turn.usage, cost=turn.cost, without=turn.without, printed=printed
        )

    def _final_answer(self, answer: str, without: Sequence[str]) -> str:
        form = self.core.form
        return form.finish_answer(answer) if form else _answer(answer, without)

    def _current_usage(self) -> Usage:
        return self.core.state.turn.usage if self.core.state.turn else Usage()

    def _check_budget(self, turn: Turn) -> None:
        budget, state = self.core.budget, self.core.state
        if turn.steps >= budget.max_steps:
            raise TurnStopped(f"stopped after {turn.steps} steps, the limit (max_steps)")
        within("this turn", Spent(tokens=turn.usage.total, cost=turn.cost), budget.max_tokens, budget.max_cost)
        spent = Spent(tokens=state.usage.total, cost=state.cost)
        within("this session", spent, budget.session_tokens, budget.session_cost)
        if self.core.ledger and (budget.day_tokens is not None or budget.day_cost is not None):
            within("today", self.core.ledger.today(), budget.day_tokens, budget.day_cost)

    async def _cut_off(self, reason: str) -> None:
        """End the turn that is open, if one is."""
        if turn := self.core.state.turn:
            await self._close(turn.id, TurnInterrupted(turn=turn.id, reason=reason, usage=self._current_usage()))

    async def _close(self, id_: TurnId, end: Event) -> None:
        """End the turn. No action of it stays open, and no call without an answer."""
        state = self.core.state
        events: list[Event] = []
        for call in state.turn.unproposed if state.turn else ():
            events.append(ActionProposed(id=call.id, action=self.core.hands.action(call), turn=id_))
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
        await self.core.record(ActionProposed(id=command.id, action=action, by="user"))
        with self._taken[0][1], suppress(Unavailable):  # what was not available is in the outcome
            await carry(self.core, command.id)

    async def _go_back(self, rewind: _Rewind) -> None:
        try:
            way = way_back(self.core.state, rewind.command)
            with anyio.CancelScope(shield=True):  # half of it would be neither here nor there
                path = self.core.state.path
                gone = Rewound(to=path[-1] if path else 0)
                if way.cells is not None:
                    gone = await self.core.hands.rewind(way.cells)
                if way.forgotten:
                    await self._cut_off("the conversation went back to before it")
                await self.core.record(
                    SessionRewound(
                        to=gone.to,
                        what=way.what,
                        undone=gone.undone,
                        redone=gone.redone,
                        effects=self.core.state.effects_of(gone.undone),
                        notices=gone.notices,
                        forgotten=way.forgotten,
                        recalled=way.recalled,
                        again=isinstance(rewind.command, Redo),
                    )
                )
        except PinfoldError as error:
            rewind.refused = str(error)
        finally:
            rewind.done.set()

    async def _decide(self, decide: Decide) -> None:
        # One at a time: of two answers that cross, the second must see that the first was taken.
        async with self._deciding:
            item = self.core.state.open.get(decide.id)
            if item is None or item.stage != "asking":
                raise CommandRefused(f"no approval is waiting for {decide.id}; it was answered already or never asked")
            if decide.digest != item.digest:
                raise CommandRefused(f"the approval for {decide.id} is about other content than what was answered")
            asked = item.asked
            if decide.verdict == "allow" and decide.scope != "once":
                if asked is None or not asked.pattern:
                    raise CommandRefused(f"{decide.id} can only be allowed once")
                if decide.scope == "always":
                    if not asked.stored:
                        raise CommandRefused(f"{decide.id} can be allowed for this session at most")
                    await self.core.hands.grant(asked.pattern)
            await self.core.record(
                ApprovalDecided(id=decide.id, verdict=decide.verdict, scope=decide.scope, words=decide.words)
            )
        turn = self.core.state.turn
        if turn and item.proposed.turn == turn.id and all(id_ != turn.id for id_, _ in self._taken):
            await self.submit(Continue())
