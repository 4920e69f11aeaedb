"""Rows as they lie in the store: the table, the checksum chain, reading what is still readable.

Each row's sum covers its own content and the previous row's sum, so a changed, removed or reordered
row is noticed, and noticing it does not cost the rows around it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias, TypeGuard

from pinfold.log.errors import LogError, LogUnreadable, LogUnwritable

VERSION = 1
GENESIS = b"\0" * 16
_APPLICATION_ID = 0x50494E46  # "PINF"
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE events (
  seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, sum BLOB NOT NULL
) STRICT;
"""
_PAGE_ROWS = 1000
_SELECT = "SELECT seq, at, kind, body, sum FROM events"
_PAGE = f"{_SELECT} WHERE seq > ? ORDER BY seq LIMIT {_PAGE_ROWS}"
_ONE = f"{_SELECT} WHERE seq = ?"
Row: TypeAlias = tuple[int, bytes, bytes, bytes, bytes]
"""seq, at, kind, body, sum"""


@dataclass(slots=True)
class Damage:
    """What a read could not bring back."""

    unreadable: list[int] = field(default_factory=list[int])
    """Events whose content is not what was written."""
    lost_after: int | None = None
    """Events after this one were acknowledged once and are gone."""
    acknowledged: int = 0

    def __bool__(self) -> bool:
        return bool(self.unreadable) or self.lost_after is not None

    def __str__(self) -> str:
        parts: list[str] = []
        if self.unreadable:
            shown = ", ".join(map(str, self.unreadable[:5])) + (", ..." if len(self.unreadable) > 5 else "")
            parts.append(f"{len(self.unreadable)} damaged and unreadable (number {shown})")
        if self.lost_after is not None:
            parts.append(f"{self.acknowledged - self.lost_after} missing after number {self.lost_after}")
        return "events " + "; ".join(parts)


def chained(previous: bytes, seq: int, at: bytes, kind: bytes, body: bytes) -> bytes:
    content = b"%b%d %b %b %b" % (previous, seq, at, kind, body)
    return hashlib.blake2b(content, digest_size=16).digest()


def connect(path: Path | str) -> sqlite3.Connection:
    """Open or create a store. Tables and version appear in one transaction or not at all."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _unopened(path, error) from error
    try:
        # A damaged row may hold bytes that are no UTF-8; we decode them ourselves.
        connection.text_factory = bytes
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA busy_timeout = 5000")
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            _create(connection)
        version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    except sqlite3.Error as error:
        connection.close()
        raise _unopened(path, error) from error
    if version > VERSION:
        connection.close()
        raise LogUnreadable(f"{path} was written by a newer Pinfold (format {version}); upgrade to read it")
    return connection


def _unopened(path: Path | str, error: sqlite3.Error) -> LogError:
    # Opening may write: the tables of a new store, the index of its write-ahead log.
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return LogUnwritable(f"cannot write {path}: {error}; free some space or check the disk")
    return LogUnreadable(f"{path} cannot be opened: {error}")


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again under the lock: another process may have been first.
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            for statement in _TABLES.split(";\n"):
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {VERSION}")
        connection.execute("COMMIT")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", map(_as_stored, rows))
        connection.execute("COMMIT")
    except sqlite3.Error:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def _as_stored(row: Row) -> tuple[int, str, str, str, bytes]:
    seq, at, kind, body, checksum = row
    return seq, at.decode(), kind.decode(), body.decode("ascii"), checksum


def verified(
    connection: sqlite3.Connection, damage: Damage, *, after: int = 0, upto: int = 0
) -> Iterator[Row]:
    """Rows after `after` whose checksum holds; the others are noted in `damage`.

    `upto` is the last number known to have been written: where the tree itself is broken,
    every number up to it is asked for one by one.
    """
    previous = last_row(connection, after)[1]
    spare = previous
    for row in _scan(connection, damage, after, upto):
        seq, at, kind, body, stored = row
        computed = chained(previous, seq, at, kind, body)
        if stored == computed or stored == chained(spare, seq, at, kind, body):
            previous = spare = stored
            yield row
        else:
            damage.unreadable.append(seq)
            # Whichever of the two was hit, content or sum, the next row was chained on the true sum.
            previous, spare = stored, computed


def last_row(connection: sqlite3.Connection, upto: int = 1 << 62) -> tuple[int, bytes]:
    """Number and sum of the last row up to `upto`; those of an empty log if it cannot be read."""
    query = "SELECT seq, sum FROM events WHERE seq <= ? ORDER BY seq DESC LIMIT 1"
    with contextlib.suppress(sqlite3.Error):
        match connection.execute(query, (upto,)).fetchone():
            case (int(seq), bytes(checksum)):
                return seq, checksum
            case _:
                pass
    return 0, GENESIS


def _scan(connection: sqlite3.Connection, damage: Damage, after: int, upto: int) -> Iterator[Row]:
    # In pages: an open cursor would hold back the store's checkpoints for as long as a reader dawdles.
    last = after
    while True:
        try:
            page = connection.execute(_PAGE, (last,)).fetchall()
        except sqlite3.DatabaseError:
            page = [()]
        for raw in page:
            if not _plausible(raw):
                yield from _one_by_one(connection, damage, last + 1, upto)
                return
            last = raw[0]
            yield raw
        if len(page) < _PAGE_ROWS:
            return


def _one_by_one(connection: sqlite3.Connection, damage: Damage, first: int, upto: int) -> Iterator[Row]:
    with contextlib.suppress(sqlite3.Error):
        upto = max(upto, connection.execute("SELECT max(seq) FROM events").fetchone()[0] or 0)
    for seq in range(first, min(upto, first + 10_000_000) + 1):
        raw = None
        with contextlib.suppress(sqlite3.DatabaseError):
            raw = connection.execute(_ONE, (seq,)).fetchone()
        if raw and _plausible(raw):
            yield raw
        else:
            damage.unreadable.append(seq)


def _plausible(raw: tuple[object, ...]) -> TypeGuard[Row]:
    return len(raw) == 5 and isinstance(raw[0], int) and all(isinstance(item, bytes) for item in raw[1:])


class Head:
    """Beside the store: the last number that was acknowledged.

    Written after the commit and never synced, so it can lag behind the store but not run ahead of
    it. If it is ahead, events that were acknowledged have vanished.
    """

    def __init__(self, path: Path) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def read(self) -> int:
        number, _, check = os.pread(self._fd, 64, 0).decode("ascii", "replace").strip().partition(" ")
        if not number.isdecimal() or check != self._check(number):
            return 0
        return int(number)

    def write(self, seq: int) -> None:
        number = f"{seq:020d}"
        os.pwrite(self._fd, f"{number} {self._check(number)}\n".encode(), 0)

    def close(self) -> None:
        os.close(self._fd)

    @staticmethod
    def _check(number: str) -> str:
        return f"{zlib.crc32(number.encode()):08x}"
