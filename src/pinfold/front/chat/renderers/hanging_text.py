"""Text beside a marker or a gutter. Lines end where their words end, so that what is copied has no blanks behind it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.segment import Segment

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.text import Text


class HangingText:
    """`first` stands before the first line, `rest` before every other."""

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
    """A line of code: what does not fit goes on further in, so that it is not taken for a line of its own."""
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
