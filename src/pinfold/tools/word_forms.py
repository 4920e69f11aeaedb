"""Words as people and tools write them: stems, misspellings, synonyms."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_NOT_IN_NAMES = re.compile(r"[\W_]+")
_PATH = re.compile(
    r"(?<![\w/])(?:~|\.\.?)?/\w[\w./-]*|\b[\w-]{1,80}\.(?:txt|md|csv|json|py|log|pdf|docx?|xlsx?|ya?ml|toml|html?)\b"
)
_TO_A_PERSON = re.compile(r"\b[Ww]r(?:ite|ote) (?:to )?(?:me\b|us\b|[A-Z])")
_TO_ME = re.compile(r"\btell (?:me|us)\b", re.IGNORECASE)
_GRAMMAR = """
a an the this that some any its my your it me i we you and or of in on at by to for from into with as about up
is am are be can do how what which who please want need use
"""
_PASSING = """
these those all each every both other others such same own mine us our ours yours he him his she her hers
they them their theirs there here but nor if so out off over than then too also only just been being was were does did
done has have had could will would shall should may might must when where why not no yes ok let like now again well else
very many much more most few less least first last next one two per while before after
"""
GRAMMAR = frozenset(_GRAMMAR.split())
PASSING = GRAMMAR | frozenset(_PASSING.split())
"""Stop words."""


def stems_of(text: str) -> frozenset[str]:
    return frozenset(map(stem_of, WORD.findall(text)))


def squash_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("", name).lower()


def is_slip(one: str, other: str) -> bool:
    """One letter is missing, wrong or too many, or two have changed places."""
    short, long = sorted((one, other), key=len)
    if len(short) < 4 or len(long) - len(short) > 1 or short[0] != long[0]:
        return False
    at = next((at for at, (a, b) in enumerate(zip(short, long, strict=False)) if a != b), len(short))
    if len(short) < len(long):
        return short[at:] == long[at + 1 :]
    is_swapped = short[at : at + 2] == long[at : at + 2][::-1] and short[at + 2 :] == long[at + 2 :]
    return short[at + 1 :] == long[at + 1 :] or is_swapped


@lru_cache(20_000)
def stem_of(word: str) -> str:
    """Without the endings of English: `queries`, `querying` and `query` are one, `deletion` and `deletes` too."""
    word = word.lower()
    if len(word) < 4 or not word.isascii():
        return word
    if word.endswith("ies"):
        word = f"{word[:-3]}y"
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    for ending in ("ation", "ing", "ion", "ed", "er"):
        if word.endswith(ending) and len(word) - len(ending) > 2:
            word = word[: -len(ending)]
            if ending == "ation":
                word += "at"
            elif word[-1] == word[-2] and word[-1] not in "lsz":
                word = word[:-1]
            break
    word = word.removesuffix("e")
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > 3 else word


MEANS = {
    stem: tools
    for tools, people in {
        "send message": "tell inform notify text ping",
        "message": "mail email",
        "directory": "folder",
        "create": "make add new open",
        "delete": "remove erase drop",
        "update": "change edit modify rename close assign",
        "write": "save store",
        "get": "show display view read",
        "search": "find look",
        "post": "share announce publish",
        "issue": "bug ticket",
        "price": "cost cheap expensive worth",
        "event": "meeting appointment schedule",
        "amount currency": "money euro dollar",
        "distance": "far",
        "order": "buy purchase",
        "pull request": "pr",
        "transfer": "move",
        "forecast": "weather",
        "user": "who whom whose people person",
        "shipment": "arrive parcel deliver",
    }.items()
    for stem in map(stem_of, people.split())
}
"""Synonyms: the stem of what people say, and what tools call it."""


def meant_by(text: str) -> Iterator[str]:
    """Synonyms that tools use for the words of a message."""
    for word in WORD.findall(_TO_ME.sub("", text)):
        yield from MEANS.get(stem_of(word), "").split()
    if path := _PATH.search(text):
        yield "file" if "." in path[0].strip("./") else "directory"
    if _TO_A_PERSON.search(text):
        yield from ("send", "message")
