"""Sixel graphics: bands of six rows, one colour after the other."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from pinfold.front.chat.pictures.raster import Raster

COLOURS = 255
_DISTINCT = 4096
"""Colours that are told apart exactly; of more, such as hardly differ are one."""
Colour: TypeAlias = tuple[int, int, int]
_RUN = re.compile(rb"(.)\1{3,}", re.DOTALL)


def encode_sixel(picture: Raster) -> str:
    """The bytes for a terminal: digits, `#;!$-"` and the sixels themselves, whatever the picture is."""
    palette, rows = quantise(picture)
    parts = [f'\x1bP0;1;0q"1;1;{picture.width};{picture.height}']
    parts += [
        f"#{number};2;" + ";".join(str(round(value / 2.55)) for value in colour)
        for number, colour in enumerate(palette)
    ]
    bands = ("$".join(_band(rows[top : top + 6], picture.width)) for top in range(0, picture.height, 6))
    return f"{''.join(parts)}{'-'.join(bands)}\x1b\\"


def quantise(picture: Raster) -> tuple[Sequence[Colour], Sequence[bytes]]:
    """At most so many colours, and for each pixel which one."""
    exact: Counter[Colour] = Counter()
    for row in picture.rows:
        exact.update(zip(row[::3], row[1::3], row[2::3], strict=True))
    if len(exact) <= COLOURS:
        palette = list(exact)
        which: Mapping[Colour, int] = {colour: number for number, colour in enumerate(palette)}
    else:
        palette, which = _median_cut(exact) if len(exact) <= _DISTINCT else _quantise_roughly(exact)
    return palette, [
        bytes(which[colour] for colour in zip(row[::3], row[1::3], row[2::3], strict=True)) for row in picture.rows
    ]


def _quantise_roughly(exact: Counter[Colour]) -> tuple[list[Colour], Mapping[Colour, int]]:
    """A photograph: colours that hardly differ are one."""
    fewer: Counter[Colour] = Counter()
    for colour, count in exact.items():
        fewer[_rough(colour)] += count
    palette, which = _median_cut(fewer)
    return palette, {colour: which[_rough(colour)] for colour in exact}


def _rough(colour: Colour) -> Colour:
    red, green, blue = colour
    return red & 0xF8 | 4, green & 0xF8 | 4, blue & 0xF8 | 4


def _median_cut(exact: Counter[Colour]) -> tuple[list[Colour], Mapping[Colour, int]]:
    """Boxes of colours, the one with the widest spread of pixels halved again and again."""
    boxes = [list(exact)]
    weights = [_weight(boxes[0], exact)]
    while len(boxes) < COLOURS:
        widest = max(range(len(boxes)), key=weights.__getitem__)
        if weights[widest] == 0:
            break
        box = boxes[widest]
        axis = max(range(3), key=lambda n: _spread(box, n))
        box.sort(key=lambda colour: colour[axis])
        half, seen, total = 0, 0, sum(exact[colour] for colour in box)
        while half < len(box) - 1 and (seen := seen + exact[box[half]]) * 2 < total:
            half += 1
        half = max(1, half)
        boxes[widest], other = box[:half], box[half:]
        boxes.append(other)
        weights[widest] = _weight(boxes[widest], exact)
        weights.append(_weight(other, exact))
    palette = [_mean(box, exact) for box in boxes]
    return palette, {colour: number for number, box in enumerate(boxes) for colour in box}


def _spread(box: Sequence[Colour], axis: int) -> int:
    values = [colour[axis] for colour in box]
    return max(values) - min(values)


def _weight(box: Sequence[Colour], exact: Counter[Colour]) -> float:
    if len(box) < 2:
        return 0.0
    return max(_spread(box, axis) for axis in range(3)) ** 2 * sum(exact[colour] for colour in box) ** 0.5


def _mean(box: Sequence[Colour], exact: Counter[Colour]) -> Colour:
    total = sum(exact[colour] for colour in box)
    red, green, blue = (sum(colour[n] * exact[colour] for colour in box) // total for n in range(3))
    return red, green, blue


def _band(rows: Sequence[bytes], width: int) -> Iterator[str]:
    sixels: dict[int, bytearray] = {}
    for bit, row in enumerate(rows):
        mask = 1 << bit
        for place, number in enumerate(row):
            if number not in sixels:
                sixels[number] = bytearray(width)
            sixels[number][place] |= mask
    for number, line in sixels.items():
        drawn = bytes(63 + value for value in line.rstrip(b"\0"))
        yield f"#{number}" + _RUN.sub(_encode_run, drawn).decode("ascii")


def _encode_run(run: re.Match[bytes]) -> bytes:
    return b"!%d%s" % (len(run.group()), run[1])
