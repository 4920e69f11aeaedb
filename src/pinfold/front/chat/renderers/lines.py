"""Lines for the terminal: made safe one by one, and wrapped beside a marker or a gutter."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderResult
from rich.segment import Segment
from rich.text import Text

from pinfold.text import presentable

PIECE = 2048
"""Characters that are written before other tasks run."""
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s:,.>|-]*")


class LineSanitizer:
    """Applies `presentable` line by line, and hides private keys, which span lines."""

    def __init__(self) -> None:
        self._in_key = False

    def line(self, text: str) -> str | None:
        """None if nothing of the line may be shown."""
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
        """The beginning of the next line."""
        return "" if self._in_key else presentable(text).expandtabs(4)


def cut(line: str, limit: int) -> str:
    """Its beginning, and how much is left out. Use it after `presentable`: a cut could leave half of a secret."""
    return line if len(line) <= limit else f"{line[:limit]} ... {len(line) - limit:,} characters more"


class HangingText:
    """Text with `first` before its first line and `rest` before the others. Lines have no trailing blanks."""

    def __init__(self, words: Text, first: str, rest: str | None = None, style: str = "") -> None:
        self._words = words
        self._first = first
        self._rest = " " * len(first) if rest is None else rest
        self._style = style

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style(self._style) if self._style else None
        before = self._first
        for line in self._wrap_lines(console, options.max_width):
            yield Segment(before, style)
            line.end = ""
            line.rstrip()
            yield from Segment.apply_style(line.render(console), console.get_style(line.style))
            yield Segment.line()
            before = self._rest

    def _wrap_lines(self, console: Console, width: int) -> Iterable[Text]:
        if "\n" not in self._words.plain and self._words.cell_len <= width - len(self._first):
            return [self._words.copy()]
        room = width - max(len(self._first), len(self._rest))
        return self._words.wrap(console, max(8, room), overflow="fold")


def with_gutter(code: Text, gutter: str, style: str = "", first: str = "") -> HangingText:
    """A line of code; what does not fit continues further indented."""
    deep = min(40, len(code.plain) - len(code.plain.lstrip(" "))) + 4
    return HangingText(code, first or gutter, gutter + " " * deep, style)


class LastRows:
    """The last rows of a text."""

    def __init__(self, words: Text, rows: int) -> None:
        self._words = words
        self._rows = rows

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = self._words.wrap(console, options.max_width, overflow="fold")
        yield from lines[-self._rows :]
