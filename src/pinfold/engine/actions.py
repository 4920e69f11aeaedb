"""Takes a proposed action through hooks, policy, approval and execution to its outcome, and records each step.

Works from the state alone, so a turn that was cut off anywhere continues where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from itertools import groupby

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from pinfold.engine.approvals import is_bound_by_plan, judge, policy_context, settle_approval
from pinfold.engine.core import Core
from pinfold.engine.fold import ANSWER, tool_key
from pinfold.engine.ports import OnCall, Performed, PolicyContext
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
    Ask,
    Call,
    CallTool,
    Deny,
    Effect,
    Event,
    Json,
    Outcome,
    OutputDelta,
    PinfoldError,
    RunCell,
    TurnId,
    Unavailable,
    new_action_id,
)
from pinfold.text import cap_text, join_names

INSTALL = "install"
NOT_ASKED = "the package {0} is missing; with `--mode full` it is installed and the cell runs again"
_NAMED_FILES = 5
_PARTIAL = 4000
"""Characters of an interrupted action's output that the model still sees."""
_TRIED = "This was run with all files read-only, and it failed because it has to change some."
_CELL_ENDED = "This was not run: the cell that asked for it ended first."


async def settle(core: Core, turn: TurnId) -> None:
    """Complete every action of the turn, in order; consecutive parallel-safe actions run concurrently."""
    events: list[Event] = []
    for call in core.state.turn.unproposed if core.state.turn else ():
        events += await _proposal(core, turn, call)
    if events:
        await core.record(*events)
    for group in _groups(core, turn):
        if len(group) == 1:
            await perform_action(core, group[0])
        else:
            await _perform_concurrently(core, group)


async def _perform_concurrently(core: Core, group: list[ActionId]) -> None:
    limiter = anyio.CapacityLimiter(core.budget.side_by_side)
    failures: list[PinfoldError] = []

    async def carry_one(id_: ActionId) -> None:
        async with limiter:
            try:
                await perform_action(core, id_)
            except PinfoldError as failure:
                failures.append(failure)

    async with anyio.create_task_group() as tasks:
        for id_ in group:
            tasks.start_soon(carry_one, id_)
    if failures:
        raise failures[0]


async def _proposal(core: Core, turn: TurnId | None, call: Call, parent: ActionId | None = None) -> list[Event]:
    action = core.runner.action(call)
    answer = await core.hooks.before_action(action)
    if parent and isinstance(answer, RunCell):
        action, answer = answer, Deny("a cell cannot run another one")
    denied = [ActionDenied(id=call.id, reason=answer.reason)] if isinstance(answer, Deny) else []
    action = action if isinstance(answer, Deny) else answer
    by = "cell" if parent else "model"
    return [ActionProposed(id=call.id, action=action, by=by, turn=turn, parent=parent), *denied]


class _CellCalls(Struct):
    """What the calls made by one running action share."""

    parent: ActionProposed
    asking: anyio.Lock = field(default_factory=anyio.Lock)
    """Held while the user is asked: the answer may also settle the next question."""
    serial: anyio.Lock = field(default_factory=anyio.Lock)
    """Held by a call that is not parallel-safe."""


async def _perform_call(core: Core, calls: _CellCalls, tool: str, args: Mapping[str, Json]) -> Performed:
    """Perform a call from a running cell, by the same steps as the model's own calls. Only the cell sees its result."""
    cell = calls.parent
    said = str(args.get("text", "")) if tool == ANSWER else ""
    if tool == ANSWER and (fault := core.fault_of(said) or core.form_fault(said)):
        return Performed(outcome="error", observation=fault, error=fault)
    call = Call(id=new_action_id(), tool=tool, args=args)
    try:
        proposal = await _proposal(core, cell.turn, call, cell.id)
        if len(proposal) == 1 and (performed := await _call_at_once(core, proposal[0])):
            return performed
        await core.record(*proposal)
        action = core.state.open[call.id].proposed.action
        async with nullcontext() if core.runner.parallel_safe(action) else calls.serial:
            return await perform_action(core, call.id, calls.asking)
    except Unavailable as failure:
        return Performed(outcome="not_run", observation=str(failure))
    finally:
        await close_unstarted(core, call.id, _CELL_ENDED)


async def close_unstarted(core: Core, id_: ActionId, words: str) -> None:
    """Record `not_run` for an action that was abandoned before it started."""
    item = core.state.open.get(id_)
    if item and item.stage != "started":
        with anyio.CancelScope(shield=True):
            await core.record(ActionFinished(id=id_, outcome="not_run", observation=words))


async def _call_at_once(core: Core, proposed: Event) -> Performed | None:
    """Run a pure, parallel-safe call that policy allows, and record it when it ends. Return None for any other call."""
    assert isinstance(proposed, ActionProposed)
    item = OpenAction(proposed=proposed)
    if core.runner.effect(proposed.action) != "pure" or not core.runner.parallel_safe(proposed.action):
        return None
    verdict = core.runner.judge(proposed.action, policy_context(core, item))
    if not isinstance(verdict, Allow):
        return None
    return await _run(core, item, proposed, ActionAllowed(id=proposed.id, rule=verdict.rule))


