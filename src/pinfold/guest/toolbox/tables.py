"""Shows tables of any size: first rows, shape, columns and statistics. DuckDB computes the statistics."""

from __future__ import annotations

import hashlib
import math
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from typing import IO, Any, TypeAlias

from .program_io import format_size
from .sources import Source, fetch, many, query, quote_column, quote_text, read_table
from .texts import resolve_file

Typed: TypeAlias = list[tuple[str, str]]
Ask: TypeAlias = Callable[..., tuple[Any, ...]]

READ_S = 150.0
"""Time for reading a table; the figures of one that would take longer are those of its first rows."""
FIRST_ROWS = 100_000
"""Rows read to measure how fast a table is read."""
CELL = 60
"""The most characters shown of a value."""
ROWS = 200
WIDE = 64
"""The most columns shown side by side."""
EXAMPLES = 3
SHARES = {"25%": 0.25, "50%": 0.5, "75%": 0.75}
FIGURES = ("count", "unique", "top", "freq", "mean", "std", "min", "25%", "50%", "75%", "max")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_BROKEN = ("FLOAT", "DOUBLE", "UBIGINT", "HUGEINT", "UHUGEINT", "DECIMAL")


def view(path: str, view: str, rows: int, known: dict[str, int]) -> dict[str, Any]:
    """Return a view of a table. `known` holds sizes by content hash; for known content, only the hash is returned."""
    if view == "peek":
        return {"text": peek(path, rows)}
    full = resolve_file(path.partition("#")[0] if not os.path.exists(path) else path)
    size = os.stat(full).st_size
    if size in known.values():
        digest = hash_file(full)
        if known.get(digest) == size:
            return {"same": digest}
    before = _stamp(full)
    make: Callable[[str], tuple[str, list[dict[str, Any]]]] = {"shape": shape, "columns": columns, "stats": stats}[view]
    text, figures = make(path)
    digest = hash_file(full)
    # No digest if the file changed meanwhile: then it is unknown which content the figures are of.
    return {"text": text, "figures": figures, "digest": digest if _stamp(full) == before else "", "size": size}


