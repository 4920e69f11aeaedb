"""Exact figures of a column of any length in bounded memory, for several threads. Needs NumPy.

Values come in batches. Few different ones are counted in memory; otherwise all of them go to a nameless file, as keys
of eight bytes: those of numbers in the order of the numbers, to be narrowed down to a rank; any others in buckets, each
of which is small enough to be sorted and counted.
"""

from __future__ import annotations

import os
import tempfile
import threading
from importlib import import_module
from itertools import islice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeAlias

    Array: TypeAlias = Any

# Its threads would spin between one short sum and the next.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
np: Any = import_module("numpy")


FEW = 1 << 16
"""Different values of a column that are counted in memory."""
RANGE = 1 << 19
"""Values that are sorted at once."""
BINS = 16
"""Bits by which a range of keys is narrowed at once."""
TIES = 256
AT_ONCE = 8
"""Batches."""
WIDTH = 8
"""Bytes of a value."""
_SIGN = np.uint64(1 << 63)
# Multiplied by it, values that are alike differ in their first bits, and none are lost.
_SPREAD = np.uint64(0x9E3779B97F4A7C15)
_BACK = np.uint64(pow(0x9E3779B97F4A7C15, -1, 1 << 64))
_BUCKETS = 256
_BUCKET_BITS = np.uint64(56)


class Scratch:
    """Room on the disk that no name leads to; in the working folder, or where temporary files go."""

    def __init__(self) -> None:
        self._fd = -1
        self._size = 0
        self._turn = threading.Lock()

    def write(self, values: Array) -> int:
        """Where they are now, counted in values; all are of one width."""
        with self._turn:
            if self._fd < 0:
                self._fd = self._file()
            start = self._size
            self._size += len(values)
        view = memoryview(values).cast("B")
        at = start * WIDTH
        while view:
            written = os.pwrite(self._fd, view, at)
            view = view[written:]
            at += written
        return start

    def read(self, start: int, count: int) -> Array:
        return np.frombuffer(os.pread(self._fd, count * WIDTH, start * WIDTH), np.uint64)

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


class _Few:
    """Different values and how often each is there."""

    def __init__(self, dtype: Any, most: int) -> None:
        self.values: Array = np.empty(0, dtype)
        self.counts: Array = np.empty(0, np.int64)
        self._most = most

    def add(self, values: Array, counts: Array) -> bool:
        """Whether they are few still; if not, nothing was added."""
        values, counts = _merged(self.values, self.counts, values, counts)
        if len(values) > self._most:
            return False
        self.values, self.counts = values, counts
        return True

    def all(self) -> Iterator[Array]:
        """Every value as often as it is there, a piece at a time."""
        ends = np.cumsum(self.counts)
        for done in range(0, int(self.counts.sum()), RANGE):
            here = np.clip((ends - self.counts, ends), done, done + RANGE)
            yield np.repeat(self.values, here[1] - here[0])


class _Column:
    """Values of one type: int64, uint64 or float64. They come from several threads."""

    def __init__(self, dtype: str, scratch: Scratch, few: int = FEW) -> None:
        self._dtype = np.dtype(dtype)
        self._scratch = scratch
        self._few = _Few(self._dtype, few)
        self._many = False
        self._turn = threading.Lock()
        self._low: Any = None
        self._high: Any = None
        self.count = 0
        self.rows = 0

    def add(self, values: Array, rows: int) -> None:
        """Those that are there in so many rows."""
        if self._dtype == np.float64:
            values = values[~np.isnan(values)]
        low, high = (values.min(), values.max()) if len(values) else (self._low, self._high)
        counted = None if self._many else self._counted(values)
        before = _Few(self._dtype, 0)
        with self._turn:
            self.count += len(values)
            self.rows += rows
            if not len(values):
                return
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)
            self._note(values)
            if not self._many and counted and self._few.add(*counted):
                return
            self._many = True
            before, self._few = self._few, before
        for piece in before.all():
            self._keep(piece)
        self._keep(values)

    @property
    def is_many(self) -> bool:
        """Its values are in the file."""
        return self._many

    def ends(self) -> tuple[Any, Any]:
        """The least and the greatest."""
        return self._low, self._high

    def _counted(self, values: Array) -> tuple[Array, Array] | None:
        """The different ones and how often each is there, where that is worth while."""
        raise NotImplementedError

    def _note(self, values: Array) -> None:
        """What else is to be known of them; one thread at a time."""

    def _keep(self, values: Array) -> None:
        """In the file; several threads at a time."""
        raise NotImplementedError


