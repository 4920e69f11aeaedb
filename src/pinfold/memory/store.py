"""Notes in one SQLite file with a full-text index. Bounded in size and number; safe for several processes at once."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pinfold.events import PinfoldError
from pinfold.memory.relevance import TOKENIZER, Embedder, find_nearest, rank

Scope: TypeAlias = Literal["workspace", "global"]
NOTE_CHARS = 4000
TAG_CHARS = 40
MOST_TAGS = 8
MOST_NOTES = 100_000
MOST_UNTRUSTED = 500
"""The most notes of sessions that had read outside text: they replace each other, never a trusted note."""
MOST_RESULTS = 100
_NEARER = 1.6
"""Ranking factor for notes of the same workspace."""
_TO_VERSION_1 = (
    """CREATE TABLE notes (id INTEGER PRIMARY KEY AUTOINCREMENT, at TEXT NOT NULL, workspace TEXT NOT NULL,
    session TEXT NOT NULL, text TEXT NOT NULL, tags TEXT NOT NULL, trusted INTEGER NOT NULL)""",
    "CREATE INDEX notes_workspace ON notes (workspace)",
)
_TAKE_OUT = "INSERT INTO words(words, rowid, text, tags) VALUES ('delete', old.id, old.text, old.tags);"
_DROP_VECTOR = "DELETE FROM vectors WHERE id = old.id;"
_PUT_IN = "INSERT INTO words(rowid, text, tags) VALUES (new.id, new.text, new.tags);"
_TO_VERSION_2 = (
    # Notes of version 1 were recalled in every workspace, and still are.
    "ALTER TABLE notes ADD COLUMN scope TEXT NOT NULL DEFAULT 'global'",
    "ALTER TABLE notes ADD COLUMN cell INTEGER",
    "ALTER TABLE notes ADD COLUMN superseded_by INTEGER",
    "CREATE INDEX notes_session ON notes (session)",
    "CREATE INDEX notes_beginning ON notes (substr(text, 1, 40))",
    "CREATE TABLE vectors (id INTEGER PRIMARY KEY, model TEXT NOT NULL, vector BLOB NOT NULL)",
    *(f"DROP TRIGGER IF EXISTS {name}" for name in ("note_in", "note_out")),
    "DROP TABLE IF EXISTS words",  # the old index was made for prefixes
    f"""CREATE VIRTUAL TABLE words USING fts5(text, tags, content='notes', content_rowid='id',
    tokenize='{TOKENIZER}')""",
    "INSERT INTO words(words) VALUES ('rebuild')",
    f"CREATE TRIGGER note_in AFTER INSERT ON notes BEGIN {_PUT_IN} END",
    f"CREATE TRIGGER note_out AFTER DELETE ON notes BEGIN {_TAKE_OUT} {_DROP_VECTOR} END",
    f"CREATE TRIGGER note_changed AFTER UPDATE OF text ON notes BEGIN {_TAKE_OUT} {_PUT_IN} {_DROP_VECTOR} END",
)
_CURRENT = "notes.superseded_by IS NULL"
_REACHABLE = "(:workspace IS NULL OR notes.scope = 'global' OR notes.workspace = :workspace)"


class NoteRefused(PinfoldError):
    """The caller's mistake: the note is too long, there are too many, or this session may not change it."""


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
    cell: int | None
    """The last cell of the session when it was written."""
    workspace: str
    """The workspace where it was written; empty if there was none."""
    scope: Scope
    """Where it is recalled: in its workspace, or everywhere."""
    superseded_by: int | None
    """The note that replaced it."""


_COLUMNS = ", ".join(Note.__slots__)


