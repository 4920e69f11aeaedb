"""Notes in one SQLite file with a full-text index. Bounded in size and number; safe for several processes at once."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pinfold.events import PinfoldError

NOTE_CHARS = 4000
TAG_CHARS = 40
MOST_TAGS = 8
MOST_NOTES = 5000
MOST_UNTRUSTED = 500
"""Of these, written by sessions that had read outside text: they replace each other, never a trusted note."""
MOST_RESULTS = 100
_QUERY_WORDS = 24
"""Words of a query that count; more make it slower, not better."""
_WAIT_S = 10.0
"""How long to wait for another process that writes."""
_VERSION = 1
_NEARER = 1.6
"""Ranking factor for notes of the same workspace."""
_STOP_WORDS = """a an and are as at be by do does for from have how i in is it its me my of on or our that the their this to was we
    what when where which who why with you your"""
_SCHEMA = (
    """CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, workspace TEXT NOT NULL,
    session TEXT NOT NULL, text TEXT NOT NULL, tags TEXT NOT NULL, trusted INTEGER NOT NULL)""",
    "CREATE INDEX notes_workspace ON notes (workspace)",
    """CREATE VIRTUAL TABLE words USING fts5(text, tags, content='notes', content_rowid='id',
    tokenize='porter unicode61 remove_diacritics 2', prefix='3 4')""",
    """CREATE TRIGGER note_in AFTER INSERT ON notes BEGIN
    INSERT INTO words(rowid, text, tags) VALUES (new.id, new.text, new.tags); END""",
    """CREATE TRIGGER note_out AFTER DELETE ON notes BEGIN
    INSERT INTO words(words, rowid, text, tags) VALUES ('delete', old.id, old.text, old.tags); END""",
)
_COLUMNS = "notes.id, notes.text, notes.tags, notes.at, notes.trusted, notes.session, notes.workspace"


class NoteRefused(PinfoldError):
    """The caller's mistake: the note is too long, there are too many, or this session may not forget it."""


