"""Counts values of eight bytes: how often each is there, and which are there more than once. Needs NumPy."""

from __future__ import annotations

import os
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any, TypeAlias

    Array: TypeAlias = Any

# Its threads would spin between one short sum and the next.
os.environ["OPENBLAS_NUM_THREADS"] = "1"
np: Any = import_module("numpy")

SLOT_BITS = 14
# Multiplied by it, values that are alike differ in their first bits, and none are lost.
SPREAD = np.uint64(0x9E3779B97F4A7C15)


class SmallCounter:
    """Different values and how often each is there. Most have a slot of their own, where they are found at once."""

    def __init__(self, dtype: Any, most: int) -> None:
        self._dtype = dtype
        self._most = most
        bits = max(1, min(SLOT_BITS, most.bit_length() - 1))
        self._shift = np.uint64(64 - bits)
        self._owners: Array = np.zeros(1 << bits, np.uint64)
        self._owners[0] = 1  # a slot that is free holds what belongs in another
        self._owned: Array = np.zeros(1 << bits, np.int64)
        """How often the owner of each is there."""
        self._rest: tuple[Array, Array] = np.empty(0, np.uint64), np.empty(0, np.int64)
        """Those whose slot is another's, in order, and how often each is there."""

    def look(self, values: Array) -> tuple[Array, Array]:
        """How often the owners of slots are among them, and the others. An owner stays one: what others add is no harm."""
        bits = values.view(np.uint64)
        slots = self._slots(bits)
        known = self._owners[slots] == bits
        strange = bits[:0]
        if not known.all():
            strange, slots = bits[~known], slots[known]
        return np.bincount(slots, minlength=len(self._owned)), strange

    def add(self, owned: Array, strange: Array) -> bool:
        """What a look has shown. Whether they are few still."""
        self._owned += owned
        if not len(strange):
            return True
        values, counts = runs_of(np.sort(strange))
        slots = self._slots(values)
        free = self._owned[slots] == 0
        self._owners[slots[free]] = values[free]
        at_home = self._owners[slots] == values
        self._owned[slots[at_home]] += counts[at_home]
        self._rest = merge_counts(*self._rest, values[~at_home], counts[~at_home])
        return np.count_nonzero(self._owned) + len(self._rest[0]) <= self._most

    def _slots(self, bits: Array) -> Array:
        return (bits * SPREAD >> self._shift).view(np.int64)

    def get_counts(self) -> tuple[Array, Array]:
        """In the order of the values."""
        slots = np.flatnonzero(self._owned)
        values = np.concatenate((self._owners[slots], self._rest[0])).view(self._dtype)
        order = np.argsort(values)
        return values[order], np.concatenate((self._owned[slots], self._rest[1]))[order]

    def all(self, at_once: int) -> Iterator[Array]:
        """Every value as often as it is there, so many at a time."""
        values, counts = self.get_counts()
        ends = np.cumsum(counts)
        for done in range(0, int(counts.sum()), at_once):
            here = np.clip((ends - counts, ends), done, done + at_once)
            yield np.repeat(values, here[1] - here[0])


def runs_of(ordered: Array) -> tuple[Array, Array]:
    if not len(ordered):
        return ordered, np.empty(0, np.int64)
    starts = np.flatnonzero(ordered[1:] != ordered[:-1]) + 1
    starts = np.concatenate(([0], starts))
    return ordered[starts], np.diff(starts, append=len(ordered))


def find_candidates(keys: Array) -> Array:
    """All that are there more than once, and few others, or else all: a half of each key is sorted in half the time."""
    halves = (keys >> np.uint64(24)).astype(np.uint32)
    ordered = np.sort(halves)
    twice = ordered[1:][ordered[1:] == ordered[:-1]]
    if len(twice) > len(keys) // 8:
        return keys
    marked = np.zeros(1 << 16, bool)
    marked[twice >> 16] = True
    return keys[marked[halves >> 16]]


def find_repeated(ordered: Array) -> tuple[Array, Array]:
    """Those that are there more than once, and how often."""
    again = np.flatnonzero(ordered[1:] == ordered[:-1])
    starts = np.flatnonzero(np.diff(again, prepend=-2) != 1)
    return ordered[again[starts]], np.diff(starts, append=len(again)) + 1


def merge_counts(values: Array, counts: Array, more: Array, their: Array) -> tuple[Array, Array]:
    if not len(values):
        return more, their
    together = np.concatenate((values, more))
    order = np.argsort(together, kind="stable")
    together, sums = together[order], np.concatenate((counts, their))[order]
    starts = np.concatenate(([0], np.flatnonzero(together[1:] != together[:-1]) + 1))
    return together[starts], np.add.reduceat(sums, starts)
