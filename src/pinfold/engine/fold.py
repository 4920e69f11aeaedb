"""Builds the session's state from the log, one event at a time. Pure and total."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from itertools import takewhile
from typing import assert_never

from msgspec.structs import replace

from pinfold import events
from pinfold.engine.state import (
    REPEATS,
    Compaction,
    End,
    OpenAction,
    State,
    Turn,
    UndoneStep,
    changed_in_words,
    count_repeats,
    record_of,
    rewound_in_words,
    unnamed_changes,
)
from pinfold.text import cap_text

RESTORED = "[The user restored the workspace files to checkpoint {}. Variables are as they were.]"
_EFFECTS = 500
_EFFECT = 120
"""Characters shown of one effect, command or unavailable tool."""
_EXECUTED = 64
_RECORDS = 1000
ANSWER = "answer"
"""The tool with which code gives the user the answer."""
_CORRECTIONS = 2
"""How many replies in a row are sent back; the next one counts as the answer or fails the turn."""
_WITHHELD = "the provider's content filter withheld it"
_PREVIOUS = "[The previous turn"
_OWN_COMMAND = "!"
"""Prefix of a shell command that the user typed; the model learns of it with the next message."""
_OWN_OUTPUT = 4000
_REPEATED = (
    "[You have done exactly this {} times with the same result. Try something else, or answer with what you know.]"
)


def fold(entries: Iterable[events.Entry], state: State | None = None) -> State:
    return reduce(apply, entries, state or State())


def apply(state: State, entry: events.Entry) -> State:
    match entry.event:
        case events.ModelCalled() | events.Unknown() | events.Noticed() | events.SessionForked():
            return state
        case (
            events.ActionProposed()
            | events.ActionAllowed()
            | events.ActionDenied()
            | events.ActionStarted()
            | events.ActionFinished() as event
        ):
            return _apply_action(state, event)
        case events.ApprovalRequested() | events.ApprovalDecided() as event:
            return _apply_approval(state, event, entry.at)
        case events.UserSpoke() as event:
            return _apply_user_message(state, event)
        case events.ModelReplied() as event:
            return _apply_model_reply(state, event)
        case events.ModelFailed() as event:
            return _record_unavailable(state, event.turn, f"{event.model} ({event.error})") if event.instead else state
        case events.TurnEnded() as event:
            return _close_turn(_add_code_answer(state, event), event.turn, "ended", note=None)
        case events.TurnInterrupted(turn=turn, reason=reason):
            return _close_turn(state, turn, "interrupted", note=f"{_PREVIOUS} was interrupted: {reason}.]")
        case events.TurnFailed(turn=turn, error=error):
            return _close_turn(state, turn, "failed", note=f"{_PREVIOUS} was stopped: {error}]")
        case events.SessionOpened() as event:
            return _apply_session_opened(state, event)
        case (
            events.SessionChanged()
            | events.SessionRewound()
            | events.Checkpointed()
            | events.ContextCompacted()
            | events.ApproachChanged() as event
        ):
            return _apply_session_change(state, event)
        case _ as event:
            assert_never(event)


def _apply_user_message(state: State, event: events.UserSpoke) -> State:
    parts = [*state.notes, event.text]
    if event.glance and event.glance != state.glance:
        parts.append(f"{events.FILES_TOLD}\n{event.glance}]")
    if event.tools:
        parts.append(event.tools)
    told = events.UserMessage(text="\n\n".join(parts), images=event.images)
    return replace(
        state,
        turn=Turn(id=event.turn, said=event.text, messages=(told,), cells_before=state.cells),
        notes=(),
        taken=(),
        glance=event.glance,
        private=state.private or event.private,
    )


def _apply_new_approach(state: State, event: events.ApproachChanged) -> State:
    turn = state.turn
    if turn is None or turn.id != event.turn:
        return state
    if event.verdict:
        if event.usage is not None:
            state = _add_cost(state, turn.id, event.usage, event.cost)
        turn = replace(state.turn or turn, is_checked=True)
        if event.verdict == "refused":
            told = events.UserMessage(text=f"[The answer was checked and refused. Correct it:\n{event.error}]")
            turn = replace(turn, messages=(*turn.messages, told), answer=None, output="")
        return replace(state, turn=turn)
    state = replace(state, private=state.private or event.private)
    how = f"Things are like this now:\n{event.look}" if event.look else "Look at the data first."
    first, last = turn.messages[0], turn.messages[-1]
    if event.started_over:
        task, files, rest = first.text.partition(f"\n\n{events.FILES_TOLD}")
        note = f"[This was tried before and failed {event.times} times with {event.error}. Do it another way. {how}]"
        again = events.UserMessage(text=f"{task}\n\n{note}{files}{rest}", images=getattr(first, "images", ()))
        turn = replace(turn, messages=(again,), acts={}, repeated=0, errors={}, error="")
    else:
        note = f"[The same error {event.times} times. {how}]"
        told = replace(last, text=f"{last.text.rstrip()}\n{note}")
        turn = replace(turn, messages=(*turn.messages[:-1], told))
    return replace(state, turn=replace(turn, approaches=turn.approaches + 1))


def _apply_session_change(state: State, event: events.SessionChange) -> State:
    match event:
        case events.ApproachChanged():
            return _apply_new_approach(state, event)
        case events.SessionChanged(title=title, checkpoints=checkpoints, mode=mode, revoked=revoked):
            opened = state.opened
            if opened and event.model:
                opened = replace(opened, model=event.model, prompt=event.prompt or opened.prompt)
            return replace(
                state,
                opened=opened,
                title=title,
                checkpoints=state.checkpoints if checkpoints is None else checkpoints,
                mode=mode or state.mode,
                granted=state.granted - {*revoked},
                plan=event.plan or state.plan,
            )
        case events.SessionRewound():
            return _apply_rewind(state, event)
        case events.ContextCompacted(cause="window" | "asked"):
            return add_compaction(state, event)
        case events.ContextCompacted(summary=summary):
            past = tuple(replace(turn, messages=()) for turn in state.past)
            notes = (f"[{summary}]",) if summary else ()
            return replace(state, past=past, notes=notes, glance="", taken=(), compactions=())
        case events.Checkpointed(restored=restored):
            return _add_note(state, RESTORED.format(restored)) if restored is not None else state
        case _:
            assert_never(event)


def add_compaction(state: State, event: events.ContextCompacted) -> State:
    shortened = frozenset(event.shortened)
    one = Compaction(past=len(state.past), summary=event.summary, kept=event.kept, shortened=shortened)
    turn = replace(state.turn, compactions=state.turn.compactions + 1) if state.turn else None
    return replace(state, compactions=(*state.compactions, one), turn=turn)


def _apply_session_opened(state: State, event: events.SessionOpened) -> State:
    """Apply the start of a new owner. Pure actions that were cut off may run again."""
    again = {
        id_: replace(item, stage="allowed") if item.stage == "started" and item.effect == "pure" else item
        for id_, item in state.open.items()
    }
    granted = frozenset[str]() if event.imported else state.granted
    state = replace(
        state,
        opened=event,
        open=again,
        granted=granted,
        mode=event.mode,
        untrusted=state.untrusted or event.untrusted or event.imported,
    )
    words = [
        f"{how}: {', '.join(names)}."
        for how, names in (("Restored", event.restored), ("Run again", event.replayed), ("Lost", event.lost))
        if names
    ]
    return _add_note(state, f"[The session was reopened. {' '.join(words)}]") if words else state


def _apply_rewind(state: State, event: events.SessionRewound) -> State:
    state = replace(state, undone=(state.undone | {*event.undone}) - {*event.redone})
    if event.again:
        turns = state.taken[-1].turns if state.taken else ()
        back = tuple(turn for turn in turns if turn.id in event.recalled)
        compactions = (*state.compactions, *(state.taken[-1].compactions if state.taken else ()))
        state = replace(state, past=(*state.past, *back), taken=state.taken[:-1], compactions=compactions)
    else:
        gone = tuple(turn for turn in state.past if turn.id in event.forgotten)
        past = tuple(turn for turn in state.past if turn.id not in event.forgotten)
        # A compaction within a turn is removed together with that turn.
        lost = tuple(one for one in state.compactions if one.past + bool(one.kept or one.shortened) > len(past))
        taken = UndoneStep(turns=gone, cells=event.what != "chat", compactions=lost if gone else ())
        state = replace(state, taken=(*state.taken, taken))
        if gone:
            state = replace(state, compactions=tuple(one for one in state.compactions if one not in lost))
            notes = tuple(note for note in state.notes if not note.startswith(_PREVIOUS))
            state = replace(state, past=past, notes=notes)
            if event.what == "all" and not event.effects and not event.notices:
                return state  # no message that the model still sees depends on the undone cells
    return _add_note(state, f"[The user {rewound_in_words(event)}]")


def _add_note(state: State, note: str) -> State:
    """Add a note for the model: to the open turn if there is one, else to the next message."""
    if state.turn is None:
        return replace(state, notes=(*state.notes, note))
    return replace(state, turn=_append_message(state.turn, events.UserMessage(text=note)))


def _append_message(turn: Turn, message: events.Message) -> Turn:
    return replace(turn, messages=(*turn.messages, message))


def _apply_model_reply(state: State, event: events.ModelReplied) -> State:
    if state.turn is None or state.turn.id != event.turn:
        return state
    said = events.AssistantMessage(text=event.text, calls=event.actions, in_text=event.in_text, echo=event.echo)
    messages = (*state.turn.messages, said)
    fault = "" if event.actions else event.correction
    is_withheld = event.finish == "filter" and not event.actions
    sent_back = fault and not is_withheld and state.turn.corrections < _CORRECTIONS
    if sent_back or (event.actions and event.unreadable):  # unreadable: a call after these was cut off
        messages = (*messages, events.UserMessage(text=f"[{event.correction}]"))
    turn = replace(
        state.turn,
        messages=messages,
        unproposed=event.actions,
        steps=state.turn.steps + 1,
        answer=None if event.actions or sent_back else event.text,
        output="",
        model=event.model,
        corrections=state.turn.corrections + 1 if sent_back else 0,
        unusable=_WITHHELD if is_withheld else fault if event.unreadable and not sent_back else "",
    )
    return _add_cost(replace(state, turn=turn), turn.id, event.usage, event.cost)


def _sum(cost: float | None, more: float | None) -> float | None:
    """Add two costs; the sum is None (unknown) if either is."""
    return None if cost is None or more is None else cost + more


def _record_unavailable(state: State, turn: events.TurnId | None, what: str) -> State:
    """Record what the turn lacks. `what` is a name with the reason in brackets; it replaces earlier reasons."""
    if state.turn is None or state.turn.id != turn:
        return state
    return _set_unavailable(state, what.partition(" (")[0], cap_text(what, _EFFECT))


def _add_code_answer(state: State, event: events.TurnEnded) -> State:
    """Add an answer that code gave or printed to the conversation, as if the model had said it."""
    answer = (event.text if event.printed else None) or (state.turn.answer if state.turn else None)
    if state.turn is None or not answer or isinstance(state.turn.messages[-1], events.AssistantMessage):
        return state
    return replace(state, turn=_append_message(state.turn, events.AssistantMessage(text=answer)))


def _close_turn(state: State, turn: events.TurnId, end: End, note: str | None) -> State:
    if state.turn is None or state.turn.id != turn:
        return state
    closed = replace(state.turn, end=end, acts={})
    state = replace(state, past=(*state.past, closed), turn=None)
    return _add_note(state, note) if note else state


def _apply_action(state: State, event: events.ActionEvent) -> State:
    if isinstance(event, events.ActionProposed):
        opened = {**state.open, event.id: OpenAction(proposed=event)}
        if event.by == "user":
            return replace(state, open=opened, executed=(*state.executed[-_EXECUTED:], event.id))
        if state.turn is None or state.turn.id != event.turn:
            return replace(state, open=opened)
        rest = tuple(call for call in state.turn.unproposed if call.id != event.id)
        return replace(state, open=opened, turn=replace(state.turn, unproposed=rest))
    item = state.open.get(event.id)
    if item is None:
        return state
    match event:
        case events.ActionAllowed(read_only=read_only):
            return _replace_action(state, item, stage="allowed", read_only=read_only)
        case events.ActionDenied(reason=reason):
            return _replace_action(state, item, stage="denied", reason=reason)
        case events.ActionStarted(effect=effect, cell=cell, instead_of=earlier):
            begun = {**state.open, event.id: replace(item, stage="started", effect=effect, cell=cell)}
            is_new = cell is not None and item.proposed.parent is None
            counts = is_new or isinstance(item.proposed.action, events.RunCell)
            undone = state.undone if earlier is None else state.undone | {earlier}
            cells, taken = state.cells + counts, () if counts else state.taken
            return replace(state, open=begun, cells=cells, taken=taken, undone=undone)
        case events.ActionFinished():
            return _apply_action_finished(state, item, event)
        case _:
            assert_never(event)


def _apply_action_finished(state: State, item: OpenAction, event: events.ActionFinished) -> State:
    action = item.proposed.action
    state = replace(state, private=state.private or event.private, untrusted=state.untrusted or event.untrusted)
    if event.usage is not None:
        state = _add_cost(state, item.proposed.turn, event.usage, event.cost)
    beyond_undo = item.cell is None and item.effect != "pure" and item.stage == "started"
    if isinstance(action, events.CallTool) and beyond_undo:
        did = f"{action.tool} {cap_text(events.plain_json(action.args), _EFFECT)}"
        if event.outcome != "ok":
            did += f" ({event.outcome.replace('_', ' ')})"
        state = replace(state, effects=(*state.effects[-_EFFECTS:], (state.cells, did)))
    is_gone = event.rolled_back or event.outcome in ("killed", "not_run")
    if item.cell is not None and item.proposed.parent is None and is_gone:
        state = replace(state, undone=state.undone | {item.cell})
    if event.lacked:
        state = _record_unavailable(state, item.proposed.turn, event.lacked)
    elif isinstance(action, events.CallTool) and event.outcome == "ok":
        state = _set_unavailable(state, tool_key(action.tool))
    still = {id_: other for id_, other in state.open.items() if id_ != event.id}
    cell = still.get(item.proposed.parent) if item.proposed.parent else None
    if cell and isinstance(action, events.CallTool) and action.tool == ANSWER and event.outcome == "ok":
        still[cell.proposed.id] = replace(cell, answer=str(action.given.get("text", "")))
    state = _with_own_command(state, item, event)
    from_model = item.proposed.turn is not None and item.proposed.parent is None
    if not from_model or state.turn is None or state.turn.id != item.proposed.turn:
        return replace(state, open=still)
    told = event.observation
    if (unsaid := unnamed_changes(event.variables, action)) is not None:
        told = f"{told.rstrip()}\n[{changed_in_words(unsaid)}]".lstrip()
    turn = count_repeats(state.turn, action, event)
    if turn.repeated == REPEATS:
        told = f"{told.rstrip()}\n{_REPEATED.format(REPEATS)}"
    # Providers require the result right after the call, so notes that came in between move behind it.
    notes = [*takewhile(lambda message: isinstance(message, events.UserMessage), reversed(turn.messages))]
    place = len(turn.messages) - len(notes)
    answered = events.ToolMessage(id=event.id, text=told)
    turn = replace(turn, messages=(*turn.messages[:place], answered, *turn.messages[place:]), compactions=0)
    state = replace(state, records=(*state.records[-_RECORDS:], record_of(item, event)))
    # The last of several calls decides: an answer given before a failure was premature.
    went_well = event.outcome == "ok"
    output = event.observation if went_well and isinstance(action, events.RunCell) else ""
    turn = replace(turn, answer=item.answer if went_well else None, output=output, notices=event.notices)
    return replace(state, open=still, turn=turn)


def _with_own_command(state: State, item: OpenAction, event: events.ActionFinished) -> State:
    action = item.proposed.action
    if item.proposed.by != "user" or not isinstance(action, events.RunCell) or not action.code.startswith(_OWN_COMMAND):
        return state
    ran = f"[The user ran `{cap_text(action.code[1:], _EFFECT)}` in the session ({event.outcome}):]"
    said = cap_text(event.observation.strip(), _OWN_OUTPUT)
    return replace(state, notes=(*state.notes, f"{ran}\n{said}".rstrip()))


def _add_cost(state: State, turn: events.TurnId | None, usage: events.Usage, cost: float | None) -> State:
    """Add the cost of a model call, made by the agent or within one of its actions."""
    spent = state.turn
    if spent is not None and spent.id == turn:
        spent = replace(spent, usage=spent.usage + usage, cost=_sum(spent.cost, cost))
    return replace(state, turn=spent, usage=state.usage + usage, cost=_sum(state.cost, cost))


def tool_key(name: str) -> str:
    """The tool's name in the circuit breaker and in `Turn.without`."""
    return f"the tool {name}"


