"""One interface to all supported databases: parses a request, runs it, and returns a table. Runs in the worker."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from pinfold.events import Json
from pinfold.tools.sql.arrow_tables import TRUNCATED, Bounds, PyArrow, QueryResult, pa, preview
from pinfold.tools.sql.sources import TABLES, Kind, Source, WorkerReply
from pinfold.tools.sql.statements import Piece, Refused, Statement, clean, pieces_of, read_statement

Params = Sequence[Json] | Mapping[str, Json]
_FOREIGN = re.compile(r"%s\b|%\(\w+\)s")
COLUMNS = 200
_POSTGRES = f"""
SELECT n.nspname::text AS schema, c.relname::text AS name,
  CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'materialized view' WHEN 'f' THEN 'foreign table' ELSE 'table' END
    AS kind,
  CASE WHEN c.reltuples >= 0 AND c.relkind IN ('r', 'm', 'p') THEN c.reltuples::int8 END AS rows,
  ARRAY(SELECT a.attname::text FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum LIMIT {COLUMNS}) AS names,
  ARRAY(SELECT pg_catalog.format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
    FROM pg_catalog.pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum LIMIT {COLUMNS}) AS types
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition AND n.nspname !~ '^pg_'
  AND n.nspname <> 'information_schema' AND has_schema_privilege(n.oid, 'USAGE')
  AND has_any_column_privilege(c.oid, 'SELECT')
ORDER BY n.nspname <> 'public', n.nspname, c.relname LIMIT {TABLES + 1}
"""
_SQLITE = f"""
SELECT 'main' AS schema, name, type AS kind FROM sqlite_schema
WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\' ORDER BY name LIMIT {TABLES + 1}
"""
_DUCKDB = f"""
SELECT c.schema_name AS schema, c.table_name AS name, any_value(coalesce(t.kind, 'view')) AS kind,
  any_value(t.rows) AS rows, list(c.column_name ORDER BY c.column_index)[:{COLUMNS}] AS names,
  list(c.data_type || CASE WHEN c.is_nullable THEN '' ELSE ' not null' END ORDER BY c.column_index)[:{COLUMNS}] AS types
FROM duckdb_columns() c LEFT JOIN
  (SELECT schema_name, table_name, 'table' AS kind, estimated_size AS rows FROM duckdb_tables()) t
  USING (schema_name, table_name)
WHERE NOT c.internal GROUP BY ALL ORDER BY 1, 2 LIMIT {TABLES + 1}
"""


_LISTINGS: dict[Kind, str] = {"postgresql": _POSTGRES, "sqlite": _SQLITE, "duckdb": _DUCKDB}


def inventory(engine: Engine, source: Source) -> list[dict[str, Json]]:
    """List the tables with their columns; `rows` is the database's estimate, or None."""
    found = engine.ask(_LISTINGS[source.kind])
    tables: list[dict[str, Json]] = []
    for row in found:
        if source.kind == "sqlite":
            columns = _sqlite_columns(engine, row["name"])
        else:
            columns = dict(zip(row["names"], row["types"], strict=True))
        told = {key: row.get(key) for key in ("schema", "name", "kind", "rows")}
        tables.append({"database": source.name, **told, "columns": columns})
    return tables


def _sqlite_columns(engine: Engine, table: str) -> dict[str, str]:
    name = table.replace("'", "''")
    columns = engine.ask(f"SELECT name, type, \"notnull\" FROM pragma_table_xinfo('{name}') LIMIT {COLUMNS}")
    return {one["name"]: f"{one['type'] or 'any'}{' not null' if one['notnull'] else ''}" for one in columns}


class Engine(Protocol):
    """An open database."""

    def query(self, statement: Statement, bounds: Bounds, params: Json = None) -> QueryResult: ...
    def ask(self, sql: str) -> list[dict[str, Json]]: ...
    def cancel(self) -> None: ...
    def close(self) -> None: ...
    def is_as_new(self) -> bool: ...


