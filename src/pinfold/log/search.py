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
    """One line, around the first of the words that is in it."""


def matches(folder: Path, words: Sequence[str]) -> list[Match]:
    """Where any of the words occurs, if each of them occurs somewhere; ignores case."""
    wanted = [word.casefold() for word in words if word.strip()]
    found: list[Match] = []
    missing = {*wanted}
    with contextlib.suppress(sqlite3.Error, UnicodeDecodeError), reading(folder) as connection:
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
    """What a session's log holds after some event, as far as it is text to be found."""

    messages: tuple[tuple[int, str, Place, str], ...] = ()
    """Number and time of the event, the place, the text."""
    last: int
    """The last event that was read."""
    workspace: str = ""
    untrusted: bool = False
    """The session has read outside text."""


def read_said(folder: Path, after: int) -> Said:
    """What was said after an event; of a fork, only what was said in it. Raises sqlite3.Error for a store that is none."""
    messages: list[tuple[int, str, Place, str]] = []
    last, workspace, untrusted = after, "", False
    kinds = (*_KINDS, "SessionOpened", "SessionForked")
    with reading(folder) as connection:
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
    """Long outputs as a whole if there are `blobs`."""
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
    """The line that holds this place."""
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


def summarise(folder: Path) -> Summary | None:
    """None if the session cannot be read; empty if nothing was recorded."""
    if not (folder / STORE).is_file():
        return Summary()
    try:
        with reading(folder) as connection:
            return _summary(connection)
    except (sqlite3.Error, UnicodeDecodeError, BadEvent):
        return None


def mark_of(folder: Path) -> tuple[object, ...]:
    """Differs whenever the session's log has changed: a summary is good for as long as it does not."""
    marks: list[object] = []
    for name in (STORE, f"{STORE}-wal"):
        with contextlib.suppress(OSError):
            status = (folder / name).stat()
            marks.append((name, status.st_ino, status.st_size, status.st_mtime_ns))
    with contextlib.suppress(OSError):  # times are too coarse to tell two commits apart, this number is not
        marks.append((folder / HEAD).read_bytes())
    return tuple(marks)


@contextlib.contextmanager
def reading(folder: Path) -> Generator[sqlite3.Connection]:
    """Open a session's store read-only. Raises sqlite3.Error."""
    # Creates and changes nothing. A store without a write-ahead log has no owner and is at rest.
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
    forked = _find_event(connection, SessionForked)  # of a fork's fork, the last one is its own
    first = _find_event(connection, UserSpoke, order="ASC")
    ends = "kind IN ('UserSpoke', 'TurnEnded', 'TurnInterrupted', 'TurnFailed')"
    newest = connection.execute(f"SELECT kind FROM events WHERE {ends} ORDER BY seq DESC LIMIT 1").fetchone()
    named = changed.title if changed else ""
    return Summary(
        events=events,
        began=began,
        last=last,
        title=named or (first.text if first else ""),
        named=bool(named),
        workspace=opened.workspace if opened else "",
        cut_off=newest is not None and newest[0] == "UserSpoke",
        source=forked.source if forked else "",
    )


def _find_event(connection: sqlite3.Connection, kind: type[T], order: Literal["ASC", "DESC"] = "DESC") -> T | None:
    query = f"SELECT kind, body FROM events WHERE kind = ? ORDER BY seq {order} LIMIT 1"
    row = connection.execute(query, (kind.__name__,)).fetchone()
    event = decode(*row) if row else None
    return event if isinstance(event, kind) else None
