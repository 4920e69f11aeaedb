"""Reads just enough of PNG to tell a drawing from a blank sheet: eight bits a sample, not interlaced."""

from __future__ import annotations

import colorsys
import struct
import zlib
from collections import Counter
from dataclasses import dataclass
from typing import Literal

Colour = Literal["red", "green", "blue", "orange", "purple"]
HUES: dict[Colour, tuple[float, float]] = {
    "red": (345, 15),
    "orange": (16, 50),
    "green": (75, 165),
    "blue": (190, 255),
    "purple": (256, 320),
}
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Of a pixel, by colour type."""
LARGEST = 36_000_000


class NotAPicture(ValueError):
    """Says what is wrong with the file."""


@dataclass(frozen=True, slots=True)
class Picture:
    width: int
    height: int
    colours: Counter[tuple[int, int, int]]

    def share(self, colour: Colour | None) -> float:
        """Of the pixels, how many are of that colour; None: of any that is not a grey."""
        return sum(n for rgb, n in self.colours.items() if _is(rgb, colour)) / (self.width * self.height)


def _is(rgb: tuple[int, int, int], colour: Colour | None) -> bool:
    hue, saturation, value = colorsys.rgb_to_hsv(*(part / 255 for part in rgb))
    if saturation < 0.25 or value < 0.2:
        return False
    if colour is None:
        return True
    low, high = HUES[colour]
    degrees = hue * 360
    return low <= degrees <= high if low < high else degrees >= low or degrees <= high


def read(data: bytes) -> Picture:
    if data[:8] != b"\x89PNG\r\n\x1a\n":
        raise NotAPicture("not a PNG")
    header, palette, packed = b"", b"", b""
    at = 8
    while at + 8 <= len(data):
        (size,) = struct.unpack(">I", data[at : at + 4])
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        if kind == b"IHDR":
            header = body
        elif kind == b"PLTE":
            palette = body
        elif kind == b"IDAT":
            packed += body
        at += 12 + size
    if len(header) != 13 or not packed:
        raise NotAPicture("cut short")
    width, height, depth, kind_of, _, _, interlaced = struct.unpack(">IIBBBBB", header)
    if depth != 8 or interlaced or kind_of not in SAMPLES or not 0 < width * height <= LARGEST:
        raise NotAPicture("a kind of PNG that plots are not saved as")
    try:
        raw = zlib.decompress(packed)
    except zlib.error as bad:
        raise NotAPicture("damaged") from bad
    step = SAMPLES[kind_of]
    if len(raw) < height * (width * step + 1):
        raise NotAPicture("cut short")
    rows = _rows(raw, width * step, height, step)
    colours: Counter[tuple[int, int, int]] = Counter()
    for row in rows:
        for pixel, n in Counter(zip(*(row[k::step] for k in range(step)), strict=True)).items():
            colours[_rgb(pixel, palette)] += n
    return Picture(width, height, colours)


def _rgb(pixel: tuple[int, ...], palette: bytes) -> tuple[int, int, int]:
    if len(pixel) == 1 and palette:
        named = palette[3 * pixel[0] : 3 * pixel[0] + 3]
        if len(named) != 3:
            raise NotAPicture("damaged")
        return named[0], named[1], named[2]
    if len(pixel) in {2, 4} and pixel[-1] < 128:
        return 255, 255, 255
    red, green, blue = (pixel * 3)[:3] if len(pixel) == 1 else pixel[:3]
    return red, green, blue


def _rows(raw: bytes, length: int, height: int, step: int) -> list[bytes]:
    """The lines with PNG's filters undone."""
    rows: list[bytes] = []
    above = bytearray(length)
    for at in range(0, height * (length + 1), length + 1):
        how, line = raw[at], bytearray(raw[at + 1 : at + 1 + length])
        if how == 1:
            for k in range(step, length):
                line[k] = (line[k] + line[k - step]) & 255
        elif how == 2:
            line = bytearray((a + b) & 255 for a, b in zip(line, above, strict=True))
        elif how == 3:
            for k in range(length):
                left = line[k - step] if k >= step else 0
                line[k] = (line[k] + (left + above[k]) // 2) & 255
        elif how == 4:
            for k in range(length):
                left, corner = (line[k - step], above[k - step]) if k >= step else (0, 0)
                line[k] = (line[k] + _nearest(left, above[k], corner)) & 255
        elif how != 0:
            raise NotAPicture("damaged")
        rows.append(bytes(line))
        above = line
    return rows


def _nearest(left: int, up: int, corner: int) -> int:
    guess = left + up - corner
    by_left, by_up, by_corner = abs(guess - left), abs(guess - up), abs(guess - corner)
    if by_left <= by_up and by_left <= by_corner:
        return left
    return up if by_up <= by_corner else corner
