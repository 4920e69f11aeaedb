"""Pictures in the terminal as kitty, iTerm2 or sixel graphics or as half-blocks; else only the command to show them."""

from __future__ import annotations

import fcntl
import re
import struct
import sys
import termios
from base64 import b64encode
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Literal, TypeAlias

from msgspec import Struct
from rich.color import Color
from rich.style import Style
from rich.text import Text

from pinfold.app import PictureMode
from pinfold.front.chat.pictures.png import BadPicture, Raster, decode_png, read_chunks

Colour: TypeAlias = tuple[int, int, int]
CHUNK = 4096
"""Characters of base64 in one kitty sequence."""
COLOURS = 255
"""Colours of a sixel picture."""
INDENT = 4
UPPER = "▀"
_RUN = re.compile(rb"(.)\1{3,}", re.DOTALL)
_BACKGROUND = 0.3
"""If this share of the pixels has one colour, the picture is a drawing on that background, not a photograph."""
_GAIN = 1.9
_FULL = 140
"""A colour this far from the background needs no sharpening."""


def encode_kitty(png: bytes, columns: int, rows: int) -> str:
    """Return a sequence that sends and places the PNG.

    `q=2`: the terminal sends no answer, which would be read as keys. `C=1`: the cursor stays.
    """
    data = b64encode(png).decode("ascii")
    pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    keys = [f"a=T,f=100,q=2,C=1,c={columns},r={rows},", *[""] * (len(pieces) - 1)]
    more = [1] * (len(pieces) - 1) + [0]
    return "".join(f"\x1b_G{key}m={m};{piece}\x1b\\" for key, m, piece in zip(keys, more, pieces, strict=True))


def encode_iterm(data: bytes, columns: int, rows: int) -> str:
    keys = f"size={len(data)};width={columns};height={rows};preserveAspectRatio=1;inline=1"
    return f"\x1b]1337;File={keys}:{b64encode(data).decode('ascii')}\x07"


def place_on_rows(drawing: str, rows: int) -> str:
    """Put the drawing on its own rows and the cursor on the row below, wherever the terminal would leave it."""
    room = "\n" * rows
    return f"{room}\x1b[{rows}A\r\x1b[{INDENT}C\x1b7{drawing}\x1b8\x1b[{rows}B\r"


def encode_sixel(picture: Raster) -> str:
    """Return a sixel sequence: only digits, `#;!$-"` and sixels, whatever the picture contains."""
    palette, rows = quantise(picture)
    parts = [f'\x1bP0;1;0q"1;1;{picture.width};{picture.height}']
    parts += [
        f"#{number};2;" + ";".join(str(round(value / 2.55)) for value in colour)
        for number, colour in enumerate(palette)
    ]
    bands = ("$".join(_band(rows[top : top + 6], picture.width)) for top in range(0, picture.height, 6))
    return f"{''.join(parts)}{'-'.join(bands)}\x1b\\"


def quantise(picture: Raster) -> tuple[Sequence[Colour], Sequence[bytes]]:
    """Return a palette, and for each row of pixels the indexes of their colours in it."""
    pixels = [list(zip(row[::3], row[1::3], row[2::3], strict=True)) for row in picture.rows]
    palette, numbers = _make_palette(Counter(pixel for row in pixels for pixel in row))
    return palette, [bytes(numbers[pixel] for pixel in row) for row in pixels]


