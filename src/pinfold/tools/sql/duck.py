"""DuckDB, limited to reading by the library itself: one read-only file, no extensions, locked settings."""

from __future__ import annotations

import re
import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from pinfold.events import Json
from pinfold.tools.sql.arrow_tables import Bounds, PyArrow, QueryResult, as_decimals, gather_rows, pa, refuse_infinite
from pinfold.tools.sql.files import FileCheck, FileEngine
from pinfold.tools.sql.sources import Source
from pinfold.tools.sql.statements import Statement

duckdb: Any = import_module("duckdb")
THREADS = 2
MEMORY_MB = 1024
_ROWS = 20_000
_AS_TEXT = ("UHUGEINT", "BIGNUM", "VARINT", "BIT", "TIME WITH TIME ZONE", "TIMETZ", "GEOMETRY", "VARIANT")
"""Types that Arrow would change: numbers that are too wide, times that would lose their zone."""
_NUMBERS = _AS_TEXT[:3]
_LOCKED = ("temp_directory = ''", "enable_external_access = false", "lock_configuration = true")
"""Applied in this order: the last one forbids further settings."""


class DuckDB(FileEngine):
    def __init__(self, source: Source) -> None:
        """Open the file. Raises Refused, DatabaseFault."""
        super().__init__(source, duckdb.Error)
        opened = FileCheck(source, (".wal",))
        settings = {
            "threads": THREADS,
            "memory_limit": f"{max(MEMORY_MB, 2 * (source.max_bytes >> 20))}MB",
            "allow_community_extensions": False,
            "allow_unsigned_extensions": False,
            "autoinstall_known_extensions": False,
            "autoload_known_extensions": False,
            "python_enable_replacements": False,
        }
        with self._faults():
            self._connection = duckdb.connect(opened.path, read_only=True, config=settings)
        with ExitStack() as on_failure:
            on_failure.callback(self._connection.close)
            opened.check()
            with self._faults():
                for setting in _LOCKED:
                    self._connection.execute(f"SET {setting}")
            on_failure.pop_all()

    def query(self, statement: Statement, bounds: Bounds, params: Json = None) -> QueryResult:
        """Run a statement. Raises Refused, DatabaseFault."""
        with self._in_time(), self._faults():
            if statement.form == "told":
                told = self._connection.sql(statement.text, params=params).to_arrow_table()
                return gather_rows(told.to_batches(), told.schema, bounds)
            asked = self._connection.sql(statement.text, params=params)
            kinds = [str(kind) for kind in asked.types]
            names, relation = list(asked.columns), asked
            if any(map(_cast, kinds)):
                columns = ", ".join(f"c{at}{_cast(kind)}" for at, kind in enumerate(kinds))
                aliases = ", ".join(f"c{at}" for at in range(len(kinds)))
                wrapped = f"SELECT {columns} FROM (\n{statement.text}\n) AS q({aliases})"
                relation = self._connection.sql(wrapped, params=params)
            reader = relation.to_arrow_reader(_ROWS)
            found = gather_rows(iter(reader), reader.schema, bounds)
            return _plain(found, names, kinds)

    def ask(self, sql: str) -> list[dict[str, Json]]:
        """Run a query of Pinfold's own."""
        with self._in_time(), self._faults():
            return self._connection.sql(sql).to_arrow_table().to_pylist()

    @contextmanager
    def _in_time(self) -> Generator[None]:
        def end() -> None:
            self._is_out_of_time = True
            self.cancel()

        timer = threading.Timer(self._timeout_s, end)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()


def _cast(kind: str) -> str:
    """Return the cast for a type that Arrow cannot carry unchanged; empty for others."""
    return "::VARCHAR" if any(re.search(rf"\b{name}\b", kind) for name in _AS_TEXT) else ""


def _plain(found: QueryResult, names: list[str], kinds: list[str]) -> QueryResult:
    """Restore the requested column names and exact numbers."""
    columns: list[PyArrow] = []
    fields: list[PyArrow] = []
    for column, name, kind in zip(found.table.columns, names, kinds, strict=True):
        refuse_infinite(column, name)
        columns.append(as_decimals(column) if kind in _NUMBERS else column)
        fields.append(pa.field(name, columns[-1].type, metadata={"sql:type": kind}))
    return QueryResult(pa.table(columns, schema=pa.schema(fields)), found.cut)
