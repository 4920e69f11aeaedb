"""Reading a session without owning it: for showing and for carrying it elsewhere."""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinfold.engine import fold
from pinfold.events import ActionId, ActionStarted, Entry, SessionId
from pinfold.log import Damage, Log, LogUnreadable
from pinfold.text import presentable_line

_LISTED = 60
"""Names of a folder."""


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


def label_cells(entries: Sequence[Entry]) -> dict[ActionId, str]:
    """What to call each cell: by its number, and whether it was undone."""
    undone = fold(entries).undone
    started = (entry.event for entry in entries if isinstance(entry.event, ActionStarted))
    return {
        event.id: f"cell {event.cell}{', undone' if event.cell in undone else ''}"
        for event in started
        if event.cell is not None
    }


def list_lasting_effects(folder: Path, session: SessionId, to: int | None) -> tuple[str, ...]:
    """What going back to the state after cell `to`, or before the last one, will not undo."""
    with read_session(folder, session) as (log, damage):
        state = fold(log.read(damage=damage))
    path = state.path
    return state.effects_of(path[-1:] if to is None else tuple(cell for cell in path if cell > to))


def list_folder(workspace: Path) -> list[str]:
    """What lies at the top of a folder, folders first, fit to print; the first of it, where there is much."""
    try:
        with os.scandir(workspace) as inside:
            entries = sorted((not entry.is_dir(follow_symlinks=False), entry.name) for entry in inside)
    except OSError as error:
        return [f"  it cannot be read: {error.strerror}"]
    names = [f"  {presentable_line(name)}{'' if is_file else '/'}" for is_file, name in entries[:_LISTED]]
    if len(entries) > _LISTED:
        names.append(f"  and {len(entries) - _LISTED:,} more")
    return names or ["  (empty)"]
