"""Pictures in half-blocks: each character is two pixels, its colour the upper and its ground the lower."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pinfold.front.chat.pictures.raster import Raster

if TYPE_CHECKING:
    from rich.text import Text

UPPER = "▀"
_GROUND = 0.3
"""Of the pixels that have one colour: then it is the paper of a drawing, and not a photograph."""
_STRESS = 1.9
_FULL = 140
"""So far away from the paper a colour needs no stress."""


def sharpen_lines(picture: Raster) -> Raster:
    """A drawing with its thin lines in full colour again: scaled down they were mixed with the paper they are on."""
    counts: Counter[bytes] = Counter()
    for row in picture.rows:
        counts.update(row[at : at + 3] for at in range(0, len(row), 3))
    ground, count = counts.most_common(1)[0]
    if count < _GROUND * picture.width * picture.height:
        return picture
    return Raster(picture.width, picture.height, tuple(_sharpen_row(row, ground) for row in picture.rows))


def _sharpen_row(row: bytes, ground: bytes) -> bytes:
    made = bytearray()
    for at in range(0, len(row), 3):
        away = [value - paper for value, paper in zip(row[at : at + 3], ground, strict=True)]
        most = max(map(abs, away))
        gain = min(_STRESS, max(1.0, _FULL / most)) if most else 1.0
        made += bytes(max(0, min(255, round(paper + gain * one))) for paper, one in zip(ground, away, strict=True))
    return bytes(made)


def render_half_blocks(picture: Raster) -> list[Text]:
    """One text for each two rows; how many colours there are is the console's to know."""
    from rich.color import Color
    from rich.style import Style
    from rich.text import Text

    lines: list[Text] = []
    for top in range(0, picture.height, 2):
        line = Text()
        upper = picture.rows[top]
        lower = picture.rows[top + 1] if top + 1 < picture.height else None
        for at in range(0, 3 * picture.width, 3):
            colour = Color.from_rgb(*upper[at : at + 3])
            ground = Color.from_rgb(*lower[at : at + 3]) if lower else None
            line.append(UPPER, Style(color=colour, bgcolor=ground))
        lines.append(line)
    return lines
