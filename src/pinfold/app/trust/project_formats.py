"""Formats of a project's files: `.env`, of which only keys of model providers are used, and commands that a user wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

FOLDER = ".agents/commands"
_KEY = r"([A-Za-z][A-Za-z-]*)\s*:\s*(.*)"


class UserCommand(Struct, frozen=True, kw_only=True):
    name: str
    text: str
    words: str = ""
    """What it does."""
    hint: str = ""
    """Its arguments."""
    origin: str = ""


def parse_command(name: str, data: bytes, origin: str) -> UserCommand:
    """With what its front matter says, if it has any."""
    text = data.decode("utf-8", "replace").lstrip("\ufeff").replace("\r\n", "\n")
    fields: dict[str, str] = {}
    lines = text.split("\n")
    if lines[0].rstrip() == "---":
        end = next((at for at, line in enumerate(lines[1:], 1) if line.rstrip() == "---"), None)
        if end is not None:
            for line in lines[1:end]:
                if known := re.fullmatch(_KEY, line.rstrip()):
                    fields[known[1].lower()] = _strip_quotes(known[2])
            text = "\n".join(lines[end + 1 :])
    text = text.strip()
    words = fields.get("description") or text.split("\n", 1)[0].lstrip("# ")
    return UserCommand(name=name, text=text, words=words, hint=fields.get("argument-hint", ""), origin=origin)


def _strip_quotes(value: str) -> str:
    value = value.strip()
    quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
    return value[1:-1] if quoted else value


_LINE = r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*?)\s*"
# An address, a folder or a setting in here could send the user's own key, or everything, elsewhere.
_PROVIDER_KEY = r"(?!PINFOLD_)[A-Z][A-Z0-9_]*_API_KEY|HF_TOKEN"


def keys_of(data: bytes) -> dict[str, str]:
    """What may be taken from it."""
    return {name: value for name, value in _variables(data) if value and re.fullmatch(_PROVIDER_KEY, name)}


def names_of(data: bytes) -> tuple[str, ...]:
    """Every variable it sets."""
    return tuple(dict.fromkeys(name for name, _ in _variables(data)))


def _variables(data: bytes) -> Iterator[tuple[str, str]]:
    for line in data.decode("utf-8", "replace").splitlines():
        if found := re.fullmatch(_LINE, line):
            yield found[1], _variable_value(found[2])


def _variable_value(text: str) -> str:
    for quote in "\"'":
        if len(text) > 1 and text.startswith(quote) and (end := text.find(quote, 1)) > 0:
            return text[1:end]
    return re.split(r"\s#", text, maxsplit=1)[0].strip()
