"""From a proposed action to its outcome: hooks, policy, approval, then the act itself, each step on record.

Works from the state alone, so a turn that was cut off anywhere is taken up where it stopped.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property, partial
from itertools import groupby

import anyio
import msgspec
from msgspec.structs import replace

from pinfold.engine.core import Core
from pinfold.engine.fold import ANSWER, the_tool
from pinfold.engine.ports import Given, NotShown, Performed, Stopped
from pinfold.engine.state import OpenAction
from pinfold.events import (
    Action,
    ActionAllowed,
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    Allow,
    ApprovalDecided,
    ApprovalRequested,
    Ask,
    Call,
    CallTool,
    Deny,
    Effect,
    Event,
    Json,
    OutputDelta,
    PinfoldError,
    RunCell,
    TurnId,
    Unavailable,
    new_action_id,
    plain_json,
)
from pinfold.text import cap_text

_PARTIAL = 4000
"""Characters of an interrupted action's output that the model still sees."""
_NOBODY = "nobody is there; decide by yourself, and say what you took for granted"
_TRIED = "This was run with all files read-only, and it failed because it has to change some."
_CELL_ENDED = "This was not run: the cell that asked for it ended first."


def digest_of(id_: ActionId, action: Action, shows: str = "") -> str:
    """Binds an approval to this one action, its exact bytes, and what was shown of it."""
    return hashlib.sha256(plain_json([id_, msgspec.to_builtins(action), shows]).encode()).hexdigest()


async def settle(core: Core, turn: TurnId) -> None:
    """Carry every action of the turn to its end: one after the other, parallel-safe neighbours side by side."""
    await _propose(core, turn)
    for group in _groups(core, turn):
        if len(group) == 1:
            await carry(core, group[0])
        else:
            await _carry_side_by_side(core, group)


async def _carry_side_by_side(core: Core, group: list[ActionId]) -> None:
    limiter = anyio.CapacityLimiter(core.budget.side_by_side)
    failures: list[PinfoldError] = []

    async def carry_one(id_: ActionId) -> None:
        async with limiter:
            try:
                await carry(core, id_)
            except PinfoldError as failure:
                failures.append(failure)

    async with anyio.create_task_group() as tasks:
        for id_ in group:
            tasks.start_soon(carry_one, id_)
    if failures:
        raise failures[0]


async def _propose(core: Core, turn: TurnId) -> None:
    calls = core.state.turn.unproposed if core.state.turn else ()
    events: list[Event] = []
    for call in calls:
        events += await _proposal(core, turn, call)
    if events:
        await core.record(*events)


async def _proposal(core: Core, turn: TurnId | None, call: Call, parent: ActionId | None = None) -> list[Event]:
    action = core.hands.action(call)
    answer = await core.hooks.before_action(action)
    by = "cell" if parent else "model"
    if parent and isinstance(answer, RunCell):
        action, answer = answer, Deny("a cell cannot run another one")
    if isinstance(answer, Deny):
        return [
            ActionProposed(id=call.id, action=action, by=by, turn=turn, parent=parent),
            ActionDenied(id=call.id, reason=answer.reason),
        ]
    return [ActionProposed(id=call.id, action=answer, by=by, turn=turn, parent=parent)]


class _Calling:
    """The calls of one action that runs, in order where they must be."""

    def __init__(self, parent: ActionProposed) -> None:
        self.parent = parent

    @cached_property
    def asking(self) -> anyio.Lock:
        """One question at a time: the answer to it may be the answer to others."""
        return anyio.Lock()

    @cached_property
    def serial(self) -> anyio.Lock:
        """For what does not run side by side."""
        return anyio.Lock()


async def _perform_call(core: Core, calling: _Calling, tool: str, args: Mapping[str, Json]) -> Performed:
    """A call from a cell that runs: the same way as the model's own. Only the cell sees what comes of it."""
    cell = calling.parent
    said = str(args.get("text", "")) if tool == ANSWER else ""
    if tool == ANSWER and (fault := core.fault_of(said) or core.misses(said)):
        return Performed(outcome="error", observation=fault, error=fault)
    call = Call(id=new_action_id(), tool=tool, args=args)
    try:
        proposal = await _proposal(core, cell.turn, call, cell.id)
        if len(proposal) == 1 and (performed := await _called_at_once(core, proposal[0])):
            return performed
        await core.record(*proposal)
        action = core.state.open[call.id].proposed.action
        async with nullcontext() if core.hands.parallel_safe(action) else calling.serial:
            return await carry(core, call.id, calling.asking)
    except Unavailable as failure:
        return Performed(outcome="not_run", observation=str(failure))
    finally:
        left = core.state.open.get(call.id)
        if left and left.stage != "started":
            with anyio.CancelScope(shield=True):
                await core.record(ActionFinished(id=call.id, outcome="not_run", observation=_CELL_ENDED))


