"""Where a zygote's memory lies, so that its forks copy little: Python's objects side by side in huge pages, and no gaps among C's.

A fork copies an entry for each page, but one for a huge page; what a session writes is still copied by small pages.
See docs/design/0009.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable

from .kernel import HUGE, allocated, collapse, fork, freed, heap_end, protect, released, reserved

ARENA = 1 << 20
"""What Python takes from the kernel at once, for small objects."""
ARENAS = 36
"""As many as what is imported for everybody fills."""
TRIES = 4000
BLOCK, BLOCKS = 470, 1900
"""Of the largest kind that is a small object, and fewer than fill an arena."""
LARGE = 4 << 20
PAGE = os.sysconf("SC_PAGE_SIZE")
GAPS = tuple(1 << power for power in range(16, 11, -1)) + tuple(range(1536, 0, -32))
"""Sizes, from large to small."""


def gathered() -> list[bytes]:
    """Arenas side by side, for what is imported next. Those it leaves empty go when what is returned does."""
    # A block given back is the size up to which libc takes the next ones from its heap: it will be of huge pages too.
    freed(allocated(LARGE))
    # Made now, or they would come to lie in between.
    blocks, kept = [b""] * (ARENAS * BLOCKS), [b""] * (2 * ARENAS)
    wanted, length, taken = ARENAS + 2, 0, [0]
    while length < wanted and len(taken) < TRIES:
        taken.append(reserved(ARENA))
        length = length + 1 if taken[-1] + ARENA == taken[-2] else 0
    row, others = taken[-wanted:], taken[1:-wanted]
    for place in row:
        released(place, ARENA)
    # The kernel gives the highest place that fits: others are taken, and this one begins with a huge page.
    ragged = (row[0] + ARENA) % HUGE
    above = reserved(ragged) if ragged else 0
    for number in range(len(blocks)):
        blocks[number] = bytes(BLOCK)
    kept[:] = blocks[:: BLOCKS // 2]
    for place in others:
        released(place, ARENA)
    if ragged:
        released(above, ragged)
    return kept


def settled() -> None:
    """To be called when everything is loaded."""
    _fill_gaps()
    end_before, mode_before, inode_before = 0, "", ""
    for start, end, mode, inode, name in _mappings():
        if mode == "rw-p" and inode == "0" and name in ("", "[heap]"):
            for place in range(-(-start // HUGE) * HUGE, end - HUGE + 1, HUGE):
                collapse(place)
        is_gap = mode == "---p" and inode == inode_before != "0" and start == end_before
        if is_gap and "w" not in mode_before:
            # Between the parts of a library. As part of the one before it, it costs a fork nothing.
            protect(start, end - start, mode_before)
        else:
            mode_before = mode
        end_before, inode_before = end, inode


def code_of(use: Callable[[], None], limit_s: float = 2.0) -> list[tuple[int, int]]:
    """Where code and constants lie that `use` touches, and how much: to a fork of this process none of it is mapped.

    Nothing, if it takes longer.
    """
    reader, writer = os.pipe()
    if fork() == 0:
        try:
            signal.setitimer(signal.ITIMER_REAL, limit_s)  # ends it
            use()
            os.write(writer, json.dumps(_mapped_code()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as told:
        return json.loads(told.read() or b"[]")


def _mapped_code() -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    with open("/proc/self/pagemap", "rb") as table:
        for start, end, mode, inode, _ in _mappings():
            if inode == "0" or mode not in ("r-xp", "r--p"):
                continue
            table.seek(start // PAGE * 8)
            entries = table.read((end - start) // PAGE * 8)
            for number, flags in enumerate(entries[7::8]):
                if flags & 0xA0 == 0xA0:  # there, and the file's own
                    place = start + number * PAGE
                    if found and sum(found[-1]) == place:
                        found[-1] = found[-1][0], found[-1][1] + PAGE
                    else:
                        found.append((place, PAGE))
    return found


def _mappings() -> list[tuple[int, int, str, str, str]]:
    """Start, end, mode, inode and name of each."""
    with open("/proc/self/maps", encoding="utf-8") as table:
        rows = [line.split(maxsplit=5) for line in table]
    found: list[tuple[int, int, str, str, str]] = []
    for where, mode, _, _, inode, *name in rows:
        start, end = (int(part, 16) for part in where.split("-"))
        found.append((start, end, mode, inode, "".join(name).strip()))
    return found


def _fill_gaps() -> None:
    """For good: a session would write into one after the other. What it allocates comes from the end instead, all in one place."""
    end = heap_end()
    for size in GAPS:
        while (place := allocated(size)) < end:
            if not place:
                return
        freed(place)
