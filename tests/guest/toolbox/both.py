"""Runs in the data environment: figures of tables as Arrow reads them, and as DuckDB alone does.

A line of JSON in, with a path; a line of JSON out, with both.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

from pinfold.guest.toolbox import columns, plain, sources, tables
from pinfold.guest.toolbox.answering import Refused


def by_duckdb(connection: Any, source: Any, typed: Any) -> Any:
    if source.hopeful:
        raise sources.NotPlain
    return tables.figures_of(connection, source, typed)


def told(path: str, use: Any) -> dict[str, Any]:
    try:
        (figures, rows, whole), source = tables.reading(path, use, ordered=False, quick=True)
    except Refused as refused:
        return {"refused": str(refused)}
    return {
        "figures": figures,
        "rows": rows,
        "whole": whole,
        "notes": source.notes,
        "arrow": source.hopeful,
    }


# Small enough for small tables to be cut, kept in the file and narrowed down.
columns.FEW, columns.RANGE, columns.BINS = 4, 3, 2
for line in sys.stdin:
    asked = json.loads(line)
    plain.BLOCK = max(300, Path(asked).stat().st_size // 8)
    print(
        json.dumps([told(asked, tables.figures_of), told(asked, by_duckdb)], default=str, allow_nan=False),
        flush=True,
    )
