"""Makes a page of a variable: some rows of a table, sorted and filtered, with a summary of each column.

Changes nothing of the program and runs none of its code. Results of sorting and filtering are kept until a cell runs.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable

from ..toolbox.files import Refused
from .inventory import name_of
from .plain_values import AS_IS, FLOAT, NONE, describe, key_of, plain, simplify
from .table_columns import Column, columns_of

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any

    from .plain_values import Plain

MOST_COLUMNS = 100
"""The most columns shown of one table; the rest are counted."""
PAGE_CHARS = 4_000_000
"""The most characters of all cells of a page; those of a wide page are cut shorter."""
TEXT_CHARS = 10_000
"""The most characters of a variable that is no table."""
SORTED_NUMBERS, SORTED_TEXTS = 20_000_000, 5_000_000
"""The most rows that are sorted: no signal interrupts numpy."""
PART = 50_000
"""Rows that are read, and so copied, at once."""
SAMPLE = 200_000
"""Table cells that summaries read, in evenly spaced rows, and at least this many rows:"""
SAMPLE_ROWS = 10_000
BINS = 20
MOST_FLOAT = 1e300
"""Larger numbers are left out of a histogram."""
KEPT = 4
"""How many tables are kept, and for each how many orders and filters."""
POSSIBLE_CHARS = frozenset("0123456789.+-:einftrusal")
"""Characters that the text of numbers, dates and booleans can contain."""


class Pages:
    """Reads pages. Call `forget` when a cell runs."""

    def __init__(self) -> None:
        self._tables: dict[int, Table] = {}

    def forget(self) -> None:
        self._tables.clear()

    def page(self, namespace: dict[str, object], query: dict[str, Any]) -> dict[str, object]:
        """Return a page of the variable that `query` names. Raises Refused."""
        name = query["name"]
        if name not in namespace:
            raise _unknown("variable", name, [one for one in namespace.copy() if type(one) is str and one[:1] != "_"])
        value = namespace[name]
        table = self._tables.get(id(value))
        if table is None or table.value is not value or not table.is_current():
            table = _keep(self._tables, id(value), Table(value))
        return {"name": name, "type": name_of(type(value))[:200], **table.page(query)}


class Table:
    """A variable as rows and columns, with the orders, filters and summaries found so far."""

    def __init__(self, value: object) -> None:
        self.value = value
        found = columns_of(value)
        self._is_text = found is None
        alone = [value if type(value) is str else describe(value)]
        self.rows, self.columns = found or (1, [Column("value", lambda: alone)])
        self._orders: dict[object, Any] = {}
        self._matches: dict[object, bytearray] = {}
        self._summaries: dict[int, dict[str, object]] = {}

    def is_current(self) -> bool:
        """Return whether the size is the same: a thread that a cell left running may have changed it."""
        found = columns_of(self.value)
        return (found and (found[0], len(found[1]))) == (None if self._is_text else (self.rows, len(self.columns)))

    def page(self, query: dict[str, Any]) -> dict[str, object]:
        offset, limit, needle = query["offset"], query["limit"], query["filter"].casefold()
        sort = None if query["sort"] is None else self._find(query["sort"])
        within = None if query["column"] is None else self._find(query["column"])
        order, matching = self._order(sort, query["descending"], needle, within)
        part = order[offset : offset + limit]
        chosen = list(part) if type(part) is range else part.tolist()
        shown = self.columns[:MOST_COLUMNS]
        chars = max(20, min(500, PAGE_CHARS // max(1, len(shown) * len(chosen))))
        chars = TEXT_CHARS if self._is_text else chars
        cells = [[plain(value, chars) for value in column.select(chosen)] for column in shown] if chosen else []
        return {
            "columns": [self._summary(at) for at in range(len(shown))],
            "rows": list(zip(*cells, strict=True)),
            "total": self.rows,
            "matching": matching,
            "offset": offset,
            "more_columns": len(self.columns) - len(shown),
        }

    def _find(self, name: str) -> int:
        names = [column.name for column in self.columns]
        if name not in names:
            raise _unknown("column", name, names)
        return names.index(name)

    def _order(self, sort: int | None, descending: bool, needle: str, within: int | None) -> tuple[Any, int]:
        """Return the matching rows in order, and their number."""
        order: Any = range(self.rows)
        if sort is not None:
            key = (sort, descending)
            if key not in self._orders:
                _keep(self._orders, key, sort_rows(self.columns[sort], self.rows, descending=descending))
            order = self._orders[key]
        if not needle:
            return order, self.rows
        key = (needle, within)
        if key not in self._matches:
            searched = self.columns if within is None else [self.columns[within]]
            _keep(self._matches, key, find_rows(searched, self.rows, needle))
        matches, key = self._matches[key], (sort, descending, needle, within)
        if key not in self._orders:
            rows = order if type(order) is range else order.tolist()
            _keep(self._orders, key, _compact(list(filter(matches.__getitem__, rows))))
        return self._orders[key], len(self._orders[key])

    def _summary(self, at: int) -> dict[str, object]:
        if at not in self._summaries:
            most = max(SAMPLE_ROWS, SAMPLE // len(self.columns))
            self._summaries[at] = summarize(self.columns[at], self.rows, -(-self.rows // most) or 1)
        return self._summaries[at]


def _keep(kept: dict[Any, Any], key: object, found: object) -> Any:
    while len(kept) >= KEPT:
        del kept[next(iter(kept))]
    kept[key] = found
    return found


def _unknown(what: str, name: str, names: list[str]) -> Refused:
    wanted = name.casefold()
    near = [one for one in names if one.casefold() in wanted or wanted in one.casefold() or one[:3] == name[:3]]
    listed = ", ".join(repr(one[:100]) for one in (near or names)[:5])
    hint = f"did you mean {listed}?" if near else f"there are {listed}" + (", ..." if len(names) > 5 else "")
    return Refused(f"there is no {what} {name[:100]!r}; {hint if names else 'there are none'}")


def sort_rows(column: Column, rows: int, *, descending: bool) -> Any:
    """Return the row numbers in sorted order; equal rows stay in order, missing values come last. Raises Refused."""
    numbers = column.numbers()
    most = SORTED_TEXTS if numbers is None else SORTED_NUMBERS
    if rows > most:
        raise Refused(f"{rows:,} rows are too many to sort by {column.name!r} here; at most {most:,}; sort in a cell")
    if numbers is not None:
        return _sort_numbers(*numbers, descending=descending)
    values: list[Any] = _keys(column.select(slice(None)))
    kinds = set(map(type, values))  # only types that are Python's own
    if str in kinds and not kinds <= {str, type(None)}:
        values = [None if value is None else (type(value) is str, value) for value in values]
    present = [row for row, value in enumerate(values) if value is not None]
    missing = [row for row, value in enumerate(values) if value is None]
    return _compact(sorted(present, key=values.__getitem__, reverse=descending) + missing)


def _sort_numbers(keys: Any, missing: Any, *, descending: bool) -> Any:
    if missing is not None:
        there = (~missing).nonzero()[0]
        order = _sort_numbers(keys[there], None, descending=descending)
        numpy: Any = sys.modules["numpy"]
        return numpy.concatenate((there[order], missing.nonzero()[0]))
    if not descending:
        return keys.argsort(kind="stable")
    return len(keys) - 1 - keys[::-1].argsort(kind="stable")[::-1]


def _compact(rows: list[int]) -> memoryview:
    """Store row numbers in 8 bytes each, not 36."""
    packed = memoryview(bytearray(8 * len(rows))).cast("q")
    for at, row in enumerate(rows):
        packed[at] = row
    return packed


def _keys(values: list[Any]) -> list[Any]:
    return values if set(map(id, map(type, values))) <= AS_IS else [key_of(value) for value in values]


def find_rows(columns: Iterable[Column], rows: int, needle: str) -> bytearray:
    """Return 1 for each row that has the text in one of the columns, ignoring case."""
    found = bytearray(rows)
    for column in columns:
        numbers = None if column.is_category else column.numbers()
        if numbers is not None and numbers[0].dtype.kind in "biufM" and not POSSIBLE_CHARS.issuperset(needle):
            continue
        for start in range(0, rows, PART):
            part = slice(start, start + PART)
            texts = column.dates(part) or _texts(column.select(part))
            for row, text in enumerate(texts, start):
                found[row] |= needle in text.casefold()
    return found


def _texts(values: list[Any]) -> list[str]:
    if not set(map(id, map(type, values))) <= AS_IS | {FLOAT}:
        values = [simplify(value) for value in values]
    return ["" if one is None or one != one else str(one) for one in values]  # noqa: PLR0124 - not a number


def summarize(column: Column, rows: int, step: int) -> dict[str, object]:
    """Summarise every `step`th row. Missing values, and the extremes of numbers and dates, come from all rows."""
    numbers = column.numbers()
    top: list[Any] = []
    if numbers is None or column.is_category or numbers[0].dtype.kind == "b":
        values = column.select(slice(None, None, step))
        keys = _keys(values)
        there = [at for at, key in enumerate(keys) if key is not None]
        present = [keys[at] for at in there]
        is_mixed = len(set(map(type, present))) > 1  # only types that are Python's own
        order: Callable[[int], Any] = (lambda at: (type(keys[at]) is str, keys[at])) if is_mixed else keys.__getitem__
        ends = [plain(values[end(there, key=order)]) for end in (min, max) if there]
    else:
        ends, present = _number_ends(column, *numbers), _number_sample(*numbers, step)
    counts = Counter(present)
    histogram: list[int] | None = None
    if {int, float}.issuperset(map(type, counts)):
        histogram = count_bins(present)
    elif len(counts) <= BINS:
        top = sorted(counts, key=lambda key: -counts[key])
        histogram = [counts[key] for key in top]
    return {
        "name": column.name,
        "type": column.type[:200],
        "missing": _count_missing(column, rows, numbers),
        "distinct": len(counts),
        "least": ends[0] if ends else None,
        "greatest": ends[1] if ends else None,
        "histogram": histogram,
        "top": [plain(key, 100) for key in top],
        "sampled": step > 1,
    }


def _number_ends(column: Column, keys: Any, missing: Any) -> list[Plain]:
    there = None if missing is None else (~missing).nonzero()[0]
    keys = keys if there is None else keys[there]
    if not len(keys):
        return []
    at = [int(keys.argmin()), int(keys.argmax())]
    return [plain(value) for value in column.select(at if there is None else there[at].tolist())]


def _number_sample(keys: Any, missing: Any, step: int) -> list[Any]:
    sample = keys[::step] if missing is None else keys[::step][~missing[::step]]
    return (sample.view("i8") if sample.dtype.kind in "mM" else sample).tolist()


def _count_missing(column: Column, rows: int, numbers: tuple[Any, Any] | None) -> int:
    if numbers is not None:
        return 0 if numbers[1] is None else int(numbers[1].sum())
    known = column.count_nulls()
    if known is not None:
        return known
    missing = 0
    for start in range(0, rows, PART):
        part: list[object] = column.select(slice(start, start + PART))
        kinds = set(map(id, map(type, part)))
        if kinds <= AS_IS:
            missing += part.count(None) if NONE in kinds else 0
        else:
            missing += sum(simplify(value) is None for value in part)
    return missing


def count_bins(values: list[Any]) -> list[int] | None:
    """Count the values in each of 20 equal bins between the least and the greatest; None if none is finite."""
    finite = [value for value in values if -MOST_FLOAT < value < MOST_FLOAT]
    if not finite:
        return None
    least = min(finite)
    width = (max(finite) - least) / BINS
    places = Counter(int((value - least) / width) for value in finite) if width > 0 else {0: len(finite)}
    counts = [places.get(at, 0) for at in range(BINS)]
    counts[-1] += len(finite) - sum(counts)  # the greatest belong to the last bin
    return counts
