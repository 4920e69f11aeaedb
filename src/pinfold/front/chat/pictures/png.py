"""Decodes PNG files to pixels, scaled down row by row.

Written in Python because the file comes from the sandbox: a hostile file can do no worse than be refused.
Pillow would be ten times faster, but its C parser would run on the host.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Iterator
from itertools import accumulate

from msgspec import Struct

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LARGEST = 30_000
"""Maximum width and height in pixels."""
MOST_PIXELS = 25_000_000
MOST_BYTES = 24 << 20
"""Unpacked bytes. Decoding that many with the slowest filter takes five seconds."""
SECONDS = 3.0
"""Processor time that decoding may take."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CHUNKS = 100_000


class BadPicture(Exception):
    """The picture cannot be drawn. The message tells the user why."""


class Raster(Struct, frozen=True):
    width: int
    height: int
    rows: tuple[bytes, ...]
    """Each row holds red, green and blue of each pixel."""


class Header(Struct, frozen=True):
    width: int
    height: int
    depth: int
    colours: int
    interlaced: bool


def read_chunks(data: bytes) -> tuple[Header, dict[bytes, list[bytes]]]:
    """Return the header and all chunk bodies by kind; verifies checksums, unpacks nothing. Raises BadPicture."""
    chunks = [*_chunks(data)]
    parts: dict[bytes, list[bytes]] = {}
    for kind, body in chunks:
        parts.setdefault(kind, []).append(body)
    return _header(*chunks[0]), parts


def decode_png(data: bytes, most_wide: int, most_high: int, seconds: float = SECONDS) -> Raster:
    """Decode to at most `most_wide` x `most_high` pixels, scaled down in proportion. Raises BadPicture."""
    header, parts = read_chunks(data)
    if header.interlaced:
        raise BadPicture("it is interlaced")
    palette, alphas = (parts.get(kind, [b""])[-1] for kind in (b"PLTE", b"tRNS"))
    reader = _PixelReader(header, palette, alphas)
    scale = min(1.0, most_wide / header.width, most_high / header.height)
    width, height = (max(1, int(size * scale)) for size in (header.width, header.height))
    scaler = _Scaler(header.width, header.height, width, height)
    until = time.thread_time() + seconds
    for row in _rows(b"".join(parts.get(b"IDAT", ())), header):
        if time.thread_time() > until:
            raise BadPicture("it takes too long to draw")
        scaler.add(reader.channels(row))
    return Raster(width, height, tuple(scaler.rows))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise BadPicture("it is not a PNG")
    at = len(SIGNATURE)
    for _ in range(_CHUNKS):
        if at + 12 > len(data):
            raise BadPicture("it is cut off")
        length, kind = struct.unpack_from(">I4s", data, at)
        end = at + 8 + length
        if end + 4 > len(data):
            raise BadPicture("it is cut off")
        body = data[at + 8 : end]
        if zlib.crc32(kind + body) != struct.unpack_from(">I", data, end)[0]:
            raise BadPicture("it is damaged")
        yield kind, body
        if kind == b"IEND":
            return
        at = end + 4
    raise BadPicture("it is in too many parts")


def _header(kind: bytes, body: bytes) -> Header:
    if kind != b"IHDR" or len(body) != 13:
        raise BadPicture("it has no header")
    width, height, depth, colours, packing, filters, interlaced = struct.unpack(">IIBBBBB", body)
    if not (0 < width <= LARGEST and 0 < height <= LARGEST and width * height <= MOST_PIXELS):
        raise BadPicture(f"it is too large: {width:,} x {height:,} pixels")
    if depth not in _DEPTHS.get(colours, ()) or packing or filters or interlaced > 1:
        raise BadPicture("its format is unknown")
    return Header(width, height, depth, colours, bool(interlaced))


