"""Pictures in the terminal: kitty, iTerm2, sixel or half-blocks; elsewhere only the command that shows them."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct
from rich.text import Text

from pinfold.app import PictureMode
from pinfold.front.chat.pictures.encoders import (
    encode_iterm,
    encode_kitty,
    encode_sixel,
    place_on_rows,
    render_half_blocks,
    sharpen_lines,
)
from pinfold.front.chat.pictures.png import BadPicture, check_png, decode_png

__all__ = ["ROWS", "BadPicture", "Drawing", "Frame", "Way", "cell_size", "choose_way", "draw_picture"]

Way: TypeAlias = Literal["kitty", "iterm", "sixel", "blocks", "path"]
ROWS = 20
SHARE = 0.6
"""Of the width of the terminal."""
LARGEST = 16 << 20
"""Bytes of a file that is sent to a terminal."""
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Frame(Struct, frozen=True, kw_only=True):
    """The room for a picture in characters, and the pixels of one character."""

    columns: int
    rows: int = ROWS
    cell: tuple[int, int] = (8, 16)

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """The size in characters of so many pixels: scaled down to fit, in the same proportions."""
        wide, high = self.cell
        scale = min(1.0, self.columns * wide / width, self.rows * high / height)
        return (
            max(1, min(self.columns, round(width * scale / wide))),
            max(1, min(self.rows, round(height * scale / high))),
        )


class Drawing(Struct, frozen=True, kw_only=True):
    """Either data for the terminal that takes `rows` rows, or lines of text."""

    data: str = ""
    rows: int = 0
    lines: tuple[Text, ...] = ()


def draw_picture(data: bytes, mime: str, way: Way, frame: Frame) -> Drawing:
    """May take a second. Raises BadPicture."""
    if len(data) > LARGEST:
        raise BadPicture(f"it is too large: {len(data):,} bytes")
    if mime == "image/jpeg" and way == "iterm":
        columns, rows = frame.fit(*_jpeg_size(data))
        return Drawing(data=place_on_rows(encode_iterm(data, columns, rows), rows), rows=rows)
    if mime != "image/png":
        raise BadPicture(f"this terminal shows no {mime}")
    if way in ("kitty", "iterm"):
        header = check_png(data)
        columns, rows = frame.fit(header.width, header.height)
        sequence = (encode_kitty if way == "kitty" else encode_iterm)(data, columns, rows)
        return Drawing(data=place_on_rows(sequence, rows), rows=rows)
    return _draw_decoded(data, way, frame)


def _draw_decoded(data: bytes, way: Way, frame: Frame) -> Drawing:
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
    """Walks the segments to the one that has the size. Raises BadPicture."""
    at = 2
    if not (data.startswith(b"\xff\xd8\xff") and data.rstrip(b"\0").endswith(b"\xff\xd9")):
        raise BadPicture("it is not a JPEG, or cut off")
    while at + 9 < len(data) and data[at] == 0xFF:
        kind = data[at + 1]
        if kind in _JPEG_FRAMES:
            height, width = int.from_bytes(data[at + 5 : at + 7]), int.from_bytes(data[at + 7 : at + 9])
            if not 0 < width * height <= 50_000_000:
                break
            return width, height
        at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4]))
    raise BadPicture("it is damaged")


_KITTY = ("kitty", "ghostty")
_ITERM = ("iterm.app", "wezterm", "mintty")
_SIXEL = ("foot", "mlterm", "contour", "yaft", "xterm-sixel")
_ROWS_AND_PIXELS = "HHHH"


def choose_way(asked: PictureMode, environ: Mapping[str, str], *, colour: bool) -> Way:
    """What the user asked for, else what the environment says of the terminal. Without colours there are no pictures."""
    term = environ.get("TERM", "").lower()
    if not colour or term in ("", "dumb") or environ.get("NO_COLOR"):
        return "path"
    if asked != "auto":
        return asked
    if "TMUX" in environ or "STY" in environ or term.startswith(("screen", "tmux")):
        return "blocks"  # it lets graphics through only if configured to
    program = environ.get("TERM_PROGRAM", "").lower()
    if "KITTY_WINDOW_ID" in environ or any(name in (program, term.removeprefix("xterm-")) for name in _KITTY):
        return "kitty"
    if program in _ITERM or "ITERM_SESSION_ID" in environ or any(one.startswith("WEZTERM_") for one in environ):
        return "iterm"
    if term.startswith(_SIXEL):
        return "sixel"
    return "blocks"


def cell_size() -> tuple[int, int]:
    """Pixels of one character as the terminal reports it, else a common size."""
    try:
        import fcntl
        import termios

        asked = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, wide, high = struct.unpack(_ROWS_AND_PIXELS, asked)
    except (ImportError, OSError, ValueError):
        return 8, 16
    if not (rows and columns and wide >= 4 * columns and high >= 8 * rows):
        return 8, 16
    return min(64, wide // columns), min(128, high // rows)
