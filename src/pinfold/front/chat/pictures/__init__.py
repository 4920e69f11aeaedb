"""Pictures in the terminal, the best way it has: kitty, iTerm2, sixel, half-blocks; else only where to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pinfold.front.chat.pictures.choosing import Way, cell_size, way_for
from pinfold.front.chat.pictures.raster import BadPicture, Raster

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["ROWS", "BadPicture", "Drawing", "Frame", "Raster", "Way", "cell_size", "drawn", "way_for"]

ROWS = 20
SHARE = 0.6
"""Of the width."""
LARGEST = 16 << 20
"""Bytes of a file that are handed to a terminal."""
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Frame(Struct, frozen=True, kw_only=True):
    """The room there is: characters across and down, and pixels of one."""

    columns: int
    rows: int = ROWS
    cell: tuple[int, int] = (8, 16)

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """Characters for so many pixels: as large as it is, or as fits, in its own proportions."""
        wide, high = self.cell
        scale = min(1.0, self.columns * wide / width, self.rows * high / height)
        return (
            max(1, min(self.columns, round(width * scale / wide))),
            max(1, min(self.rows, round(height * scale / high))),
        )


class Drawing(Struct, frozen=True, kw_only=True):
    """Either bytes for the terminal that take so many rows, or lines of text."""

    data: str = ""
    rows: int = 0
    lines: tuple[Text, ...] = ()


def drawn(data: bytes, mime: str, way: Way, frame: Frame) -> Drawing:
    """Raises BadPicture, for whatever reason it cannot be; may take a second."""
    from pinfold.front.chat.pictures.inline import iterm, kitty, placed

    if len(data) > LARGEST:
        raise BadPicture(f"it is too large: {len(data):,} bytes")
    if mime == "image/jpeg" and way == "iterm":
        columns, rows = frame.fit(*_jpeg_size(data))
        return Drawing(data=placed(iterm(data, columns, rows), rows), rows=rows)
    if mime != "image/png":
        raise BadPicture(f"this terminal shows no {mime}")
    if way in ("kitty", "iterm"):
        from pinfold.front.chat.pictures.png import checked

        header = checked(data)
        columns, rows = frame.fit(header.width, header.height)
        sequence = (kitty if way == "kitty" else iterm)(data, columns, rows)
        return Drawing(data=placed(sequence, rows), rows=rows)
    return _decoded(data, way, frame)


def _decoded(data: bytes, way: Way, frame: Frame) -> Drawing:
    from pinfold.front.chat.pictures.halves import blocks, stressed
    from pinfold.front.chat.pictures.inline import placed
    from pinfold.front.chat.pictures.png import decoded
    from pinfold.front.chat.pictures.sixel import encoded

    wide, high = frame.cell
    if way == "sixel":
        room = (frame.columns * wide, frame.rows * high // 6 * 6)
        picture = decoded(data, lambda width, height: _within(width, height, *room))
        rows = -(-picture.height // high)
        return Drawing(data=placed(encoded(picture), rows), rows=rows)
    picture = decoded(data, lambda width, height: _within(width, height, frame.columns, frame.rows * 2))
    return Drawing(lines=tuple(blocks(stressed(picture))))


def _within(width: int, height: int, most_wide: int, most_high: int) -> tuple[int, int]:
    scale = min(1.0, most_wide / width, most_high / height)
    return max(1, int(width * scale)), max(1, int(height * scale))


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Walks its parts up to the one that has the size. Raises BadPicture."""
    at = 2
    if not (data.startswith(b"\xff\xd8\xff") and data.rstrip(b"\0").endswith(b"\xff\xd9")):
        raise BadPicture("it is no JPEG, or cut off")
    while at + 9 < len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind in _JPEG_FRAMES:
            height, width = int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
            if not 0 < width * height <= 50_000_000:
                break
            return width, height
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    raise BadPicture("it is damaged")
