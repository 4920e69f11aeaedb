"""A session's summary, and full-text search over its prompts, answers, code and outputs, without loading it."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar
from urllib.parse import quote

from msgspec import Struct

from pinfold.events import (
    ActionFinished,
    ActionProposed,
    BadEvent,
    CallTool,
    Event,
    ModelReplied,
    RunCell,
    SessionChanged,
    SessionForked,
    SessionOpened,
    TurnEnded,
    TurnFailed,
    TurnInterrupted,
    UserSpoke,
    decode,
    plain_json,
)
from pinfold.log.blobs import Blobs
from pinfold.log.rows import BlobMissing
from pinfold.log.store import HEAD, STORE

Place: TypeAlias = Literal["title", "you", "agent", "code", "call", "output"]
_KINDS = ("SessionChanged", "UserSpoke", "ModelReplied", "ActionProposed", "ActionFinished")
T = TypeVar("T")
_BLOB = 4 << 20
"""Bytes of a long output that are searched."""


class Match(Struct, frozen=True, kw_only=True):
    place: Place
    seq: int
    text: str
    """The line with the first word found; a long line is cut around the word."""


def matches(folder: Path, words: Sequence[str]) -> list[Match]:
    """Find every text that holds any of the words, provided that each word occurs somewhere; ignores case."""
    wanted = [word.casefold() for word in words if word.strip()]
    found: list[Match] = []
    missing = {*wanted}
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError), open_store(folder) as connection:
        for seq, _, kind, body in _rows(connection, 0, _KINDS):
            with contextlib.suppress(BadEvent):
                for place, text in _texts(decode(kind, body), Blobs(folder / "blobs")):
                    plain = text.casefold()
                    here = [word for word in wanted if word in plain]
                    missing.difference_update(here)
                    if here:
                        found.append(Match(place=place, seq=seq, text=_around(text, plain.find(here[0]))))
    return [] if missing else found


class Said(Struct, frozen=True, kw_only=True):
    """The searchable texts of a session's log after some event."""

    messages: tuple[tuple[int, str, Place, str], ...] = ()
    """For each text: number and time of its event, the place, the text."""
    last: int
    """Number of the last event that was read."""
    workspace: str = ""
    untrusted: bool = False
    """The session has read outside text."""


def read_said(folder: Path, after: int) -> Said:
    """Read the texts after event `after`, except those a fork copied. Raises sqlite3.Error if the store is invalid."""
    messages: list[tuple[int, str, Place, str]] = []
    last, workspace, untrusted = after, "", False
    kinds = (*_KINDS, "SessionOpened", "SessionForked")
    with open_store(folder) as connection:
        for seq, at, kind, body in _rows(connection, after, kinds):
            last = seq
            try:
                event = decode(kind, body)
            except BadEvent:
                continue
            if isinstance(event, SessionOpened):
                workspace, untrusted = event.workspace, untrusted or event.untrusted or event.imported
            elif isinstance(event, SessionForked):
                messages = [one for one in messages if one[0] > event.last]
            elif isinstance(event, ActionFinished):
                untrusted = untrusted or event.untrusted
            for place, text in _texts(event, None):
                if text.strip():
                    messages.append((seq, at, place, text))
        if not workspace:
            opened = _find_event(connection, SessionOpened)
            workspace = opened.workspace if opened else ""
    return Said(messages=tuple(messages), last=last, workspace=workspace, untrusted=untrusted)


def _rows(connection: sqlite3.Connection, after: int, kinds: Sequence[str]) -> Iterable[tuple[int, str, str, str]]:
    marks = ",".join("?" * len(kinds))
    query = f"SELECT seq, at, kind, body FROM events WHERE seq > ? AND kind IN ({marks}) ORDER BY seq"
    return connection.execute(query, (after, *kinds))


def _texts(event: Event, blobs: Blobs | None) -> Iterable[tuple[Place, str]]:
    """Yield the searchable texts of an event; with `blobs`, long outputs in full."""
    match event:
        case SessionChanged(title=title):
            yield "title", title
        case UserSpoke(text=text):
            yield "you", text
        case ModelReplied(text=text):
            yield "agent", text
        case ActionProposed(action=RunCell(code=code)):
            yield "code", code
        case ActionProposed(action=CallTool(tool=tool, args=args)):
            yield "call", f"{tool} {plain_json(args)}"
        case ActionFinished(observation=text, blobs=kept):
            with contextlib.suppress(BlobMissing, IndexError):
                text = text if blobs is None else blobs.get(kept[0])[:_BLOB].decode("utf-8", "replace") or text
            yield "output", text
        case _:
            pass


