"""PostgreSQL, limited to reading by the server: a read-only transaction, a time limit, and no privileges but reading.

Nothing here relies on the check of the statement's text.
"""

from __future__ import annotations

import os
import re
from collections.abc import Generator
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from pinfold.events import Json
from pinfold.tools.sql.arrow_tables import (
    Bounds,
    PyArrow,
    QueryResult,
    as_decimals,
    gather_rows,
    pa,
    pc,
    refuse_infinite,
)
from pinfold.tools.sql.sources import Source
from pinfold.tools.sql.statements import HARMLESS, DatabaseFault, Refused, Statement

_DRIVER: Any = import_module("adbc_driver_postgresql.dbapi")
_DRIVER_ERROR: type[Exception] = import_module("adbc_driver_manager").Error
CONNECT_S = 10
_BATCH = 4 << 20
_POWERS = ("pg_execute_server_program", "pg_read_server_files", "pg_write_server_files")
_BEGIN = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
# After its first query, a read-only transaction cannot be made writable any more.
_STANDING = f"""
SELECT current_setting('transaction_read_only') = 'on' AS holds, current_setting('is_superuser') = 'on' AS superuser,
  ARRAY(SELECT rolname::text FROM pg_roles WHERE rolname IN {_POWERS!r} AND pg_has_role(oid, 'MEMBER')) AS powers,
  EXISTS (SELECT FROM pg_roles WHERE rolname = 'pg_read_all_data') AS reader
"""
_VOLATILE = """
SELECT DISTINCT proname::text AS name FROM pg_catalog.pg_proc
WHERE provolatile = 'v' AND prorettype <> 'tsm_handler'::regtype AND proname = ANY({})
"""


