"""Exact figures of a column of any length in bounded memory. Needs NumPy.

Values come in batches. Each is sorted and, once there are too many different ones to count them all, written to a
nameless file as a run. Every 256th value of a run stays in memory: that tells where to look for a rank or a range.
"""

from __future__ import annotations

import os
import tempfile
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Literal, TypeAlias

    Array: TypeAlias = Any

# Its threads would spin between one short sum and the next.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
np: Any = import_module("numpy")


FEW = 1 << 16
"""Different values of a column that are counted in memory."""
RANGE = 1 << 19
"""Values that are counted at once where there are more than a few."""
STEP = 256
"""Values of a run for each that stays in memory."""
TIES = 256
WIDTH = 8
"""Bytes of a value."""


class Scratch:
    """Room on the disk that no name leads to; in the working folder, or where temporary files go."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0

    def write(self, values: Array) -> int:
        """Where they are now, counted in values; all are of one width."""
        if self._fd < 0:
            self._fd = self._file()
        view = memoryview(values).cast("B")
        start = self._size // WIDTH
        self._size += len(view)
        while view:
            view = view[os.write(self._fd, view) :]
        return start

    def read(self, start: int, count: int, dtype: Any) -> Array:
        return np.frombuffer(os.pread(self._fd, count * WIDTH, start * WIDTH), dtype)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    @staticmethod
    def _file() -> int:
        try:
            return os.open(".", os.O_TMPFILE | os.O_RDWR, 0o600)
        except (AttributeError, OSError):  # read-only, or a file system without them
            fd, name = tempfile.mkstemp()
            os.unlink(name)
            return fd


class Run:
    """Sorted values on the disk."""

    def __init__(self, scratch: Scratch, start: int, index: Array, length: int) -> None:
        self._scratch = scratch
        self._start = start
        self.index = index
        self.length = length

    def part(self, first: int, last: int) -> Array:
        return self._scratch.read(self._start + first, last - first, self.index.dtype)

    def below(self, value: Any, side: Literal["left", "right"]) -> int:
        """How many values are less, or not greater."""
        blocks = int(self.index.searchsorted(value, side))
        if not blocks:
            return 0
        first = (blocks - 1) * STEP
        return first + int(self.part(first, min(first + STEP, self.length)).searchsorted(value, side))


class Column:
    """Values of one type: int64, uint64 or float64 without NaN."""

    def __init__(self, dtype: str, scratch: Scratch, few: int = FEW) -> None:
        self._dtype = np.dtype(dtype)
        self._scratch = scratch
        self._few = few
        self._values: Array = np.empty(0, self._dtype)
        self._counts: Array = np.empty(0, np.int64)
        self._runs: list[Run] = []
        """Empty as long as there are few different values."""
        self.count = 0

    def add(self, values: Array) -> None:
        if not len(values):
            return
        self.count += len(values)
        if self._runs:
            self._write([np.sort(values)])
            return
        ordered, different, counts = _counted(values)
        if len(self._values):
            different, counts = _merged(self._values, self._counts, different, counts)
        if len(different) <= self._few:
            self._values, self._counts = different, counts
            return
        if len(self._values):
            self._write(_repeated(self._values, self._counts))
            self._values, self._counts = self._values[:0], self._counts[:0]
        self._write([np.sort(values) if ordered is None else ordered])

    def _write(self, pieces: Iterable[Array]) -> None:
        """A run that comes in pieces."""
        index: list[Array] = []
        start = length = 0
        for piece in pieces:
            at = self._scratch.write(piece)
            start = start if index else at
            index.append(piece[-length % STEP :: STEP].copy())
            length += len(piece)
        self._runs.append(Run(self._scratch, start, np.concatenate(index), length))

    def ends(self) -> tuple[Any, Any]:
        """The least and the greatest."""
        if not self._runs:
            return self._values[0], self._values[-1]
        return min(run.index[0] for run in self._runs), max(
            run.part(run.length - 1, run.length)[0] for run in self._runs
        )

    def pair(self, rank: int) -> tuple[Any, Any]:
        """The value that stands there when all are in order, counted from 0, and the next; the last has none but itself."""
        after = min(rank + 1, self.count - 1)
        if not self._runs:
            ends = np.cumsum(self._counts)
            first, second = (self._values[int(np.searchsorted(ends, at, "right"))] for at in (rank, after))
            return first, second
        index = np.unique(np.concatenate([run.index for run in self._runs]))
        first, second = _ranked(self._runs, index, rank)
        return first, _ranked(self._runs, index, after)[0] if second is None else second

    def different(self) -> tuple[int, int, list[Any]]:
        """How many there are, how often the most frequent is there, and which those are, `TIES` at most."""
        if not self._runs:
            if not self.count:
                return 0, 0, []
            most = int(self._counts.max())
            return len(self._values), most, list(self._values[self._counts == most][:TIES])
        total = most = 0
        top: list[Any] = []
        for values, counts in _ranges(self._runs, self.count):
            total += len(values)
            here = int(counts.max())
            if here > most:
                most, top = here, []
            if here == most and len(top) < TIES:
                top += list(values[counts == most][: TIES - len(top)])
        return total, most, top

    def has(self, value: int) -> bool:
        value = self._dtype.type(value)
        if not self._runs:
            return bool((self._values == value).any())
        return any(run.below(value, "right") > run.below(value, "left") for run in self._runs)


class Moments:
    """Mean and standard deviation, batch by batch."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = 0.0
        self._squares = 0.0

    def add(self, values: Array) -> None:
        if not len(values):
            return
        with np.errstate(invalid="ignore"):  # infinities
            near = self.mean if self.count else float(values.mean())
            # About a value in their midst, so that the squares do not drown what they differ by.
            numbers = np.subtract(values, near, dtype=np.float64)
            count, total = len(numbers), self.count + len(numbers)
            above = float(numbers.sum()) / count
            squares = float(np.dot(numbers, numbers)) - above * above * count
            apart = near + above - self.mean
            self.mean += apart * count / total
            self._squares += squares + apart * apart * self.count * count / total
            self.count = total

    @property
    def std(self) -> float:
        return float(np.sqrt(max(self._squares, 0.0) / (self.count - 1))) if self.count > 1 else float("nan")


def quantile(column: Column, share: float) -> float:
    """Between two values by a straight line, as pandas and NumPy do."""
    place = share * (column.count - 1)
    low = int(place)
    part = place - low
    a, b = (value.item() for value in column.pair(low))
    if a == b:
        return float(a)
    return a + (b - a) * part if part < 0.5 else b - (b - a) * (1 - part)


def _counted(values: Array) -> tuple[Array | None, Array, Array]:
    """In order where that was needed, the different ones, and how often each is there."""
    if values.dtype == np.int64:
        low, high = int(values.min()), int(values.max())
        if high - low < FEW:
            counts = np.bincount(values - low)
            there = np.flatnonzero(counts)
            return None, there + low, counts[there]
    ordered = np.sort(values)
    different, counts = _runs_of(ordered)
    return ordered, different, counts


def _runs_of(ordered: Array) -> tuple[Array, Array]:
    if not len(ordered):
        return ordered, np.empty(0, np.int64)
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.concatenate(([0], starts))
    return ordered[starts], np.diff(starts, append=len(ordered))


def _merged(values: Array, counts: Array, more: Array, their: Array) -> tuple[Array, Array]:
    if not len(values):
        return more, their
    together = np.concatenate((values, more))
    order = np.argsort(together, kind="stable")
    together, sums = together[order], np.concatenate((counts, their))[order]
    starts = np.concatenate(([0], np.flatnonzero(together[1:] != together[:-1]) + 1))
    return together[starts], np.add.reduceat(sums, starts)


def _repeated(values: Array, counts: Array) -> Iterator[Array]:
    """Every value as often as it is there, a piece at a time."""
    ends = np.cumsum(counts)
    at = 0
    while at < len(ends):
        done = int(ends[at - 1]) if at else 0
        stop = max(at + 1, int(np.searchsorted(ends, done + RANGE, "right")))
        yield np.repeat(values[at:stop], counts[at:stop])
        at = stop


def _ranked(runs: list[Run], index: Array, rank: int) -> tuple[Any, Any]:
    """The value between two neighbours of the index: few others stand there, and all of them are looked at.

    With the one behind it, should that be among them.
    """
    low, high = 0, len(index)
    while low < high:
        middle = (low + high) // 2
        if sum(run.below(index[middle], "right") for run in runs) > rank:
            high = middle
        else:
            low = middle + 1
    first = [run.below(index[low - 1], "right") if low else 0 for run in runs]
    last = [run.below(index[low], "left") if low < len(index) else run.length for run in runs]
    between = np.sort(np.concatenate([run.part(a, b) for run, a, b in zip(runs, first, last, strict=True)]))
    place = rank - sum(first)
    if place >= len(between):
        return index[low], None
    return between[place], between[place + 1] if place + 1 < len(between) else None


def _ranges(runs: list[Run], count: int) -> Iterator[tuple[Array, Array]]:
    """Different values and their counts, a range of values at a time."""
    index = np.sort(np.concatenate([run.index for run in runs]))
    pieces = -(-count // RANGE)
    cuts = np.unique(index[[len(index) * number // pieces for number in range(1, pieces)]])
    places = [[0, *(run.below(cut, "left") for cut in cuts), run.length] for run in runs]
    for number in range(len(cuts) + 1):
        parts = [(run, at[number], at[number + 1]) for run, at in zip(runs, places, strict=True)]
        if sum(last - first for _, first, last in parts) <= 4 * RANGE:
            together = np.concatenate([run.part(first, last) for run, first, last in parts])
            together.sort()
            found = _runs_of(together)
        else:  # some values are there very often
            found = np.empty(0, index.dtype), np.empty(0, np.int64)
            for run, first, last in parts:
                for at in range(first, last, RANGE):
                    found = _merged(*found, *_runs_of(run.part(at, min(at + RANGE, last))))
        if len(found[0]):
            yield found
