"""A command that a user wrote, as its file has it."""

from __future__ import annotations

import re

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
