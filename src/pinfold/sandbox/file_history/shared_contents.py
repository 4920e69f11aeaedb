"""What the files of a workspace hold, kept for all its sessions: each file is read once, not once in every session.

A content is found by the stamp of the file that it was read from. Small contents are rows of a SQLite file, because creating
a file for each takes many times as long; larger ones are files.

What a session needs to go back is kept as long as the session; other contents of files that are gone, for some days.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import sqlite3
import time
from collections.abc import Collection, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock

from pinfold.sandbox.file_history.store import Damaged, NoRoom, Store, read_small, write_at
from pinfold.sandbox.kernel.folders import remove_folder
from pinfold.sandbox.kernel.safe_files import Stamp

SHARE = 0.75
"""Of the room, at most, for what is read at the start; the rest is for what cells make."""
GRACE_DAYS = 7
"""For which a file that is gone is kept: a session whose owner was killed in a cell may still go on, and undo it."""
_AT_ONCE, _AT_ONCE_BYTES = 64, 1 << 20
"""Contents that are written together."""
_BUSY_S = 10.0
_TABLES = """
CREATE TABLE IF NOT EXISTS content (digest BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS stamp (
    inode INTEGER, size INTEGER, mtime_ns INTEGER, ctime_ns INTEGER, mode INTEGER, digest BLOB NOT NULL, used_day INTEGER,
    PRIMARY KEY (inode, ctime_ns)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS need (owner TEXT, digest BLOB, PRIMARY KEY (owner, digest)) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS needed AS SELECT digest FROM stamp UNION SELECT digest FROM need;
"""


class SharedContents:
    """Used by two threads at once. Whatever fails raises OSError, and what needs room NoRoom."""

    def __init__(self, folder: Path, *, total: int, largest: int) -> None:
        self._folder = folder
        self._total = total
        self._hold = _hold(folder)
        self._large = Store(folder / "large", total=total, largest=largest)
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._contents: dict[str, bytes] = {}
        self._stamps: list[tuple[Stamp, str]] = []
        self._small_bytes = 0
        self._is_closed = False

    def load(self) -> dict[Stamp, str]:
        """The digest of every file that was read, by its stamp."""
        with self._database() as database:
            rows = database.execute("SELECT inode, size, mtime_ns, ctime_ns, mode, digest FROM stamp")
            return {Stamp(*stamp): digest.hex() for *stamp, digest in rows}

    def take(self, fd: int) -> str:
        """The content of an open file, by its hash. Raises NoRoom and TooLarge."""
        data = read_small(fd)
        if not self._has_room(os.fstat(fd).st_size):
            raise NoRoom
        if data is None:
            return self._large.take(fd)
        digest = hashlib.sha256(data).hexdigest()
        with self._lock:
            self._contents[digest] = data
            is_much = len(self._contents) >= _AT_ONCE or sum(map(len, self._contents.values())) >= _AT_ONCE_BYTES
        if is_much:
            self.flush()
        return digest

    def note(self, stamp: Stamp, digest: str) -> None:
        """A file with this stamp holds this content, which was taken."""
        with self._lock:
            self._stamps.append((stamp, digest))

    def flush(self) -> None:
        """What was taken and noted is there for the next session, even if this process is killed."""
        if not self._contents and not self._stamps:
            return
        with self._database():
            pass

    def has(self, digest: str) -> bool:
        return self._large.has(digest) or self._read(digest) is not None

    def read(self, digest: str) -> bytes:
        data = self._read(digest)
        return self._large.read(digest) if data is None else data

    def copy(self, digest: str, fd: int) -> None:
        """Into an empty file. Raises Damaged."""
        data = self._read(digest)
        if data is None:
            self._large.copy(digest, fd)
        elif hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(0, "its content was damaged in the store")
        else:
            write_at(fd, data, 0)

    def keep(self, digests: Iterable[str], owner: Path) -> None:
        """As long as this folder is there."""
        rows = [(str(owner), bytes.fromhex(digest)) for digest in digests]
        with self._database() as database, _transaction(database):
            database.executemany("INSERT OR IGNORE INTO need VALUES (?, ?)", rows)

    def clean(self, current: Collection[Stamp]) -> None:
        """Forget what files held that are gone for some days, unless another session is open that may need it."""
        today = int(time.time() / 86400)
        grace_days = GRACE_DAYS if self._has_room(self._total // 4) else 0
        with self._database() as database:
            rows = database.execute(
                "SELECT inode, size, mtime_ns, ctime_ns, mode FROM stamp WHERE used_day < ?", [today]
            )
            used = [(today, stamp[0], stamp[3]) for stamp in rows.fetchall() if stamp in current]
            with _transaction(database):
                database.executemany("UPDATE stamp SET used_day = ? WHERE inode = ? AND ctime_ns = ?", used)
            with self._alone() as is_alone:
                if is_alone:
                    self._remove_unneeded(database, since_day=today - grace_days)

    def _remove_unneeded(self, database: sqlite3.Connection, *, since_day: int) -> None:
        self._large.remove_partials()
        owners = [
            (owner,) for (owner,) in database.execute("SELECT DISTINCT owner FROM need") if not Path(owner).exists()
        ]
        with _transaction(database):
            stamps = database.execute("DELETE FROM stamp WHERE used_day < ?", [since_day])
            database.executemany("DELETE FROM need WHERE owner = ?", owners)
        if stamps.rowcount or owners:
            database.execute("DELETE FROM content WHERE digest NOT IN (SELECT digest FROM needed)")
            database.execute("PRAGMA incremental_vacuum")
            self._large.drop({digest.hex() for (digest,) in database.execute("SELECT digest FROM needed")})

    def rest(self) -> None:
        """Write what waits, and hold no more memory than needed until it is used again."""
        with suppress(OSError):
            self.flush()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def close(self) -> None:
        self.rest()
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                os.close(self._hold)

    def _has_room(self, size: int) -> bool:
        return self._small_bytes + self._large.used + size <= self._total * SHARE

    def _read(self, digest: str) -> bytes | None:
        if data := self._contents.get(digest):
            return data
        with self._database() as database:
            row = database.execute("SELECT data FROM content WHERE digest = ?", [bytes.fromhex(digest)]).fetchone()
        return row[0] if row else None

    @contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        """With everything in it that was taken and noted."""
        with self._lock:
            if self._is_closed:
                raise OSError(errno.EBADF, "closed")
            try:
                if self._connection is None:
                    self._connection = self._open()
                if self._contents or self._stamps:
                    self._write(self._connection)
                yield self._connection
            except sqlite3.Error as error:
                raise OSError(errno.EIO, f"{self._folder}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # it is damaged
            with self._alone() as is_alone:
                if not is_alone:
                    raise
                for file in self._folder.glob("small.sqlite*"):
                    file.unlink()
            return self._connect()

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(
            self._folder / "small.sqlite", timeout=_BUSY_S, isolation_level=None, check_same_thread=False
        )
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA cache_size = -512")
        database.executescript(_TABLES)
        (pages,), (free,), (size,) = (
            database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        self._small_bytes = (pages - free) * size
        return database

    def _write(self, database: sqlite3.Connection) -> None:
        today = int(time.time() / 86400)
        rows = [(bytes.fromhex(digest), data) for digest, data in self._contents.items()]
        stamps = [(*stamp, bytes.fromhex(digest), today) for stamp, digest in self._stamps]
        with _transaction(database):
            database.executemany("INSERT OR IGNORE INTO content VALUES (?, ?)", rows)
            database.executemany("INSERT OR REPLACE INTO stamp VALUES (?, ?, ?, ?, ?, ?, ?)", stamps)
        self._small_bytes += sum(map(len, self._contents.values()))
        self._contents.clear()
        self._stamps.clear()

    @contextmanager
    def _alone(self) -> Generator[bool]:
        """Whether no other session is open in the workspace; none can be opened meanwhile."""
        try:
            fcntl.flock(self._hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            is_alone = False
        try:
            yield is_alone
        finally:
            fcntl.flock(self._hold, fcntl.LOCK_SH)  # asking for more may have cost us what we had


def remove_shared_contents(folder: Path) -> bool:
    """Unless a session is open in the workspace. Whether they are gone."""
    try:
        hold = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(hold, fcntl.LOCK_EX | fcntl.LOCK_NB)
        remove_folder(folder)
    except BlockingIOError:
        return False
    finally:
        os.close(hold)
    return True


def _hold(folder: Path) -> int:
    """Keeps the folder from being removed, and what is in it from being forgotten."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_SH)
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(fd), folder.stat()):
                return fd
        os.close(fd)  # it was removed just then


@contextmanager
def _transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield
