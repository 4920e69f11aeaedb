"""Shows tables of any size: their first rows, their shape, their columns, their figures."""

from __future__ import annotations

import gc
import hashlib
import math
import os
import threading
import time

from .answering import size_told
from .sources import Broken, Source, Unlisted, many, named, query, quoted, reading
from .texts import existing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, TypeAlias

    Typed: TypeAlias = list[tuple[str, str]]

BLOCK = 1 << 20
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
FEW_IN_ALL = 1 << 21
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
    full = existing(path.partition("#")[0] if not os.path.exists(path) else path)
    size = os.stat(full).st_size
    if size in known.values():
        digest = hashed(full)
        if known.get(digest) == size:
            return {"same": digest}
    before = _stamp(full)
    hashing = _Hashing(full)
    hashing.start()
    make: Callable[[str], tuple[str, list[dict[str, Any]]]] = {
        "shape": shape,
        "columns": columns,
        "stats": stats,
    }[view]
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
        self.digest = hashed(self._full)


def hashed(full: str) -> str:
    made = hashlib.sha256()
    buffer = bytearray(BLOCK)
    view = memoryview(buffer)
    with open(full, "rb", buffering=0) as file:
        while count := file.readinto(buffer):
            made.update(view[:count])
    return made.hexdigest()


def peek(path: str, rows: int) -> str:
    wanted = min(max(rows, 1), ROWS)

    def first(connection: Any, source: Source, typed: Typed) -> tuple[Typed, list[tuple[Any, ...]]]:
        chosen = ", ".join(f"CAST({named(name)} AS VARCHAR)" for name, _ in typed[:WIDE])
        return typed, connection.sql(query(chosen, source, f"LIMIT {wanted}")).fetchall()

    (typed, found), source = reading(path, first, ordered=True)
    if len(typed) > WIDE:
        source.notes.insert(0, f"the first {WIDE} of {len(typed)} columns")
    lines = aligned([name for name, _ in typed[:WIDE]], [[_cell(value) for value in row] for row in found])
    if not found:
        source.notes.insert(0, "no rows")
    return _with_notes(lines, source)


def shape(path: str) -> tuple[str, list[dict[str, Any]]]:
    def count(connection: Any, source: Source, typed: Typed) -> tuple[int, int]:
        return connection.sql(query("count(*)", source)).fetchall()[0][0], len(typed)

    (rows, width), source = reading(path, count, ordered=False)
    text = f"{many(rows, 'row')}, {many(width, 'column')}, {size_told(source.size)} ({source.size:,} bytes)"
    return _with_notes([text], source), [{"rows": rows, "columns": width, "bytes": source.size}]


def columns(path: str) -> tuple[str, list[dict[str, Any]]]:
    def counted(connection: Any, source: Source, typed: Typed) -> tuple[Typed, Any, Any]:
        counts = ", ".join(f"count({named(name)})" for name, _ in typed)
        total, *there = connection.sql(query(f"count(*), {counts}", source)).fetchall()[0]
        chosen = ", ".join(f"CAST({named(name)} AS VARCHAR)" for name, _ in typed)
        rows = connection.sql(query(chosen, source, "LIMIT 100")).fetchall()
        return typed, (total, there), rows

    (typed, (total, there), rows), source = reading(path, counted, ordered=False)
    figures: list[dict[str, Any]] = [
        {"column": name, "type": _type(kind), "nulls": total - count, "examples": _examples(rows, at)}
        for at, ((name, kind), count) in enumerate(zip(typed, there, strict=True))
    ]
    lines = aligned(
        ["column", "type", "nulls", "examples"],
        [[one["column"], one["type"], f"{one['nulls']:,}", ", ".join(one["examples"])] for one in figures],
    )
    source.notes.insert(0, f"{many(total, 'row')}, {many(len(typed), 'column')}")
    return _with_notes(lines, source), figures


def _examples(rows: list[tuple[Any, ...]], at: int) -> list[str]:
    values = dict.fromkeys(_cell(row[at]) for row in rows if row[at] is not None)
    return list(values)[:EXAMPLES]


def stats(path: str) -> tuple[str, list[dict[str, Any]]]:
    (figures, rows, whole), source = reading(path, _figures, ordered=False, quick=True)
    lines = aligned(
        ["column", "type", *FIGURES],
        [[one["column"], one["type"], *(_told(one.get(name)) for name in FIGURES)] for one in figures],
    )
    exact = (
        "exact" if whole else f"sampled: there was time for {rows:,} rows only, and the figures are of these"
    )
    source.notes.insert(0, f"{many(rows, 'row')}; {exact}")
    return _with_notes(lines, source), figures


