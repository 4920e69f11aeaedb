"""Displays: which form of one to show where, and what it is in a word. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import TypeAlias

from msgspec import Struct

Size: TypeAlias = tuple[int, int]
PICTURES = {"image/png": "png", "image/jpeg": "jpg", "image/gif": "gif", "image/webp": "webp", "image/svg+xml": "svg"}
"""Each with what a file of it is called."""
_SUFFIXES = {
    **PICTURES,
    "text/html": "html",
    "text/markdown": "md",
    "text/latex": "tex",
    "application/json": "json",
    "application/pdf": "pdf",
    "text/csv": "csv",
    "text/plain": "txt",
}
_BEST = (*PICTURES, "text/html", "text/markdown", "text/latex", "application/json")


class Form(Struct, frozen=True, kw_only=True):
    """One form of a display."""

    mime: str
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")


def is_text(mime: str) -> bool:
    return mime.startswith("text/") or mime.endswith(("json", "+xml", "javascript"))


def best_of(mimes: Iterable[str]) -> str | None:
    """The form that says most to a person; plain text last."""
    there = [*mimes]
    for mime in _BEST:
        if mime in there:
            return mime
    return next((mime for mime in there if mime != "text/plain"), there[0] if there else None)


def suffix_of(mime: str) -> str:
    """What a file of it is called, without the dot."""
    return _SUFFIXES.get(mime, "json" if mime.endswith("+json") else "bin")


def size_of(data: bytes) -> Size | None:
    """Width and height of a picture, if its head says so."""
    if data[:8] == b"\x89PNG\r\n\x1a\n" and data[12:16] == b"IHDR" and len(data) >= 24:
        return struct.unpack(">II", data[16:24])
    if data[:6] in (b"GIF87a", b"GIF89a") and len(data) >= 10:
        return struct.unpack("<HH", data[6:10])
    return _jpeg_size(data) if data[:2] == b"\xff\xd8" else None


def _jpeg_size(data: bytes) -> Size | None:
    place = 2
    while place + 9 <= len(data) and data[place] == 0xFF:
        kind, length = data[place + 1], int.from_bytes(data[place + 2 : place + 4])
        if 0xC0 <= kind <= 0xCF and kind not in (0xC4, 0xC8, 0xCC):
            height, width = struct.unpack(">HH", data[place + 5 : place + 9])
            return width, height
        place += 2 + max(length, 2)
    return None


def display_label(number: int, forms: Mapping[str, Form]) -> str:
    """`display 3: image/png 640x480`."""
    best = best_of(forms)
    if best is None:
        return f"display {number}: not there any more"
    size = size_of(forms[best].data)
    what = f" {size[0]}x{size[1]}" if size else f" {len(forms[best].data):,} bytes"
    return f"display {number}: {best}{what}"
