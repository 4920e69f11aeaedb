"""Rows a second from PostgreSQL into a session, beside psycopg with pandas.read_sql, on the same server in the same run.

    ./.venv/bin/uv run --no-sync --with pandas --with 'psycopg[binary]' python -m bench.databases [--rows 1000000]

Needs PostgreSQL's programs (Debian: `apt install postgresql`). What is timed: from the statement to a pandas DataFrame. Ours runs in the
process that talks to the database and comes over as Arrow, as a cell gets it; theirs is a plain program without a sandbox.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from importlib import import_module
from typing import Any

import anyio
from tests.tools.sql.cluster import Cluster, cluster

from pinfold.tools.sql.sources import Source, read_address
from pinfold.tools.sql.workers import Workers

SQL = "SELECT * FROM wide"
REPEATS = 3
_TABLE = """
CREATE TABLE wide AS SELECT n AS id, n % 1000 AS good, (n * 1.25)::numeric(12, 2) AS price, n::float8 / 7 AS weight,
  'name of thing ' || n AS name, md5(n::text) AS code, n % 2 = 0 AS sold, timestamptz '2024-01-01' + n * interval '1 second' AS at,
  date '2024-01-01' + (n % 365)::int AS day, CASE WHEN n % 3 > 0 THEN n * 2 END AS more
FROM generate_series(1, {}) n
"""


async def ours(server: Cluster) -> tuple[float, float, int]:
    """Seconds to a table and to a DataFrame, and the bytes of the table."""
    pa: Any = import_module("pyarrow")
    workers = Workers()
    source = Source(name="x", address=read_address(server.url()), max_rows=10**8, max_bytes=2 << 30, timeout_s=600)
    try:
        await workers.ask(source, "SELECT 1")  # a session's first query starts the process
        begun = time.perf_counter()
        answered = await workers.ask(source, SQL)
        table = pa.ipc.open_stream(answered.table).read_all()
        there = time.perf_counter() - begun
        table.to_pandas()
        return there, time.perf_counter() - begun, len(answered.table)
    finally:
        await workers.close()


def theirs(server: Cluster) -> float:
    psycopg: Any = import_module("psycopg")
    pandas: Any = import_module("pandas")
    begun = time.perf_counter()
    with psycopg.connect(server.url()) as connection:
        import warnings

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it would rather have SQLAlchemy
            frame = pandas.read_sql(SQL, connection)
    assert len(frame)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=1_000_000)
    rows: int = parser.parse_args().rows
    with cluster("bench-Passw0rd") as server:
        server.run(_TABLE.format(rows))
        tables: list[float] = []
        frames: list[float] = []
        plain: list[float] = []
        size = 0
        for _ in range(REPEATS):
            there, frame, size = anyio.run(ours, server)
            tables.append(there)
            frames.append(frame)
            plain.append(theirs(server))
    told = {
        "rows": rows,
        "columns": 10,
        "table_mb": round(size / 1e6, 1),
        "rows_per_s_to_arrow": round(rows / statistics.median(tables)),
        "rows_per_s_to_pandas": round(rows / statistics.median(frames)),
        "rows_per_s_psycopg_read_sql": round(rows / statistics.median(plain)),
    }
    json.dump(told, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
