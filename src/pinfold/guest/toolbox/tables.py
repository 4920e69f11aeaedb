"""Shows tables of any size: their first rows, their shape, their columns, their figures."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from .program_io import format_size
from .sources import THREADS, Broken, Source, Unlisted, many, query, quote_column, quote_text, read_table
from .texts import resolve_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    from .columns import Kinds, Numbers, Scratch

    Typed: TypeAlias = list[tuple[str, str]]

PIECE = 1 << 20
BATCH = 1 << 16
BATCH_BYTES = 8 << 20
"""Of all columns of one batch."""
LONGEST_S = 240.0
"""For going through a table; then the figures are of what was seen."""
CELL = 60
"""Characters of a value that are shown."""
ROWS = 200
WIDE = 64
"""Columns whose values are shown side by side."""
EXAMPLES = 3
FEW_IN_ALL = 1 << 20
"""Different values that are counted in memory, of all columns together."""
SHARES = (("25%", 0.25), ("50%", 0.5), ("75%", 0.75))
FIGURES = ("count", "unique", "top", "freq", "mean", "std", "min", "25%", "50%", "75%", "max")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_BROKEN = ("FLOAT", "DOUBLE", "UBIGINT", "HUGEINT", "UHUGEINT")


def view(path: str, view: str, rows: int, known: dict[str, int]) -> dict[str, Any]:
    """`known` are contents by their hash, with their sizes: for one of them nothing is worked out again."""
    if view == "peek":
        return {"text": peek(path, rows)}
    gc.disable()  # the libraries bring much to look through, and nothing here goes in circles
    full = resolve_file(path.partition("#")[0] if not os.path.exists(path) else path)
    size = os.stat(full).st_size
    if size in known.values():
        digest = hash_file(full)
        if known.get(digest) == size:
            return {"same": digest}
    before = _stamp(full)
    hashing = _Hashing(full)
    hashing.start()
    make: Callable[[str], tuple[str, list[dict[str, Any]]]] = {"shape": shape, "columns": columns, "stats": stats}[view]
    text, figures = make(path)
    hashing.join()
    # Should it have changed meanwhile, nobody knows what the figures are of.
    digest = hashing.digest if _stamp(full) == before else ""
    return {"text": text, "figures": figures, "digest": digest, "size": size}


def _stamp(full: str) -> tuple[int, ...]:
    status = os.stat(full)
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class _Hashing(threading.Thread):
    """Beside the reading, which leaves room for it."""

    def __init__(self, full: str) -> None:
        super().__init__(daemon=True)
        self._full = full
        self.digest = ""

    def run(self) -> None:
        self.digest = hash_file(self._full)


def hash_file(full: str) -> str:
    made = hashlib.sha256()
    buffer = bytearray(PIECE)
    view = memoryview(buffer)
    with open(full, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            made.update(view[:count])
    return made.hexdigest()


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
    (figures, rows, whole), source = read_table(path, figures_of, ordered=False, quick=True)
    lines = align_columns(
        ["column", "type", *FIGURES],
        [[title(one["column"]), one["type"], *(_format_figure(one.get(name)) for name in FIGURES)] for one in figures],
    )
    exact = "exact" if whole else f"sampled: there was time for {rows:,} rows only, and the figures are of these"
    source.notes.insert(0, f"{many(rows, 'row')}; {exact}")
    return _with_notes(lines, source), figures


def figures_of(connection: Any, source: Source, typed: Typed) -> tuple[list[dict[str, Any]], int, bool]:
    from .columns import Scratch

    scratch = Scratch()
    try:
        return _figures(scratch, connection, source, typed)
    finally:
        scratch.close()


def _figures(scratch: Scratch, connection: Any, source: Source, typed: Typed) -> tuple[list[dict[str, Any]], int, bool]:
    nothing, *absent = _hashes(connection, None, *source.unlisted)
    parts = [Part(name, kind, scratch, FEW_IN_ALL // len(typed), nothing) for name, kind in typed]
    until = source.begun + LONGEST_S
    whole = _read_into(parts, connection, source, until)
    if any(part.has(one) for part in parts for one in absent):
        raise Unlisted
    with ThreadPoolExecutor(THREADS) as pool:
        # What takes long goes first, or one thread would end long after the other.
        making = {part: pool.submit(part.figures) for part in sorted(parts, key=Part.effort, reverse=True)}
    figures = [making[part].result() for part in parts]
    for part, one in zip(parts, figures, strict=True):
        if part.is_text and one["count"]:
            one["top"] = _text_of(connection, source, part.name, one.pop("top"), one["freq"])
    return figures, parts[0].rows, whole


def _read_into(parts: list[Part], connection: Any, source: Source, until: float) -> bool:
    """True if there was time for all of it."""
    chosen = ", ".join(part.sql for part in parts)
    batch = max(2048, min(BATCH, BATCH_BYTES // (8 * len(parts))))
    for taken in _batches(connection.sql(query(chosen, source)).to_arrow_reader(batch)):
        for part, array in zip(parts, taken.columns, strict=True):
            part.add(array)
        if time.monotonic() > until:
            return False
    return True


def _batches(reader: Any) -> Iterator[Any]:
    """An error of DuckDB's comes out of here as one of the system's."""
    while True:
        try:
            taken = reader.read_next_batch()
        except StopIteration:
            return
        except (OSError, ValueError) as error:
            raise Broken(str(error)) from error
        yield taken


def _hashes(connection: Any, *texts: str | None) -> list[int]:
    values = ", ".join("NULL" if text is None else quote_text(text) for text in texts)
    return [row[0] for row in connection.sql(f"SELECT hash(unnest([{values}]::VARCHAR[]))").fetchall()]


def _text_of(connection: Any, source: Source, name: str, hashes: list[int], freq: int) -> str | None:
    """The text behind a hash; of several that are there as often, the one that comes first."""
    column = quote_column(name)
    among = f"hash(CAST({column} AS VARCHAR)) IN ({', '.join(map(str, hashes))})" if freq > 1 else "true"
    where = f"WHERE {column} IS NOT NULL AND {among} LIMIT 1"
    found = connection.sql(query(f"CAST({column} AS VARCHAR)", source, where)).fetchall()
    return found[0][0] if found else None


class Part:
    """A column on its way: what is asked of DuckDB, and what becomes of it."""

    def __init__(self, name: str, kind: str, scratch: Any, few: int, nothing: int) -> None:
        from .columns import FEW, Kinds, Numbers

        self._nothing = nothing
        self.name = name
        self.kind = kind
        column = quote_column(name)
        self.is_text = False
        of = kind.partition("(")[0]
        if of in _WHOLE:
            self.sql, dtype = f"CAST({column} AS BIGINT)", "int64"
        elif of in (*_BROKEN, "DECIMAL"):
            self.sql, dtype = f"CAST({column} AS DOUBLE)", "float64"
        elif kind == "BOOLEAN":
            self.sql, dtype = f"CAST(CAST({column} AS TINYINT) AS BIGINT)", "int64"
        elif kind == "DATE":
            self.sql, dtype = f"CAST({column} - DATE '1970-01-01' AS BIGINT)", "int64"
        elif kind.startswith("TIMESTAMP"):
            self.sql, dtype = f"epoch_us(CAST({column} AS TIMESTAMP))", "int64"
        else:
            self.sql = f"hash(CAST({column} AS VARCHAR))"
            dtype, self.is_text = "uint64", True
        self._dtype = dtype
        number = of in (*_WHOLE, *_BROKEN, "DECIMAL")
        self._column = (Numbers if number else Kinds)(dtype, scratch, min(FEW, few))

    def add(self, array: Any) -> None:
        """Values of eight bytes, as Arrow has them."""
        from .columns import np

        bits, data = array.buffers()
        values = np.frombuffer(data, self._dtype)[array.offset : array.offset + len(array)]
        if array.null_count:
            valid = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
            values = values[valid[array.offset : array.offset + len(array)].astype(bool)]
        self.take(values, len(array))

    def take(self, values: Any, rows: int) -> None:
        """What is there in so many rows."""
        # The hash of nothing is a hash like any other.
        if self.is_text and not (there := values != self._nothing).all():
            values = values[there]
        self._column.add(values, rows)

    def effort(self) -> int:
        """What its figures take, more or less."""
        from .columns import Numbers

        return self._column.is_many * (1 if isinstance(self._column, Numbers) else 2)

    @property
    def rows(self) -> int:
        return self._column.rows

    def has(self, value: int) -> bool:
        from .columns import Kinds

        return self.is_text and isinstance(self._column, Kinds) and self._column.has(value)

    def figures(self) -> dict[str, Any]:
        from .columns import Numbers

        column = self._column
        made: dict[str, Any] = {
            "column": self.name,
            "type": _type(self.kind),
            "count": column.count,
            "nulls": column.rows - column.count,
        }
        if not column.count:
            return made
        return made | (self._ranks(column) if isinstance(column, Numbers) else self._kinds(column))

    def _ranks(self, column: Numbers) -> dict[str, Any]:
        from .columns import quantiles

        low, high = column.ends()
        names, shares = [name for name, _ in SHARES], [share for _, share in SHARES]
        return {
            "mean": _finite(column.moments.mean),
            "std": _finite(column.moments.std),
            "min": _finite(low),
            **dict(zip(names, map(_finite, quantiles(column, shares)), strict=True)),
            "max": _finite(high),
        }

    def _kinds(self, column: Kinds) -> dict[str, Any]:
        unique, freq, top = column.different()
        made: dict[str, Any] = {"unique": unique, "freq": freq, "top": [int(one) for one in top]}
        if not self.is_text:
            made["top"] = self._moment(min(top))
            if self.kind != "BOOLEAN":
                first, last = column.ends()
                made |= {"min": self._moment(first), "max": self._moment(last)}
        return made

    def _moment(self, value: Any) -> str:
        import datetime as dt

        if self.kind == "BOOLEAN":
            return "true" if value else "false"
        try:
            if self.kind == "DATE":
                return str(dt.date(1970, 1, 1) + dt.timedelta(days=int(value)))
            moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(value))  # noqa: DTZ001 - the table says no zone
            return str(moment)
        except OverflowError:  # DuckDB knows more years, and infinities
            return "after the year 9999" if value > 0 else "before the year 1"


def _finite(value: Any) -> Any:
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not math.isfinite(number):
        return None if math.isnan(number) else str(number)
    return number


def _type(kind: str) -> str:
    return kind if len(kind) <= CELL else f"{kind[: CELL - 3]}..."


def _format_figure(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    return f"{value:,}" if isinstance(value, int) else _cell(value)


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    text = str(value).replace("\\", "\\\\") if "\n" in str(value) or "\r" in str(value) else str(value)
    text = text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return text if len(text) <= CELL else f"{text[: CELL - 3]}..."


def title(name: str) -> str:
    """A column's name as code has to write it: quoted where blanks or signs in it could be missed."""
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
