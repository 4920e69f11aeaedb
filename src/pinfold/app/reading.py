"""Reading a session without owning it: for showing and for carrying it elsewhere."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinfold.engine import fold
from pinfold.events import ActionId, ActionStarted, Entry, SessionId
from pinfold.log import Damage, Log, LogUnreadable


@contextmanager
def read_session(folder: Path, session: SessionId) -> Generator[tuple[Log, Damage]]:
    """The log to read from, and the damage that reading it will note."""
    if not (folder / "log.sqlite").is_file():
        raise LogUnreadable(f"{session} holds no log")
    log = Log(folder, session)
    try:
        yield log, Damage()
    finally:
        log.close()


def cells_of(entries: Sequence[Entry]) -> dict[ActionId, str]:
    """What to call each cell: by its number, and whether it was undone."""
    undone = fold(entries).undone
    started = (entry.event for entry in entries if isinstance(entry.event, ActionStarted))
    return {
        event.id: f"cell {event.cell}{', undone' if event.cell in undone else ''}"
        for event in started
        if event.cell is not None
    }


def what_stays(folder: Path, session: SessionId, to: int | None) -> tuple[str, ...]:
    """What going back to the state after cell `to`, or before the last one, will not undo."""
    with read_session(folder, session) as (log, damage):
        state = fold(log.read(damage=damage))
    path = state.path
    return state.effects_of(path[-1:] if to is None else tuple(cell for cell in path if cell > to))
