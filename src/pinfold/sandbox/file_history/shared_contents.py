"""File contents that all sessions of a workspace share, so that each file is read once, not once per session.

A content is found by the stamp of the file it was read from. Small contents are rows of a SQLite file, because creating
a file for each takes many times as long; larger ones are files.

What a session needs for undo is kept as long as the session; other contents of files that are gone, for some days.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import sqlite3
import time
from collections.abc import Collection, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Lock

from pinfold.sandbox.file_history.store import Damaged, NoRoom, Store, read_small, write_at
from pinfold.sandbox.kernel.folders import hold_lock, remove_folder, try_lock
from pinfold.sandbox.kernel.safe_files import Stamp

LINK = "contents"
"""The symlink in a history's folder that points to the shared contents it uses."""
SHARE = 0.75
"""The largest share of the room for what is read at the start; the rest is for what cells make."""
SETTLED_S = 60.0
"""The age a change must have before another session trusts the file's stamp. Until its pages are on the disk, a program
that has mapped the file can change it again without a trace."""
GRACE_DAYS = 7
"""Days to keep the content of a file that is gone: a session whose owner was killed in a cell may resume and undo."""
_AT_ONCE, _AT_ONCE_BYTES = 64, 1 << 20
"""Contents to collect before they are written together."""
_REMOVED_AT_ONCE = 1000
_BUSY_S = 10.0
# A stamp is stored as JSON: some file systems have inodes and times that do not fit an INTEGER of SQLite.
_TABLES = """
CREATE TABLE IF NOT EXISTS content (digest BLOB PRIMARY KEY, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS stamp (stamp TEXT PRIMARY KEY, digest BLOB NOT NULL, used_day INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS need (owner TEXT, digest BLOB, PRIMARY KEY (owner, digest)) WITHOUT ROWID;
CREATE VIEW IF NOT EXISTS needed AS SELECT digest FROM stamp UNION SELECT digest FROM need;
"""

_REMOVE = "DELETE FROM content WHERE digest IN (SELECT digest FROM content WHERE digest NOT IN needed LIMIT ?)"


