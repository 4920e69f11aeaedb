"""One turn, from the state as it is to its answer. A model that repeats the same error looks afresh, then starts over."""

from __future__ import annotations

from msgspec.structs import replace

from pinfold.engine.actions import settle
from pinfold.engine.core import Core, TurnStopped
from pinfold.engine.model_call import ask
from pinfold.engine.ports import Spent
from pinfold.engine.state import Turn
from pinfold.events import (
    ApproachChanged,
    AssistantMessage,
    Event,
    Noticed,
    PinfoldError,
    SessionRewound,
    TurnEnded,
    TurnId,
    Undo,
    plain_json,
)


async def run_turn(core: Core, id_: TurnId) -> TurnEnded:
    """Carry out actions and ask the model until there is an answer. Raises TurnStopped and other PinfoldErrors."""
    while True:
        await settle(core, id_)
        turn = core.state.turn
        if turn is None:
            raise TurnStopped("the turn ended from outside")
        if turn.answer is not None:
            return _end_event(turn, _final_answer(core, turn, turn.answer))
        if (printed := core.printed_by(turn)) is not None:
            return _end_event(turn, printed, printed=True)
        _check_budget(core, turn)
        if turn.is_failing or turn.is_stuck:
            turn = await _progress(core, turn)
        await ask(core, turn)


def _end_event(turn: Turn, text: str, *, printed: bool = False) -> TurnEnded:
    return TurnEnded(turn=turn.id, text=text, usage=turn.usage, cost=turn.cost, without=turn.without, printed=printed)


def _final_answer(core: Core, turn: Turn, answer: str) -> str:
    if fault := core.fault_of(answer):
        raise TurnStopped(fault)
    if turn.unusable:
        raise TurnStopped(f"{turn.model} gave no answer that can be used: {turn.unusable}")
    if core.form:
        return core.form.finish_answer(answer)
    without = f"\n\n(Done without {'; without '.join(turn.without)}.)"
    return f"{answer.rstrip()}{without}".lstrip() if turn.without else answer


def _check_budget(core: Core, turn: Turn) -> None:
    budget, state = core.budget, core.state
    if turn.steps >= budget.max_steps:
        raise TurnStopped(f"stopped after {turn.steps} steps, the limit (max_steps)")
    _check_limit("this turn", Spent(tokens=turn.usage.total, cost=turn.cost), budget.max_tokens, budget.max_cost)
    spent = Spent(tokens=state.usage.total, cost=state.cost)
    _check_limit("this session", spent, budget.session_tokens, budget.session_cost)
    if core.ledger and (budget.day_tokens is not None or budget.day_cost is not None):
        _check_limit("today", core.ledger.today(), budget.day_tokens, budget.day_cost)


def _check_limit(span: str, spent: Spent, tokens: int | None, cost: float | None) -> None:
    """Raises TurnStopped once a limit is reached."""
    if tokens is not None and spent.tokens >= tokens:
        raise TurnStopped(f"stopped after {spent.tokens:,} tokens {span}, the limit is {tokens:,}")
    if cost is None:
        return
    if spent.cost is None:
        raise TurnStopped(f"stopped: a cost limit for {span} is set but the price of a model is not known")
    if spent.cost >= cost:
        raise TurnStopped(f"stopped after ${spent.cost:.4f} {span}, the limit is ${cost:.4f}")


async def _progress(core: Core, turn: Turn) -> Turn:
    """Change the approach or the model of a turn that does not get anywhere. Raises TurnStopped if nothing is left to try."""
    stronger = core.escalate if core.escalate and turn.model != core.escalate.name else None
    if turn.is_failing and not (turn.is_stuck and stronger):
        if await _change_approach(core, turn):
            return core.state.turn or turn
        turn = replace(turn, approaches=2)
    if not turn.is_stuck:
        return turn
    if stronger is None:
        again = f"making the same error: {turn.error}" if turn.error else "doing the same thing with the same result"
        raise TurnStopped(f"stopped: the model keeps {again}")
    await core.record(Noticed(text=f"{turn.model} goes round in circles; {stronger.name} goes on from here"))
    return turn


async def _change_approach(core: Core, turn: Turn) -> bool:
    """First a fresh look at the data, then a fresh start; False when both were tried."""
    times, about = turn.errors[turn.error], _about(turn)
    if turn.approaches == 0:
        events: list[Event] = [Noticed(text=f"the same error {times} times ({turn.error}): looking at the data again")]
    elif turn.approaches == 1 and not _reaches_outside(core, turn):
        events = [
            Noticed(text=f"the same error {times} times ({turn.error}): starting over"),
            *await _undo_cells(core, turn),
        ]
    else:
        return False
    changed = ApproachChanged(
        turn=turn.id,
        error=turn.error,
        times=times,
        look=await core.hands.describe_state(about),
        started_over=turn.approaches == 1,
        private=core.hands.is_exposed,
    )
    await core.record(*events, changed)
    return True


def _about(turn: Turn) -> str:
    """The words and code of the turn, which name the files worth a look."""
    codes = [plain_json(call.args) for one in turn.messages if isinstance(one, AssistantMessage) for call in one.calls]
    return "\n".join([turn.said, *codes])


def _reaches_outside(core: Core, turn: Turn) -> bool:
    """True if the turn had effects that no undo reaches, which a fresh start would repeat."""
    return any(cell >= turn.cells_before for cell, _ in core.state.effects)


async def _undo_cells(core: Core, turn: Turn) -> list[Event]:
    """Undo the cells of the turn if possible; else variables and files stay as they are."""
    path = core.state.path
    if not any(cell > turn.cells_before for cell in path):
        return []
    try:
        gone = await core.hands.rewind(Undo(to=max((cell for cell in path if cell <= turn.cells_before), default=0)))
    except PinfoldError:
        return []
    return [SessionRewound(to=gone.to, undone=gone.undone, redone=gone.redone, notices=gone.notices)]