def _stamp(full: str) -> tuple[int, ...]:
    status = os.stat(full)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def hash_file(full: str) -> str:
    with open(full, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def peek(path: str, rows: int) -> str:
    wanted = min(max(rows, 1), ROWS)

    def first(connection: Any, source: Source, typed: Typed) -> tuple[Typed, list[tuple[Any, ...]]]:
        chosen = ", ".join(f"CAST({quote_column(name)} AS VARCHAR)" for name, _ in typed[:WIDE])
        return typed, connection.sql(query(chosen, source, f"LIMIT {wanted}")).fetchall()

    (typed, found), source = read_table(path, first, ordered=True)
    if len(typed) > WIDE:
        source.notes.insert(0, f"the first {WIDE} of {len(typed)} columns")
    lines = align_columns([title(name) for name, _ in typed[:WIDE]], [[_cell(value) for value in row] for row in found])
    if not found:
        source.notes.insert(0, "no rows")
    return _with_notes(lines, source)


def shape(path: str) -> tuple[str, list[dict[str, Any]]]:
    def count(connection: Any, source: Source, typed: Typed) -> tuple[int, int]:
        return connection.sql(query("count(*)", source)).fetchall()[0][0], len(typed)

    (rows, width), source = read_table(path, count, ordered=False)
    text = f"{many(rows, 'row')}, {many(width, 'column')}, {format_size(source.size)} ({source.size:,} bytes)"
    return _with_notes([text], source), [{"rows": rows, "columns": width, "bytes": source.size}]


def columns(path: str) -> tuple[str, list[dict[str, Any]]]:
    def count_values(connection: Any, source: Source, typed: Typed) -> tuple[Typed, Any, Any]:
        counts = ", ".join(f"count({quote_column(name)})" for name, _ in typed)
        total, *there = connection.sql(query(f"count(*), {counts}", source)).fetchall()[0]
        chosen = ", ".join(f"CAST({quote_column(name)} AS VARCHAR)" for name, _ in typed)
        rows = connection.sql(query(chosen, source, "LIMIT 100")).fetchall()
        return typed, (total, there), rows

    (typed, (total, there), rows), source = read_table(path, count_values, ordered=False)
    figures: list[dict[str, Any]] = [
        {"column": name, "type": _type(kind), "nulls": total - count, "examples": _examples(rows, at)}
        for at, ((name, kind), count) in enumerate(zip(typed, there, strict=True))
    ]
    lines = align_columns(
        ["column", "type", "nulls", "examples"],
        [[title(one["column"]), one["type"], f"{one['nulls']:,}", ", ".join(one["examples"])] for one in figures],
    )
    source.notes.insert(0, f"{many(total, 'row')}, {many(len(typed), 'column')}")
    return _with_notes(lines, source), figures


def _examples(rows: list[tuple[Any, ...]], at: int) -> list[str]:
    values = dict.fromkeys(_cell(row[at]) for row in rows if row[at] is not None)
    return list(values)[:EXAMPLES]


def stats(path: str) -> tuple[str, list[dict[str, Any]]]:
    (figures, rows, whole), source = read_table(path, figures_of, ordered=False)
    lines = align_columns(
        ["column", "type", *FIGURES],
        [[title(one["column"]), one["type"], *(_format_figure(one.get(name)) for name in FIGURES)] for one in figures],
    )
    exact = "exact" if whole else f"sampled: the figures are of the first {rows:,} rows"
    source.notes.insert(0, f"{many(rows, 'row')}; {exact}")
    return _with_notes(lines, source), figures


def figures_of(connection: Any, source: Source, typed: Typed) -> tuple[list[dict[str, Any]], int, bool]:
    """Return the figures of each column, the number of rows read, and whether these are all rows of the table.

    The table is read once, into a Parquet file, of which DuckDB reads single columns.
    """
    with _scratch_file() as file:
        place = quote_text(file.name if isinstance(file.name, str) else f"/proc/self/fd/{file.fileno()}")
        rows, whole = _copy_table(connection, source, typed, place)

        connection.execute(f"CREATE VIEW data AS FROM read_parquet({place}, file_row_number = true)")

        def ask(chosen: str, rest: str = "", data: str = "data") -> tuple[Any, ...]:
            return fetch(connection, source, " ".join(("SELECT", chosen, "FROM", data, rest)))[0]

        return [_figures(ask, f"c{at}", name, kind, rows) for at, (name, kind) in enumerate(typed)], rows, whole


def _scratch_file() -> IO[bytes]:
    """Open a file without a name, in the working folder if possible: a session's /tmp is in memory."""
    if os.path.exists("/proc/self/fd"):
        for folder in (".", None):
            with suppress(OSError):
                return tempfile.TemporaryFile(dir=folder)
    return tempfile.NamedTemporaryFile()


def _copy_table(connection: Any, source: Source, typed: Typed, place: str) -> tuple[int, bool]:
    chosen = ", ".join(f"{_convert(name, kind)} AS c{at}" for at, (name, kind) in enumerate(typed))

    def copy(most: int) -> int:
        rows = query(chosen, source, f"LIMIT {most}")
        return connection.execute(f"COPY ({rows}) TO {place} (FORMAT parquet, USE_TMP_FILE false)").fetchall()[0][0]

    begun = time.monotonic()
    count = copy(FIRST_ROWS)
    if count < FIRST_ROWS:
        return count, True
    most = int(FIRST_ROWS * READ_S / (time.monotonic() - begun))
    count = copy(most)
    return count, count < most


def _convert(name: str, kind: str) -> str:
    """Return SQL that casts a column to the type its figures are computed from."""
    column, of = quote_column(name), kind.partition("(")[0]
    if of in _WHOLE:
        return f"CAST({column} AS BIGINT)"
    if of in _BROKEN:
        return f"nullif(CAST({column} AS DOUBLE), CAST('NaN' AS DOUBLE))"
    if kind in ("BOOLEAN", "DATE"):
        return column
    return f"CAST({column} AS {'TIMESTAMP' if kind.startswith('TIMESTAMP') else 'VARCHAR'})"


def _figures(ask: Ask, column: str, name: str, kind: str, rows: int) -> dict[str, Any]:
    (count,) = ask(f"count({column})")
    made: dict[str, Any] = {"column": name, "type": _type(kind), "count": count, "nulls": rows - count}
    if not count:
        return made
    if kind.partition("(")[0] in (*_WHOLE, *_BROKEN):
        return made | _describe_numbers(ask, column, count)
    made |= _count_values(ask, column)
    if kind == "DATE" or kind.startswith("TIMESTAMP"):
        low, high = ask(f"CAST(min({column}) AS VARCHAR), CAST(max({column}) AS VARCHAR)")
        made |= {"min": low, "max": high}
    return made


def _describe_numbers(ask: Ask, column: str, count: int) -> dict[str, Any]:
    """Return the figures of numbers; no deviation if one is infinite, which DuckDB would refuse."""
    is_finite = f"isfinite(CAST({column} AS DOUBLE))"
    std = f"CASE WHEN bool_and({is_finite}) THEN stddev_samp({column}) FILTER ({is_finite}) END"
    mean, deviation, low, high = ask(f"avg({column}), {std}, min({column}), max({column})")
    places = [share * (count - 1) for share in SHARES.values()]
    ranks = [min(int(place) + step, count - 1) for place in places for step in (0, 1)]
    # Half a rank further, so that rounding either way gives the value of exactly this rank.
    (values,) = ask(f"quantile_disc({column}, {[(rank + 0.5) / count for rank in ranks]})")
    pairs = zip(values[::2], values[1::2], places, strict=True)
    quantiles = {name: _finite(_interpolate(*pair)) for name, pair in zip(SHARES, pairs, strict=True)}
    figures = {"mean": mean, "std": deviation, "min": low, "max": high}
    return {name: _finite(value) for name, value in figures.items()} | quantiles


def _interpolate(low: float, high: float, place: float) -> float:
    """Interpolate linearly between two values, rounding as pandas and NumPy do."""
    part = place - int(place)
    if low == high:
        return float(low)
    return low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part)


