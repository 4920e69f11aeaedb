"""`servers.sql`: read-only access to the user's databases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from msgspec.structs import replace

from pinfold.events import Arrow, Json, Sent
from pinfold.text import closest, join_names
from pinfold.tools.results import BadCall, Result
from pinfold.tools.sql.sources import TABLES, Source
from pinfold.tools.sql.workers import GRACE_S, Workers
from pinfold.tools.tool import AnyTool, tool

SERVER = "sql"
_TOLD = 100
"""Maximum number of tables listed for the model; code gets all."""


_TEXT: Mapping[str, Json] = {"type": "string"}
_TABLE: Mapping[str, Json] = {"type": "string", "contentMediaType": "application/vnd.apache.arrow.stream"}
_TABLES: Mapping[str, Json] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            **dict.fromkeys(("database", "schema", "name", "kind"), _TEXT),
            "rows": {"type": ["integer", "null"]},
            "columns": {"type": "object", "additionalProperties": _TEXT},
        },
        "required": ["database", "schema", "name", "kind", "rows", "columns"],
    },
}
_DATABASES: Mapping[str, Json] = {
    "type": "array",
    "items": {"type": "object", "properties": {"name": _TEXT, "kind": _TEXT}, "required": ["name", "kind"]},
}


class Databases(Protocol):
    """The configured databases; implemented by the app."""

    @property
    def names(self) -> Mapping[str, str]:
        """The kind of each database by name."""
        ...

    async def source(self, name: str) -> Source:
        """Return a database, ready to be connected to. Raises BadCall, also for an unknown name."""
        ...

    async def about_to_read(self) -> None:
        """Mark the session as having seen private data."""

    @property
    def longest_s(self) -> float:
        """The longest time limit for a statement in any of them."""
        ...


def sql_tools(databases: Databases, workers: Workers) -> list[AnyTool]:
    """Build the tools of `servers.sql`. They change nothing; their results are private to the user and untrusted."""

    async def query(name: str, sql: str, params: list[Json] | dict[str, Json] | None = None) -> Result:
        """Run one reading statement in a database of the user's, and give the rows as a pyarrow.Table.

        Aggregate in SQL where that is possible: what is beyond a bound is cut, and said.

        Args:
            name: Which database; see databases().
            sql: One SELECT (or WITH, VALUES, EXPLAIN) in that database's dialect.
            params: Values for $1, $2 ... (PostgreSQL), ? (SQLite, DuckDB), or :name.
        """
        source = await databases.source(name)
        await databases.about_to_read()
        try:
            reply = await workers.ask(source, sql, params)
        except BadCall as error:
            raise BadCall(str(error), sent=_sent_bytes(source, sql, 0)) from error
        return Result(
            text=reply.text,
            value=Arrow(reply.table),
            untrusted=True,
            sent=_sent_bytes(source, sql, reply.came),
        )

    async def tables(name: str | None = None) -> Result:
        """List tables and views with their columns, types and about how many rows they have.

        Args:
            name: Which database; all of them if not given.
        """
        names = [name] if name is not None else list(databases.names)
        found: list[dict[str, Json]] = []
        sent: tuple[Sent, ...] = ()
        for one in names:
            source = await databases.source(one)
            await databases.about_to_read()
            reply = await workers.ask(source, None)
            found += reply.value
            sent += _sent_bytes(source, "", 0)
        lines = [_line(table) for table in found[:_TOLD]]
        if len(found) > len(lines):
            more = f"more than {TABLES}" if len(found) > TABLES else str(len(found))
            lines.append(f"[{more} tables; these are the first {len(lines)}. Query the catalogue for others]")
        return Result(text="\n".join(lines) or "(no tables)", value=found[:TABLES], untrusted=True, sent=sent)

    def databases_() -> list[dict[str, str]]:
        """List the databases that can be asked, with the kind of SQL each speaks."""
        return [{"name": name, "kind": kind} for name, kind in databases.names.items()]

    how: dict[str, Any] = {"effect": "pure", "trust": "untrusted", "timeout_s": databases.longest_s + 2 * GRACE_S}
    made: list[tuple[AnyTool, Mapping[str, Json]]] = [
        (tool(**how, reach="outside")(query), _TABLE),
        (tool(**how, reach="outside", max_output=20_000)(tables), _TABLES),
        (tool(effect="pure", reach="nothing", name="databases")(databases_), _DATABASES),
    ]
    return [replace(one, name=f"{SERVER}.{one.name}", server=SERVER, returns=returns) for one, returns in made]


def _sent_bytes(source: Source, sql: str, back: int) -> tuple[Sent, ...]:
    """Report the bytes exchanged with a database server; empty for a database file."""
    if not source.address.hosts:
        return ()
    to = f"{source.address.hosts[0]}:{source.address.port}"
    return (Sent(to=to, out=len(sql.encode("utf-8", "replace")), back=back),)


def _line(table: Mapping[str, Json]) -> str:
    rows = "" if table["rows"] is None else f", about {table['rows']:,} rows"
    columns = join_names([f"{name} {kind}" for name, kind in table["columns"].items()], 30)
    return f"{table['database']}: {table['schema']}.{table['name']} ({table['kind']}{rows}): {columns}"


def no_such(name: str, names: Mapping[str, str]) -> BadCall:
    near = closest(name, names)
    hint = f"did you mean {near!r}?" if near else f"there are {', '.join(names) or 'none'}"
    return BadCall(f"no database is called {name[:64]!r}; {hint}")