async def _called_at_once(core: Core, proposed: Event) -> Performed | None:
    """A pure call that needs no question goes on record when it is over, with the next that is waited for."""
    assert isinstance(proposed, ActionProposed)
    item = OpenAction(proposed=proposed)
    if core.hands.effect(proposed.action) != "pure" or not core.hands.parallel_safe(proposed.action):
        return None
    match core.hands.judge(proposed.action, _policy_context(core, item)):
        case Allow(rule=rule):
            return await _run(core, item, proposed, ActionAllowed(id=proposed.id, rule=rule))
        case _:
            return None


def _groups(core: Core, turn: TurnId) -> Iterator[list[ActionId]]:
    mine = [item.proposed for item in core.state.open.values() if item.proposed.turn == turn]
    for safe, neighbours in groupby(mine, key=lambda proposed: core.hands.parallel_safe(proposed.action)):
        ids = [proposed.id for proposed in neighbours]
        yield from [ids] if safe else ([id_] for id_ in ids)


async def carry(core: Core, id_: ActionId, asking: anyio.Lock | None = None) -> Performed:
    """Judge one action, have it approved if need be, and do it. Raises Unavailable."""
    item = core.state.open[id_]
    async with core.hands.freeze_session(item.proposed.action, _policy_context(core, item)):
        performed = await _carry_out(core, id_, await _judge(core, id_, asking))
        if performed.stopped:
            # It was allowed to read, and has to write: that is another question.
            allowed = await _judge(core, id_, asking, performed.stopped)
            performed = await _carry_out(core, id_, allowed, performed)
        return performed


async def _carry_out(
    core: Core, id_: ActionId, allowed: ActionAllowed | None, attempt: Performed | None = None
) -> Performed:
    """Once it is judged. `attempt`: what became of it when it was run read-only."""
    if allowed is not None:
        return await _run(core, core.state.open[id_], allowed, attempt=attempt)
    await _settle_approval(core, id_)
    item = core.state.open[id_]
    if item.stage == "denied":
        return await _record_denial(core, item, attempt)
    if item.asked and item.asked.question and item.decided:
        return await _record_answer(core, item, item.decided.words)
    return await _run(core, item, attempt=attempt)


async def _judge(
    core: Core, id_: ActionId, asking: anyio.Lock | None = None, stopped: Stopped = ""
) -> ActionAllowed | None:
    """By policy, unless it has been; what is allowed without a question is not on record yet.

    Under `asking` a question waits for those before it: the answer to one may be the answer to this.
    """
    item = core.state.open[id_]
    if item.stage != "proposed" and not stopped:
        return None
    verdict = core.hands.judge(item.proposed.action, _policy_context(core, item, stopped))
    if asking is not None and isinstance(verdict, Ask):
        async with asking:
            allowed = await _judge(core, id_, None, stopped)
            if allowed is None:
                await _settle_approval(core, id_)
            return allowed
    match verdict:
        case Allow(rule=rule, read_only=read_only):
            return ActionAllowed(id=id_, rule=rule, read_only=read_only)
        case Deny(reason=reason):
            await core.record(ActionDenied(id=id_, reason=reason))
        case Ask() as ask:
            await _ask(core, item, ask)
    return None


async def _settle_approval(core: Core, id_: ActionId) -> None:
    """Decided, if there was a question."""
    await _wait_for_decision(core, id_)
    while await _is_stale(core, core.state.open[id_]):
        await _wait_for_decision(core, id_)


def _policy_context(core: Core, item: OpenAction, stopped: Stopped = "") -> Given:
    state = core.state
    cell = state.open.get(item.proposed.parent) if item.proposed.parent else None
    bundle = cell.bundle if cell else frozenset[str]()
    return Given(
        mode=state.mode,
        grants=state.granted | bundle,
        private=state.private,
        untrusted=state.untrusted,
        stopped=stopped,
    )


