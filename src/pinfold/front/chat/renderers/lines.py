"""Text of unknown origin made fit for a terminal line by line, as it comes."""

from __future__ import annotations

import re

from pinfold.text import presentable

PIECE = 2048
"""Characters that are written before others may do something."""
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s:,.>|-]*")


class LineSanitizer:
    """Line by line what `presentable` makes of the whole: only a private key spans lines."""

    def __init__(self) -> None:
        self._in_key = False

    def line(self, text: str) -> str | None:
        """None for a line of which nothing is to be seen."""
        text = text.removesuffix("\r")
        if self._in_key:
            if "-----END" in text:
                self._in_key = False
                return None
            if _KEY_BODY.fullmatch(text):
                return None
            self._in_key = False
        begins = _KEY_BEGINS.search(text)
        if begins and "-----END" not in text[begins.end() :]:
            self._in_key = True
        return presentable(text).expandtabs(4)

    def partial_line(self, text: str) -> str:
        """The beginning of the next line, as far as it is known."""
        return "" if self._in_key else presentable(text).expandtabs(4)


def cut(line: str, limit: int) -> str:
    """Its beginning, and how much there is more. After `presentable`: a cut could leave half of a secret."""
    return line if len(line) <= limit else f"{line[:limit]} ... {len(line) - limit:,} characters more"
