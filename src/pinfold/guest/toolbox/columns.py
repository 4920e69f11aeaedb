"""Exact figures of a column of any length in bounded memory, for several threads. Needs NumPy.

Values come in batches. Few different ones are counted in memory; otherwise all of them go to a nameless file, as keys
of eight bytes: those of numbers in the order of the numbers, to be narrowed down to a rank; any others in buckets, each
of which is small enough to be sorted and counted.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from itertools import islice

from .value_counts import SPREAD, SmallCounter, find_candidates, find_repeated, merge_counts, np, runs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, TypeAlias

    Array: TypeAlias = Any

FEW = 1 << 14
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
_BACK = np.uint64(pow(int(SPREAD), -1, 1 << 64))
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

    def read(self, places: list[tuple[int, int]]) -> Array:
        """What is there, one after the other: where each begins, and how many they are."""
        found = np.empty(sum(count for _, count in places), np.uint64)
        at = 0
        for start, count in places:
            if os.preadv(self._fd, [found[at : at + count]], start * WIDTH) != count * WIDTH:
                raise OSError(errno.EIO, "what was written is not there")
            at += count
        return found

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


class _Column:
    """Values of one type: int64, uint64 or float64. They come from several threads."""

    def __init__(self, dtype: str, scratch: Scratch, few: int = FEW) -> None:
        self._dtype = np.dtype(dtype)
        self._scratch = scratch
        self._few: SmallCounter | None = SmallCounter(self._dtype, few)
        """None once they are too many."""
        self._turn = threading.Lock()
        self._low: Any = None
        self._high: Any = None
        self.count = 0
        self.rows = 0

    def add(self, values: Array, rows: int) -> None:
        """Those that are there in so many rows."""
        if self._dtype == np.float64 and (absent := np.isnan(values)).any():
            values = values[~absent]
        low, high = (values.min(), values.max()) if len(values) else (self._low, self._high)
        few = self._few
        seen = few.look(values) if few else None
        pieces: Iterable[Array] = [values]
        with self._turn:
            self.count += len(values)
            self.rows += rows
            if not len(values):
                return
            self._low = low if self._low is None else min(self._low, low)
            self._high = high if self._high is None else max(self._high, high)
            self._note(values)
            if self._few and seen:
                if self._few.add(*seen):
                    return
                pieces, self._few = self._few.all(RANGE), None
        for piece in pieces:
            self._keep(piece)

    @property
    def is_many(self) -> bool:
        """Its values are in the file."""
        return not self._few

    def ends(self) -> tuple[Any, Any]:
        """The least and the greatest."""
        return self._low, self._high

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

    def _note(self, values: Array) -> None:
        self.moments.add(values)

    def _keep(self, values: Array) -> None:
        self._kept.append((self._scratch.write(_keys(values)), len(values)))

    def pair(self, rank: int) -> tuple[Any, Any]:
        """The value that stands there when all are in order, counted from 0, and the next; the last has none but itself."""
        after = min(rank + 1, self.count - 1)
        if self._few:
            values, counts = self._few.get_counts()
            first, second = values[np.cumsum(counts).searchsorted([rank, after], "right")]
            return first, second
        first, second = self._find_rank(rank)
        return first, self._find_rank(after)[0] if second is None else second

    def look_for(self, ranks: list[int]) -> None:
        """Go through the keys for all of them at once."""
        if self._few:
            return
        low, high = self._key_ends()
        self._first = inside, shift = self._spread(low, high)
        places = {int(at) for at in np.cumsum(inside).searchsorted(ranks, "right")}
        found: dict[int, list[Array]] = {at: [] for at in places if shift and inside[at] <= RANGE}
        for above in self._above(low, high):
            bins = above >> np.uint64(shift)
            for at, pieces in found.items():
                pieces.append(above[bins == np.uint64(at)])
        self._near = {at: _sort_pieces(pieces) + np.uint64(low) for at, pieces in found.items()}

    def _key_ends(self) -> tuple[int, int]:
        low, high = (int(_keys(np.array([end], self._dtype))[0]) for end in self.ends())
        return low, high

    def _find_rank(self, rank: int) -> tuple[Any, Any]:
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
                keys = near[at] if at in near else _sort_pieces(self._above(low, high)) + np.uint64(low)
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
            keys = self._scratch.read(some)
            keys -= np.uint64(low)  # what is below it comes out above all others
            within = keys <= np.uint64(high - low)
            yield keys if within.all() else keys[within]

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

    def _keep(self, values: Array) -> None:
        keys = values.view(np.uint64) * SPREAD
        buckets = (keys >> _BUCKET_BITS).astype(np.uint8)
        starts = np.concatenate(([0], np.cumsum(np.bincount(buckets, minlength=_BUCKETS))))
        # Numbers as small as these NumPy sorts by counting them.
        self._kept.append((self._scratch.write(keys[np.argsort(buckets, kind="stable")]), starts))

    def different(self) -> tuple[int, int, list[Any]]:
        """How many there are, how often the most frequent is there, and which those are, `TIES` at most."""
        total, most = 0, 1
        top: list[Any] = [self.ends()[0]]
        for number, values, counts in self._groups():
            total += number
            here = int(counts.max(initial=0))
            if here > most:
                most, top = here, []
            if here == most > 1 and len(top) < TIES:
                top += list(values[counts == most][: TIES - len(top)])
        return total, most, top

    def has(self, value: int) -> bool:
        values = np.array([value], self._dtype)
        if self._few:
            return bool((self._few.get_counts()[0] == values).any())
        key = values.view(np.uint64) * SPREAD
        bucket = int(key[0] >> _BUCKET_BITS)
        return any((self._scratch.read([one]) == key).any() for one in self._places(bucket, bucket + 1))

    def _places(self, first: int, last: int) -> list[tuple[int, int]]:
        """Of buckets, in the file."""
        return [(start + int(starts[first]), int(starts[last] - starts[first])) for start, starts in self._kept]

    def _groups(self) -> Iterator[tuple[int, Array, Array]]:
        """How many values are different, and of those that are there more than once the counts; some buckets at a time."""
        if self._few:
            values, counts = self._few.get_counts()
            yield len(values), values, counts
            return
        ends = np.cumsum(np.sum([np.diff(starts) for _, starts in self._kept], axis=0))
        first = 0
        rare = True
        while first < _BUCKETS:
            done = int(ends[first - 1]) if first else 0
            last = max(first + 1, int(ends.searchsorted(done + RANGE, "right")))
            if int(ends[last - 1]) - done <= 4 * RANGE:
                keys = self._scratch.read(self._places(first, last))
                some = find_candidates(keys) if rare else keys
                rare = rare and len(some) <= len(keys) // 2
                values, counts = find_repeated(np.sort(some))
                number = len(keys) - int(counts.sum()) + len(values)
            else:  # some values are there very often, or there are very many
                values, counts = np.empty(0, np.uint64), np.empty(0, np.int64)
                for one in self._places(first, last):
                    values, counts = merge_counts(values, counts, *runs_of(np.sort(self._scratch.read([one]))))
                number = len(values)
            yield number, (values * _BACK).view(self._dtype), counts
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


def _sort_pieces(pieces: Iterable[Array]) -> Array:
    together = np.concatenate(list(pieces))
    together.sort()
    return together
