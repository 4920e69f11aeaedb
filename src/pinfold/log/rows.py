"""The rows of the store: the table, the checksum chain, reading a damaged store, and the errors of a log.

Each row's sum covers its own content and the previous row's sum, so a changed, removed or reordered
row is noticed without losing the rows around it.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import tempfile
import time
import zlib
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias, TypeGuard

from msgspec import Struct, field

from pinfold.events import PinfoldError


class LogError(PinfoldError):
    """Base. The message is one line for the user.

    LogError
      LogUnreadable   the store cannot be opened: not a Pinfold log, or its header is corrupt
        LogTooNew     a newer Pinfold wrote it
      LogUnwritable   the disk failed: nothing was recorded; earlier events are safe
      BadBundle       a file to import is invalid
      BlobMissing     a blob is missing, or its content does not match its name
    """


class LogUnreadable(LogError): ...


class LogTooNew(LogUnreadable): ...


class LogUnwritable(LogError):
    exit_code = 75


class BadBundle(LogError):
    exit_code = 2


class BlobMissing(LogError): ...


class Damage(Struct):
    """The damage that was found while reading a log."""

    unreadable: list[int] = field(default_factory=list[int])
    """Numbers of events whose checksum does not hold."""
    lost_after: int | None = None
    """Acknowledged events after this number are gone."""
    acknowledged: int = 0
    blobs: list[str] = field(default_factory=list[str])
    """Blobs that are missing or do not match their name."""
    first_page: bool = False
    """The store's header was damaged; the events were read anyway."""
    tree: bool = False
    """The B-tree is broken: a scan does not give every row in order."""

    def __bool__(self) -> bool:
        return bool(str(self))

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.unreadable[:5])) + ", ..." * (len(self.unreadable) > 5)
        missing = self.acknowledged - (self.lost_after or 0)
        parts = (
            (self.unreadable, f"{len(self.unreadable)} events damaged and unreadable (number {numbers})"),
            (self.lost_after is not None, f"{missing} events missing after number {self.lost_after}"),
            (self.blobs, f"{len(self.blobs)} blobs damaged or missing"),
            (self.first_page, "the header of the store damaged"),
            (self.tree, "the tree of the store damaged"),
        )
        return "; ".join(words for is_hit, words in parts if is_hit)


VERSION = 1
GENESIS = b"\0" * 16
_APPLICATION_ID = 0x50494E00  # "PIN"; the last byte repeats the version, to tell damage from a newer version
_TABLE = """
CREATE TABLE events (
  seq INTEGER PRIMARY KEY, at TEXT NOT NULL, kind TEXT NOT NULL, body TEXT NOT NULL, sum BLOB NOT NULL
) STRICT
"""
_BUSY_S = 5.0
"""How long to wait for another process that writes."""
_LOOK_AGAIN_S = 0.005
_CACHE_KB = 64
"""Page cache of each open log. A log is appended to and read through once, so a small cache does."""
_PAGE_ROWS = 1000
_SELECT = "SELECT seq, at, kind, body, sum FROM events"
_PAGE = f"{_SELECT} WHERE seq > ? AND seq <= ? ORDER BY seq LIMIT {_PAGE_ROWS}"
_ONE = f"{_SELECT} WHERE seq = ?"
_SUMS = "SELECT seq, sum FROM events WHERE seq <= ? ORDER BY seq"
_PAGE_BYTES = 4096
_VALID_FOR = slice(92, 96)
"""Header field `version-valid-for`: unless it equals the change counter, SQLite takes the file's length as its size."""
Row: TypeAlias = tuple[int, bytes, bytes, bytes, bytes]
"""seq, at, kind, body, sum"""


def chain_checksum(previous: bytes, seq: int, at: bytes, kind: bytes, body: bytes) -> bytes:
    return sha256(b"%b%d %b %b %b" % (previous, seq, at, kind, body)).digest()[:16]


def connect(path: Path | str) -> sqlite3.Connection:
    """Open or create a store. Tables and version appear in one transaction or not at all."""
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _describe_open_failure(path, error) from error
    try:
        # A damaged row may hold bytes that are not UTF-8, so this module decodes them itself.
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
    # If several processes switch a new store at once, SQLite rejects all but one, whatever the busy timeout.
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
    """Configure the connection, create the table if it is missing, and return the store's version."""
    try:
        _into_wal(connection)
    except sqlite3.DatabaseError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_CORRUPT:
            raise
        # A file that lost whole pages opens only with this setting; reading it then finds what is gone.
        connection.execute("PRAGMA writable_schema = ON")
        _into_wal(connection)
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = {-_CACHE_KB}")
    connection.execute(f"PRAGMA busy_timeout = {_BUSY_S * 1000:.0f}")
    if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
        _create(connection)
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    if connection.execute("PRAGMA application_id").fetchone()[0] != _APPLICATION_ID | version & 0xFF:
        raise sqlite3.DatabaseError("not a Pinfold log, or its header is corrupt")
    if version <= VERSION:
        connection.execute(f"EXPLAIN {_ONE}", (0,)).fetchall()  # fails unless the table has the columns we know
    return version


