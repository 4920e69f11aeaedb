"""The databases there are drivers for, all asked alike."""

from __future__ import annotations

from typing import Any, Protocol

from pinfold.tools.sql.bounds import Bounds, Gathered
from pinfold.tools.sql.sources import Source
from pinfold.tools.sql.statements import Statement


class Engine(Protocol):
    """An open database."""

    def query(self, statement: Statement, bounds: Bounds, params: Any = None) -> Gathered: ...
    def ask(self, sql: str) -> list[dict[str, Any]]: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    def is_as_new(self) -> bool: ...


def open_engine(source: Source) -> Engine:
    """Raises Refused, DatabaseFault, ImportError."""
    match source.kind:
        case "postgresql":
            from pinfold.tools.sql.postgres import Postgres

            return Postgres(source)
        case "sqlite":
            from pinfold.tools.sql.sqlite import SQLite

            return SQLite(source)
        case "duckdb":
            from pinfold.tools.sql.duck import DuckDB

            return DuckDB(source)
