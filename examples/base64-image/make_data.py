"""Makes picture.txt: a small PNG, as base64. `python make_data.py` writes it again."""

from __future__ import annotations

import base64
import random
import struct
import zlib
from pathlib import Path

SIZE = 24


def pixels(seed: int = 7) -> list[list[tuple[int, int, int]]]:
    """Row by row; no row is its own mirror image."""
    rng = random.Random(seed)
    return [[(x * 10, y * 10, rng.randrange(256)) for x in range(SIZE)] for y in range(SIZE)]


def png(rows: list[list[tuple[int, int, int]]]) -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 2, 0, 0, 0)
    lines = b"".join(b"\0" + bytes(value for pixel in row for value in pixel) for row in rows)
    parts = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + parts


def picture(seed: int = 7) -> str:
    return base64.b64encode(png(pixels(seed))).decode()


if __name__ == "__main__":
    Path(__file__).with_name("picture.txt").write_text(picture() + "\n", encoding="utf-8")
