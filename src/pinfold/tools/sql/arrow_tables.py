"""Query results as Arrow tables, bounded in rows and bytes, with exact types; and their preview for the model."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

from pinfold.tools.sql.statements import Refused

# Both come with the extra `sql`; neither has types.
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")

PyArrow: TypeAlias = Any
"""Any pyarrow object, such as a table, column or type; pyarrow has no type annotations."""
TRUNCATED = b"pinfold:truncated"
"""Key in a table's metadata for the reason why rows are missing."""
MIXED = "mixed: numbers, texts or bytes; each is given as text"
_EXACT = 1 << 53
"""Integers up to this are exact as floating point."""
_MIXED_TYPE = pa.large_string()
"""Marks a mixed column, whose values were converted to text; a column of text is `pa.string()`."""
_NARROW_DIGITS, _WIDE_DIGITS = 38, 76
"""Digits that Arrow's two decimal types hold."""
_DEFAULT_SCALE = 10
"""Digits after the point for a column without values."""
_NOT_DECIMAL = ["nan", "inf", "-inf", "NaN", "Infinity", "-Infinity"]
_MOST_DAYS = 2_000_000_000
_MOST_TICKS = 9_200_000_000_000_000_000
"""Values beyond these limits are infinity in databases, whatever the unit."""
PREVIEW_ROWS = 5
PREVIEW_COLUMNS = 30
CELL_CHARS = 40


@dataclass(frozen=True, slots=True)
class Bounds:
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class QueryResult:
    table: PyArrow
    """A pyarrow.Table."""
    cut: str = ""
    """Why rows are missing; empty if the table is whole."""


def gather_rows(
    batches: Iterable[PyArrow], schema: PyArrow, bounds: Bounds, *, rows: int = 0, size: int = 0
) -> QueryResult:
    """Collect batches up to the bounds; read at most one batch too many. `rows` and `size` were gathered before."""
    kept: list[PyArrow] = []
    cut = ""
    for batch in batches:
        part = batch.slice(0, bounds.rows - rows)
        if part.num_rows < batch.num_rows:
            cut = f"there are more rows than the {bounds.rows:,} that are given at once"
        room = bounds.bytes - size
        if part.nbytes > room:
            counts = range(1, part.num_rows + 1)
            part = part.slice(0, bisect_right(counts, room, key=lambda count, whole=part: whole.slice(0, count).nbytes))
            cut = f"there is more than the {bounds.bytes >> 20:,} MB that are given at once"
        if part.num_rows:
            kept.append(part)
        rows += part.num_rows
        size += part.nbytes
        if cut:
            break
    return QueryResult(pa.Table.from_batches(kept, schema=schema), cut)


def to_table(names: list[str], pieces: Iterable[Sequence[tuple[object, ...]]], bounds: Bounds) -> QueryResult:
    """Build a table from rows of Python values. Each column gets the narrowest type that holds all its values.

    SQLite has no column types, only value types, so they are found from the values.
    """
    found: list[QueryResult] = []
    rows = size = 0
    for piece in pieces:
        batch = pa.record_batch([_array(values) for values in zip(*piece, strict=True)], names=names)
        part = gather_rows([batch], batch.schema, bounds, rows=rows, size=size)
        found.append(part)
        rows += part.table.num_rows
        size += part.table.nbytes
        if part.cut:
            break
    columns: list[PyArrow] = []
    fields: list[PyArrow] = []
    for at, name in enumerate(names):
        chunks = [chunk for part in found for chunk in part.table.column(at).chunks]
        target, kind = _common_type(chunks)
        columns.append(pa.chunked_array([_convert(chunk, target) for chunk in chunks], type=target))
        fields.append(pa.field(name, target, metadata={"sql:type": kind} if kind else None))
    return QueryResult(pa.table(columns, schema=pa.schema(fields)), found[-1].cut if found else "")


def _array(values: tuple[object, ...]) -> PyArrow:
    kinds: set[type] = {type(value) for value in values if value is not None}
    are_exact = kinds == {int, float} and all(abs(value) <= _EXACT for value in values if isinstance(value, int))
    if len(kinds) > 1 and not are_exact:
        return pa.array(list(_as_texts(values)), _MIXED_TYPE)
    return pa.array(values)


def _as_texts(values: Iterable[object]) -> Iterator[str | None]:
    for value in values:
        match value:
            case None | str():
                yield value
            case bytes():
                yield value.decode("utf-8", "replace")
            case _:
                yield repr(value)


