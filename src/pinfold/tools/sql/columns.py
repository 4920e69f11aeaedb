"""Rows of Python values as columns of Arrow. SQLite has no types of columns, only of values: they are found as they come."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pinfold.tools.sql.bounds import Bounds, Gathered, gather_rows
from pinfold.tools.sql.libraries import arrow, compute

_EXACT = 1 << 53
"""Whole numbers up to here are exact as floating point."""
MIXED = "mixed: numbers, texts or bytes; each is given as text"


class Columns:
    def __init__(self, names: list[str]) -> None:
        self._names = names

    def to_table(self, pieces: Iterable[list[tuple[Any, ...]]], bounds: Bounds) -> Gathered:
        """All that fits, each column in the narrowest type that holds all of its values as they are."""
        pa = arrow()
        # What cannot be one type stays apart until all of it is there.
        found: list[Gathered] = []
        rows = size = 0
        for piece in pieces:
            batch = self._batch(piece)
            part = gather_rows(iter([batch]), batch.schema, Bounds(bounds.rows - rows, bounds.bytes - size))
            found.append(part)
            rows += part.table.num_rows
            size += part.table.nbytes
            if part.cut:
                break
        cut = found[-1].cut if found else ""
        if cut:
            whole = Bounds(bounds.rows, bounds.bytes)
            cut = _reason(cut, whole)
        arrays = [self._join_chunks(at, found) for at in range(len(self._names))]
        fields = [
            pa.field(name, array.type, metadata={"sql:type": kind} if kind else None)
            for name, (array, kind) in zip(self._names, arrays, strict=True)
        ]
        return Gathered(pa.table([array for array, _ in arrays], schema=pa.schema(fields)), cut)

    def _batch(self, rows: list[tuple[Any, ...]]) -> Any:
        pa = arrow()
        columns = list(zip(*rows, strict=True)) if rows else [()] * len(self._names)
        return pa.record_batch([_array(values) for values in columns], names=self._names)

    def _join_chunks(self, at: int, found: list[Gathered]) -> tuple[Any, str]:
        pa = arrow()
        chunks = [chunk for part in found for chunk in part.table.column(at).chunks]
        types = {chunk.type for chunk in chunks if chunk.type != pa.null()}
        target, kind = _common(types, chunks)
        return pa.chunked_array([_as(chunk, target) for chunk in chunks], type=target), kind


def _reason(cut: str, bounds: Bounds) -> str:
    if "rows" in cut:
        return f"there are more rows than the {bounds.rows:,} that are given at once"
    return f"there is more than the {bounds.bytes >> 20:,} MB that are given at once"


def _array(values: tuple[Any, ...]) -> Any:
    pa = arrow()
    kinds: set[type[Any]] = {type(value) for value in values if value is not None}
    if kinds == {int, float}:
        is_exact = all(abs(value) <= _EXACT for value in values if isinstance(value, int))
        return pa.array(values, pa.float64()) if is_exact else _texts(values)
    if len(kinds) > 1:
        return _texts(values)
    types = {bool: pa.bool_(), int: pa.int64(), float: pa.float64(), str: pa.string(), bytes: pa.binary()}
    return pa.array(values, types[kinds.pop()]) if kinds else pa.nulls(len(values))


def _texts(values: Iterable[Any]) -> Any:
    pa = arrow()
    return pa.array(list(_each_text(values)), _mixed_type())


def _each_text(values: Iterable[Any]) -> Iterator[str | None]:
    for value in values:
        match value:
            case None | str():
                yield value
            case bytes():
                yield value.decode("utf-8", "replace")
            case _:
                yield repr(value)


def _mixed_type() -> Any:
    """Text too, yet told apart from what was text all along."""
    pa = arrow()
    return pa.large_string()


def _common(types: set[Any], chunks: list[Any]) -> tuple[Any, str]:
    pa = arrow()
    pc = compute()
    if not types:
        return pa.string() if not chunks else pa.null(), ""
    if len(types) == 1 and (only := next(iter(types))) != _mixed_type():
        return only, ""
    if types == {pa.int64(), pa.float64()}:
        ends = [pc.min_max(chunk) for chunk in chunks if chunk.type == pa.int64()]
        if all(abs(end[side].as_py() or 0) <= _EXACT for end in ends for side in ("min", "max")):
            return pa.float64(), ""
    return pa.string(), MIXED


def _as(chunk: Any, target: Any) -> Any:
    pa = arrow()
    if chunk.type == target:
        return chunk
    if chunk.type == pa.null() or target == pa.float64():
        return chunk.cast(target)
    if chunk.type == _mixed_type():
        return chunk.cast(target)
    return pa.array(list(_each_text(chunk.to_pylist())), target)
