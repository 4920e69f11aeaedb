"""Runs in the data environment: figures of tables as data_view makes them, and as DuckDB's own functions do.

A line of JSON in, with a path; a line of JSON out, with both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

from pinfold.guest.toolbox import sources, tables
from pinfold.guest.toolbox.program_io import Refused

OF_NUMBERS = "avg({0}), stddev_samp({0}), min({0}), quantile_cont({0}, [0.25, 0.5, 0.75]), max({0})"
OF_OTHERS = "count(DISTINCT {0}), max(count) FROM (SELECT {0}, count({0}) AS count FROM {1} GROUP BY {0})"


def by_duckdb(connection: Any, source: Any, typed: Any) -> Any:
    """Every column is asked for on its own, of the table itself."""
    made: list[dict[str, Any]] = []
    rows = connection.sql(sources.query("count(*)", source)).fetchall()[0][0]
    for name, kind in typed:
        column = sources.quote_column(name)
        count = connection.sql(sources.query(f"count({column})", source)).fetchall()[0][0]
        one: dict[str, Any] = {"column": name, "type": kind, "count": count, "nulls": rows - count}
        if count and kind in ("BIGINT", "DOUBLE"):
            value = f"CAST({column} AS DOUBLE)"
            asked = connection.sql(sources.query(OF_NUMBERS.format(value), source)).fetchall()[0]
            mean, std, least, quarters, most = asked
            one |= {"mean": mean, "std": std, "min": least, "max": most}
            one |= dict(zip(("25%", "50%", "75%"), quarters, strict=True))
        elif count:
            unique, freq = connection.sql(f"SELECT {OF_OTHERS.format(column, source.sql)}").fetchall()[0]
            one |= {"unique": unique, "freq": freq}
        made.append(one)
    return made, rows, True


def describe(path: str, use: Any) -> dict[str, Any]:
    try:
        (figures, rows, whole), source = tables.read_table(path, use, ordered=False)
    except Refused as refused:
        return {"refused": str(refused)}
    return {"figures": figures, "rows": rows, "whole": whole, "notes": source.notes}


for line in sys.stdin:
    asked = json.loads(line)
    ours, theirs = describe(asked, tables.figures_of), describe(asked, by_duckdb)
    print(json.dumps([ours, theirs], default=str), flush=True)