class Numbers(_Column):
    """Their ranks, mean and deviation."""

    def __init__(self, dtype: str, scratch: Scratch, few: int = FEW) -> None:
        super().__init__(dtype, scratch, few)
        self._kept: list[tuple[int, int]] = []
        """Where keys are in the file, and how many."""
        self._first: tuple[Array, int] | None = None
        """How the keys are spread, once that was looked at."""
        self._near: dict[int, Array] = {}
        """Of some of those ranges all keys, in order."""
        self.moments = Moments()

    def _counted(self, values: Array) -> tuple[Array, Array] | None:
        return _by_place(values)

    def _note(self, values: Array) -> None:
        self.moments.add(values)

    def _keep(self, values: Array) -> None:
        self._kept.append((self._scratch.write(_keys(values)), len(values)))

    def pair(self, rank: int) -> tuple[Any, Any]:
        """The value that stands there when all are in order, counted from 0, and the next; the last has none but itself."""
        after = min(rank + 1, self.count - 1)
        if not self._many:
            ends = np.cumsum(self._few.counts)
            first, second = (self._few.values[int(ends.searchsorted(at, "right"))] for at in (rank, after))
            return first, second
        first, second = self._ranked(rank)
        return first, self._ranked(after)[0] if second is None else second

    def look_for(self, ranks: list[int]) -> None:
        """Go through the keys for all of them at once."""
        if not self._many:
            return
        low, high = self._key_ends()
        self._first = inside, shift = self._spread(low, high)
        places = {int(at) for at in np.cumsum(inside).searchsorted(ranks, "right")}
        found: dict[int, list[Array]] = {at: [] for at in places if shift and inside[at] <= RANGE}
        for above in self._above(low, high):
            bins = above >> np.uint64(shift)
            for at, pieces in found.items():
                pieces.append(above[bins == np.uint64(at)])
        self._near = {at: _sorted(pieces) + np.uint64(low) for at, pieces in found.items()}

    def _key_ends(self) -> tuple[int, int]:
        low, high = (int(_keys(np.array([end], self._dtype))[0]) for end in self.ends())
        return low, high

    def _ranked(self, rank: int) -> tuple[Any, Any]:
        """With the next, should that be among the keys that were looked at in the end."""
        low, high = self._key_ends()
        self._first = inside, shift = self._first or self._spread(low, high)
        near = self._near
        while True:
            ends = np.cumsum(inside)
            at = int(ends.searchsorted(rank, "right"))
            rank -= int(ends[at]) - int(inside[at])
            low += at << shift
            high = low + (1 << shift) - 1
            if not shift:
                return self._value(low), self._value(low) if rank + 1 < inside[at] else None
            if inside[at] <= RANGE:
                keys = near[at] if at in near else _sorted(self._above(low, high)) + np.uint64(low)
                return self._value(keys[rank]), self._value(keys[rank + 1]) if rank + 1 < len(keys) else None
            (inside, shift), near = self._spread(low, high), {}

    def _spread(self, low: int, high: int) -> tuple[Array, int]:
        """How many keys are in each of some ranges of equal width."""
        shift = max(0, (high - low).bit_length() - BINS)
        counts = np.zeros(((high - low) >> shift) + 1, np.int64)
        for above in self._above(low, high):
            counts += np.bincount((above >> np.uint64(shift)).view(np.int64), minlength=len(counts))
        return counts, shift

    def _above(self, low: int, high: int) -> Iterator[Array]:
        """By how much the keys that are not above the high one are above the low one."""
        pieces = iter(self._kept)
        # So many at once that it does not show what a step takes.
        while some := list(islice(pieces, AT_ONCE)):
            keys = np.concatenate([self._scratch.read(*one) for one in some])
            keys -= np.uint64(low)  # what is below it comes out above all others
            yield keys[keys <= np.uint64(high - low)]

    def _value(self, key: Any) -> Any:
        bits = np.array([key], np.uint64)
        if self._dtype == np.int64:
            return (bits ^ _SIGN).view(np.int64)[0]
        return np.where(bits & _SIGN, bits ^ _SIGN, ~bits).view(np.float64)[0]