def _set_unavailable(state: State, name: str, *now: str) -> State:
    """Replace the turn's entry on what `name` lacks by `now`; without `now`, it is available after all."""
    if state.turn is None:
        return state
    others = (one for one in state.turn.without if one.partition(" (")[0] != name)
    return replace(state, turn=replace(state.turn, without=(*others, *now)))


def _apply_approval(state: State, event: events.ApprovalRequested | events.ApprovalDecided, at: str) -> State:
    item = state.open.get(event.id)
    if item is None:
        return state
    if isinstance(event, events.ApprovalRequested):
        item = replace(item, reason=event.reason, asked=event, decided=None)
        return _replace_action(state, item, stage="asking", read_only=False)
    if item.stage != "asking":
        return state  # the first answer counts
    if event.verdict == "deny":
        return _replace_action(state, item, stage="denied", reason=event.words or "the user said no", decided=event)
    state = _replace_action(state, item, stage="allowed", decided=event, decided_at=at)
    asked = item.asked
    if asked is None or not asked.pattern:
        return state
    if event.scope != "once":
        return replace(state, granted=state.granted | {asked.pattern})
    cell = state.open.get(item.proposed.parent) if item.proposed.parent else None
    if cell and asked.bundled:
        return _replace_action(state, cell, bundle=cell.bundle | {asked.pattern})
    return state


def _replace_action(state: State, item: OpenAction, **changes: object) -> State:
    return replace(state, open={**state.open, item.proposed.id: replace(item, **changes)})
