"""Records kept between requests of other protocols: the session of each conversation, responses, files."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path
from typing import Literal, TypeAlias, TypeVar, get_args

import msgspec

from pinfold.app.paths import private_dir, state_dir
from pinfold.events import decode_json

Kind: TypeAlias = Literal["key", "prefix", "call", "response", "file"]
T = TypeVar("T")
KEPT = 20_000
"""Maximum records of a kind; older ones are deleted. Files are kept until a client deletes them."""
_PRUNED_EVERY = 1000


def open_records() -> WireRecords:
    return WireRecords(private_dir(state_dir()) / "clients.sqlite")


class WireRecords:
    """Small values by kind and key, in a file that only the user can read. Calls block briefly."""

    def __init__(self, path: Path, kept: int = KEPT) -> None:
        self._kept = kept
        self._lock = threading.Lock()
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        path.chmod(0o600)
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS records (number INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, "
            "key TEXT NOT NULL, value BLOB NOT NULL, content BLOB, UNIQUE (kind, key))"
        )

    def put(self, kind: Kind, key: str, value: object, content: bytes | None = None) -> None:
        with self._lock:
            cursor = self._database.execute(
                "INSERT OR REPLACE INTO records (kind, key, value, content) VALUES (?, ?, ?, ?)",
                (kind, key, msgspec.json.encode(value), content),
            )
            if cursor.lastrowid and cursor.lastrowid % _PRUNED_EVERY == 0:
                for one in get_args(Kind):  # all share the numbers, so this one may never get a round number itself
                    if one != "file":
                        self._database.execute(
                            "DELETE FROM records WHERE kind = ?1 AND number NOT IN "
                            "(SELECT number FROM records WHERE kind = ?1 ORDER BY number DESC LIMIT ?2)",
                            (one, self._kept),
                        )

    def get(self, kind: Kind, key: str, type_: type[T]) -> T | None:
        row = self._one("SELECT value FROM records WHERE kind = ? AND key = ?", kind, key)
        return decode_json(row, type_) if row is not None else None

    def content(self, kind: Kind, key: str) -> bytes | None:
        return self._one("SELECT content FROM records WHERE kind = ? AND key = ?", kind, key)

    def delete(self, kind: Kind, key: str) -> bool:
        """Delete a record. Return whether it existed."""
        with self._lock:
            return self._database.execute("DELETE FROM records WHERE kind = ? AND key = ?", (kind, key)).rowcount > 0

    def all(self, kind: Kind, type_: type[T]) -> list[T]:
        """Return all values of a kind, oldest first."""
        with self._lock:
            rows = self._database.execute(
                "SELECT value FROM records WHERE kind = ? ORDER BY number", (kind,)
            ).fetchall()
        return [decode_json(row[0], type_) for row in rows]

    def _one(self, query: str, *values: str) -> bytes | None:
        with self._lock:
            row = self._database.execute(query, values).fetchone()
        return row[0] if row else None
