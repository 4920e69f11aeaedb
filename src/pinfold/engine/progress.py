"""Whether a turn gets anywhere: after the same error again and again the model looks afresh, then starts over."""

from __future__ import annotations

from msgspec.structs import replace

from pinfold.engine.core import Core, TurnStopped
from pinfold.engine.state import Turn
from pinfold.events import (
    ApproachChanged,
    AssistantMessage,
    Event,
    Noticed,
    PinfoldError,
    SessionRewound,
    Undo,
    plain_json,
)


async def progress(core: Core, turn: Turn) -> Turn:
    """The turn as it goes on. Raises TurnStopped where it should not."""
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
    """First a fresh look at the data, then a start without the tries; False when neither is left."""
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
    """The words and the code of the turn: what they name may be looked at."""
    codes = [plain_json(call.args) for one in turn.messages if isinstance(one, AssistantMessage) for call in one.calls]
    return "\n".join([turn.said, *codes])


def _reaches_outside(core: Core, turn: Turn) -> bool:
    """It did what no undo takes back, and would do it a second time."""
    return any(cell >= turn.cells for cell, _ in core.state.effects)


async def _undo_cells(core: Core, turn: Turn) -> list[Event]:
    """The cells of the turn, where they can be: else variables and files stay as the tries left them."""
    path = core.state.path
    if not any(cell > turn.cells for cell in path):
        return []
    try:
        gone = await core.hands.rewind(Undo(to=max((cell for cell in path if cell <= turn.cells), default=0)))
    except PinfoldError:
        return []
    return [SessionRewound(to=gone.to, undone=gone.undone, redone=gone.redone, notices=gone.notices)]