def _groups(core: Core, turn: TurnId) -> Iterator[list[ActionId]]:
    mine = [item.proposed for item in core.state.open.values() if item.proposed.turn == turn]
    for safe, neighbours in groupby(mine, key=lambda proposed: core.runner.parallel_safe(proposed.action)):
        ids = [proposed.id for proposed in neighbours]
        yield from [ids] if safe else ([id_] for id_ in ids)


async def perform_action(core: Core, id_: ActionId, asking: anyio.Lock | None = None) -> Performed:
    """Judge one action, get approval if needed, and perform it. Raises Unavailable."""
    item = core.state.open[id_]
    async with core.runner.freeze_session(item.proposed.action, policy_context(core, item)):
        performed = await _act_on_verdict(core, id_, await judge(core, id_, asking))
        if performed.stopped:
            # It was allowed as read-only but has to write, which needs another verdict.
            allowed = await judge(core, id_, asking, performed.stopped)
            performed = await _act_on_verdict(core, id_, allowed, performed)
        return performed


async def _act_on_verdict(
    core: Core, id_: ActionId, allowed: ActionAllowed | None, attempt: Performed | None = None
) -> Performed:
    """Act on the verdict: run, ask or deny. `attempt` is the outcome of an earlier read-only run."""
    if allowed is not None:
        return await _run(core, core.state.open[id_], allowed, attempt=attempt)
    await settle_approval(core, id_)
    item = core.state.open[id_]
    if item.stage == "denied":
        return await _record_denial(core, item, attempt)
    if item.asked and item.asked.question and item.decided:
        answer = Performed(outcome="ok", observation=item.decided.words, untrusted=item.asked.caller)
        await core.record(ActionStarted(id=id_, effect="pure"), _finish_event(id_, answer))
        return answer
    return await _run(core, item, attempt=attempt)


async def _record_denial(core: Core, item: OpenAction, attempt: Performed | None) -> Performed:
    if item.asked and item.asked.question:
        observation = f"The user gave no answer: {item.reason}"
    elif attempt and attempt.stopped == "refused":
        observation = f"{_TRIED} It was not run again: {item.reason}\n{attempt.observation}"
    else:
        observation = f"This was not run: {item.reason}"
    denied = Performed(outcome="denied", observation=observation)
    await core.record(_finish_event(item.proposed.id, denied.after(attempt)))
    return replace(denied, error=item.reason)


def _finish_event(id_: ActionId, how: Performed, duration_s: float = 0.0) -> ActionFinished:
    if how.at_fault and not how.lacked:
        why = how.observation.removeprefix(f"{how.at_fault} failed: ")
        how = replace(how, lacked=f"{tool_key(how.at_fault)} ({why})")
    fields = {name: getattr(how, name) for name in Outcome.__struct_fields__}
    return ActionFinished(id=id_, duration_s=duration_s, **fields)


async def _run(core: Core, item: OpenAction, *before: Event, attempt: Performed | None = None) -> Performed:
    """Run an allowed action. If it ran read-only but has to write (`Performed.stopped`), its end is not recorded."""
    id_, action = item.proposed.id, item.proposed.action
    if isinstance(action, CallTool) and (wait_s := core.breaker.wait_s(tool_key(action.tool))):
        words = f"{action.tool} keeps failing and is paused; try again in {wait_s:.0f} s or do without it"
        paused = Performed(outcome="not_run", observation=words, lacked=f"{tool_key(action.tool)} (it keeps failing)")
        await core.record(*before, _finish_event(id_, paused))
        return paused
    allowed = next((event for event in before if isinstance(event, ActionAllowed)), item)
    effect = "pure" if allowed.read_only else core.runner.effect(action)
    cell = _number(core, item)
    intent: list[Event] = [*before, ActionStarted(id=id_, effect=effect, cell=cell)]

    async def begin() -> None:
        await core.record(*intent)
        intent.clear()

    # A pure action may be run again, so its start need not be on disk before it runs.
    if effect != "pure" or allowed.read_only:
        await begin()
    begun = time.monotonic()
    shown: list[str] = []

    async def finish(how: Performed) -> None:
        is_new = bool(before) and isinstance(before[0], ActionProposed)
        # No later verdict can depend on such an outcome, so it may reach the disk later.
        is_plain = how.outcome == "ok" and not (how.private or how.untrusted or how.sent or how.lacked or how.blobs)
        record = core.journal.append_soon if is_new and is_plain else core.record
        await record(*intent, _finish_event(id_, how, round(time.monotonic() - begun, 6)))

    def on_output(stream: str, text: str) -> None:
        if sum(map(len, shown)) < _PARTIAL:
            shown.append(text)
        core.journal.broadcast(OutputDelta(id=id_, stream="stderr" if stream == "stderr" else "stdout", text=text))

    on_call = partial(_perform_call, core, _CellCalls(item.proposed))
    perform = partial(core.runner.perform, id_, action, on_output, on_call, read_only=allowed.read_only)
    try:
        performed = await perform(cell if item.proposed.parent is None else None)
        if performed.missing:
            given = policy_context(core, item)
            performed = await _run_with_package(
                core, id_, performed, given=given, on_call=on_call, begin=begin, run=perform
            )
    except Unavailable as failure:
        _account(core, action, None)
        # The reason is for the user: the model only learns that nothing ran.
        words = "This could not be run: the sandbox is not available."
        await finish(Performed(outcome="not_run", observation=words, error=str(failure)))
        raise
    except anyio.get_cancelled_exc_class():
        _account(core, action, None)
        with anyio.CancelScope(shield=True):
            await finish(_cut_off(action, effect, "".join(shown), private=core.runner.is_exposed))
        raise
    _account(core, action, performed)
    if not performed.stopped:
        performed = (await _keep_to_plan(core, item, cell, performed)).after(attempt)
        await finish(performed)
    return performed