class Kinds(_Column):
    """How many different ones there are, and which is there most often. None are broken numbers."""

    def __init__(self, dtype: str, scratch: Scratch, few: int = FEW) -> None:
        super().__init__(dtype, scratch, few)
        self._kept: list[tuple[int, Array]] = []
        """Where keys are in the file, and where each bucket begins there."""

    def _counted(self, values: Array) -> tuple[Array, Array] | None:
        return _by_place(values) or _runs_of(np.sort(values))

    def _keep(self, values: Array) -> None:
        keys = values.view(np.uint64) * _SPREAD
        buckets = (keys >> _BUCKET_BITS).astype(np.uint8)
        starts = np.concatenate(([0], np.cumsum(np.bincount(buckets, minlength=_BUCKETS))))
        # Numbers as small as these NumPy sorts by counting them.
        self._kept.append((self._scratch.write(keys[np.argsort(buckets, kind="stable")]), starts))

    def different(self) -> tuple[int, int, list[Any]]:
        """How many there are, how often the most frequent is there, and which those are, `TIES` at most."""
        total = most = 0
        top: list[Any] = []
        for values, counts in self._groups() if self._many else [(self._few.values, self._few.counts)]:
            total += len(values)
            here = int(counts.max(initial=0))
            if here > most:
                most, top = here, []
            if here == most and len(top) < TIES:
                top += list(values[counts == most][: TIES - len(top)])
        return total, most, top

    def has(self, value: int) -> bool:
        values = np.array([value], self._dtype)
        if not self._many:
            return bool((self._few.values == values).any())
        key = values.view(np.uint64) * _SPREAD
        bucket = int(key[0] >> _BUCKET_BITS)
        return any((keys == key).any() for keys in self._bucket(bucket, bucket + 1))

    def _bucket(self, first: int, last: int) -> Iterator[Array]:
        for start, starts in self._kept:
            yield self._scratch.read(start + int(starts[first]), int(starts[last] - starts[first]))

    def _groups(self) -> Iterator[tuple[Array, Array]]:
        """Different values and their counts, some buckets at a time."""
        ends = np.cumsum(np.sum([np.diff(starts) for _, starts in self._kept], axis=0))
        first = 0
        while first < _BUCKETS:
            done = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(ends.searchsorted(done + RANGE, "right")))
            if int(ends[last - 1]) - done <= 4 * RANGE:
                found = _runs_of(_sorted(self._bucket(first, last)))
            else:  # some values are there very often, or there are very many
                found = np.empty(0, np.uint64), np.empty(0, np.int64)
                for keys in self._bucket(first, last):
                    found = _merged(*found, *_runs_of(np.sort(keys)))
            yield (found[0] * _BACK).view(self._dtype), found[1]
            first = last


class Moments:
    """Mean and standard deviation, batch by batch."""

    def __init__(self) -> None:
        self._count = 0
        self._mean = 0.0
        self._squares = 0.0
        self._infinite = 0.0
        """The sum of the infinities."""

    def add(self, values: Array) -> None:
        with np.errstate(invalid="ignore", over="ignore"):
            near = self._mean if self._count else float(values[0])
            # About a value in their midst, so that the squares do not drown what they differ by.
            numbers = np.subtract(values, near, dtype=np.float64)
            count, total = len(numbers), self._count + len(numbers)
            above = float(numbers.sum()) / count
            if not np.isfinite(above):
                self._infinite += float(values.sum())
                return
            squares = float(np.dot(numbers, numbers)) - above * above * count
            apart = near + above - self._mean
            self._mean += apart * count / total
            self._squares += squares + apart * apart * self._count * count / total
            self._count = total

    @property
    def mean(self) -> float:
        return self._infinite or self._mean

    @property
    def std(self) -> float:
        if self._infinite or self._count < 2:
            return float("nan")
        return float(np.sqrt(max(self._squares, 0.0) / (self._count - 1)))


def quantiles(column: Numbers, shares: list[float]) -> list[float]:
    """Between two values by a straight line, as pandas and NumPy do."""
    column.look_for([int(share * (column.count - 1)) for share in shares])
    return [_quantile(column, share) for share in shares]


def _quantile(column: Numbers, share: float) -> float:
    place = share * (column.count - 1)
    low = int(place)
    part = place - low
    a, b = (value.item() for value in column.pair(low))
    if a == b:
        return float(a)
    return a + (b - a) * part if part < 0.5 else b - (b - a) * (1 - part)


def _keys(values: Array) -> Array:
    """In the order of the values, but whole and without a sign."""
    if values.dtype == np.int64:
        return values.view(np.uint64) ^ _SIGN
    values = values + 0.0  # zero has no sign
    return values.view(np.uint64) ^ ((values.view(np.int64) >> 63).view(np.uint64) | _SIGN)


def _sorted(pieces: Iterable[Array]) -> Array:
    together = np.concatenate(list(pieces))
    together.sort()
    return together


def _by_place(values: Array) -> tuple[Array, Array] | None:
    """The different ones and how often each is there, if all are whole numbers near each other."""
    if values.dtype != np.int64 or not len(values) or int(values.max()) - int(values.min()) >= FEW:
        return None
    low = values.min()
    counts = np.bincount(values - low)
    there = np.flatnonzero(counts)
    return there + low, counts[there]


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
