"""One SQLite file that several processes may use at once: private, in transactions, brought to the present schema when opened."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pinfold.events import PinfoldError

_WAIT_S = 10.0
"""How long to wait for another process that writes."""

_MAPPED = 1 << 28
"""Bytes of the file that are read without copying."""


class MemoryUnusable(PinfoldError):
    """The file is damaged, was written by a newer Pinfold, or cannot be opened. The message says what to do."""

    is_passing = False
    """Another process has the file, or the disk is full: it is not the file's fault."""


class Database:
    """`steps` holds the statements that lead from each version of the schema to the next; a new file takes all of them."""

    def __init__(self, file: Path, steps: Sequence[Sequence[str]]) -> None:
        self.file = file
        self._steps = steps

    @contextmanager
    def open(self, *, write: bool = False) -> Generator[sqlite3.Connection]:
        """One transaction, all or nothing. With `write`, a missing file is made. Raises MemoryUnusable."""
        try:
            if write:
                self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                # Created with mode 0600; SQLite gives its side files the same mode.
                os.close(os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
            connection = sqlite3.connect(self.file, timeout=_WAIT_S, isolation_level=None)
        except (OSError, sqlite3.Error) as error:
            raise MemoryUnusable(f"{self.file} cannot be opened: {error}; fix its permissions") from error
        try:
            if write:  # the file keeps the mode it was made with
                connection.execute("PRAGMA journal_mode = WAL")
                connection.execute("PRAGMA secure_delete = ON")
            connection.execute(f"PRAGMA mmap_size = {_MAPPED}")
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            self._prepare(connection, write=write)
            yield connection
            connection.execute("COMMIT")
        except sqlite3.DatabaseError as error:
            failure = MemoryUnusable(self._describe_error(error))
            failure.is_passing = any(word in str(error) for word in ("locked", "full"))
            raise failure from error
        finally:
            connection.close()

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
