"""Counts tokens as OpenAI's o200k does, offline and exactly, without any library.

The table is `o200k_base.tiktoken` of tiktoken (MIT, see LICENSE), packed: the length of each token, one byte each,
then the tokens themselves, in the order of their ranks. Other makers' tokenisers are not public; a count is o200k's.
"""

from __future__ import annotations

import heapq
import re
import sys
import unicodedata
from collections import Counter
from functools import cache
from importlib.resources import files

TOKENS = 199_998
_REMEMBERED = 200_000
_SHORT = 48
"""Bytes of a piece up to which looking at every pair is faster than keeping a heap."""
# Unicode's White_Space. Python's own \s has four separators more.
_SPACE = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"


@cache
def _pattern() -> re.Pattern[str]:
    """How text is cut into pieces before anything is merged, with the classes of characters spelt out."""
    letters, numbers, upper, lower = _classes()
    ending = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    start = rf"[^\r\n{letters}{numbers}]?"
    return re.compile(
        rf"{start}[{upper}]*[{lower}]+{ending}"
        rf"|{start}[{upper}]+[{lower}]*{ending}"
        rf"|[{numbers}]{{1,3}}"
        rf"| ?[^{_SPACE}{letters}{numbers}]+[\r\n/]*"
        rf"|[{_SPACE}]*[\r\n]+"
        rf"|[{_SPACE}]+(?![^{_SPACE}])"
        rf"|[{_SPACE}]+"
    )


def _classes() -> tuple[str, str, str, str]:
    """Letters, numbers, what may begin a word and what may go on in one, as ranges for a regular expression."""
    ranges: dict[str, list[list[int]]] = {name: [] for name in ("L", "N", "upper", "lower")}
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category[0] not in "LMN":
            continue
        wanted = [category[0]] if category[0] != "M" else []
        if category in ("Lu", "Lt"):
            wanted.append("upper")
        elif category == "Ll":
            wanted.append("lower")
        elif category[0] != "N":
            wanted += ["upper", "lower"]
        for name in wanted:
            found = ranges[name]
            if found and found[-1][1] == code - 1:
                found[-1][1] = code
            else:
                found.append([code, code])
    letters, numbers, upper, lower = (
        "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found) for found in ranges.values()
    )
    return letters, numbers, upper, lower


@cache
def ranks() -> dict[bytes, int]:
    import lzma

    data = lzma.decompress((files("pinfold.app.bench.o200k") / "ranks.xz").read_bytes())
    table: dict[bytes, int] = {}
    at = TOKENS
    for rank, size in enumerate(data[:TOKENS]):
        table[data[at : at + size]] = rank
        at += size
    return table


_known: dict[str, int] = {}


def count(text: str) -> int:
    """Tokens of the text. A lone surrogate counts as the character that stands for what cannot be read."""
    total = 0
    for piece, times in Counter(_pattern().findall(text)).items():
        size = _known.get(piece)
        if size is None:
            if len(_known) >= _REMEMBERED:
                _known.clear()
            size = _known[piece] = len(parts(piece.encode("utf-8", "replace")))
        total += size * times
    return total


def parts(piece: bytes) -> list[bytes]:
    """The tokens of one piece: neighbours are merged, lowest rank first, the first of equals before the others."""
    table = ranks()
    if piece in table:
        return [piece]
    return merged_short(piece, table) if len(piece) <= _SHORT else merged_long(piece, table)


def merged_short(piece: bytes, table: dict[bytes, int]) -> list[bytes]:
    found = [piece[at : at + 1] for at in range(len(piece))]
    none = len(table)
    while len(found) > 1:
        pairs = [table.get(found[at] + found[at + 1], none) for at in range(len(found) - 1)]
        best = min(pairs)
        if best == none:
            break
        at = pairs.index(best)
        found[at : at + 2] = [found[at] + found[at + 1]]
    return found


def merged_long(piece: bytes, table: dict[bytes, int]) -> list[bytes]:
    """The same, for pieces of any length: `ends[at]` is where the part that begins at `at` ends, 0 once it is gone."""
    size = len(piece)
    ends = list(range(1, size + 1))
    before = list(range(-1, size))
    heap: list[tuple[int, int, int]] = []

    def offer(at: int) -> None:
        middle = ends[at]
        if middle < size and (rank := table.get(piece[at : ends[middle]])) is not None:
            heapq.heappush(heap, (rank, at, ends[middle]))

    for at in range(size - 1):
        offer(at)
    while heap:
        _, at, end = heapq.heappop(heap)
        middle = ends[at]
        # An offer is stale once either of its two parts has grown or gone.
        if not middle or middle >= size or ends[middle] != end:
            continue
        ends[at], ends[middle] = end, 0
        if end < size:
            before[end] = at
            offer(at)
        if at > 0:
            offer(before[at])
    found: list[bytes] = []
    at = 0
    while at < size:
        found.append(piece[at : ends[at]])
        at = ends[at]
    return found