def _count_values(ask: Ask, column: str) -> dict[str, Any]:
    """Count values by hash, which takes less memory than texts. Of equally frequent values the first is the top."""
    values = "(SELECT count(*) AS n, min(file_row_number) AS first FROM data WHERE {0} IS NOT NULL GROUP BY hash({0}))"
    unique, freq, row = ask("count(*), max(n), arg_max(first, (n, -first))", data=values.format(column))
    (top,) = ask(f"CAST({column} AS VARCHAR)", f"WHERE file_row_number = {row}")
    return {"unique": unique, "freq": freq, "top": top}


def _finite(value: object) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    return value


def _type(kind: str) -> str:
    return kind if len(kind) <= CELL else f"{kind[: CELL - 3]}..."


def _format_figure(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    return f"{value:,}" if isinstance(value, int) else _cell(value)


def _cell(value: object) -> str:
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\") if "\n" in str(value) or "\r" in str(value) else str(value)
    text = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return text if len(text) <= CELL else f"{text[: CELL - 3]}..."


def title(name: str) -> str:
    """Return a column's name as code has to write it, quoted if it is not an identifier."""
    return name if name.isidentifier() else repr(name)


def align_columns(titles: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(line[at]) for line in [titles, *rows]) for at in range(len(titles))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [titles, *rows]
    ]


def _with_notes(lines: list[str], source: Source) -> str:
    notes = [f"[{'; '.join(source.notes)}]"] if source.notes else []
    return "\n".join([*lines, *notes])


OPERATIONS = {"view": view}
