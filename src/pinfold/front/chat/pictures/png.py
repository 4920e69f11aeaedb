"""PNG to pixels, scaled down as its rows come. Pure, because the file is a stranger's: its worst is a refusal.

Pillow takes a tenth of the time and knows more formats; it would also be a parser in C, on the host, for what a program in
the sandbox made. A figure of 640 x 480 takes 0.15 s here, beside the loop.
"""

from __future__ import annotations

import struct
import time
import zlib
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import itemgetter

from msgspec import Struct

from pinfold.front.chat.pictures.raster import BadPicture, Raster

SIGNATURE = b"\x89PNG\r\n\x1a\n"
LARGEST = 30_000
"""Pixels on either side."""
MOST_PIXELS = 25_000_000
MOST_BYTES = 24 << 20
"""Of what is unpacked. All of it in the slowest filter takes five seconds."""
SECONDS = 3.0
"""Of processor time that unpacking may take."""
_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
_DEPTHS = {0: (1, 2, 4, 8, 16), 2: (8, 16), 3: (1, 2, 4, 8), 4: (8, 16), 6: (8, 16)}
_CHUNKS = 100_000


class Header(Struct, frozen=True):
    width: int
    height: int
    depth: int
    colours: int
    interlaced: bool


def check_png(data: bytes) -> Header:
    """The header of a file whose every part is whole; nothing is unpacked. Raises BadPicture."""
    header = None
    for kind, body in _chunks(data):
        if header is None:
            header = _header(kind, body)
        if kind == b"IEND":
            return header
    raise BadPicture("it is cut off")


def decode_png(data: bytes, fit: Callable[[int, int], tuple[int, int]], seconds: float = SECONDS) -> Raster:
    """As many pixels as `fit` says for its width and height, never more than it has. Raises BadPicture."""
    header = check_png(data)
    if header.interlaced:
        raise BadPicture("it is interlaced")
    stride = (header.width * header.depth * _CHANNELS[header.colours] + 7) // 8
    if (stride + 1) * header.height > MOST_BYTES:
        raise BadPicture(f"it is too large: {header.width:,} x {header.height:,} pixels")
    palette = alphas = b""
    packed: list[bytes] = []
    for kind, body in _chunks(data):
        if kind == b"PLTE":
            palette = body
        elif kind == b"tRNS":
            alphas = body
        elif kind == b"IDAT":
            packed.append(body)
    reader = _Pixels(header, palette, alphas)
    width, height = fit(header.width, header.height)
    width, height = max(1, min(width, header.width)), max(1, min(height, header.height))
    scaled = _Scaled(header.width, header.height, width, height)
    for row in _rows(b"".join(packed), header, stride, time.thread_time() + seconds):
        scaled.add(reader.channels(row))
    return Raster(width, height, tuple(scaled.rows))


