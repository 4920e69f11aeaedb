"""Reads the columns of a table, array, list or dict in place: copies nothing and runs none of the program's code.

A library is used only for its own values, so one that the program has not imported is not imported here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain

from .inventory import axes_of, has_library_labels, is_library_type, is_pandas, module_of, name_of
from .plain_values import STR, describe, plain

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

VALUE = "value"
TEXTS = ("string", "large_string")
"""Text types of pyarrow."""
RECORD_KEYS = 1_000
"""The most keys of a list of dicts that become columns; a list with more is no table."""


class Column:
    """One column, read when it is needed."""

    def __init__(self, name: object, load: Callable[[], Any]) -> None:
        self.name = str(plain(name, 200))
        self._load = load
        self._array: Any = None
        self._typed: Any = None
        """The array as loaded, before `_inner_array`: its type is the one to show."""
        self._labels: list[Any] | None = None

    @property
    def array(self) -> Any:
        """A list or tuple, or an array of a library: numpy, pandas, pyarrow or polars."""
        if self._array is None:
            self._array = self._typed = self._load()
            if _library_of(self._array) == "pandas":
                self._array = _inner_array(self._array)
        return self._array

    @property
    def type(self) -> str:
        if not _library_of(self.array):
            values: list[object] = list(self.array[:1000])
            kinds = {id(type(one)): name_of(type(one)) for one in values if one is not None}
            return str(next(iter(kinds.values()))) if len(kinds) == 1 else "object"
        dtype: object = self._typed.type if _library_of(self._typed) == "pyarrow" else self._typed.dtype
        return str(dtype) if is_library_type(type(dtype)) else name_of(type(dtype))

    @property
    def is_category(self) -> bool:
        return name_of(type(self.array)) == "Categorical"

    def select(self, rows: slice | list[int]) -> list[Any]:
        """Return the values of these rows as Python objects."""
        array, library = self.array, _library_of(self.array)
        if not library:
            return list(array[rows]) if type(rows) is slice else [array[row] for row in rows]
        if library == "pyarrow":
            part = array[rows] if type(rows) is slice else array.take(rows)
            return part.to_numpy().tolist() if str(part.type) in TEXTS else part.to_pylist()
        if library == "numpy" and array.dtype.kind in "mM":
            kind, unit = array.dtype.kind, sys.modules["numpy"].datetime_data(array.dtype)[0]
            return (array[rows].astype(f"{kind}8[us]") if unit in ("ns", "ps", "fs", "as") else array[rows]).tolist()
        if self.is_category:
            labels = self._categories()
            return [None if code < 0 else labels[code] for code in array.codes[rows].tolist()]
        if library == "pandas":
            return list(array[rows])
        return array[rows].to_list() if library == "polars" else array[rows].tolist()

    def _categories(self) -> list[Any]:
        if self._labels is None:
            index = self.array.categories
            self._labels = Column("", lambda: _own(_labels(index), len(index))).select(slice(None))
        return self._labels

    def numbers(self) -> tuple[Any, Any] | None:
        """Return what numpy can sort the column by, and where values are missing (None: nowhere); None if it cannot."""
        numpy: Any = sys.modules.get("numpy")
        array: Any = self.array
        missing: Any = None
        library = _library_of(array)
        if not library or numpy is None:
            return None
        if library == "pandas":
            missing = array.isna()
            # The inner array of categories, of dates and periods, of numbers with a mask.
            inner: list[Any] = [getattr(array, name, None) for name in ("codes", "_ndarray", "_data")]
            array = next((one for one in inner if type(one) is numpy.ndarray), array)
        elif library in ("pyarrow", "polars"):
            array, missing = _arrow_numbers(array, library)
        if type(array) is not numpy.ndarray or array.dtype.kind not in "biufmM":
            return None
        if array.dtype.kind in "fmM":
            empty = numpy.isnan(array) if array.dtype.kind == "f" else numpy.isnat(array)
            missing = empty if missing is None else missing | empty
        return array, missing if missing is not None and missing.any() else None

    def dates(self, rows: slice) -> list[str] | None:
        """Return numpy times as ISO text; None for other arrays, or if one is missing or not a whole second."""
        numpy: Any = sys.modules.get("numpy")
        if numpy is None or type(self.array) is not numpy.ndarray or self.array.dtype.kind != "M":
            return None
        part = self.array[rows]
        unit = numpy.datetime_data(part.dtype)[0]
        if unit not in ("s", "ms", "us", "ns") or (part != part.astype("M8[s]")).any():  # NaT equals nothing
            return None
        return numpy.datetime_as_string(part, "s").tolist()

    def count_nulls(self) -> int | None:
        """Return the number of nulls if the library knows it."""
        library = _library_of(self.array)
        return self.array.null_count() if library == "polars" else getattr(self.array, "null_count", None)


def _library_of(array: object) -> str:
    """Return the library that an array belongs to; empty for a list or tuple."""
    return module_of(type(array)).partition(".")[0] if is_library_type(type(array)) else ""


def _inner_array(array: Any) -> Any:
    """Return the pyarrow array inside a pandas one, or the numpy array inside one of dates without a time zone."""
    dates: Any = getattr(array, "_ndarray", None)
    if _library_of(dates) == "numpy" and dates.dtype.kind in "mM" and _library_of(array.dtype) == "numpy":
        return dates
    return getattr(array, "_pa_array", array)


def _arrow_numbers(array: Any, library: str) -> tuple[Any, Any]:
    if library == "pyarrow":
        kinds: Any = sys.modules["pyarrow"].types
        is_boolean, is_whole = kinds.is_boolean(array.type), kinds.is_integer(array.type)
        is_time = kinds.is_temporal(array.type) and not kinds.is_time(array.type)
        is_number = is_whole or is_time or kinds.is_floating(array.type)
        nulls = array.null_count
    else:
        is_boolean, is_whole = str(array.dtype) == "Boolean", array.dtype.is_integer()
        is_number = array.dtype.is_integer() or array.dtype.is_float() or array.dtype.is_temporal()
        nulls = array.null_count()
    if not (is_number or is_boolean):
        return array, None
    if nulls and (is_whole or is_boolean):  # numpy would make them floats, and round
        return array.fill_null(False if is_boolean else 0).to_numpy(), array.is_null().to_numpy()
    return array.to_numpy(), None


def columns_of(given: object) -> tuple[int, list[Column]] | None:
    """Return the number of rows and the columns of a value; None if it is no table or list."""
    kind = type(given)
    value: Any = given
    if kind is list or kind is tuple:
        return len(value), _list_columns(value)
    if kind is dict:
        keys, values = list(value), list(value.values())
        return len(keys), [Column("key", lambda: keys), Column(VALUE, lambda: values)]
    if kind is set or kind is frozenset or kind is range:
        items = list(value)
        return len(items), [Column(VALUE, lambda: items)]
    if not is_library_type(kind):
        return None
    name, library = name_of(kind), module_of(kind).partition(".")[0]
    if is_pandas(kind):
        return _pandas_columns(value, name)
    if library == "numpy" and name == "ndarray" and value.dtype.names is None and value.ndim in (1, 2):
        if value.ndim == 1:
            return len(value), [Column(VALUE, lambda: value)]
        return len(value), [Column(i, lambda i=i: value[:, i]) for i in range(value.shape[1])]
    if (library, name) == ("polars", "Series"):
        return len(value), [Column(value.name or VALUE, lambda: value)]
    if (library, name) == ("polars", "DataFrame"):
        return value.height, [Column(n, lambda i=i: value.to_series(i)) for i, n in enumerate(value.columns)]
    if (library, name) == ("pyarrow", "Table"):
        names = enumerate(value.column_names)
        return value.num_rows, [Column(n, lambda i=i: value.column(i)) for i, n in names]
    return None


def _list_columns(value: Any) -> list[Column]:
    """Return one column, or for a list of dicts one for each key."""
    keys: dict[str, None] = {}
    if value and all(type(row) is dict for row in value):
        kinds = set(map(id, map(type, chain.from_iterable(value))))
        keys = dict.fromkeys(chain.from_iterable(value)) if kinds == {STR} else {}
    if not 0 < len(keys) <= RECORD_KEYS:
        return [Column(VALUE, lambda: value)]
    return [Column(key, lambda key=key: [row.get(key) for row in value]) for key in keys]


def _pandas_columns(value: Any, name: str) -> tuple[int, list[Column]] | None:
    if name not in ("DataFrame", "Series"):
        return (len(value), _index_columns(value, VALUE)) if has_library_labels(value) else None
    manager: Any = object.__getattribute__(value, "_mgr")
    axes: list[Any] = axes_of(value)
    if not _library_of(manager) or not all(map(has_library_labels, axes)):
        return None
    is_plain = name_of(type(axes[-1])) == "RangeIndex" and axes[-1].name is None
    columns = [] if is_plain else _index_columns(axes[-1], "index")
    rows = len(axes[-1])
    if name == "Series":
        label: object = object.__getattribute__(value, "_name")
        label = VALUE if label is None else label
        return rows, [*columns, Column(label, lambda: _own(manager.blocks[0].values, rows))]
    found = [Column(label, lambda i=i: _own(manager.iget_values(i), rows)) for i, label in enumerate(axes[0])]
    return rows, columns + found


def _index_columns(index: Any, otherwise: str) -> list[Column]:
    if name_of(type(index)) != "MultiIndex":
        return [Column(otherwise if index.name is None else index.name, lambda: _own(_labels(index), len(index)))]
    names = (f"level {i}" if name is None else name for i, name in enumerate(index.names))
    return [
        Column(name, lambda i=i: _own(_labels(index.get_level_values(i)), len(index))) for i, name in enumerate(names)
    ]


def _labels(index: object) -> Any:
    return object.__getattribute__(index, "_values")


def _own(array: object, rows: int) -> Any:
    """Return a library's array. One of the program's own is not read: its type stands for each of its values."""
    return array if _library_of(array) else [describe(array)] * rows