def open_engine(source: Source) -> Engine:
    """Open a database. Raises Refused, DatabaseFault, ImportError."""
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


def run_request(engine: Engine, source: Source, sql: str | None, params: Json, shared_file: int) -> WorkerReply:
    """Run a statement, or list the tables. Raises Refused, DatabaseFault."""
    if sql is None:
        return WorkerReply(value=inventory(engine, source))
    is_bound = source.kind == "postgresql"
    statement = read_statement(bind_params(sql, params) if is_bound else sql, source.kind)
    bounds = Bounds(source.max_rows, source.max_bytes)
    found = engine.query(statement, bounds, None if is_bound else params)
    table = found.table.replace_schema_metadata({TRUNCATED: found.cut.encode()} if found.cut else None)
    return WorkerReply(text=preview(table, found.cut), size=_put(table, shared_file), came=table.nbytes)


def _put(table: PyArrow, shared_file: int) -> int:
    os.ftruncate(shared_file, 0)
    os.lseek(shared_file, 0, os.SEEK_SET)
    with os.fdopen(os.dup(shared_file), "wb") as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        return file.tell()


def bind_params(sql: str, params: Params | None) -> str:
    """Put values into a statement for PostgreSQL: `$1`, `$2` ... for a list, `:name` for a dictionary. Raises Refused.

    The driver's fastest way to fetch rows takes no parameters. The values become untyped literals, so `day = $1` works
    for a date given as text; the result is checked like any other statement.
    """
    if params is None:
        return sql
    text = clean(sql)
    if _FOREIGN.search(text):
        raise Refused("write $1, $2 ... for params in a list, or :name for a dictionary; not %s")
    named = isinstance(params, Mapping)
    values: Mapping[Json, Json] = params if named else {str(at): value for at, value in enumerate(params, start=1)}
    sign = ":" if named else "$"
    used: set[str] = set()
    parts: list[str] = []
    at = 0
    pieces = pieces_of(text, "postgresql")
    for mark, name in _marks(pieces, sign):
        if name.text not in values:
            given = ", ".join(f"{sign}{one}" for one in values) or "none"
            raise Refused(f"the statement names {sign}{name.text}, and params has {given}")
        used.add(name.text)
        parts += [text[at : mark.start], literal(values[name.text])]
        at = name.end
    if unused := [f"{sign}{name}" for name in values if name not in used]:
        raise Refused(f"params has {', '.join(unused)}, which the statement does not name")
    return "".join([*parts, text[at:]])


def _marks(pieces: tuple[Piece, ...], sign: str) -> list[tuple[Piece, Piece]]:
    found: list[tuple[Piece, Piece]] = []
    for before, mark, name in zip((None, *pieces), pieces, pieces[1:], strict=False):
        touches = mark.text == sign and mark.end == name.start
        # In `x[1:n]`, `:n` is part of a slice.
        is_slice = sign == ":" and before is not None and before.end == mark.start and before.text != "("
        fits = name.text.isdigit() if sign == "$" else name.is_word
        if touches and fits and not is_slice:
            found.append((mark, name))
    return found


def literal(value: Json) -> str:
    """Return a value as a PostgreSQL literal. Raises Refused."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "TRUE" if value else "FALSE"
        case int():
            return f"({value})" if value < 0 else str(value)
        case float():
            plain = repr(value) if math.isfinite(value) else f"'{value}'::float8"
            return f"({plain})" if plain.startswith("-") else plain
        case str():
            if "\0" in value:
                raise Refused("a text of params has a zero byte, which PostgreSQL cannot hold")
            return "'" + value.replace("'", "''") + "'"
        case bytes():
            return f"'\\x{value.hex()}'::bytea"
        case list() | tuple():
            inside = ", ".join(literal(one) for one in cast("Sequence[Json]", value))
            return f"ARRAY[{inside}]" if inside else "'{}'"
        case _:
            raise Refused(f"params cannot hold a {type(value).__name__}; give text, numbers, booleans, null or lists")