async def _ask(core: Core, item: OpenAction, ask: Ask) -> None:
    id_, action = item.proposed.id, item.proposed.action
    nobody = core.unattended or ask.question
    try:
        shows = "" if nobody else await core.hands.preview_action(action)
    except NotShown as error:
        await core.record(ActionDenied(id=id_, reason=str(error)))
        return
    await core.record(
        ApprovalRequested(
            id=id_,
            reason=ask.reason,
            digest=digest_of(id_, action, shows),
            shows=shows,
            pattern=ask.pattern,
            stored=core.hands.grants_at if ask.pattern and not ask.is_flow else "",
            bundled=bool(ask.pattern and item.proposed.parent and not ask.is_flow),
            question=ask.question,
            options=ask.options,
        )
    )


async def _is_stale(core: Core, item: OpenAction) -> bool:
    """A yes that was given too long ago, or to something that is not so any more, is no yes: it is asked again."""
    if item.stage != "allowed" or item.asked is None or item.asked.question:
        return False
    id_ = item.proposed.id
    try:
        shows = await core.hands.preview_action(item.proposed.action)
    except NotShown as error:
        await core.record(ActionDenied(id=id_, reason=str(error)))
        return False
    if shows == item.asked.shows and not core.is_long_ago(item.decided_at):
        return False
    digest = digest_of(id_, item.proposed.action, shows)
    await core.record(replace(item.asked, shows=shows, digest=digest))
    return True


async def _record_denial(core: Core, item: OpenAction, attempt: Performed | None = None) -> Performed:
    attempt = attempt or Performed(outcome="denied", observation="")
    if item.asked and item.asked.question:
        observation = f"The user gave no answer: {item.reason}"
    elif attempt.stopped == "refused":
        observation = f"{_TRIED} It was not run again: {item.reason}\n{attempt.observation}"
    else:
        observation = f"This was not run: {item.reason}"
    denied = ActionFinished(
        id=item.proposed.id,
        outcome="denied",
        observation=observation,
        private=attempt.private,
        untrusted=attempt.untrusted,
        sent=attempt.sent,
    )
    await core.record(denied)
    return Performed(outcome="denied", observation=observation, error=item.reason)


async def _record_answer(core: Core, item: OpenAction, words: str) -> Performed:
    """The agent's own question: the user's words are all there is to it."""
    id_ = item.proposed.id
    finished = ActionFinished(id=id_, outcome="ok", observation=words)
    await core.record(ActionStarted(id=id_, effect="pure"), finished)
    return Performed(outcome="ok", observation=words)


async def _wait_for_decision(core: Core, id_: ActionId) -> None:
    """Wait for the answer if one is due, without a bound: it may come days later, from anywhere."""
    while (item := core.state.open[id_]).stage == "asking":
        if core.unattended:
            is_question = item.asked is not None and item.asked.question
            words = _NOBODY if is_question else f"{item.reason}, and nobody is there to ask"
            await core.record(ApprovalDecided(id=id_, verdict="deny", by="nobody", words=words))
        else:
            await core.wait_for_change()


