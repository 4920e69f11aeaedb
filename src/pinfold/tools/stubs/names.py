"""Turns names from servers into Python identifiers: ASCII, no keyword, no two alike."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Collection, Mapping, Sequence

WRITTEN = frozenset(
    {
        *("str", "int", "float", "bool", "bytes", "list", "dict", "tuple", "locals"),
        *("Any", "Literal", "NotRequired", "TypedDict"),
    }
)
"""Names that generated code uses itself: no tool and no type may hide them."""
_LENGTH = 64
_READ = 200
"""Letters of a name that are looked at."""
_OTHER = re.compile(r"[^A-Za-z0-9_]+")
_WORD = re.compile(r"[A-Za-z0-9]+")


def identifiers(names: Sequence[str], *, taken: Collection[str] = (), prefix: str = "tool") -> Mapping[str, str]:
    """For each name of a tool or server the one under which code finds it.

    The same set of names gives the same identifiers, in whatever order they come; a name that is an identifier already
    keeps it. `taken` are those that are not free; `prefix` stands before a name that begins with a digit.
    """
    return unique(names, taken={*WRITTEN, *taken}, prefix=prefix)


def module_names(servers: Sequence[str]) -> Mapping[str, str]:
    """For each server its module of the package `servers`, which has a `search` of its own."""
    return identifiers(servers, taken=("search",), prefix="server")


def unique(names: Sequence[str], *, taken: Collection[str], prefix: str) -> dict[str, str]:
    wanted: dict[str, str] = {}
    for name in names:
        plain = _plain(name, prefix)
        wanted[name] = f"{plain}_" if plain in taken or keyword.iskeyword(plain) else plain
    used: set[str] = set()
    numbers: dict[str, int] = {}
    found: dict[str, str] = {}
    for name in sorted(wanted, key=lambda name: (wanted[name] != name, name)):
        base = given = wanted[name]
        while given in used or given in taken:
            numbers[base] = numbers.get(base, 1) + 1
            given = f"{base}_{numbers[base]}"
        used.add(given)
        found[name] = given
    return {name: found[name] for name in names}


def numbered(name: str, taken: Collection[str]) -> str:
    """The name, with a number behind it where it is taken."""
    number, free = 1, name
    while free in taken:
        number += 1
        free = f"{name}{number}"
    return free


def camel(*names: str) -> str:
    """One name for a type: `list_issues`, `filter` becomes `ListIssuesFilter`."""
    words = [word for name in names for word in _WORD.findall(_ascii(name[:_READ]))]
    text = "".join(word[0].upper() + word[1:] for word in words)[:_LENGTH]
    return text if text and not text[0].isdigit() else f"Type{text}"


def _plain(name: str, prefix: str) -> str:
    # Without underscores in front: `__getattr__` and `_call` mean something in a module.
    text = _OTHER.sub("_", _ascii(name[:_READ])).lstrip("_")
    if not name.isidentifier():
        text = text.rstrip("_")
    if not text:
        return prefix
    return (f"{prefix}_{text}" if text[0].isdigit() else text)[:_LENGTH]


def _ascii(name: str) -> str:
    return name if name.isascii() else "".join(letter if letter.isascii() else _fold_letter(letter) for letter in name)


def _fold_letter(letter: str) -> str:
    """Without its accents, else by its number: letters of other scripts differ from one Python to the next."""
    base = "".join(part for part in unicodedata.normalize("NFKD", letter.replace("ß", "ss")) if part.isascii())
    if base or unicodedata.combining(letter):
        return base
    return f"u{ord(letter):x}" if letter.isalnum() else "_"