class MemoryUnusable(PinfoldError):
    """The file is damaged, was written by a newer Pinfold, or cannot be opened. The message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    id: int
    text: str
    tags: tuple[str, ...]
    at: str
    """When it was written, in UTC."""
    trusted: bool
    """Written by a session that had read no outside text."""
    session: str
    here: bool
    """Written in the workspace that asks."""


class Memory:
    """The file is created with the first note."""

    def __init__(self, file: Path, workspace: str, session: str, clock: Callable[[], datetime] | None = None) -> None:
        self._file = file
        self._workspace = workspace
        self._session = session
        self._clock = clock or (lambda: datetime.now(UTC))

    def remember(self, text: str, tags: Iterable[str] = (), *, trusted: bool) -> int:
        """Returns the note's number; an identical note is not stored twice. Raises NoteRefused, MemoryUnusable."""
        words, marks = _check_note(text, tuple(tags))
        with self._open(make=True) as connection:
            known = connection.execute(
                "SELECT id FROM notes WHERE text = ? AND tags = ? AND workspace = ? AND trusted = ?",
                (words, marks, self._workspace, trusted),
            ).fetchone()
            if known:
                return known[0]
            if not trusted:
                connection.execute(
                    "DELETE FROM notes WHERE id IN (SELECT id FROM notes WHERE NOT trusted ORDER BY id DESC LIMIT -1 OFFSET ?)",
                    (MOST_UNTRUSTED - 1,),
                )
            if connection.execute("SELECT count(*) FROM notes").fetchone()[0] >= MOST_NOTES:
                raise NoteRefused(f"there are {MOST_NOTES:,} notes already; forget some first")
            at = self._clock().astimezone(UTC).isoformat(timespec="seconds")
            cursor = connection.execute(
                "INSERT INTO notes (at, workspace, session, text, tags, trusted) VALUES (?, ?, ?, ?, ?, ?)",
                (at, self._workspace, self._session, words, marks, trusted),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid

    def recall(self, words: str, limit: int = 5) -> list[Note]:
        """Best first, those of this workspace before equals from elsewhere. Raises NoteRefused, MemoryUnusable."""
        query = build_query(words)
        if not query or not self._file.exists():
            return []
        with self._open() as connection:
            # A smaller bm25 is a better match.
            rows = connection.execute(
                f"""SELECT {_COLUMNS} FROM words JOIN notes ON notes.id = words.rowid WHERE words MATCH ?
                ORDER BY bm25(words, 1.0, 2.0) * CASE WHEN notes.workspace = ? THEN {_NEARER} ELSE 1 END, notes.id DESC
                LIMIT ?""",  # noqa: S608 - names and a number of our own
                (query, self._workspace, _limit_count(limit)),
            ).fetchall()
        return [self._note(row) for row in rows]

    def latest(self, limit: int = 20) -> list[Note]:
        """The newest first, those of this workspace before all others. Raises NoteRefused, MemoryUnusable."""
        if not self._file.exists():
            return []
        with self._open() as connection:
            rows = connection.execute(
                f"SELECT {_COLUMNS} FROM notes ORDER BY workspace = ? DESC, id DESC LIMIT ?",  # noqa: S608 - as above
                (self._workspace, _limit_count(limit)),
            ).fetchall()
        return [self._note(row) for row in rows]

    def forget(self, id: int, *, trusted: bool) -> None:  # noqa: A002 - it is the note's
        """An untrusted session may forget only untrusted notes and its own. Raises NoteRefused, MemoryUnusable."""
        with self._open(make=self._file.exists()) as connection:
            row = connection.execute("SELECT trusted, session FROM notes WHERE id = ?", (id,)).fetchone()
            if row is None:
                raise NoteRefused(f"there is no note {id}; memories() lists those there are")
            if row[0] and not trusted and row[1] != self._session:
                raise NoteRefused(
                    f"note {id} is not this session's, which has read others' words; it can be forgotten in another one"
                )
            connection.execute("DELETE FROM notes WHERE id = ?", (id,))

    def _note(self, row: tuple[int, str, str, str, int, str, str]) -> Note:
        id_, text, tags, at, trusted, session, workspace = row
        marks, here = tuple(json.loads(tags)), workspace == self._workspace
        return Note(id=id_, text=text, tags=marks, at=at, trusted=bool(trusted), session=session, here=here)

    @contextmanager
    def _open(self, *, make: bool = False) -> Generator[sqlite3.Connection]:
        """One transaction, all or nothing."""
        try:
            if make:
                self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Created with mode 0600; SQLite gives its side files the same mode.
                os.close(os.open(self._file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(self._file, timeout=_WAIT_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise MemoryUnusable(f"{self._file} cannot be opened: {error}; fix its permissions") from error
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            connection.execute("BEGIN IMMEDIATE" if make else "BEGIN")
            self._prepare(connection, make=make)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            raise MemoryUnusable(_describe_error(self._file, error)) from error
        finally:
            connection.close()

    def _prepare(self, connection: sqlite3.Connection, *, make: bool) -> None:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > _VERSION:
            raise MemoryUnusable(f"{self._file} was written by a newer Pinfold; update this one")
        if version == 0:
            if not make:
                connection.execute("ROLLBACK")
                connection.execute("BEGIN IMMEDIATE")
            if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
                for statement in _SCHEMA:
                    connection.execute(statement)
                connection.execute(f"PRAGMA user_version = {_VERSION}")


def build_query(words: str) -> str:
    """An FTS5 query for any of the words or their prefixes; empty if there are none. Nothing in `words` acts as syntax."""
    found = [word.casefold() for word in re.findall(r"\w+", words)]
    common = {*_STOP_WORDS.split()}
    telling = [word for word in found if word not in common] or found
    # Prefixes of two letters match too much.
    return " OR ".join(f'"{word}"{"*" * (len(word) > 2)}' for word in dict.fromkeys(telling[:_QUERY_WORDS]))


def _check_note(text: str, tags: tuple[str, ...]) -> tuple[str, str]:
    words = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip()
    if not words:
        raise NoteRefused("there is nothing to remember; give a text")
    if len(words) > NOTE_CHARS:
        raise NoteRefused(f"the text has {len(words):,} characters; {NOTE_CHARS:,} is the most: remember the gist")
    marks = tuple(dict.fromkeys(tag.strip().casefold() for tag in tags if tag.strip()))
    if len(marks) > MOST_TAGS or any(len(mark) > TAG_CHARS for mark in marks):
        raise NoteRefused(f"at most {MOST_TAGS} tags of {TAG_CHARS} characters each")
    clean = [mark.encode("utf-8", "replace").decode("utf-8") for mark in marks]
    return words, json.dumps(clean, ensure_ascii=False)


def _limit_count(limit: int) -> int:
    if limit < 1:
        raise NoteRefused("limit is at least 1")
    return min(limit, MOST_RESULTS)


def _describe_error(file: Path, error: sqlite3.DatabaseError) -> str:
    if "locked" in str(error):
        return f"{file} is in use by another process for longer than {_WAIT_S:g} s; try again"
    if "full" in str(error):
        return f"{file} cannot be written: {error}; make room on the disk"
    return f"{file} cannot be used: {error}; if it is damaged, move it away, and a new one is made"
