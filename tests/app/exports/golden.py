"""A small session that was real once: a table, a figure, an error, calls, an await, an undo. `units.pinfold` is never edited."""

from __future__ import annotations

from pathlib import Path

from pinfold.app import SessionStore, read_session
from pinfold.events import Entry
from pinfold.log import Blobs

BUNDLE = Path(__file__).with_name("units.pinfold")


def units() -> tuple[list[Entry], Blobs]:
    """Its events, and where its blobs are."""
    session, _ = SessionStore().import_session(BUNDLE)
    folder = SessionStore().folder_of(session)
    with read_session(folder, session) as (log, damage):
        entries = [*log.read(damage=damage)]
    return entries, Blobs(folder / "blobs")
