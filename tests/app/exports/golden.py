"""A small session that was real once: a table, a figure, an error, calls, an await, an undo. `units.pinfold` is never edited."""

from __future__ import annotations

from pathlib import Path

from pinfold.app import Shelf, read_session
from pinfold.events import Entry
from pinfold.log import Blobs

BUNDLE = Path(__file__).with_name("units.pinfold")


def units() -> tuple[list[Entry], Blobs]:
    """Its events, and where its blobs are."""
    session, _ = Shelf().bring_in(BUNDLE)
    folder = Shelf().place(session)
    with read_session(folder, session) as (log, damage):
        entries = [*log.read(damage=damage)]
    return entries, Blobs(folder / "blobs")
