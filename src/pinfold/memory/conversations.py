"""The messages of past sessions, in a separate file that is derived from their logs and can be rebuilt at any time."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pinfold.memory.relevance import TOKENIZER, rank
from pinfold.memory.store import Database

_SCHEMA = (
    """CREATE TABLE sessions (session TEXT PRIMARY KEY, stamp TEXT NOT NULL, last INTEGER NOT NULL,
    trusted INTEGER NOT NULL)""",
    """CREATE TABLE messages (id INTEGER PRIMARY KEY AUTOINCREMENT, session TEXT NOT NULL, workspace TEXT NOT NULL,
    seq INTEGER NOT NULL, place TEXT NOT NULL, at TEXT NOT NULL, text TEXT NOT NULL)""",
    "CREATE INDEX messages_session ON messages (session)",
    f"CREATE VIRTUAL TABLE words USING fts5(text, content='messages', content_rowid='id', tokenize='{TOKENIZER}')",
    """CREATE TRIGGER message_in AFTER INSERT ON messages BEGIN
    INSERT INTO words(rowid, text) VALUES (new.id, new.text); END""",
    """CREATE TRIGGER message_out AFTER DELETE ON messages BEGIN
    INSERT INTO words(words, rowid, text) VALUES ('delete', old.id, old.text); END""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    seq: int
    """The number of its event in the session's log."""
    place: str
    """you, agent, code, call, output or title."""
    at: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PastMessage(Message):
    session: str
    trusted: bool
    """True if its session has read no outside text."""


class Conversations:
    def __init__(self, file: Path) -> None:
        self._database = Database(file, (_SCHEMA,))

    def known(self) -> dict[str, tuple[str, int]]:
        """Return the stored sessions, each with its stamp and the last event that was read. Raises MemoryUnusable."""
        if not self._database.file.exists():
            return {}
        with self._database.open() as connection:
            rows = connection.execute("SELECT session, stamp, last FROM sessions").fetchall()
        return {session: (stamp, last) for session, stamp, last in rows}

    def add(
        self, session: str, messages: Iterable[Message], *, workspace: str, stamp: str, last: int, trusted: bool
    ) -> None:
        """Add new messages. A session that was once untrusted is never trusted again. Raises MemoryUnusable."""
        with self._database.open(write=True) as connection:
            row = connection.execute("SELECT last, trusted FROM sessions WHERE session = ?", (session,)).fetchone()
            before, was_trusted = row or (0, True)
            connection.execute(
                "INSERT OR REPLACE INTO sessions VALUES (?, ?, ?, ?)",
                (session, stamp, max(last, before), trusted and was_trusted),
            )
            connection.executemany(
                "INSERT INTO messages (session, workspace, seq, place, at, text) VALUES (?, ?, ?, ?, ?, ?)",
                # Another process may have added some of them meanwhile.
                [(session, workspace, one.seq, one.place, one.at, one.text) for one in messages if one.seq > before],
            )

    def remove(self, sessions: Iterable[str]) -> None:
        """Remove sessions, with nothing of them left in the file. Raises MemoryUnusable."""
        gone = [(session,) for session in sessions]
        if not gone or not self._database.file.exists():
            return
        with self._database.open(write=True) as connection:
            connection.executemany("DELETE FROM messages WHERE session = ?", gone)
            connection.executemany("DELETE FROM sessions WHERE session = ?", gone)
            connection.execute("INSERT INTO words(words) VALUES ('optimize')")

    def search(
        self,
        words: str,
        limit: int = 20,
        *,
        workspace: str | None = None,
        places: Iterable[str] = (),
        besides: str = "",
    ) -> list[PastMessage]:
        """Return messages, best first: only of `workspace` and in `places` if given, and not of the session `besides`.

        Raises MemoryUnusable.
        """
        if not self._database.file.exists():
            return []
        wanted = ",".join(places)
        visible = """(:workspace IS NULL OR messages.workspace = :workspace) AND messages.session != :besides
            AND (:places = '' OR instr(:places, messages.place))"""
        values = {"workspace": workspace, "besides": besides, "places": wanted}
        with self._database.open() as connection:
            best = rank(connection, words, limit, table="messages", visible=visible, values=values)[: 2 * limit]
            rows = connection.execute(
                f"""SELECT id, messages.session, seq, place, at, text, trusted FROM messages JOIN sessions USING (session)
                WHERE id IN (SELECT value FROM json_each(:ids)) AND {visible}""",
                {**values, "ids": json.dumps(best)},
            ).fetchall()
        found = {
            id_: PastMessage(session=session, seq=seq, place=place, at=at, text=text, trusted=bool(trusted))
            for id_, session, seq, place, at, text, trusted in rows
        }
        return [found[id_] for id_ in best if id_ in found][:limit]
