"""What a server sends, read without trusting it: every reader takes anything and gives its own type."""

from __future__ import annotations

import re
from typing import cast

from pinfold.events import BadEvent, Json, is_deeper, map_leaves, parse_json
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


def an_object(value: Json) -> dict[str, Json]:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else {}


def a_list(value: Json) -> list[Json]:
    return cast("list[Json]", value) if isinstance(value, list) else []


def objects_in(value: Json, name: str) -> list[dict[str, Json]]:
    """What the list of that name holds."""
    return [an_object(one) for one in a_list(an_object(value).get(name))]


def a_text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def a_count(value: Json) -> int:
    """A number of tokens; zero for what cannot be one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return int(value) if 0 <= value < _MOST else 0


def longest_context(shown: Json) -> int:
    """In what Ollama shows of a model; 0 if it does not say."""
    info = an_object(an_object(shown).get("model_info"))
    return max((a_count(info[key]) for key in info if key.endswith(".context_length")), default=0)


def estimate_tokens(text: str) -> int:
    return -(-len(text.encode("utf-8", "replace")) // BYTES_PER_TOKEN)


def sendable(value: Json) -> Json:
    """`value` with every character in it that servers choke on replaced: NUL and halves of surrogate pairs."""
    return map_leaves(value, _sendable_leaf)


def _sendable_leaf(value: Json) -> Json:
    if not isinstance(value, str) or not _UNSENDABLE.search(value):
        return value
    # Two halves that were streamed apart are one character again.
    whole = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\0", "\ufffd")
