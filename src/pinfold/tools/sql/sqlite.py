"""SQLite, limited to reading by the library itself: opened read-only, and an authorizer checks every step."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from urllib.parse import quote

from pinfold.events import Json
from pinfold.tools.sql.arrow_tables import Bounds, QueryResult, to_table
from pinfold.tools.sql.files import FileCheck, FileEngine
from pinfold.tools.sql.sources import Source
from pinfold.tools.sql.statements import SQLITE_PRAGMAS, SQLITE_PRAGMAS_OF, SQLITE_REFUSED, Statement

_STEPS = 20_000
"""Virtual machine steps between two checks of the time limit."""
_ROWS = 10_000
"""Maximum rows held as Python values at a time."""
_READING = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE)
_SIDE_FILES = ("-wal", "-journal")


class SQLite(FileEngine):
    def __init__(self, source: Source) -> None:
        """Open the file. Raises Refused, DatabaseFault."""
        super().__init__(source, sqlite3.Error)
        self._ends = float("inf")
        opened = FileCheck(source, _SIDE_FILES)
        how = "mode=ro&immutable=1" if opened.is_changeable else "mode=ro"
        with self._faults():
            self._connection = sqlite3.connect(
                f"file:{quote(opened.path)}?{how}",
                uri=True,
                isolation_level=None,
                check_same_thread=False,
                timeout=source.timeout_s,
            )
        with self._faults(), ExitStack() as on_failure:
            on_failure.callback(self._connection.close)
            for setting in ("query_only = 1", "trusted_schema = 0", "mmap_size = 0", "temp_store = memory"):
                self._connection.execute(f"PRAGMA {setting}")
            self._connection.execute("PRAGMA schema_version").fetchall()
            opened.check()
            on_failure.pop_all()
        # Limit values to the size of a result, and forbid attaching other databases.
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, min(source.max_bytes, (1 << 31) - 1))
        self._connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._connection.set_authorizer(_authorize)
        self._connection.set_progress_handler(self._check_time, _STEPS)

    def query(self, statement: Statement, bounds: Bounds, params: Json = None) -> QueryResult:
        """Run a statement. Raises Refused, DatabaseFault."""
        self._ends = time.monotonic() + self._timeout_s
        with self._faults():
            try:
                return self._rows(statement.text, bounds, params)
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
                self._connection.text_factory = partial(str, encoding="utf-8", errors="replace")
                return self._rows(statement.text, bounds, params)

    def ask(self, sql: str) -> list[dict[str, Json]]:
        """Run a query of Pinfold's own."""
        self._ends = time.monotonic() + self._timeout_s
        with self._faults():
            cursor = self._connection.execute(sql)
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def _rows(self, sql: str, bounds: Bounds, params: Json) -> QueryResult:
        cursor = self._connection.execute(sql, params if params is not None else ())
        return to_table([column[0] for column in cursor.description or ()], _until(cursor, bounds), bounds)

    def _check_time(self) -> bool:
        self._is_out_of_time = time.monotonic() > self._ends
        return self._is_out_of_time


def _until(cursor: sqlite3.Cursor, bounds: Bounds) -> Iterator[list[tuple[object, ...]]]:
    """Yield rows in pieces, until there are more than the bounds allow."""
    held = 0
    while rows := cursor.fetchmany(_ROWS):
        yield rows
        held += len(rows)
        if held > bounds.rows:
            return


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, _by: str | None) -> int:
    match action:
        case sqlite3.SQLITE_FUNCTION:
            allowed = (second or "").lower() not in SQLITE_REFUSED
        case sqlite3.SQLITE_PRAGMA:
            name = (first or "").lower()
            allowed = name in SQLITE_PRAGMAS_OF or (name in SQLITE_PRAGMAS and second is None)
        case sqlite3.SQLITE_UPDATE:
            # SQLite asks for this on first use of a virtual table (json_each, full text). Nothing can be written.
            allowed = first == "sqlite_master"
        case _:
            allowed = action in _READING
    return sqlite3.SQLITE_OK if allowed else sqlite3.SQLITE_DENY
