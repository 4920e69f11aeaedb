"""Reads a server's JSON without trusting it: each function accepts any value and returns its own type."""

from __future__ import annotations

import re
from typing import cast

from pinfold.events import BadEvent, Json, is_deeper, map_leaves, parse_json
from pinfold.text import BYTES_PER_TOKEN

DEPTH = 128
"""Maximum nesting of lists and objects. Deeper values could be read here and then fail to be encoded elsewhere."""
_MOST = 2**53
_UNSENDABLE = re.compile("[\x00\ud800-\udfff]")


def parse_payload(text: str) -> Json:
    """Parse strict JSON. Raises BadEvent, also if it is nested deeper than DEPTH."""
    value = parse_json(text)
    # Counting brackets is nearly always enough, and cheaper than walking the value.
    if text.count("{") + text.count("[") > DEPTH and is_deeper(value, DEPTH):
        raise BadEvent(f"not JSON: nested deeper than {DEPTH}")
    return value


def as_object(value: Json) -> dict[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def as_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def objects_in(value: Json, name: str) -> list[dict[str, Json]]:
    """Return the items of the list `name`, as objects."""
    return [as_object(one) for one in as_list(as_object(value).get(name))]


def as_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def as_count(value: Json) -> int:
    """Return a number of tokens; 0 if the value cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < _MOST else 0


def longest_context(shown: Json) -> int:
    """Return the maximum context from Ollama's `/api/show`; 0 if it is missing."""
    info = as_object(as_object(shown).get("model_info"))
    return max((as_count(info[key]) for key in info if key.endswith(".context_length")), default=0)


def estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def sendable(value: Json) -> Json:
    """Return `value` with characters replaced that servers fail on: NUL and halves of surrogate pairs."""
    return map_leaves(value, _sendable_leaf)


def _sendable_leaf(value: Json) -> Json:
    if not isinstance(value, str) or not _UNSENDABLE.search(value):
        return value
    # Joins two halves of a character that were streamed separately.
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")