def _chunks(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    if not data.startswith(SIGNATURE):
        raise BadPicture("it is no PNG")
    at = len(SIGNATURE)
    for _ in range(_CHUNKS):
        if at + 12 > len(data):
            raise BadPicture("it is cut off")
        length, kind = struct.unpack_from(">I4s", data, at)
        ends = at + 8 + length
        if ends + 4 > len(data):
            raise BadPicture("it is cut off")
        body = data[at + 8 : ends]
        if zlib.crc32(kind + body) != struct.unpack_from(">I", data, ends)[0]:
            raise BadPicture("it is damaged")
        yield kind, body
        if kind == b"IEND":
            return
        at = ends + 4
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


def _rows(packed: bytes, header: Header, stride: int, until: float) -> Iterator[bytes]:
    """Unpacked and without filters, one by one: never more in memory than the file says."""
    unpacker = zlib.decompressobj()
    bpp = max(1, header.depth * _CHANNELS[header.colours] // 8)
    before = bytes(stride)
    have = b""
    block = max(1, (1 << 18) // (stride + 1)) * (stride + 1)
    left = header.height
    while left:
        if time.thread_time() > until:
            raise BadPicture("it takes too long to draw")
        while len(have) <= stride:
            try:
                more = unpacker.decompress(packed or unpacker.unconsumed_tail, block - len(have))
            except zlib.error as error:
                raise BadPicture("it is damaged") from error
            packed = b""
            if not more and (unpacker.eof or not unpacker.unconsumed_tail):
                raise BadPicture("it is cut off")
            have += more
        at = 0
        while left and at + stride < len(have):
            before = _undo_filter(have[at], have[at + 1 : at + 1 + stride], before, bpp)
            yield before
            at += stride + 1
            left -= 1
        have = have[at:]


def _undo_filter(how: int, row: bytes, before: bytes, bpp: int) -> bytes:
    match how:
        case 0:
            return row
        case 1:
            return _sub(row, bpp)
        case 2:
            return _up(row, before)
        case 3:
            return _average(row, before, bpp)
        case 4:
            return _paeth(row, before, bpp)
        case _:
            raise BadPicture("it is damaged")


def _sub(row: bytes, bpp: int) -> bytes:
    done = bytearray(len(row))
    for channel in range(bpp):
        done[channel::bpp] = bytes(map((255).__and__, accumulate(row[channel::bpp])))
    return bytes(done)


def _up(row: bytes, before: bytes) -> bytes:
    """All bytes at once, as one large number: the highest bit of each apart, so that none runs over into the next."""
    size = len(row)
    low, high = int.from_bytes(b"\x7f" * size), int.from_bytes(b"\x80" * size)
    a, b = int.from_bytes(row), int.from_bytes(before)
    return (((a & low) + (b & low)) ^ ((a ^ b) & high)).to_bytes(size)


def _average(row: bytes, before: bytes, bpp: int) -> bytes:
    done = bytearray(bpp) + bytearray(row)
    for place, (value, up) in enumerate(zip(row, before, strict=True)):
        done[place + bpp] = (value + ((done[place] + up) >> 1)) & 255
    return bytes(done[bpp:])


def _paeth(row: bytes, before: bytes, bpp: int) -> bytes:
    done = bytearray(len(row))
    for channel in range(bpp):
        left = corner = 0
        made: list[int] = []
        for value, up in zip(row[channel::bpp], before[channel::bpp], strict=True):
            a, b = up - corner, left - corner
            c = abs(a + b)
            a, b = abs(a), abs(b)
            near = left if a <= b and a <= c else up if b <= c else corner
            left = (value + near) & 255
            corner = up
            made.append(left)
        done[channel::bpp] = bytes(made)
    return bytes(done)


class _Pixels:
    """Rows as the file has them to red, green and blue, on white where they are transparent."""

    def __init__(self, header: Header, palette: bytes, alphas: bytes) -> None:
        self._width = header.width
        self._depth = header.depth
        self._colours = header.colours
        if header.colours == 3 and (not palette or len(palette) % 3 or len(palette) > 768):
            raise BadPicture("it is damaged")
        colours = palette[:768].ljust(768, b"\0")
        opaque = alphas[:256].ljust(256, b"\xff")
        self._tables = [
            bytes(255 - (255 - value) * alpha // 255 for value, alpha in zip(colours[n::3], opaque, strict=True))
            for n in range(3)
        ]
        if header.depth < 8:
            step = 255 // ((1 << header.depth) - 1) if header.colours != 3 else 1
            per = 8 // header.depth
            mask = (1 << header.depth) - 1
            self._unpack = [
                bytes(((byte >> (8 - header.depth * (n + 1))) & mask) * step for n in range(per)) for byte in range(256)
            ]

    def channels(self, row: bytes) -> tuple[bytes, bytes, bytes]:
        if self._depth == 16:
            row = row[::2]
        elif self._depth < 8:
            row = b"".join(map(self._unpack.__getitem__, row))[: self._width]
        match self._colours:
            case 0:
                return row, row, row
            case 2:
                return row[::3], row[1::3], row[2::3]
            case 3:
                red, green, blue = self._tables
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


class _Scaled:
    """Each pixel the mean of those it stands for."""

    def __init__(self, width: int, height: int, to_width: int, to_height: int) -> None:
        self._same = (width, height) == (to_width, to_height)
        self._edges = [
            (place * width // to_width, max((place + 1) * width // to_width, place * width // to_width + 1))
            for place in range(to_width)
        ]
        self._slices = [slice(*edge) for edge in self._edges]
        self._ends = [(place + 1) * height // to_height for place in range(to_height)]
        self._at = self._since = 0
        self._sums: list[list[int]] = []
        self.rows: list[bytes] = []

    def add(self, channels: tuple[bytes, bytes, bytes]) -> None:
        if self._same:
            self.rows.append(_interleave(channels))
            return
        pick = itemgetter(*self._slices)
        sums = [list(map(sum, pick(channel))) if len(self._slices) > 1 else [sum(channel)] for channel in channels]
        if self._sums:
            sums = [[a + b for a, b in zip(old, new, strict=True)] for old, new in zip(self._sums, sums, strict=True)]
        self._sums = sums
        self._at += 1
        if self._at < self._ends[len(self.rows)]:
            return
        tall = self._at - self._since
        sizes = [(high - low) * tall for low, high in self._edges]
        red, green, blue = (bytes(total // size for total, size in zip(some, sizes, strict=True)) for some in sums)
        self.rows.append(_interleave((red, green, blue)))
        self._since, self._sums = self._at, []


def _interleave(channels: tuple[bytes, bytes, bytes]) -> bytes:
    row = bytearray(3 * len(channels[0]))
    row[::3], row[1::3], row[2::3] = channels
    return bytes(row)
