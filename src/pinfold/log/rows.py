"""Rows as they lie in the store: the table, the checksum chain, reading what is still readable.

Each row's sum covers its own content and the previous row's sum, so a changed, removed or reordered
row is noticed, and noticing it does not cost the rows around it.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias, TypeGuard

from msgspec import Struct, field

from pinfold.log.errors import LogError, LogTooNew, LogUnreadable, LogUnwritable

VERSION = 1
GENESIS = b"\0" * 16
_APPLICATION_ID = 0x50494E00  # "PIN"; the last byte says the version again, so that a hit there is no upgrade
_TABLES = """
CREATE TABLE events (
  seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, sum BLOB NOT NULL
) STRICT;
"""
_BUSY_S = 5.0
"""How long to wait for another process that writes."""
_LOOK_AGAIN_S = 0.005
_PAGE_ROWS = 1000
_SELECT = "SELECT seq, at, kind, body, sum FROM events"
_PAGE = f"{_SELECT} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {_PAGE_ROWS}"
_ONE = f"{_SELECT} WHERE seq = ?"
_SUMS = "SELECT seq, sum FROM events WHERE seq <= ? ORDER BY seq"
Row: TypeAlias = tuple[int, bytes, bytes, bytes, bytes]
"""seq, at, kind, body, sum"""


class Damage(Struct):
    """What a read could not bring back."""

    unreadable: list[int] = field(default_factory=list[int])
    """Events whose content is not what was written."""
    lost_after: int | None = None
    """Events after this one were acknowledged once and are gone."""
    acknowledged: int = 0
    blobs: list[str] = field(default_factory=list[str])
    """Blobs that are gone or not what their name says."""

    first_page: bool = False
    """The store's own header was hit; the events were read all the same."""
    tree: bool = False
    """The tree of the store is broken: reading it through does not give every row, or not in order."""

    def __bool__(self) -> bool:
        hit = self.unreadable or self.blobs or self.first_page or self.tree
        return bool(hit) or self.lost_after is not None

    def __str__(self) -> str:
        parts: list[str] = []
        if self.unreadable:
            shown = ", ".join(map(str, self.unreadable[:5])) + (", ..." if len(self.unreadable) > 5 else "")
            parts.append(f"{len(self.unreadable)} events damaged and unreadable (number {shown})")
        if self.lost_after is not None:
            missing = self.acknowledged - self.lost_after
            parts.append(f"{missing} events missing after number {self.lost_after}")
        if self.blobs:
            parts.append(f"{len(self.blobs)} blobs damaged or missing")
        if self.first_page:
            parts.append("the header of the store damaged")
        if self.tree:
            parts.append("the tree of the store damaged")
        return "; ".join(parts)


def chain_checksum(previous: bytes, seq: int, at: bytes, kind: bytes, body: bytes) -> bytes:
    return sha256(b"%b%d %b %b %b" % (previous, seq, at, kind, body)).digest()[:16]


def connect(path: Path | str) -> sqlite3.Connection:
    """Open or create a store. Tables and version appear in one transaction or not at all."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _describe_open_failure(path, error) from error
    try:
        # A damaged row may hold bytes that are no UTF-8; we decode them ourselves.
        connection.text_factory = bytes
        version = _prepare_store(connection)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # sqlite3 may quote a damaged schema
        connection.close()
        raise _describe_open_failure(path, error) from error
    if version > VERSION:
        connection.close()
        raise LogTooNew(f"{path} was written by a newer Pinfold (format {version}); upgrade to read it")
    return connection


def _into_wal(connection: sqlite3.Connection) -> None:
    # Of those who switch a new store at the same time SQLite turns all but one away at once, busy timeout or not.
    give_up_at = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > give_up_at:
                raise
        time.sleep(_LOOK_AGAIN_S)


def _prepare_store(connection: sqlite3.Connection) -> int:
    """The store's version."""
    try:
        _into_wal(connection)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        # A file that lost whole pages opens in this way only; reading it then finds what is gone.
        connection.execute("PRAGMA writable_schema = ON")
        _into_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000:.0f}")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        _create(connection)
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID | version & 0xFF:
        raise sqlite3.DatabaseError("its header is damaged, or it is no store of ours")
    if version <= VERSION:
        connection.execute(f"EXPLAIN {_ONE}", (0,)).fetchall()  # the table is there, with the columns we know
    return version


def is_sound(connection: sqlite3.Connection) -> bool:
    """Whether the store may be written: not one that lost pages, and not one whose tree is broken."""
    try:
        if connection.execute("PRAGMA writable_schema").fetchone()[0]:
            return False
        return connection.execute("PRAGMA quick_check(1)").fetchone() == (b"ok",)
    except sqlite3.Error:
        return False


