"""What a server sends, read without trusting it: every reader takes anything and gives its own type."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import cast

from pinfold.events import BadEvent, Json, parse_json
from pinfold.text import BYTES_PER_TOKEN

DEPTH = 128
"""Of nested lists and objects. What is deeper could be read here and then not be written elsewhere."""
_MOST = 2**53
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def parse_payload(text: str) -> Json:
    """Strict JSON that is not nested deeper than DEPTH, or BadEvent."""
    value = parse_json(text)
    # Counting brackets is enough for nearly everything, and needs no walk.
    if text.count("{") + text.count("[") > DEPTH and is_deeper(value, DEPTH):
        raise BadEvent(f"not JSON: nested deeper than {DEPTH}")
    return value


def is_deeper(value: Json, depth: int) -> bool:
    """Whether lists and objects are nested deeper than that."""
    level: list[Json] = [value]
    for _ in range(depth + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Json) -> Iterable[Json]:
    if isinstance(value, dict):
        return cast("dict[str, Json]", value).values()
    return cast("list[Json]", value) if isinstance(value, list) else ()


def an_object(value: Json) -> dict[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def a_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def a_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def a_count(value: Json) -> int:
    """A number of tokens; zero for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < _MOST else 0


def estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def sendable(value: Json) -> Json:
    """`value` with every character in it that servers choke on replaced: NUL and halves of surrogate pairs."""
    match value:
        case str():
            return _sendable_text(value)
        case Mapping():
            return {sendable(key): sendable(inner) for key, inner in cast("Mapping[str, Json]", value).items()}
        case list() | tuple():
            return [sendable(inner) for inner in cast("list[Json]", value)]
        case _:
            return value


def _sendable_text(text: str) -> str:
    if not _UNSENDABLE.search(text):
        return text
    # Two halves that were streamed apart are one character again.
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")
