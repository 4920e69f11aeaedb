"""A database for reports, asked in SQL."""

from __future__ import annotations

import sqlite3
from random import Random

from bench.tokens.servers.records import Record, reads

from pinfold.tools import BadCall

_TABLES = {
    "customers": "customer_id INTEGER PRIMARY KEY, name TEXT, country TEXT, segment TEXT",
    "sales": "sale_id INTEGER PRIMARY KEY, customer_id INTEGER, sku TEXT, units INTEGER, amount_cents INTEGER, sold_on TEXT, channel TEXT",
    "returns": "return_id INTEGER PRIMARY KEY, sale_id INTEGER, reason TEXT, returned_on TEXT",
}
_MOST = 100


class Warehouse:
    def __init__(self) -> None:
        made = Random(34)
        self._base = sqlite3.connect(":memory:", check_same_thread=False)
        for name, columns in _TABLES.items():
            self._base.execute(f"CREATE TABLE {name} ({columns})")
        customers = [
            (number, f"Customer {number}", made.choice(("DE", "FR", "US", "JP")), made.choice(("retail", "trade")))
            for number in range(1, 121)
        ]
        sales = [
            (
                number,
                made.randint(1, 120),
                f"SKU-{made.randint(1, 30):03d}",
                made.randint(1, 9),
                made.randint(800, 90_000),
                f"2025-{made.randint(1, 12):02d}-{made.randint(1, 28):02d}",
                made.choice(("web", "shop")),
            )
            for number in range(1, 1801)
        ]
        returned = [
            (
                number,
                made.randint(1, 1800),
                made.choice(("damaged", "wrong item", "late")),
                f"2026-01-{made.randint(1, 28):02d}",
            )
            for number in range(1, 91)
        ]
        for name, rows in (("customers", customers), ("sales", sales), ("returns", returned)):
            marks = ", ".join("?" * len(rows[0]))
            self._base.executemany(f"INSERT INTO {name} VALUES ({marks})", rows)
        self._base.commit()
        self._base.execute("PRAGMA query_only = ON")

    @reads
    def list_tables(self) -> list[Record]:
        """List all tables of the database with the number of their rows."""
        return [
            {"name": name, "rows": self._base.execute(f"SELECT count(*) FROM {name}").fetchone()[0]} for name in _TABLES
        ]

    @reads
    def describe_table(self, table_name: str) -> list[Record]:
        """Get the schema of a table: its columns with their types and keys.

        Args:
            table_name: Name of the table to describe.
        """
        if table_name not in _TABLES:
            raise BadCall(f"no such table: {table_name}")
        rows = self._base.execute(f"PRAGMA table_info({table_name})").fetchall()
        return [
            {"cid": cid, "name": name, "type": kind, "notnull": notnull, "dflt_value": default, "pk": key}
            for cid, name, kind, notnull, default, key in rows
        ]

    @reads
    def read_query(self, query: str) -> list[Record]:
        """Execute a SELECT query on the database and get its rows, at most 100 of them. The database is SQLite; anything
        that would change data is refused.

        Args:
            query: The SELECT statement to execute.
        """
        try:
            found = self._base.execute(query)
            names = [column[0] for column in found.description]
            return [dict(zip(names, row, strict=True)) for row in found.fetchmany(_MOST)]
        except sqlite3.Error as error:
            raise BadCall(f"Database error: {error}") from error
