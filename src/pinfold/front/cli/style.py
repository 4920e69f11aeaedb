"""A little emphasis for plain output, where the terminal and the user want it."""

from __future__ import annotations

import os
from typing import TextIO


class Style:
    """Wraps text that is fit to print already."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on

    @classmethod
    def of(cls, stream: TextIO) -> Style:
        dull = bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "dumb") == "dumb"
        return cls(is_on=stream.isatty() and not dull)

    def bold(self, text: str) -> str:
        return self._wrap("1", text)

    def dim(self, text: str) -> str:
        return self._wrap("2", text)

    def green(self, text: str) -> str:
        return self._wrap("32", text)

    def cyan(self, text: str) -> str:
        return self._wrap("36", text)

    def _wrap(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._is_on and text else text
