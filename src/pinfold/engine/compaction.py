"""Makes room in the model's window: shortens old results to one line each, then summarises all but the latest."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from pinfold.engine.context import calls_of, request_of, shorten, summarise, visible_messages
from pinfold.engine.core import CommandRefused, Core
from pinfold.engine.fold import add_compaction
from pinfold.engine.state import Turn
from pinfold.events import ActionId, ContextCompacted, Message, Request, ToolMessage, UserMessage

_GOAL = 0.5
"""Largest share of the window that stays filled after a compaction."""
_TAIL = 0.25
"""Share of the window for the latest results, which stay whole."""
_PROGRESS = 0.1
"""A compaction that saves less than this share is not worth losing the provider's cache."""
_IN_VAIN = 2
"""How many compactions may follow each other without a finished action in between."""


def fits(core: Core, request: Request) -> bool:
    """True if the request fits into the model's window, or the window is unknown."""
    return not core.window or core.gauge.count(request) <= core.window


async def make_room(core: Core, turn: Turn, *, refused: bool = False) -> bool:
    """Compact the conversation if it fills too much of the model's window, or if the model refused it as too long.

    Return False if that was not needed or would not help.
    """
    window = core.window
    if turn.compactions >= _IN_VAIN or not (refused or (core.context.auto and window)):
        return False
    request = request_of(core.state, core.runner.schemas(), core.settings)
    before = core.gauge.count(request)
    if not refused and before <= window * core.context.compact_at:
        return False
    goal = round((window or before) * _GOAL)
    event = None if refused else _shorten_results(core, request.messages[: _last_calls(request)], before, goal)
    event = event or _summarise_turn(core, turn, window or before, before)
    if event is None and refused:  # then even the latest results must be shortened
        event = _shorten_results(core, request.messages, before, goal)
    if event is None:
        return False
    await core.record(event)
    return True


def _last_calls(request: Request) -> int:
    """Return the index of the last message that made calls; 0 if none did."""
    return max((place for place, one in enumerate(request.messages) if calls_of(one)), default=0)


def _shorten_results(core: Core, messages: Sequence[Message], before: int, goal: int) -> ContextCompacted | None:
    """Return a compaction that shortens the oldest results to one line each; None if that does not make enough room."""
    excess = before - goal
    records = {record.id: record for record in core.state.records}
    shortened: list[ActionId] = []
    saved = 0
    for message in messages:
        if saved >= excess:
            break
        if not isinstance(message, ToolMessage) or message.id not in records:
            continue
        less = core.gauge.count_message(message) - core.gauge.count_message(shorten(message, records))
        if less > 0:
            shortened.append(message.id)
            saved += less
    if saved < excess:
        return None
    return ContextCompacted(cause="window", shortened=tuple(shortened), before=before, after=before - saved)


def _summarise_turn(core: Core, turn: Turn, window: int, before: int) -> ContextCompacted | None:
    """Return a compaction that replaces all but the latest results by a summary; None if that would save too little."""
    kept = _first_kept(core, turn, round(window * _TAIL))
    event = ContextCompacted(cause="window", summary=summarise(core.state, core.runner.inventory()), kept=kept)
    after = core.gauge.count(request_of(add_compaction(core.state, event), core.runner.schemas(), core.settings))
    return replace(event, before=before, after=after) if after < before * (1 - _PROGRESS) else None


def _first_kept(core: Core, turn: Turn, room: int) -> ActionId | None:
    """Return the first call to keep: the latest calls always stay, earlier ones as far as they fit into `room`."""
    kept: ActionId | None = None
    used = 0
    for message in reversed(turn.messages[1:]):
        used += core.gauge.count_message(message)
        if kept and used > room:
            break
        kept = next(iter(calls_of(message)), kept)
    return kept


def compact_past(core: Core, keep: str) -> ContextCompacted:
    """Return a compaction that replaces all turns so far by a summary. Raises CommandRefused if there are none."""
    state = core.state
    if not any(turn.messages for turn in state.turns):
        raise CommandRefused("there is nothing to compact yet")
    before = core.gauge.count(request_of(state, core.runner.schemas(), core.settings))
    summary = summarise(state, core.runner.inventory(), keep)
    after = before - sum(map(core.gauge.count_message, visible_messages(state)))
    after += core.gauge.count_message(UserMessage(text=summary))
    return ContextCompacted(cause="asked", summary=summary, before=before, after=after)