def _rows(packed: bytes, header: Header) -> Iterator[bytes]:
    """Yield the unfiltered rows. Unpacks no more bytes than the header promises."""
    bits = header.depth * _CHANNELS[header.colours]
    stride = (header.width * bits + 7) // 8
    size = (stride + 1) * header.height
    if size > MOST_BYTES:
        raise BadPicture(f"it is too large: {header.width:,} x {header.height:,} pixels")
    try:
        raw = zlib.decompressobj().decompress(packed, size)
    except zlib.error as error:
        raise BadPicture("it is damaged") from error
    if len(raw) < size:
        raise BadPicture("it is cut off")
    row = bytes(stride)
    for at in range(0, size, stride + 1):
        row = _unfilter(raw[at], raw[at + 1 : at + 1 + stride], row, max(1, bits // 8))
        yield row


def _unfilter(how: int, row: bytes, before: bytes, bpp: int) -> bytes:
    match how:
        case 0:
            return row
        case 1:
            done = bytearray(len(row))
            for channel in range(bpp):
                done[channel::bpp] = bytes(map((255).__and__, accumulate(row[channel::bpp])))
            return bytes(done)
        case 2:
            return bytes((value + up) & 255 for value, up in zip(row, before, strict=True))
        case 3:
            done = bytearray(bpp) + bytearray(row)
            for place, (value, up) in enumerate(zip(row, before, strict=True)):
                done[place + bpp] = (value + ((done[place] + up) >> 1)) & 255
            return bytes(done[bpp:])
        case 4:
            return _undo_paeth(row, before, bpp)
        case _:
            raise BadPicture("it is damaged")


def _undo_paeth(row: bytes, before: bytes, bpp: int) -> bytes:
    done = bytearray(len(row))
    for channel in range(bpp):
        left = corner = 0
        values: list[int] = []
        for value, up in zip(row[channel::bpp], before[channel::bpp], strict=True):
            a, b = up - corner, left - corner
            c = abs(a + b)
            a, b = abs(a), abs(b)
            near = left if a <= b and a <= c else up if b <= c else corner
            left = (value + near) & 255
            corner = up
            values.append(left)
        done[channel::bpp] = bytes(values)
    return bytes(done)


class _PixelReader:
    """Turns rows of the file into red, green and blue; transparent pixels are blended with white."""

    def __init__(self, header: Header, palette: bytes, alphas: bytes) -> None:
        self._header = header
        if header.colours == 3 and (not palette or len(palette) % 3 or len(palette) > 768):
            raise BadPicture("it is damaged")
        opaque = alphas[:256].ljust(256, b"\xff")
        self._palette = [_on_white(palette[:768].ljust(768, b"\0")[n::3], opaque) for n in range(3)]
        mask = (1 << header.depth) - 1
        step = 255 // mask if header.colours != 3 and header.depth < 8 else 1
        self._unpacked = [
            bytes(((byte >> shift) & mask) * step for shift in range(8 - header.depth, -1, -header.depth))
            for byte in range(256 if header.depth < 8 else 0)
        ]

    def channels(self, row: bytes) -> tuple[bytes, bytes, bytes]:
        if self._header.depth == 16:
            row = row[::2]
        elif self._header.depth < 8:
            row = b"".join(map(self._unpacked.__getitem__, row))[: self._header.width]
        match self._header.colours:
            case 0:
                return row, row, row
            case 2:
                return row[::3], row[1::3], row[2::3]
            case 3:
                red, green, blue = self._palette
                return row.translate(red), row.translate(green), row.translate(blue)
            case 4:
                grey = _on_white(row[::2], row[1::2])
                return grey, grey, grey
            case _:
                alpha = row[3::4]
                return _on_white(row[::4], alpha), _on_white(row[1::4], alpha), _on_white(row[2::4], alpha)


def _on_white(channel: bytes, alpha: bytes) -> bytes:
    if alpha.count(255) == len(alpha):
        return channel
    return bytes(255 - (255 - value) * a // 255 for value, a in zip(channel, alpha, strict=True))


class _Scaler:
    """Scales rows down: each new pixel is the mean of the pixels it covers."""

    def __init__(self, width: int, height: int, to_width: int, to_height: int) -> None:
        self._edges = [(n * width // to_width, (n + 1) * width // to_width) for n in range(to_width)]
        self._ends = [(n + 1) * height // to_height for n in range(to_height)]
        self._at = self._since = 0
        self._sums = [[0] * to_width for _ in range(3)]
        self.rows: list[bytes] = []

    def add(self, channels: tuple[bytes, bytes, bytes]) -> None:
        for sums, channel in zip(self._sums, channels, strict=True):
            sums[:] = [old + sum(channel[low:high]) for old, (low, high) in zip(sums, self._edges, strict=True)]
        self._at += 1
        if self._at < self._ends[len(self.rows)]:
            return
        tall = self._at - self._since
        row = bytearray(3 * len(self._edges))
        for n, sums in enumerate(self._sums):
            row[n::3] = bytes(
                total // ((high - low) * tall) for total, (low, high) in zip(sums, self._edges, strict=True)
            )
            sums[:] = [0] * len(sums)
        self.rows.append(bytes(row))
        self._since = self._at