def _around(text: str, place: int) -> str:
    """Return the line at this place, cut around it if it is long."""
    start = text.rfind("\n", 0, place) + 1
    end = text.find("\n", place)
    line = text[start : end if end >= 0 else len(text)]
    inside = place - start
    return line.strip() if len(line) <= 300 else line[max(0, inside - 100) : inside + 200].strip()


class Summary(Struct, frozen=True, kw_only=True):
    events: int = 0
    began: str = ""
    last: str = ""
    title: str = ""
    """The user's title, else the first message."""
    named: bool = False
    workspace: str = ""
    cut_off: bool = False
    """The last turn has no end yet."""
    source: str = ""
    """The session it was forked from."""
    is_unopened_fork: bool = False
    """Nobody has opened the fork yet; its events are those of its source."""


def summarise(folder: Path) -> Summary | None:
    """Summarise a session: None if it cannot be read, an empty summary if nothing was recorded."""
    if not (folder / STORE).is_file():
        return Summary()
    try:
        with open_store(folder) as connection:
            return _summary(connection)
    except (sqlite3.Error, UnicodeDecodeError, BadEvent):
        return None


def log_version(folder: Path) -> tuple[object, ...]:
    """Return a value that changes whenever the session's log does; while it is equal, a summary stays valid."""
    marks: list[object] = []
    for name in (STORE, f"{STORE}-wal"):
        with contextlib.suppress(OSError):
            status = (folder / name).stat()
            marks.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    with contextlib.suppress(OSError):  # file times are too coarse to tell two commits apart
        marks.append((folder / HEAD).read_bytes())
    return tuple(marks)


@contextlib.contextmanager
def open_store(folder: Path) -> Generator[sqlite3.Connection]:
    """Open a session's store read-only. Raises sqlite3.Error."""
    # Neither creates nor changes a file. A store without a write-ahead log has no owner, so nothing writes it.
    at_rest = not Path(f"{folder / STORE}-wal").exists()
    uri = f"file:{quote(bytes(folder / STORE))}?mode=ro{'&immutable=1' if at_rest else ''}"
    with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        yield connection


def _summary(connection: sqlite3.Connection) -> Summary:
    if not connection.execute("SELECT name FROM sqlite_master WHERE name = 'events'").fetchone():
        return Summary()
    events, began, last = connection.execute("SELECT count(*), min(at), max(at) FROM events").fetchone()
    if not events:
        return Summary()
    changed = _find_event(connection, SessionChanged)
    opened = _find_event(connection, SessionOpened)
    forked = _find_event(connection, SessionForked)  # a fork of a fork has several; the last is its own
    first = _find_event(connection, UserSpoke, order="ASC")
    newest = _newest_kind(connection, UserSpoke, TurnEnded, TurnInterrupted, TurnFailed)
    named = changed.title if changed else ""
    return Summary(
        events=events,
        began=began,
        last=last,
        title=named or (first.text if first else ""),
        named=bool(named),
        workspace=opened.workspace if opened else "",
        cut_off=newest == "UserSpoke",
        source=forked.source if forked else "",
        is_unopened_fork=forked is not None
        and _newest_kind(connection, SessionOpened, SessionForked) == "SessionForked",
    )


def _find_event(connection: sqlite3.Connection, kind: type[T], order: Literal["ASC", "DESC"] = "DESC") -> T | None:
    query = f"SELECT kind, body FROM events WHERE kind = ? ORDER BY seq {order} LIMIT 1"
    row = connection.execute(query, (kind.__name__,)).fetchone()
    event = decode(*row) if row else None
    return event if isinstance(event, kind) else None


def _newest_kind(connection: sqlite3.Connection, *kinds: type[Event]) -> str | None:
    marks = ",".join("?" * len(kinds))
    query = f"SELECT kind FROM events WHERE kind IN ({marks}) ORDER BY seq DESC LIMIT 1"
    row = connection.execute(query, [kind.__name__ for kind in kinds]).fetchone()
    return row[0] if row else None