async def _keep_to_plan(core: Core, item: OpenAction, cell: int | None, performed: Performed) -> Performed:
    """Undo a cell that changed files before the user agreed to the plan."""
    if not (cell and performed.files and item.proposed.parent is None and is_bound_by_plan(core, item)):
        return performed
    names = join_names([one.path for one in performed.files], _NAMED_FILES)
    notices = await core.runner.undo_cell(cell)
    if notices is None:
        words = f"[The plan is not agreed yet, but this changed {names}, which cannot be undone here.]"
        return replace(performed, observation=f"{performed.observation.rstrip()}\n{words}")
    words = f"This was undone, because it changed {names} and the user has not agreed to the plan yet."
    return replace(performed, outcome="denied", observation=words, files=(), rolled_back=True, variables=None)


def _number(core: Core, item: OpenAction) -> int | None:
    """Return an action's cell number, if it has one. A call from a cell belongs to that cell and is undone with it."""
    if not core.runner.counts_as_cell(item.proposed.action):
        return None
    if item.proposed.parent is None:
        return core.state.cells + 1
    cell = core.state.open.get(item.proposed.parent)
    return cell.cell if cell else None


def _cut_off(action: Action, effect: Effect, shown: str, *, private: bool) -> Performed:
    output = f"\nOutput until then:\n{cap_text(shown, _PARTIAL)}" if shown else ""
    if isinstance(action, CallTool) and effect != "pure":
        words = "This was interrupted while it ran; it may or may not have taken effect."
        return Performed(outcome="outcome_unknown", observation=words + output, private=private)
    kept = "variables and files are as the code left them, unless the next cell says the variables are gone"
    return Performed(outcome="interrupted", observation=f"This was interrupted; {kept}.{output}", private=private)


def _account(core: Core, action: Action, performed: Performed | None) -> None:
    if not isinstance(action, CallTool):
        return
    line = tool_key(action.tool)
    if performed is None:
        core.breaker.record_unknown(line)
    elif performed.at_fault:
        core.breaker.record_failure(line)
    else:
        core.breaker.record_success(line)


async def _run_with_package(
    core: Core,
    id_: ActionId,
    first: Performed,
    *,
    given: PolicyContext,
    on_call: OnCall,
    begin: Callable[[], Awaitable[None]],
    run: Callable[[int], Awaitable[Performed]],
) -> Performed:
    """Install the package that `first` lacks, undo that attempt, and run the cell again from its start.

    `begin` records the start of the first attempt. If that had effects that cannot be undone, the cell is not run again.
    """
    action = core.runner.action(Call(id=id_, tool=INSTALL, args={"package": first.missing}))
    match core.runner.judge(action, given):
        case Deny():
            return first
        case Ask() if core.unattended:
            return replace(first, notices=(*first.notices, NOT_ASKED.format(first.missing)))
        case _:
            await begin()
    item = core.state.open[id_]
    cell = item.cell or 0
    is_final = bool(first.sent or core.state.effects_of((cell,)))
    done = await on_call(INSTALL, {"package": first.missing})
    if done.outcome != "ok":
        return _add_notice(first, done.observation)
    notices = None if is_final else await core.runner.undo_cell(cell)
    if notices is None:
        return _add_notice(first, f"{done.observation}; run again what did not run")
    again = core.state.cells + 1
    await core.record(ActionStarted(id=id_, effect=item.effect, cell=again, instead_of=cell))
    second = _add_notice(await run(again), f"{done.observation}, and ran the cell again from its start")
    return replace(second, notices=(*notices, *second.notices)).after(first)


def _add_notice(performed: Performed, words: str) -> Performed:
    observation = f"{performed.observation.rstrip()}\n[{words}]\n".lstrip()
    return replace(performed, observation=observation, notices=(*performed.notices, words))
