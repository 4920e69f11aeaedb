"""Long pastes: one token in the input line, the whole in what is sent."""

from __future__ import annotations

import re

_LINES = 5
_LETTERS = 1000
_TOKEN = re.compile(r"\[pasted [\d,]+ (?:lines|characters)(?: #\d+)?\]")


class Pastes:
    def __init__(self) -> None:
        self._kept: dict[str, str] = {}

    def collapse(self, text: str) -> str:
        """What stands for it in the input: itself, if it is short."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _LINES and len(text) <= _LETTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        token, number = f"[pasted {size}]", 1
        while self._kept.get(token, text) != text:
            number += 1
            token = f"[pasted {size} #{number}]"
        self._kept[token] = text
        return token

    def expand(self, text: str) -> str:
        return _TOKEN.sub(lambda match: self._kept.get(match.group(), match.group()), text)

    def strip_tokens(self, text: str) -> str:
        """As it may be remembered: a token means nothing to the next chat."""
        return _TOKEN.sub(lambda match: "" if match.group() in self._kept else match.group(), text).strip()

    def token_before(self, text: str) -> int:
        """How many letters at the end of `text` are one token; 0 if none are."""
        at = text.rfind("[pasted ")
        return len(text) - at if at >= 0 and text[at:] in self._kept else 0