class Memory:
    """The notes that a session can reach; with `workspace` None, all notes. The file is created with the first note.

    `embedder`: if given, notes are also found by their meaning.
    """

    def __init__(self, file: Path, workspace: str | None, session: str, embedder: Embedder | None = None) -> None:
        self._database = Database(file, (_TO_VERSION_1, _TO_VERSION_2))
        self._workspace = workspace
        self._session = session
        self._embedder = embedder

    def remember(
        self,
        text: str,
        tags: Iterable[str] = (),
        *,
        trusted: bool,
        scope: Scope = "workspace",
        cell: int | None = None,
        replaces: int | None = None,
    ) -> int:
        """Store a note and return its number; an identical one is not stored twice. Raises NoteRefused, MemoryUnusable.

        `replaces`: a note that is no longer recalled, because this one takes its place.
        """
        words, marks = _check_text(text), _check_tags(tuple(tags))
        workspace = self._workspace or ""
        with self._database.open(write=True) as connection:
            if replaces is not None:
                self._find_changeable(connection, replaces, trusted=trusted)
            known = connection.execute(
                """SELECT id FROM notes WHERE substr(text, 1, 40) = substr(?1, 1, 40) AND text = ?1 AND tags = ?2
                AND workspace = ?3 AND trusted = ?4 AND scope = ?5 AND superseded_by IS NULL""",
                (words, marks, workspace, trusted, scope),
            ).fetchone()
            number = known[0] if known else None
            if number is None:
                _make_room(connection, trusted=trusted)
                at = datetime.now(UTC).isoformat(timespec="seconds")
                number = connection.execute(
                    """INSERT INTO notes (at, workspace, session, text, tags, trusted, scope, cell)
                    VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
                    (at, workspace, self._session, words, marks, trusted, scope, cell),
                ).lastrowid
                assert number is not None
            if replaces not in (None, number):
                connection.execute("UPDATE notes SET superseded_by = ? WHERE id = ?", (number, replaces))
            return number

    def recall(self, words: str, limit: int = 5, *, superseded: bool = False) -> list[Note]:
        """Return notes, best first, with a preference for this workspace. Raises NoteRefused, MemoryUnusable.

        With `superseded` also notes that others have replaced. Errors of the embedder are raised as they are.
        """
        limit = _limit_count(limit)
        if not words.strip() or not self._database.file.exists():
            return []
        visible = _REACHABLE if superseded else f"{_REACHABLE} AND {_CURRENT}"
        near: list[int] = []
        values = {"workspace": self._workspace}
        if self._embedder:
            near = find_nearest(self._database, self._embedder, words, visible, values)
        with self._database.open() as connection:
            factor = f"CASE WHEN notes.workspace = :workspace THEN {_NEARER} ELSE 1 END"
            best = rank(
                connection, words, limit, table="notes", visible=visible, values=values, factor=factor, nearest=near
            )[: 2 * limit]
        found = {note.id: note for note in self._select(f"id IN ({','.join(map(str, best))}) AND {visible}")}
        return [found[id_] for id_ in best if id_ in found][:limit]

    def latest(self, limit: int = 20, *, superseded: bool = False) -> list[Note]:
        """Return the newest notes, those of this workspace first. Raises NoteRefused, MemoryUnusable."""
        limit = min(_limit_count(limit), MOST_RESULTS)
        visible = _REACHABLE if superseded else f"{_REACHABLE} AND {_CURRENT}"
        return self._select(f"{visible} ORDER BY workspace = :workspace DESC, id DESC LIMIT :limit", limit=limit)

    def all(self) -> list[Note]:
        """Return every note that can be reached, also superseded ones, oldest first. Raises MemoryUnusable."""
        return self._select(f"{_REACHABLE} ORDER BY id")

    def get(self, id: int) -> Note:
        """Return a note. Raises NoteRefused, MemoryUnusable."""
        found = self._select(f"{_REACHABLE} AND id = :id", id=id)
        if not found:
            raise NoteRefused(_no_note(id))
        return found[0]

    def edit(self, id: int, text: str) -> None:
        """Change what a note says. It stays as trusted as it was. Raises NoteRefused, MemoryUnusable."""
        words = _check_text(text)
        with self._open_to_change(id, trusted=True) as connection:
            connection.execute("UPDATE notes SET text = ? WHERE id = ?", (words, id))

    def forget(self, id: int, *, trusted: bool) -> None:
        """Delete a note; an untrusted session only an untrusted or its own one. Raises NoteRefused, MemoryUnusable."""
        with self._open_to_change(id, trusted=trusted) as connection:
            connection.execute("DELETE FROM notes WHERE id = ?", (id,))

    @contextmanager
    def _open_to_change(self, id_: int, *, trusted: bool) -> Generator[sqlite3.Connection]:
        if not self._database.file.exists():
            raise NoteRefused(_no_note(id_))
        with self._database.open(write=True) as connection:
            self._find_changeable(connection, id_, trusted=trusted)
            yield connection

    def _find_changeable(self, connection: sqlite3.Connection, id_: int, *, trusted: bool) -> None:
        query = f"SELECT trusted, session FROM notes WHERE id = :id AND {_REACHABLE}"
        row = connection.execute(query, {"id": id_, "workspace": self._workspace}).fetchone()
        if row is None:
            raise NoteRefused(_no_note(id_))
        if row[0] and not trusted and row[1] != self._session:
            words = f"note {id_} is another session's, and this session has read outside text"
            raise NoteRefused(f"{words}; change the note in a session that has not")

    def _select(self, condition: str, **values: object) -> list[Note]:
        if not self._database.file.exists():
            return []
        query = f"SELECT {_COLUMNS} FROM notes WHERE {condition}"
        with self._database.open() as connection:
            return [_note(row) for row in connection.execute(query, {**values, "workspace": self._workspace})]


def describe_note(note: Note) -> Mapping[str, object]:
    """Return a note as a JSON object."""
    return {name: getattr(note, name) for name in Note.__slots__} | {"tags": [*note.tags]}


def _note(row: Sequence[Any]) -> Note:
    read: dict[str, Any] = dict(zip(Note.__slots__, row, strict=True))
    read |= {"tags": tuple(json.loads(read["tags"])), "trusted": bool(read["trusted"])}
    return Note(**read)


def _make_room(connection: sqlite3.Connection, *, trusted: bool) -> None:
    if not trusted:
        connection.execute(
            "DELETE FROM notes WHERE id IN (SELECT id FROM notes WHERE NOT trusted ORDER BY id DESC LIMIT -1 OFFSET ?)",
            (MOST_UNTRUSTED - 1,),
        )
    if connection.execute("SELECT count(*) FROM notes").fetchone()[0] >= MOST_NOTES:
        raise NoteRefused(f"there are {MOST_NOTES:,} notes already; forget some first")


def _check_text(text: str) -> str:
    words = text.encode("utf-8", "replace").decode("utf-8").replace("\0", "").strip()
    if not words:
        raise NoteRefused("there is nothing to remember; give a text")
    if len(words) > NOTE_CHARS:
        raise NoteRefused(f"the text has {len(words):,} characters; {NOTE_CHARS:,} is the most: store the gist")
    return words


def _check_tags(tags: tuple[str, ...]) -> str:
    marks = tuple(dict.fromkeys(tag.strip().casefold() for tag in tags if tag.strip()))
    if len(marks) > MOST_TAGS or any(len(mark) > TAG_CHARS for mark in marks):
        raise NoteRefused(f"at most {MOST_TAGS} tags of {TAG_CHARS} characters each")
    clean = [mark.encode("utf-8", "replace").decode("utf-8") for mark in marks]
    return json.dumps(clean, ensure_ascii=False)


def _limit_count(limit: int) -> int:
    if limit < 1:
        raise NoteRefused("limit is at least 1")
    return min(limit, MOST_RESULTS)


def _no_note(id_: int) -> str:
    return f"there is no note {id_} here; list them to see which there are"


# The file: private, shared by several processes through transactions, upgraded to the current schema when opened.

_WAIT_S = 10.0
"""How long to wait for another process that writes."""

_MAPPED = 1 << 28
"""Bytes of the file that are memory-mapped."""


class MemoryUnusable(PinfoldError):
    """The file is damaged, was written by a newer Pinfold, or cannot be opened. The message says what to do."""

    is_passing = False
    """True if the file itself is sound: another process has locked it, or the disk is full."""


class _Reader(sqlite3.Connection):
    """A connection that closes itself when it is no longer referenced."""

    def __del__(self) -> None:
        self.close()


_idle: dict[tuple[int, int], _Reader] = {}
"""A connection to reuse for reading each file: opening one would take most of a short search. Keyed by device and
inode, so that a file that replaced another is opened anew."""


class Database:
    """`steps` holds the statements from each version of the schema to the next; a new file takes all of them."""

    def __init__(self, file: Path, steps: Sequence[Sequence[str]]) -> None:
        self.file = file
        self._steps = steps

    @contextmanager
    def open(self, *, write: bool = False) -> Generator[sqlite3.Connection]:
        """Open one transaction, all or nothing. With `write`, a missing file is created. Raises MemoryUnusable."""
        try:
            if write:
                self._create()
            found = self.file.stat()
            file = (found.st_dev, found.st_ino)
            connection = None if write else _idle.pop(file, None)
            if connection is None:
                connection = sqlite3.connect(
                    self.file, timeout=_WAIT_S, isolation_level=None, check_same_thread=False, factory=_Reader
                )
        except (OSError, sqlite3.Error) as error:
            raise MemoryUnusable(f"{self.file} cannot be opened: {error}; fix its permissions") from error
        is_done = False
        try:
            if write:  # the file keeps the mode it was made with
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._prepare(connection, write=write)
            yield connection
            connection.execute("COMMIT")
            if write:  # else removed text stays in the log while other processes have the file open
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            is_done = True
        except sqlite3.DatabaseError as error:
            failure = MemoryUnusable(self._describe_error(error))
            failure.is_passing = any(word in str(error) for word in ("locked", "full"))
            raise failure from error
        finally:
            if write or not is_done or _idle.setdefault(file, connection) is not connection:
                connection.close()

    def _create(self) -> None:
        """Create the file if it is missing. Raises OSError."""
        self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # SQLite gives its side files the same mode.
            os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        except FileExistsError:  # not opened: closing it would drop the locks that this process has on it
            if self.file.is_symlink():
                raise

    def _prepare(self, connection: sqlite3.Connection, *, write: bool) -> None:
        newest = len(self._steps)
        version = _version_of(connection)
        if version > newest:
            raise MemoryUnusable(f"{self.file} was written by a newer Pinfold; update this one")
        if version == newest:
            return
        if not write:
            connection.execute("ROLLBACK")
            connection.execute("BEGIN IMMEDIATE")
        for statements in self._steps[_version_of(connection) :]:  # another process may have been first
            for statement in statements:
                connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {newest}")

    def _describe_error(self, error: sqlite3.DatabaseError) -> str:
        if "locked" in str(error):
            return f"{self.file} is in use by another process for longer than {_WAIT_S:g} s; try again"
        if "full" in str(error):
            return f"{self.file} cannot be written: {error}; make room on the disk"
        return f"{self.file} cannot be used: {error}; if it is damaged, move it away, and a new one is made"


def _version_of(connection: sqlite3.Connection) -> int:
    return connection.execute("PRAGMA user_version").fetchone()[0]