async def _run(core: Core, item: OpenAction, *before: Event, attempt: Performed | None = None) -> Performed:
    """Where it is read-only and has to write (`Performed.stopped`), its end is not on record yet."""
    id_, action = item.proposed.id, item.proposed.action
    allowed = next((event for event in before if isinstance(event, ActionAllowed)), item)
    effect = "pure" if allowed.read_only else core.hands.effect(action)
    cell = _number(core, item)
    started = ActionStarted(id=id_, effect=effect, cell=cell)
    if isinstance(action, CallTool) and (wait_s := core.breaker.wait_s(the_tool(action.tool))):
        return await _record_pause(core, id_, action.tool, wait_s, before)
    # A pure action may be run again, so its start need not be on disk before its effect: there is none.
    intent = (*before, started)

    async def begin() -> None:
        nonlocal intent
        await core.record(*intent)
        intent = ()

    if effect != "pure" or allowed.read_only:
        await begin()
    begun = time.monotonic()
    shown: list[str] = []

    def finish_events(how: Performed) -> tuple[Event, ...]:
        end = ActionFinished(
            id=id_,
            outcome=how.outcome,
            observation=how.observation,
            value=how.value,
            error=how.error,
            blobs=how.blobs,
            displays=how.displays,
            variables=how.variables,
            files=how.files,
            more_files=how.more_files,
            rolled_back=how.rolled_back,
            notices=how.notices,
            lacked=how.lacked or _broken(how),
            private=how.private,
            untrusted=how.untrusted,
            sent=how.sent,
            usage=how.usage,
            cost=how.cost,
            duration_s=round(time.monotonic() - begun, 6),
        )
        return (*intent, end)

    def on_output(stream: str, text: str) -> None:
        if sum(map(len, shown)) < _PARTIAL:
            shown.append(text)
        core.journal.broadcast(OutputDelta(id=id_, stream="stderr" if stream == "stderr" else "stdout", text=text))

    try:
        on_call = partial(_perform_call, core, _Calling(item.proposed))
        counts = cell if item.proposed.parent is None else None
        perform = partial(core.hands.perform, id_, action, on_output, on_call, read_only=allowed.read_only)
        performed = await perform(counts)
        if performed.missing:
            from pinfold.engine.packages import run_with_package

            performed = await run_with_package(
                core, id_, performed, given=_policy_context(core, item), on_call=on_call, begin=begin, run=perform
            )
    except Unavailable as failure:
        _account(core, action, None)
        # Its words are for the user: the model only learns that nothing ran.
        words = "This could not be run: the sandbox is not available."
        await core.record(*finish_events(Performed(outcome="not_run", observation=words, error=str(failure))))
        raise
    except anyio.get_cancelled_exc_class():
        _account(core, action, None)
        with anyio.CancelScope(shield=True):
            cut = _cut_off(action, effect, "".join(shown), private=core.hands.is_exposed)
            await core.record(*finish_events(cut))
        raise
    _account(core, action, performed)
    if performed.stopped:
        return performed
    performed = performed.after(attempt)
    is_new = bool(before) and isinstance(before[0], ActionProposed)
    if is_new and _changes_nothing(performed):
        await core.note(*finish_events(performed))
    else:
        await core.record(*finish_events(performed))
    return performed


async def _record_pause(core: Core, id_: ActionId, tool: str, wait_s: float, before: tuple[Event, ...]) -> Performed:
    words = f"{tool} keeps failing and is paused; try again in {wait_s:.0f} s or do without it"
    lacked = f"{the_tool(tool)} (it keeps failing)"
    await core.record(*before, ActionFinished(id=id_, outcome="not_run", observation=words, lacked=lacked))
    return Performed(outcome="not_run", observation=words)


def _changes_nothing(performed: Performed) -> bool:
    """Nobody need know of it before the next is judged."""
    return performed.outcome == "ok" and not (
        performed.private or performed.untrusted or performed.sent or performed.lacked or performed.blobs
    )


def _number(core: Core, item: OpenAction) -> int | None:
    """Of the cell it is. What a cell calls for belongs to that cell, and is undone with it."""
    if not core.hands.is_step(item.proposed.action):
        return None
    if item.proposed.parent is None:
        return core.state.cells + 1
    cell = core.state.open.get(item.proposed.parent)
    return cell.cell if cell else None


def _broken(how: Performed) -> str:
    if how.at_fault is None:
        return ""
    return f"{the_tool(how.at_fault)} ({how.observation.removeprefix(f'{how.at_fault} failed: ')})"


def _cut_off(action: Action, effect: Effect, shown: str, *, private: bool) -> Performed:
    output = f"\nOutput until then:\n{cap_text(shown, _PARTIAL)}" if shown else ""
    if isinstance(action, CallTool) and effect != "pure":
        words = "This was interrupted while it ran; it may or may not have taken effect."
        return Performed(outcome="outcome_unknown", observation=words + output, private=private)
    kept = "variables and files are as the code left them, unless the next cell says the variables are gone"
    words = f"This was interrupted; {kept}."
    return Performed(outcome="interrupted", observation=words + output, private=private)


def _account(core: Core, action: Action, performed: Performed | None) -> None:
    if not isinstance(action, CallTool):
        return
    line = the_tool(action.tool)
    if performed is None:
        core.breaker.record_unknown(line)
    elif performed.at_fault:
        core.breaker.record_failure(line)
    else:
        core.breaker.record_success(line)
