"""Where a zygote's memory lies, so that its forks copy little: Python's objects side by side in huge pages, and no gaps among C's.

A fork copies an entry for each page, but one for a huge page; what a session writes is still copied by small pages.
See docs/design/0009.
"""

from __future__ import annotations

from .kernel import HUGE, allocated, collapse, freed, heap_end, released, reserved

ARENA = 1 << 20
"""What Python takes from the kernel at once, for small objects."""
ARENAS = 36
"""As many as what is imported for everybody fills."""
TRIES = 4000
BLOCK, BLOCKS = 470, 1900
"""Of the largest kind that is a small object, and fewer than fill an arena."""
GAPS = tuple(1 << power for power in range(16, 11, -1)) + tuple(range(1536, 0, -32))
"""Sizes, from large to small."""


def gathered() -> list[bytes]:
    """Arenas side by side, for what is imported next. Those it leaves empty go when what is returned does."""
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
    with open("/proc/self/maps", encoding="utf-8") as table:
        rows = [line.split() for line in table]
    for where, mode, _, _, inode, *name in rows:
        if mode == "rw-p" and inode == "0" and name in ([], ["[heap]"]):
            start, end = (int(part, 16) for part in where.split("-"))
            for place in range(-(-start // HUGE) * HUGE, end - HUGE + 1, HUGE):
                collapse(place)


def _fill_gaps() -> None:
    """For good: a session would write into one after the other. What it allocates comes from the end instead, all in one place."""
    end = heap_end()
    for size in GAPS:
        while (place := allocated(size)) < end:
            if not place:
                return
        freed(place)