def _describe_open_failure(path: Path | str, error: Exception) -> LogError:
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
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID | VERSION}")
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
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")
        raise


def kind_column(kind: str) -> bytes:
    """For looking rows up; the body holds the kind to the letter."""
    return kind.encode("utf-8", "replace")


def _as_stored(row: Row) -> tuple[int, str, str, str, bytes]:
    seq, at, kind, body, checksum = row
    return seq, at.decode(), kind.decode(), body.decode("ascii"), checksum


def verify_rows(connection: sqlite3.Connection, damage: Damage, *, after: int, upto: int) -> Iterator[list[Row]]:
    """Rows after `after` whose checksum holds, some at a time; the others are noted in `damage`.

    `upto` is the last number known to have been written: rows beyond it may not be committed yet, on this
    very connection. Where the tree itself is broken, every number up to it is asked for one by one.
    """
    previous = spare = last_row(connection, after)[1]
    for page in _pages(connection, damage, after, upto):
        good: list[Row] = []
        for row in page:
            seq, at, kind, body, stored = row
            computed = chain_checksum(previous, seq, at, kind, body)
            if stored == computed or stored == chain_checksum(spare, seq, at, kind, body):
                previous = spare = stored
                good.append(row)
            else:
                damage.unreadable.append(seq)
                # Whichever of the two was hit, content or sum, the next row was chained on the true sum.
                previous, spare = stored, computed
        yield good


def last_row(connection: sqlite3.Connection, upto: int = 1 << 62) -> tuple[int, bytes]:
    """Number and sum of the last readable row up to `upto`; those of an empty log if there is none."""
    last = 0, GENESIS
    # From the end; if the end is broken, from the beginning to where it breaks.
    for query in (f"{_SUMS} DESC LIMIT 1", _SUMS):
        try:
            for raw in connection.execute(query, (upto,)):
                match raw:
                    case (int(seq), bytes(checksum)):
                        last = seq, checksum
                    case _:
                        pass
        except sqlite3.Error:
            continue
        break
    return last


def _pages(connection: sqlite3.Connection, damage: Damage, after: int, upto: int) -> Iterator[list[Row]]:
    # Not with one open cursor: it would hold back the store's checkpoints for as long as a reader dawdles.
    while after < upto:
        page: list[Row] | None = None
        with contextlib.suppress(sqlite3.DatabaseError):
            page = connection.execute(_PAGE, (after, upto)).fetchall()
        if page is None or not all(map(_plausible, page)):
            damage.tree = True
            yield list(_one_by_one(connection, damage, after + 1, upto))
            return
        last = page[-1][0] if len(page) == _PAGE_ROWS else upto
        if [row[0] for row in page] != list(range(after + 1, last + 1)):
            page = _find_missing_rows(connection, damage, page, range(after + 1, last + 1))
        yield page
        after = last


def _find_missing_rows(connection: sqlite3.Connection, damage: Damage, page: list[Row], numbers: range) -> list[Row]:
    """A broken tree may leave rows out, repeat them or lead astray; each that is missing is asked for by its number."""
    found = {row[0]: row for row in page if row[0] in numbers}
    damage.tree = damage.tree or list(found) != sorted(found) or len(found) != len(page)
    for number in numbers:
        if number not in found and (row := _one(connection, number)):
            found[number] = row
            damage.tree = True
    return [found[number] for number in sorted(found)]


def _one_by_one(connection: sqlite3.Connection, damage: Damage, first: int, upto: int) -> Iterator[Row]:
    for number in range(first, upto + 1):
        if row := _one(connection, number):
            yield row
        else:
            damage.unreadable.append(number)


def _one(connection: sqlite3.Connection, number: int) -> Row | None:
    with contextlib.suppress(sqlite3.DatabaseError):
        row = connection.execute(_ONE, (number,)).fetchone()
        return row if row and _plausible(row) and row[0] == number else None
    return None


def _plausible(raw: tuple[object, ...]) -> TypeGuard[Row]:
    if len(raw) != 5:
        return False
    seq, at, kind, body, checksum = raw
    return type(seq) is int and type(at) is type(kind) is type(body) is type(checksum) is bytes


class Head:
    """Beside the store: the last number that was acknowledged.

    Written after the commit and never synced, so it can lag behind the store but not run ahead of
    it. If it is ahead, events that were acknowledged have vanished.
    """

    def __init__(self, path: Path) -> None:
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise LogUnreadable(f"{path} cannot be opened: {error.strerror}") from error

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
