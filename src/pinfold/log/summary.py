"""A session at a glance, read from its store without loading it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

from msgspec import Struct

from pinfold.events import BadEvent, SessionChanged, SessionForked, SessionOpened, UserSpoke, decode
from pinfold.log.store import STORE


class Summary(Struct, frozen=True, kw_only=True):
    events: int = 0
    began: str = ""
    last: str = ""
    title: str = ""
    """As the user named it; else the first thing they said."""
    named: bool = False
    workspace: str = ""
    cut_off: bool = False
    """The last turn has no end yet."""
    source: str = ""
    """The session it was forked from."""


def summarise(folder: Path) -> Summary | None:
    """None if it cannot be read. One that ended before anything was recorded is just empty."""
    if not (folder / STORE).is_file():
        return Summary()
    try:
        with reading(folder) as connection:
            return _summary(connection)
    except (sqlite3.Error, UnicodeDecodeError, BadEvent):
        return None


@contextlib.contextmanager
def reading(folder: Path) -> Generator[sqlite3.Connection]:
    """The store of a session, to look at. Raises sqlite3.Error."""
    # Nothing is created or changed by looking. A store without a write-ahead log has no owner, and is at rest.
    at_rest = not Path(f"{folder / STORE}-wal").exists()
    uri = f"file:{_escape_path(folder / STORE)}?mode=ro{'&immutable=1' if at_rest else ''}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        yield connection


def _summary(connection: sqlite3.Connection) -> Summary:
    if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'events'").fetchone():
        return Summary()
    events, began, last = connection.execute("SELECT count(*), min(at), max(at) FROM events").fetchone()
    if not events:
        return Summary()
    changed = _newest(connection, "SessionChanged")
    opened = _newest(connection, "SessionOpened")
    forked = _newest(connection, "SessionForked")  # of a fork's fork, the last one is its own
    first = _one(connection, "SELECT kind, body FROM events WHERE kind = 'UserSpoke' ORDER BY seq LIMIT 1")
    ends = "kind IN ('UserSpoke', 'TurnEnded', 'TurnInterrupted', 'TurnFailed')"
    newest = connection.execute(f"SELECT kind FROM events WHERE {ends} ORDER BY seq DESC LIMIT 1").fetchone()  # noqa: S608
    named = changed.title if isinstance(changed, SessionChanged) else ""
    return Summary(
        events=events,
        began=began,
        last=last,
        title=named or (first.text if isinstance(first, UserSpoke) else ""),
        named=bool(named),
        workspace=opened.workspace if isinstance(opened, SessionOpened) else "",
        cut_off=newest is not None and newest[0] == "UserSpoke",
        source=forked.source if isinstance(forked, SessionForked) else "",
    )


def _newest(connection: sqlite3.Connection, kind: str) -> object:
    return _one(connection, f"SELECT kind, body FROM events WHERE kind = '{kind}' ORDER BY seq DESC LIMIT 1")  # noqa: S608


def _one(connection: sqlite3.Connection, query: str) -> object:
    row = connection.execute(query).fetchone()
    return decode(row[0], row[1]) if row else None


def _escape_path(path: Path) -> str:
    return str(path).replace("%", "%25").replace("?", "%3f").replace("#", "%23")
