"""Pictures in the terminal, the best way it has: kitty, iTerm2, sixel, half-blocks; else only where to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from pinfold.front.chat.pictures.raster import BadPicture, Raster
from pinfold.front.chat.pictures.terminal_support import Way, cell_size, choose_way

if TYPE_CHECKING:
    from rich.text import Text

__all__ = ["ROWS", "BadPicture", "Drawing", "Frame", "Raster", "Way", "cell_size", "choose_way", "draw_picture"]

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


def draw_picture(data: bytes, mime: str, way: Way, frame: Frame) -> Drawing:
    """Raises BadPicture, for whatever reason it cannot be; may take a second."""
    from pinfold.front.chat.pictures.inline import iterm, kitty, place_on_rows

    if len(data) > LARGEST:
        raise BadPicture(f"it is too large: {len(data):,} bytes")
    if mime == "image/jpeg" and way == "iterm":
        columns, rows = frame.fit(*_jpeg_size(data))
        return Drawing(data=place_on_rows(iterm(data, columns, rows), rows), rows=rows)
    if mime != "image/png":
        raise BadPicture(f"this terminal shows no {mime}")
    if way in ("kitty", "iterm"):
        from pinfold.front.chat.pictures.png import check_png

        header = check_png(data)
        columns, rows = frame.fit(header.width, header.height)
        sequence = (kitty if way == "kitty" else iterm)(data, columns, rows)
        return Drawing(data=place_on_rows(sequence, rows), rows=rows)
    return _draw_decoded(data, way, frame)


def _draw_decoded(data: bytes, way: Way, frame: Frame) -> Drawing:
    from pinfold.front.chat.pictures.half_blocks import render_half_blocks, sharpen_lines
    from pinfold.front.chat.pictures.inline import place_on_rows
    from pinfold.front.chat.pictures.png import decode_png
    from pinfold.front.chat.pictures.sixel import encode_sixel

    wide, high = frame.cell
    if way == "sixel":
        room = (frame.columns * wide, frame.rows * high // 6 * 6)
        picture = decode_png(data, lambda width, height: _fit_within(width, height, *room))
        rows = -(-picture.height // high)
        return Drawing(data=place_on_rows(encode_sixel(picture), rows), rows=rows)
    picture = decode_png(data, lambda width, height: _fit_within(width, height, frame.columns, frame.rows * 2))
    return Drawing(lines=tuple(render_half_blocks(sharpen_lines(picture))))


def _fit_within(width: int, height: int, most_wide: int, most_high: int) -> tuple[int, int]:
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
