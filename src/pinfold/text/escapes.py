"""Finds secrets in text whose escapes are undone: HTML entities, percent signs, backslashes, wrapped base64."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from functools import lru_cache

from pinfold.text.clean import MARK, bare

_LAYERS = 3
"""How deep escapes of different kinds may nest."""
# The first letter is matched separately, which is faster. Repeated escapes of one kind, as in `&amp;#115;`, `%2573` and
# `\\u0073`, are one layer.
_ESCAPE = re.compile(
    r"[&%\\](?:"
    r"(?<=&)(?:amp;){0,8}(?:#(?:[xX][0-9A-Fa-f]{1,8}|[0-9]{1,9})|[A-Za-z]{2,31}(?=;));?"
    r"|(?<=%)(?:25){0,8}(?:u[0-9A-Fa-f]{4}|[0-9A-Fa-f]{2})"
    r"|(?<=(?<!\\)\\)\\*+(?:u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,8}\}|x[0-9A-Fa-f]{2}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2}))"
)
_STARTS = "&%\\"
_IN_KEYS = frozenset(("", *"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.:~"))
_LINE = "[A-Za-z0-9+/_-]{56}"
_WRAP = re.compile(rf"(?:\n(?<={_LINE}\n)|\r\n(?<={_LINE}\r\n)|\\(?<={_LINE}\\)\\*+(?:r\\++)?n)(?={_LINE[:-4]})")
"""A line break inside base64 or hex."""
Span = tuple[int, int]
Find = Callable[[str], Iterable[Span]]


def without_escaped(text: str, find: Find, looks_like: Find | None = None) -> str:
    """`text` without what is found in it once its escapes are undone; otherwise unchanged.

    `find` gets lines of base64 joined too; `looks_like` only what has letters of keys among its escapes.
    """
    spans = _spans(text, find, looks_like, _LAYERS) + _unwrapped_spans(text, find)
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if start >= at:
            parts += (text[at:start], MARK)
        at = max(at, end)
    return "".join(parts) + text[at:]


def _spans(text: str, find: Find, looks_like: Find | None, layers: int) -> list[Span]:
    """The spans in `text` itself."""
    undone: set[str] = set()

    def undo(match: re.Match[str]) -> str:
        undone.add(letter := _letter(match.group()))
        return letter

    if not layers or not any(start in text for start in _STARTS):
        return []
    plain = _ESCAPE.sub(undo, text)
    if not undone:
        return []
    found = [*find(plain)]
    if looks_like and undone & _IN_KEYS:
        found += looks_like(plain)
    if not undone.isdisjoint(_STARTS):
        found += _spans(plain, find, looks_like, layers - 1)
    return _where(text, _ESCAPE, found, _letter) if found else []


def _unwrapped_spans(text: str, find: Find) -> list[Span]:
    plain = _WRAP.sub("", text)
    found = [*find(plain)] if len(plain) < len(text) else []
    return _where(text, _WRAP, found, lambda _: "") if found else []


def _where(text: str, pattern: re.Pattern[str], spans: list[Span], undo: Callable[[str], str]) -> list[Span]:
    """Maps spans of the plain text to the escaped one."""
    begins, shifts = [0], [0]
    """Where in the plain text each escape's letter stands, and how much longer `text` is from behind it on."""
    for match in pattern.finditer(text):
        letter = undo(match.group())
        begins.append(match.start() - shifts[-1])
        shifts.append(shifts[-1] + len(match.group()) - len(letter))

    def at(place: int) -> int:
        """Where a letter of the plain text begins: an escape's own, before what made `text` longer."""
        last = bisect_right(begins, place) - 1
        return place + (shifts[last - 1] if last and begins[last] == place else shifts[last])

    return [(at(start), at(end)) for start, end in spans]


@lru_cache(8192)
def _letter(escape: str) -> str:
    """The character an escape stands for."""
    first, word = escape[0], escape.lstrip(_STARTS).removesuffix(";")
    if first == "&":
        word = word.replace("amp;", "")
        if not word.startswith("#"):
            from html import unescape

            return bare(unescape(f"&{word};"))
        base = 16 if word[1] in "xX" else 10
    elif first == "%":
        word, base = word if word.startswith("u") else word[-2:], 16
    else:
        base = 16 if word[0] in "uUx" else 8
    code = int(word.strip("#uUxX{}"), base)
    # Invisible characters must not hide a secret; an invalid code stays as it is.
    return bare(chr(code)) if code < 0x110000 else escape
