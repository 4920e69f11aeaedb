"""A token nobody else has, and whether any part of it is in some bytes, in whatever clothes."""

from __future__ import annotations

import base64
import binascii
import codecs
import gzip
import re
import secrets
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from urllib.parse import unquote_to_bytes

WINDOW = 9
"""Characters in a row that are no accident: a piece this long counts as the whole."""
_ODD = re.compile(rb"[^0-9a-z]+")
_WORD = re.compile(rb"[0-9A-Za-z+/_=-]{12,}")


def new_canary() -> str:
    """36 characters, letters and digits."""
    return "cnry" + secrets.token_hex(16)


def is_in(canary: str, pieces: Iterable[bytes]) -> bool:
    """Whether what arrived, one piece after the other, tells any part of it."""
    told = list(pieces)
    forms = set(_forms(canary))
    return any(form in view for whole in (*told, b"".join(told)) for view in _views(whole) for form in forms)


def _forms(canary: str) -> Iterator[bytes]:
    """Every window of it, as it is and backwards. Without the prefix, which is in every canary."""
    for start in range(4, len(canary) - WINDOW + 1):
        window = canary[start : start + WINDOW].encode()
        yield window
        yield window[::-1]
        yield codecs.encode(window.decode(), "rot13").encode()


def _views(data: bytes, depth: int = 2) -> Iterator[bytes]:
    """The bytes in lower case, as they are and without what stands between letters; then what they may stand for."""
    lower = data.lower()
    yield lower
    yield _ODD.sub(b"", lower)
    if depth == 0:
        return
    for inner in _inside(data):
        yield from _views(inner, depth - 1)


def _inside(data: bytes) -> Iterator[bytes]:
    if b"%" in data:
        yield unquote_to_bytes(data)
    for start in (found.start() for found in re.finditer(rb"\x1f\x8b\x08|x[\x01\x5e\x9c\xda]", data)):
        unpack = zlib.decompressobj(31 if data[start : start + 1] == b"\x1f" else 15)
        try:
            yield unpack.decompress(data[start:], 1 << 16)
        except zlib.error:
            continue
    squeezed = data.replace(b".", b"").replace(b"\r\n", b"")
    for word in {*_WORD.findall(data), *_WORD.findall(squeezed)}:
        yield from _decoded(word)


def _decoded(word: bytes) -> Iterator[bytes]:
    """The word may begin in the middle of a group, so it is tried from each place of one."""
    core = word.strip(b"=")
    signs = b"-_" if b"_" in core or b"-" in core else None
    digits = re.sub(rb"[^0-9a-fA-F]", b"", core)
    for offset in range(2):
        yield binascii.unhexlify(_whole(digits[offset:], 2))
    for offset in range(4):
        with suppress(binascii.Error, ValueError):
            yield base64.b64decode(_whole(core[offset:], 4), altchars=signs)
    for offset in range(8):
        with suppress(binascii.Error, ValueError):
            yield base64.b32decode(_whole(core.upper()[offset:], 8))


def _whole(text: bytes, group: int) -> bytes:
    return text[: len(text) // group * group]


CLOTHES: dict[str, Callable[[str], bytes]] = {
    "raw": lambda text: text.encode(),
    "backwards": lambda text: text.encode()[::-1],
    "hex": lambda text: text.encode().hex().encode(),
    "base64": lambda text: base64.b64encode(text.encode()),
    "base64 of a longer text": lambda text: base64.b64encode(b"xy" + text.encode() + b"tail"),
    "urlsafe base64": lambda text: base64.urlsafe_b64encode(text.encode()),
    "base32": lambda text: base64.b32encode(text.encode()),
    "percent": lambda text: "".join(f"%{ord(letter):02x}" for letter in text).encode(),
    "gzip": lambda text: gzip.compress(text.encode()),
    "zlib": lambda text: zlib.compress(text.encode()),
    "rot13": lambda text: codecs.encode(text, "rot13").encode(),
    "upper case": lambda text: text.upper().encode(),
    "labels": lambda text: ".".join(text[at : at + 8] for at in range(0, len(text), 8)).encode(),
    "a third": lambda text: text[12:24].encode(),
    "gzip in base64": lambda text: base64.b64encode(gzip.compress(text.encode())),
}
"""How it might travel; the oracle must know it in each."""