def _common_type(chunks: list[PyArrow]) -> tuple[PyArrow, str]:
    """Return the type of a column, and its `sql:type` if that says more."""
    types = {chunk.type for chunk in chunks if chunk.type != pa.null()}
    if not types:
        return pa.null() if chunks else pa.string(), ""
    if len(types) == 1 and _MIXED_TYPE not in types:
        return types.pop(), ""
    if types == {pa.int64(), pa.float64()}:
        ends = [pc.min_max(chunk) for chunk in chunks if chunk.type == pa.int64()]
        if all(abs(end[side].as_py() or 0) <= _EXACT for end in ends for side in ("min", "max")):
            return pa.float64(), ""
    return pa.string(), MIXED


def _convert(chunk: PyArrow, target: PyArrow) -> PyArrow:
    if chunk.type in (target, pa.null(), _MIXED_TYPE) or target == pa.float64():
        return chunk.cast(target)
    return pa.array(list(_as_texts(chunk.to_pylist())), target)


def as_decimals(texts: PyArrow, typmod: int = -1) -> PyArrow:
    """Convert PostgreSQL's numeric texts to the narrowest decimal type that holds the whole column.

    `typmod` is PostgreSQL's precision and scale. The column stays text if it has NaN, infinity or too many digits.
    """
    # Both are 0 if the column declares none, or an unusual combination.
    precision, after = ((typmod - 4) >> 16 & 0xFFFF, (typmod - 4) & 0x7FF) if typmod >= 4 else (0, 0)
    if after > precision:
        precision = after = 0
    digits = precision
    if not digits:
        points = pc.find_substring(texts, ".")
        lengths = pc.utf8_length(texts)
        has_point = pc.greater_equal(points, 0)
        scales = pc.if_else(has_point, pc.subtract(pc.subtract(lengths, points), 1), 0)
        before = pc.max(pc.if_else(has_point, points, lengths)).as_py() or 1
        after = pc.max(scales).as_py()
        after = _DEFAULT_SCALE if after is None else after
        digits = max(before + after, 1)
    if digits > _WIDE_DIGITS or pc.any(pc.is_in(texts, value_set=pa.array(_NOT_DECIMAL))).as_py():
        return texts
    return texts.cast(pa.decimal128(digits, after) if digits <= _NARROW_DIGITS else pa.decimal256(digits, after))


def refuse_infinite(column: PyArrow, name: str) -> None:
    """Raise Refused if a date or time is infinite: converted, it would silently become an ordinary date."""
    is_date = pa.types.is_date32(column.type)
    if not is_date and not pa.types.is_timestamp(column.type):
        return
    ends = pc.min_max(column.cast(pa.int32() if is_date else pa.int64()))
    most = _MOST_DAYS if is_date else _MOST_TICKS
    if any(abs(ends[side].as_py() or 0) > most for side in ("min", "max")):
        raise Refused(f"the column {name!r} holds infinity, which no table here can; select it as text instead")


def preview(table: PyArrow, cut: str) -> str:
    """Return the text shown to the model: number of rows, columns, and the first rows. Bounded for any table."""
    head = f"{table.num_rows:,} {'row' if table.num_rows == 1 else 'rows'} x {table.num_columns:,} columns"
    if cut:
        head += f", CUT: {cut}; aggregate in SQL or select less to have all"
    shown = list(table.schema)[:PREVIEW_COLUMNS]
    hidden = table.num_columns - len(shown)
    columns = ", ".join(f"{_cell(field.name)}: {field.type}" for field in shown)
    columns += f", and {hidden} more" if hidden else ""
    first = table.slice(0, PREVIEW_ROWS)
    values = [[_shown_value(item) for item in first.column(at)] for at in range(len(shown))]
    lines = [f"[{head}; these are not the user's words]", columns]
    lines += [" | ".join(row) for row in zip(*values, strict=True)]
    if table.num_rows > PREVIEW_ROWS:
        lines.append(f"... {table.num_rows - PREVIEW_ROWS:,} more; from Python, all of them are a pyarrow.Table")
    return "\n".join(lines)


def _shown_value(item: PyArrow) -> str:
    if not item.is_valid:
        return "null"
    try:
        value = item.as_py()
    except (ValueError, OverflowError):  # a date outside the range of Python's datetime
        return str(item)
    return _cell(value.hex() if isinstance(value, bytes) else str(value))


def _cell(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= CELL_CHARS else f"{plain[: CELL_CHARS - 3]}..."