class SharedContents:
    """Safe for two threads at once. Failures raise OSError; lack of room raises NoRoom."""

    def __init__(self, folder: Path, *, total: int, largest: int, settled_s: float = SETTLED_S) -> None:
        self._folder = folder.resolve()
        self._total = total
        self._settled_ns = int(settled_s * 1e9)
        self._hold = _hold(folder)
        try:
            self._large = Store(folder / "large", total=total, largest=largest)
        except OSError:
            os.close(self._hold)
            raise
        self._lock = Lock()
        self._connection: sqlite3.Connection | None = None
        self._contents: dict[str, bytes] = {}
        self._stamps: list[tuple[Stamp, str]] = []
        self._small_bytes = 0

    def load(self) -> dict[Stamp, str]:
        """Return the digest of every file that was read, by its stamp, without contents lost in a power cut."""
        with self._database() as database:
            rows = database.execute(
                "SELECT stamp, digest, rowid IS NOT NULL FROM stamp LEFT JOIN content USING (digest)"
            )
            found = [(Stamp(*json.loads(stamp)), digest.hex(), is_small) for stamp, digest, is_small in rows]
        return {
            stamp: digest for stamp, digest, is_small in found if is_small or self._large.size(digest) == stamp.size
        }

    def trusts(self, stamp: Stamp) -> bool:
        """Return True if this stamp is old enough to identify the file's content."""
        return stamp.ctime_ns < time.time_ns() - self._settled_ns

    def take(self, fd: int) -> str:
        """Store the content of an open file and return its digest. Raises NoRoom and TooLarge."""
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
        """Record that the file with this stamp holds this content, which `take` has stored."""
        with self._lock:
            self._stamps.append((stamp, digest))

    def flush(self) -> None:
        """Write what was taken and noted, so that the next session has it even if this process is killed."""
        if self._contents or self._stamps:
            with self._database() as database:
                self._write(database)

    def has(self, digest: str) -> bool:
        try:
            return self._large.has(digest) or self._read(digest) is not None
        except OSError:
            return False

    def read(self, digest: str) -> bytes:
        data = self._read(digest)
        return self._large.read(digest) if data is None else data

    def copy(self, digest: str, fd: int) -> None:
        """Write a content into an empty file. Raises Damaged."""
        data = self._read(digest)
        if data is None:
            self._large.copy(digest, fd)
        elif hashlib.sha256(data).hexdigest() != digest:
            raise Damaged(0, "its content was damaged in the store")
        else:
            write_at(fd, data, 0)

    def keep(self, digests: Iterable[str], owner: Path) -> None:
        """Keep these contents as long as the folder `owner` exists."""
        rows = [(self._name(owner), bytes.fromhex(digest)) for digest in digests]
        self.flush()
        with self._database() as database, _transaction(database):
            database.executemany("INSERT OR IGNORE INTO need VALUES (?, ?)", rows)

    def keep_for_copy(self, owner: Path, copy: Path) -> None:
        with self._database() as database:
            names = [self._name(copy), self._name(owner)]
            database.execute("INSERT OR IGNORE INTO need SELECT ?, digest FROM need WHERE owner = ?", names)

    def clean(self, current: Collection[Stamp]) -> None:
        """Forget contents of files that are gone for some days, unless another open session may need them."""
        today = int(time.time() / 86400)
        grace_days = GRACE_DAYS if self._has_room(self._total // 4) else 0
        self.flush()
        with self._database() as database:
            rows = database.execute("SELECT stamp FROM stamp WHERE used_day < ?", [today]).fetchall()
            used = [(today, stamp) for (stamp,) in rows if Stamp(*json.loads(stamp)) in current]
            with _transaction(database):
                database.executemany("UPDATE stamp SET used_day = ? WHERE stamp = ?", used)
            with self._alone() as is_alone:
                has_forgotten = is_alone and self._forget(database, since_day=today - grace_days)
        while has_forgotten:  # releases the lock after each step, so that other sessions wait little
            with self._database() as database, self._alone() as is_alone:
                has_forgotten = is_alone and self._remove_some(database)

    def _forget(self, database: sqlite3.Connection, *, since_day: int) -> bool:
        """Drop records of old stamps and removed owners. True if there were any."""
        self._large.remove_partials()
        owners = database.execute("SELECT DISTINCT owner FROM need").fetchall()
        gone = [(owner,) for (owner,) in owners if not (self._folder / owner).exists()]
        with _transaction(database):
            stamps = database.execute("DELETE FROM stamp WHERE used_day < ?", [since_day])
            database.executemany("DELETE FROM need WHERE owner = ?", gone)
        return stamps.rowcount > 0 or bool(gone)

    def _remove_some(self, database: sqlite3.Connection) -> bool:
        """Remove some contents that are not needed. True if there may be more."""
        if database.execute(_REMOVE, [_REMOVED_AT_ONCE]).rowcount:
            database.executescript("PRAGMA incremental_vacuum")  # `execute` would free one page
            return True
        self._large.drop({digest.hex() for (digest,) in database.execute("SELECT digest FROM needed")})
        return False

    def rest(self) -> None:
        """Write what waits and close the database, to free its memory until the next use."""
        with suppress(OSError):
            self.flush()
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def close(self) -> None:
        self.rest()
        with self._lock:
            if self._hold >= 0:
                os.close(self._hold)
                self._hold = -1

    def _name(self, owner: Path) -> str:
        """Return the owner's path relative to this folder, which stays right if both are moved together."""
        return os.path.relpath(owner.resolve(), self._folder)

    def _has_room(self, size: int) -> bool:
        return self._small_bytes + self._large.used + size <= self._total * SHARE

    def _read(self, digest: str) -> bytes | None:
        if (data := self._contents.get(digest)) is not None:
            return data
        with self._database() as database:
            row = database.execute("SELECT data FROM content WHERE digest = ?", [bytes.fromhex(digest)]).fetchone()
        return row[0] if row else None

    @contextmanager
    def _database(self) -> Generator[sqlite3.Connection]:
        with self._lock:
            if self._hold < 0:
                raise OSError(errno.EBADF, "closed")
            try:
                if self._connection is None:
                    self._connection = self._open()
                yield self._connection
            except sqlite3.Error as error:
                raise OSError(errno.EIO, f"{self._folder}: {error}") from error

    def _open(self) -> sqlite3.Connection:
        try:
            return self._connect()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError:  # the file is damaged
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
        stamps = [(json.dumps(stamp), bytes.fromhex(digest), today) for stamp, digest in self._stamps]
        with _transaction(database):
            database.executemany("INSERT OR IGNORE INTO content VALUES (?, ?)", rows)
            database.executemany("INSERT OR REPLACE INTO stamp VALUES (?, ?, ?)", stamps)
        self._small_bytes += sum(map(len, self._contents.values()))
        self._contents.clear()
        self._stamps.clear()

    @contextmanager
    def _alone(self) -> Generator[bool]:
        """Try to exclude other sessions of the workspace for the duration; yield False if one is open."""
        try:
            yield try_lock(self._hold)
        finally:
            fcntl.flock(self._hold, fcntl.LOCK_SH)  # a failed upgrade may have lost the shared lock


def link_contents(store: Path, folder: Path) -> Path:
    """Return a history's folder of shared contents: the first one linked, even if the workspace has moved since."""
    link = store / LINK
    if not link.is_symlink():
        link.symlink_to(os.path.relpath(folder.resolve(), store.resolve()))
    return link.resolve()


def keep_for_copy(store: Path, copy: Path) -> None:
    """Keep the shared contents that a history needs for its copy too."""
    if (folder := store / LINK).is_dir():
        shared = SharedContents(folder.resolve(), total=0, largest=0)
        try:
            shared.keep_for_copy(store, copy)
        finally:
            shared.close()


def remove_shared_contents(folder: Path) -> bool:
    """Remove the shared contents unless a session is open in the workspace. True if they are gone."""
    try:
        hold = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # the folder is gone, or belongs to another user
        return not folder.exists()
    try:
        return try_lock(hold) and remove_folder(folder)
    except OSError:
        return False
    finally:
        os.close(hold)


def _hold(folder: Path) -> int:
    """Lock the folder, so that it is not removed and its contents are not forgotten. Return the descriptor."""
    while True:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with ExitStack() as on_failure:
            fd = hold_lock(folder)
            on_failure.callback(os.close, fd)
            with suppress(FileNotFoundError):  # the folder was removed at that moment
                if os.path.samestat(os.fstat(fd), folder.stat()):
                    on_failure.pop_all()
                    return fd


@contextmanager
def _transaction(database: sqlite3.Connection) -> Generator[None]:
    database.execute("BEGIN IMMEDIATE")
    with database:
        yield