def _make_palette(counts: Mapping[Colour, int]) -> tuple[list[Colour], Mapping[Colour, int]]:
    """Return a palette and each colour's index in it. If there are too many, colours equal in high bits share a mean.

    Low bits are dropped one channel at a time, blue first, because the eye is least sensitive to it.
    """
    groups = {colour: [colour] for colour in counts}
    dropped = 0
    while len(groups) > COLOURS:
        dropped += 1
        red, green, blue = ((0xFF << (dropped + late) // 3) & 0xFF for late in (1, 0, 2))
        merged: dict[Colour, list[Colour]] = {}
        for (r, g, b), group in groups.items():
            merged.setdefault((r & red, g & green, b & blue), []).extend(group)
        groups = merged
    palette: list[Colour] = []
    for group in groups.values():
        total = sum(counts[colour] for colour in group)
        red, green, blue = (sum(colour[n] * counts[colour] for colour in group) // total for n in range(3))
        palette.append((red, green, blue))
    return palette, {colour: number for number, group in enumerate(groups.values()) for colour in group}


def _band(rows: Sequence[bytes], width: int) -> Iterator[str]:
    sixels: dict[int, bytearray] = {}
    for bit, row in enumerate(rows):
        for place, number in enumerate(row):
            if number not in sixels:
                sixels[number] = bytearray(width)
            sixels[number][place] |= 1 << bit
    for number, line in sixels.items():
        drawn = bytes(63 + value for value in line.rstrip(b"\0"))
        runs = _RUN.sub(lambda run: b"!%d%s" % (len(run.group()), run[1]), drawn)
        yield f"#{number}{runs.decode('ascii')}"


def sharpen_lines(picture: Raster) -> Raster:
    """Restore the full colour of a drawing's thin lines, which scaling down has mixed with the background."""
    counts = Counter(row[at : at + 3] for row in picture.rows for at in range(0, len(row), 3))
    background, count = counts.most_common(1)[0]
    if count < _BACKGROUND * picture.width * picture.height:
        return picture
    sharp = {pixel: _sharpen(pixel, background) for pixel in counts}
    rows = tuple(b"".join(sharp[row[at : at + 3]] for at in range(0, len(row), 3)) for row in picture.rows)
    return Raster(picture.width, picture.height, rows)


def _sharpen(pixel: bytes, background: bytes) -> bytes:
    away = [value - base for value, base in zip(pixel, background, strict=True)]
    most = max(map(abs, away))
    gain = min(_GAIN, max(1.0, _FULL / most)) if most else 1.0
    return bytes(max(0, min(255, round(base + gain * one))) for base, one in zip(background, away, strict=True))


def render_half_blocks(picture: Raster) -> list[Text]:
    """Return a line for every two rows of pixels: the upper pixel is a character's colour, the lower its background."""
    lines: list[Text] = []
    for top in range(0, picture.height, 2):
        line = Text()
        upper = picture.rows[top]
        lower = picture.rows[top + 1] if top + 1 < picture.height else None
        for at in range(0, 3 * picture.width, 3):
            colour = Color.from_rgb(*upper[at : at + 3])
            background = Color.from_rgb(*lower[at : at + 3]) if lower else None
            line.append(UPPER, Style(color=colour, bgcolor=background))
        lines.append(line)
    return lines


Way: TypeAlias = Literal["kitty", "iterm", "sixel", "blocks", "path"]
ROWS = 20
SHARE = 0.6
"""Share of the terminal's width that a picture may take."""
LARGEST = 16 << 20
"""Largest file, in bytes, that is sent to a terminal."""
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}


class Frame(Struct, frozen=True, kw_only=True):
    """The space for a picture in characters, and the size of one character in pixels."""

    columns: int
    rows: int = ROWS
    cell: tuple[int, int] = (8, 16)

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """Return the size in characters of a picture of `width` x `height` pixels, scaled down to fit in proportion."""
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
    """Draw a PNG, or a JPEG on iTerm2. May take a second. Raises BadPicture."""
    if len(data) > LARGEST:
        raise BadPicture(f"it is too large: {len(data):,} bytes")
    if mime == "image/jpeg" and way == "iterm":
        columns, rows = frame.fit(*_jpeg_size(data))
        return Drawing(data=place_on_rows(encode_iterm(data, columns, rows), rows), rows=rows)
    if mime != "image/png":
        raise BadPicture(f"this terminal cannot show {mime}")
    if way in ("kitty", "iterm"):
        header, _ = read_chunks(data)
        columns, rows = frame.fit(header.width, header.height)
        sequence = (encode_kitty if way == "kitty" else encode_iterm)(data, columns, rows)
        return Drawing(data=place_on_rows(sequence, rows), rows=rows)
    wide, high = frame.cell
    if way == "sixel":
        picture = decode_png(data, frame.columns * wide, frame.rows * high // 6 * 6)
        rows = -(-picture.height // high)
        return Drawing(data=place_on_rows(encode_sixel(picture), rows), rows=rows)
    picture = decode_png(data, frame.columns, frame.rows * 2)
    return Drawing(lines=tuple(render_half_blocks(sharpen_lines(picture))))


def _jpeg_size(data: bytes) -> tuple[int, int]:
    """Read width and height from the JPEG's frame segment. Raises BadPicture."""
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


def choose_protocol(asked: PictureMode, environ: Mapping[str, str], *, colour: bool) -> Way:
    """Return the way the user asked for, or else one the terminal supports. Without colours there are no pictures."""
    term = environ.get("TERM", "").lower()
    if not colour or term in ("", "dumb") or environ.get("NO_COLOR"):
        return "path"
    if asked != "auto":
        return asked
    if "TMUX" in environ or "STY" in environ or term.startswith(("screen", "tmux")):
        return "blocks"  # tmux and screen pass graphics on only if configured to
    program = environ.get("TERM_PROGRAM", "").lower()
    if "KITTY_WINDOW_ID" in environ or any(name in (program, term.removeprefix("xterm-")) for name in _KITTY):
        return "kitty"
    if program in _ITERM or "ITERM_SESSION_ID" in environ or any(one.startswith("WEZTERM_") for one in environ):
        return "iterm"
    if term.startswith(_SIXEL):
        return "sixel"
    return "blocks"


def cell_size() -> tuple[int, int]:
    """Return the size of a character in pixels as the terminal reports it, or else a common size."""
    with suppress(OSError, ValueError):
        asked = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, wide, high = struct.unpack("HHHH", asked)
        if rows and columns and wide >= 4 * columns and high >= 8 * rows:
            return min(64, wide // columns), min(128, high // rows)
    return 8, 16
