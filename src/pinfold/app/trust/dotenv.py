"""A `.env` file: keys of model providers, and nothing else. Never exported: no program that is started sees it."""

from __future__ import annotations

import re
from collections.abc import Iterator

_LINE = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*"
# An address, a folder or a setting in here could send the user's own key, or everything, elsewhere.
_KEY = r"(?!PINFOLD_)[A-Z][A-Z0-9_]*_API_KEY|HF_TOKEN"


def keys_of(data: bytes) -> dict[str, str]:
    """What may be taken from it."""
    return {name: value for name, value in _variables(data) if value and re.fullmatch(_KEY, name)}


def names_of(data: bytes) -> tuple[str, ...]:
    """Every variable it sets."""
    return tuple(dict.fromkeys(name for name, _ in _variables(data)))


def _variables(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.decode("utf-8", "replace").splitlines():
        if found := re.fullmatch(_LINE, line):
            yield found[1], _value(found[2])


def _value(text: str) -> str:
    for quote in "\"'":
        if len(text) > 1 and text.startswith(quote) and (end := text.find(quote, 1)) > 0:
            return text[1:end]
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