class Postgres:
    """One connection, for one statement at a time."""

    def __init__(self, source: Source) -> None:
        """Connect. Raises DatabaseFault."""
        self._source = source
        # Errors may quote the URL, so pass the password in the environment; this process serves only this database.
        if source.address.password:
            os.environ["PGPASSWORD"] = source.address.password
        os.environ.setdefault("PGCONNECT_TIMEOUT", str(CONNECT_S))
        os.environ.setdefault("PGAPPNAME", "pinfold")
        with _faults():
            self._connection: Any = _DRIVER.connect(source.address.where, autocommit=True)

    def cancel(self) -> None:
        """Cancel the running query, from any thread."""
        with suppress(Exception):
            self._connection.adbc_cancel()

    def close(self) -> None:
        with suppress(Exception):
            self._connection.close()

    def is_as_new(self) -> bool:
        """Reset the connection; return True if it can be reused, without any state of the last query."""
        try:
            self._run("DISCARD ALL")
        except Exception:  # noqa: BLE001 - whatever is wrong with it, another is made
            return False
        return True

    def query(self, statement: Statement, bounds: Bounds, params: Json = None) -> QueryResult:
        """Run a statement. `params` are in its text already. Raises Refused, DatabaseFault."""
        assert params is None
        with self._read_only_transaction():
            self._refuse_volatile(statement.called)
            if statement.form == "told":
                return self._rows(statement.text, bounds, copy=False)
            with self._connection.cursor() as cursor:
                plan = _Plan(cursor.adbc_execute_schema(statement.text))
            found = self._rows(plan.wrap_query(statement.text), bounds, copy=True)
            return plan.to_plain(found)

    @contextmanager
    def _read_only_transaction(self) -> Generator[None]:
        """Open a transaction that cannot write. Raises Refused if the server does not confirm that."""
        with _faults():
            self._run(_BEGIN)
            try:
                self._settle()
                yield
            finally:
                with suppress(Exception):
                    self._run("ROLLBACK")

    def _settle(self) -> None:
        limit_ms = int(self._source.timeout_s * 1000)
        for name, value in (
            ("statement_timeout", limit_ms),
            ("lock_timeout", limit_ms),
            ("idle_in_transaction_session_timeout", limit_ms * 2),
            ("standard_conforming_strings", "on"),
            ("default_transaction_read_only", "on"),
        ):
            self._run(f"SET LOCAL {name} = {value}")
        standing = self._fetch(_STANDING)[0]
        if not standing["holds"]:
            raise Refused("the server did not make the transaction read-only, so nothing is run")
        if standing["superuser"]:
            self._step_down(has_reader=standing["reader"])
        elif standing["powers"]:
            words = f"the database user has {', '.join(standing['powers'])}"
            raise Refused(
                f"{words}: queries could reach the server's files or programs; the user must configure another"
            )

    def _step_down(self, *, has_reader: bool) -> None:
        """Switch a superuser to the role `pg_read_all_data`, which can only read."""
        if not has_reader:
            raise Refused("the database user is a superuser of an old server; the user must configure another one")
        self._run("SET LOCAL ROLE pg_read_all_data")
        # Make rows that this role may not see an error; by default they would silently be missing.
        self._run("SET LOCAL row_security = off")
        if self._fetch("SELECT current_setting('is_superuser') = 'on' AS still")[0]["still"]:
            raise Refused("the server did not take the powers of a superuser away, so nothing is run")

    def _refuse_volatile(self, called: frozenset[str]) -> None:
        """Refuse functions that the server declares volatile, which is the default: they may write."""
        asked = sorted(called - HARMLESS - frozenset(self._source.functions))
        if not asked:
            return
        names = ", ".join("'" + name.replace("'", "''") + "'" for name in asked)
        found = [row["name"] for row in self._fetch(_VOLATILE.format(f"ARRAY[{names}]"))]
        if found:
            words = f"the server says that {found[0]}() may change something (it is volatile); do without it"
            raise Refused(f"{words}, or the user can allow it: [data.{self._source.name}] functions = [{found[0]!r}]")

    def ask(self, sql: str) -> list[dict[str, Json]]:
        """Run a query of Pinfold's own."""
        with self._read_only_transaction():
            return self._fetch(sql)

    def _fetch(self, sql: str) -> list[dict[str, Json]]:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)
            return cursor.fetch_arrow_table().to_pylist()

    def _run(self, sql: str) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute(sql)

    def _rows(self, sql: str, bounds: Bounds, *, copy: bool) -> QueryResult:
        with self._connection.cursor() as cursor:
            # Small batches, since rows beyond the bounds would be fetched in vain.
            batch = str(min(_BATCH, max(bounds.bytes // 4, 1 << 16)))
            cursor.adbc_statement.set_options(
                **{"adbc.postgresql.use_copy": str(copy).lower(), "adbc.postgresql.batch_size_hint_bytes": batch}
            )
            cursor.execute(f"{sql}\n")  # else a comment at its end would swallow text the driver appends
            reader = cursor.fetch_record_batch()
            found = gather_rows(iter(reader), reader.schema, bounds)
            if found.cut:
                self.cancel()  # else the rest would be received first, only to be discarded
            return found


class _Plan:
    """Selects columns with casts that let their values arrive unchanged, and converts the result."""

    def __init__(self, schema: PyArrow) -> None:
        self._fields = list(schema)
        self._kinds = [_metadata(field, b"POSTGRESQL:type") for field in self._fields]
        self._casts = [_cast(field, kind) for field, kind in zip(self._fields, self._kinds, strict=True)]
        self._lists = [at for at, kind in enumerate(self._kinds) if kind.startswith("_")]

    def wrap_query(self, sql: str) -> str:
        if not any(self._casts) and not self._lists:
            return sql
        names = [f"c{at}" for at in range(len(self._fields))]
        columns = [f"c{at}{cast}" for at, cast in enumerate(self._casts)]
        # Arrays arrive flattened, so select their number of dimensions too.
        columns += [f"coalesce(array_ndims(c{at}), 0)" for at in self._lists]
        return f"SELECT {', '.join(columns)} FROM (\n{sql}\n) AS q({', '.join(names)})"

    def to_plain(self, found: QueryResult) -> QueryResult:
        columns: list[PyArrow] = list(found.table.columns)
        for at, dimensions in zip(self._lists, columns[len(self._fields) :], strict=True):
            if (pc.max(dimensions).as_py() or 0) > 1:
                words = (
                    f"the column {self._fields[at].name!r} holds arrays of several dimensions, which would arrive flat"
                )
                raise Refused(f"{words}; select to_json(column) instead")
        fields: list[PyArrow] = []
        for at, (field, kind) in enumerate(zip(self._fields, self._kinds, strict=True)):
            columns[at] = _plain(columns[at], field, kind)
            fields.append(pa.field(field.name, columns[at].type, metadata={"sql:type": kind}))
        return QueryResult(pa.table(columns[: len(fields)], schema=pa.schema(fields)), found.cut)


def _metadata(field: PyArrow, key: bytes, default: bytes = b"") -> str:
    metadata: dict[bytes, bytes] = field.metadata or {}
    return metadata.get(key, default).decode()


def _cast(field: PyArrow, kind: str) -> str:
    """Return the cast for a type that Arrow cannot carry unchanged; empty for others."""
    base = kind.removeprefix("_")
    to = {"oid": "int8", "money": "numeric", "uuid": "text", "record": "text"}.get(base, "")
    if not to and base != "numeric" and _is_opaque(field.type):
        to = "text"
    return to and f"::{to}{'[]' if kind.startswith('_') else ''}"


def _is_opaque(type_: PyArrow) -> bool:
    if pa.types.is_list(type_):
        return _is_opaque(type_.value_type)
    if pa.types.is_struct(type_):
        return any(_is_opaque(field.type) for field in type_)
    return getattr(type_, "extension_name", "") == "arrow.opaque"


def _plain(column: PyArrow, field: PyArrow, kind: str) -> PyArrow:
    """Convert a column to types that every reader of Arrow knows."""
    type_ = column.type
    if kind in ("numeric", "money"):
        typmod = int(_metadata(field, b"POSTGRESQL:typmod", b"-1"))
        return as_decimals(pa.chunked_array([chunk.storage for chunk in column.chunks], type=pa.string()), typmod)
    if kind in ("_numeric", "_money"):
        texts = pa.chunked_array([chunk.values.storage for chunk in column.chunks], type=pa.string())
        values = as_decimals(texts)
        lists = [_list_of(chunk, part) for chunk, part in zip(column.chunks, values.chunks, strict=True)]
        return pa.chunked_array(lists, type=pa.list_(values.type))
    refuse_infinite(column, field.name)
    if isinstance(type_, pa.BaseExtensionType):
        return pa.chunked_array([chunk.storage for chunk in column.chunks], type=type_.storage_type)
    if pa.types.is_list(type_) and isinstance(type_.value_type, pa.BaseExtensionType):
        plain = pa.list_(type_.value_type.storage_type)
        return pa.chunked_array([_list_of(chunk, chunk.values.storage) for chunk in column.chunks], type=plain)
    return column


def _list_of(chunk: PyArrow, values: PyArrow) -> PyArrow:
    return pa.ListArray.from_arrays(chunk.offsets, values, mask=chunk.is_null() if chunk.null_count else None)


@contextmanager
def _faults() -> Generator[None]:
    """Convert the driver's errors to messages for the statement's author."""
    try:
        yield
    # Errors while rows arrive are raised as OSError by the stream's reader, not by the driver.
    except (_DRIVER_ERROR, OSError) as error:
        raise DatabaseFault(_words(str(error))) from None


def _words(said: str) -> str:
    said = said.partition("\n\nQuery was:")[0].partition(". SQLSTATE")[0]
    found = re.search(r"(?:ERROR|FATAL):\s+(.*)", said, re.DOTALL)
    text = found[1] if found else said.partition("] ")[2] or said
    # Drop lines that point to a position: it refers to our wrapped statement, not to the author's.
    lines = [line for line in text.splitlines() if line.strip() and not re.match(r"\s*\^\s*$|LINE \d+: COPY", line)]
    return "\n".join(lines).strip()[:2000]
