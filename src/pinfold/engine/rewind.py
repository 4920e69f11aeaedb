"""What going back means for a session as it is now. Pure; the engine and the hands do it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from pinfold.engine.core import CommandRefused
from pinfold.engine.state import State
from pinfold.events import Redo, Rewind, TurnId, Undo, What


class Way(Struct, frozen=True, kw_only=True):
    cells: Undo | Redo | None
    """What is to be done to variables and files, if anything."""
    what: What | Literal["chat"] = "all"
    forgotten: tuple[TurnId, ...] = ()
    recalled: tuple[TurnId, ...] = ()


def way_back(state: State, command: Undo | Rewind | Redo) -> Way:
    """Raises CommandRefused."""
    match command:
        case Undo():
            return Way(cells=command, what=command.what)
        case Redo():
            last = state.taken[-1] if state.taken else None
            recalled = tuple(turn.id for turn in last.turns) if last else ()
            if last and not last.cells:
                return Way(cells=None, what="chat", recalled=recalled)
            return Way(cells=command, recalled=recalled)
        case Rewind():
            return _before(state, command)


def _before(state: State, command: Rewind) -> Way:
    turns = tuple(state.turns)
    place = next((place for place, turn in enumerate(turns) if turn.id == command.turn), None)
    if place is None:
        raise CommandRefused(f"this session has no turn {command.turn}")
    with_chat = command.what in ("all", "chat")
    if with_chat and not turns[place].messages:
        raise CommandRefused("the conversation was begun anew since that turn; files and variables can go back")
    forgotten = tuple(turn.id for turn in turns[place:]) if with_chat else ()
    then = turns[place].cells
    if command.what == "chat" or not any(cell > then for cell in state.path):
        if not with_chat:
            raise CommandRefused("no cell has run since before that turn")
        return Way(cells=None, what="chat", forgotten=forgotten)
    what: What = "all" if command.what == "all" else command.what
    to = max((cell for cell in state.path if cell <= then), default=0)
    return Way(cells=Undo(to=to, what=what), what=what, forgotten=forgotten)