def is_sound(connection: sqlite3.Connection) -> bool:
    """True if the store may be written: it lost no pages, and its tree is intact."""
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
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        # Checked again under the lock: another process may have been first.
        if connection.execute("PRAGMA user_version").fetchone()[0] == 0:
            connection.execute(_TABLE)
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID | VERSION}")
            connection.execute(f"PRAGMA user_version = {VERSION}")


def insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    stored = [(seq, at.decode(), kind.decode(), body.decode("ascii"), sum_) for seq, at, kind, body, sum_ in rows]
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?, ?)", stored)


def kind_column(kind: str) -> bytes:
    """Return the value of the `kind` column, which serves queries; the body has the exact kind."""
    return kind.encode("utf-8", "replace")


def verify_rows(connection: sqlite3.Connection, damage: Damage, *, after: int, upto: int) -> Iterator[list[Row]]:
    """Yield pages of the rows after `after` whose checksum holds; note the others in `damage`.

    `upto` is the last number known to be written: rows beyond it may be in an uncommitted transaction of this
    connection. Where the tree itself is broken, every number up to it is looked up one by one.
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
                # Either the content or the sum was damaged; the next row was chained on the true sum.
                previous, spare = stored, computed
        yield good


def last_row(connection: sqlite3.Connection, upto: int = 1 << 62) -> tuple[int, bytes]:
    """Return number and sum of the last readable row up to `upto`; those of an empty log if there is none."""
    last = 0, GENESIS
    # Read from the end; if the end is broken, read from the beginning to where it breaks.
    for query in (f"{_SUMS} DESC LIMIT 1", _SUMS):
        try:
            for seq, checksum in connection.execute(query, (upto,)):
                if isinstance(seq, int) and isinstance(checksum, bytes):
                    last = seq, checksum
        except sqlite3.Error:
            continue
        break
    return last


def _pages(connection: sqlite3.Connection, damage: Damage, after: int, upto: int) -> Iterator[list[Row]]:
    # One query per page: with a single open cursor, a slow reader would block the store's checkpoints.
    while after < upto:
        page: list[Row] | None = None
        with contextlib.suppress(sqlite3.DatabaseError):
            page = connection.execute(_PAGE, (after, upto)).fetchall()
        if page is None or not all(map(_plausible, page)):
            damage.tree = True
            found = {number: _one(connection, number) for number in range(after + 1, upto + 1)}
            damage.unreadable += [number for number, row in found.items() if row is None]
            yield [row for row in found.values() if row]
            return
        last = page[-1][0] if len(page) == _PAGE_ROWS else upto
        if [row[0] for row in page] != list(range(after + 1, last + 1)):
            page = _find_missing_rows(connection, damage, page, range(after + 1, last + 1))
        yield page
        after = last


def _find_missing_rows(connection: sqlite3.Connection, damage: Damage, page: list[Row], numbers: range) -> list[Row]:
    """Look up each missing row by its number, because a broken tree may skip or repeat rows."""
    found = {row[0]: row for row in page if row[0] in numbers}
    damage.tree = damage.tree or list(found) != sorted(found) or len(found) != len(page)
    for number in numbers:
        if number not in found and (row := _one(connection, number)):
            found[number] = row
            damage.tree = True
    return [found[number] for number in sorted(found)]


def _one(connection: sqlite3.Connection, number: int) -> Row | None:
    with contextlib.suppress(sqlite3.DatabaseError):
        row = connection.execute(_ONE, (number,)).fetchone()
        return row if row and _plausible(row) and row[0] == number else None
    return None


def _plausible(raw: tuple[object, ...]) -> TypeGuard[Row]:
    return [type(one) for one in raw] == [int, bytes, bytes, bytes, bytes]


def repair_header(path: Path) -> sqlite3.Connection | None:
    """Copy a store into memory, with its damaged first page replaced by a fresh one; None if it has no events.

    The first page holds SQLite's header and our table definition, never events. Changes nothing on disk.
    """
    with tempfile.TemporaryDirectory() as name:
        fresh, copy = Path(name, "fresh.sqlite"), Path(name, "copy.sqlite")
        try:
            connect(fresh).close()
            shutil.copyfile(path, copy)
            if (log := Path(f"{path}-wal")).exists():
                shutil.copyfile(log, f"{copy}-wal")
            first = bytearray(fresh.read_bytes()[:_PAGE_BYTES])
            first[_VALID_FOR] = b"\xff\xff\xff\xff"
            with copy.open("r+b") as file:
                file.write(first)
            opened = connect(copy)
        except (LogError, OSError):
            return None
        try:
            memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            memory.text_factory = bytes
            opened.backup(memory)
            memory.execute("PRAGMA writable_schema = ON")  # so `is_sound` is False: read it, do not write
            return memory if last_row(memory)[0] else None
        except sqlite3.Error:
            return None
        finally:
            opened.close()


class Head:
    """A file next to the store that holds the number of the last acknowledged event.

    It is written after the commit and never synced, so it can lag behind the store but not run ahead of
    it. If it is ahead, acknowledged events have been lost.
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
