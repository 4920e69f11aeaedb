"""Rows as they come, up to a number of them and of bytes. What was left out is said."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pinfold.tools.sql.libraries import arrow

TRUNCATED = b"pinfold:truncated"
"""In a table's metadata: why it does not hold all rows."""


@dataclass(frozen=True, slots=True)
class Bounds:
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Gathered:
    table: Any
    """A pyarrow.Table."""
    cut: str = ""
    """Why there is no more of it, if there would be."""


def gather_rows(batches: Iterator[Any], schema: Any, bounds: Bounds) -> Gathered:
    """All that fits; no more is asked for than one batch beyond."""
    pa = arrow()
    kept: list[Any] = []
    rows = size = 0
    cut = ""
    for batch in batches:
        part = batch
        if rows + part.num_rows > bounds.rows:
            part = part.slice(0, bounds.rows - rows)
            cut = f"there are more rows than the {bounds.rows:,} that are given at once"
        fits = _fitting(part, bounds.bytes - size)
        if fits < part.num_rows:
            part = part.slice(0, fits)
            cut = f"there is more than the {bounds.bytes >> 20:,} MB that are given at once"
        if part.num_rows:
            kept.append(part)
        rows += part.num_rows
        size += part.nbytes
        if cut:
            break
    return Gathered(pa.Table.from_batches(kept, schema=schema), cut)


def _fitting(batch: Any, room: int) -> int:
    """How many of its rows take no more than this."""
    if batch.nbytes <= room:
        return batch.num_rows
    low, high = 0, batch.num_rows
    while low < high:
        middle = (low + high + 1) // 2
        if batch.slice(0, middle).nbytes <= room:
            low = middle
        else:
            high = middle - 1
    return low


def mark_truncated(gathered: Gathered) -> Any:
    """The table, with the reason in its metadata if it was cut."""
    if not gathered.cut:
        return gathered.table.replace_schema_metadata(None)
    return gathered.table.replace_schema_metadata({TRUNCATED: gathered.cut.encode()})