def _figures(connection: Any, source: Source, typed: Typed) -> tuple[list[dict[str, Any]], int, bool]:
    from .columns import Scratch

    scratch = Scratch()
    nothing, *absent = _hashes(connection, None, *source.unlisted)
    parts = [_Part(name, kind, scratch, FEW_IN_ALL // len(typed), nothing) for name, kind in typed]
    chosen = ", ".join(part.sql for part in parts)
    batch = max(2048, min(BATCH, BATCH_BYTES // (8 * len(parts))))
    until = time.monotonic() + LONGEST_S
    rows, whole = 0, True
    for taken in _batches(connection.sql(query(chosen, source)).to_arrow_reader(batch)):
        rows += taken.num_rows
        for part, array in zip(parts, taken.columns, strict=True):
            part.add(array)
        if time.monotonic() > until:
            whole = False
            break
    if any(part.has(one) for part in parts for one in absent):
        raise Unlisted
    figures = [part.figures() for part in parts]
    for part, one in zip(parts, figures, strict=True):
        if part.is_text and one["count"]:
            one["top"] = _text_of(connection, source, part.name, one.pop("top"), one["freq"])
    scratch.close()
    return figures, rows, whole


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
    values = ", ".join("NULL" if text is None else quoted(text) for text in texts)
    return [row[0] for row in connection.sql(f"SELECT hash(unnest([{values}]::VARCHAR[]))").fetchall()]


def _text_of(connection: Any, source: Source, name: str, hashes: list[int], freq: int) -> str | None:
    """The text behind a hash; of several that are there as often, the one that comes first."""
    column = named(name)
    among = f"hash(CAST({column} AS VARCHAR)) IN ({', '.join(map(str, hashes))})" if freq > 1 else "true"
    where = f"WHERE {column} IS NOT NULL AND {among} LIMIT 1"
    found = connection.sql(query(f"CAST({column} AS VARCHAR)", source, where)).fetchall()
    return found[0][0] if found else None


class _Part:
    """A column on its way: what is asked of DuckDB, and what becomes of it."""

    def __init__(self, name: str, kind: str, scratch: Any, few: int, nothing: int) -> None:
        from .columns import FEW, Column, Moments

        self._nothing = nothing

        self.name = name
        self._kind = kind
        column = named(name)
        self.is_text = False
        self._of = kind.partition("(")[0]
        if self._of in _WHOLE:
            self.sql, dtype = f"CAST({column} AS BIGINT)", "int64"
        elif self._of in (*_BROKEN, "DECIMAL"):
            self.sql, dtype = f"CAST({column} AS DOUBLE)", "float64"
        elif kind == "BOOLEAN":
            self.sql, dtype = f"CAST(CAST({column} AS TINYINT) AS BIGINT)", "int64"
        elif kind == "DATE" or kind.startswith("TIMESTAMP"):
            self.sql, dtype = f"epoch_us(CAST({column} AS TIMESTAMP))", "int64"
        else:
            self.sql = f"hash(CAST({column} AS VARCHAR))"
            dtype, self.is_text = "uint64", True
        self._dtype = dtype
        self._column = Column(dtype, scratch, min(FEW, few))
        self._moments = Moments() if self._is_number else None
        self._nulls = 0

    @property
    def _is_number(self) -> bool:
        return self._of in (*_WHOLE, *_BROKEN, "DECIMAL")

    def add(self, array: Any) -> None:
        from .columns import np

        bits, data = array.buffers()
        values = np.frombuffer(data, self._dtype)[array.offset : array.offset + len(array)]
        if array.null_count:
            valid = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
            values = values[valid[array.offset : array.offset + len(array)].astype(bool)]
        if self.is_text:  # the hash of nothing is a hash like any other
            values = values[values != self._nothing]
        elif self._dtype == "float64":
            numbers = ~np.isnan(values)
            if not numbers.all():
                values = values[numbers]
        self._nulls += len(array) - len(values)
        self._column.add(values)
        if self._moments:
            self._moments.add(values)

    def has(self, value: int) -> bool:
        return self.is_text and self._column.has(value)

    def figures(self) -> dict[str, Any]:
        made: dict[str, Any] = {
            "column": self.name,
            "type": _type(self._kind),
            "count": self._column.count,
            "nulls": self._nulls,
        }
        if self._column.count and self._moments:
            made |= self._numbers()
        elif self._column.count:
            unique, freq, top = self._column.different()
            made |= {"unique": unique, "freq": freq, "top": [int(one) for one in top]}
            if not self.is_text:
                made["top"] = self._moment(top[0])
                if self._kind != "BOOLEAN":
                    first, last = self._column.ends()
                    made |= {"min": self._moment(first), "max": self._moment(last)}
        return made

    def _numbers(self) -> dict[str, Any]:
        from .columns import quantile

        assert self._moments
        low, high = self._column.ends()
        return {
            "mean": _finite(self._moments.mean),
            "std": _finite(self._moments.std),
            "min": _finite(low),
            **{name: _finite(quantile(self._column, share)) for name, share in SHARES},
            "max": _finite(high),
        }

    def _moment(self, value: Any) -> str:
        import datetime as dt

        if self._kind == "BOOLEAN":
            return "true" if value else "false"
        moment = dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=int(value))  # noqa: DTZ001 - the table says no zone
        return str(moment.date()) if self._kind == "DATE" else str(moment)


def _finite(value: Any) -> Any:
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, float) and not math.isfinite(number):
        return None if math.isnan(number) else str(number)
    return number


def _type(kind: str) -> str:
    return kind if len(kind) <= CELL else f"{kind[: CELL - 3]}..."


def _told(value: Any) -> str:
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


def aligned(titles: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(line[at]) for line in [titles, *rows]) for at in range(len(titles))]
    return [
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()
        for line in [titles, *rows]
    ]


def _with_notes(lines: list[str], source: Source) -> str:
    notes = [f"[{'; '.join(source.notes)}]"] if source.notes else []
    return "\n".join([*lines, *notes])


OPERATIONS = {"view": view}
