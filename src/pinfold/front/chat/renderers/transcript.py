"""The transcript, and the live region below it. Lines are made safe and wrapped; rich renders them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.segment import Segment
from rich.text import Text

from pinfold.text import presentable

PIECE = 2048
"""Characters that are written before other tasks get to run."""
_KEY_BEGINS = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=\s:,.>|-]*")


class LineSanitizer:
    """Applies `presentable` line by line, and hides private keys, which span lines."""

    def __init__(self) -> None:
        self._in_key = False

    def line(self, text: str) -> str | None:
        """Return the line made safe; None if no part of it may be shown."""
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
        """Return the unfinished next line made safe."""
        return "" if self._in_key else presentable(text).expandtabs(4)


def cut(line: str, limit: int) -> str:
    """Return the beginning and how much is left out. Use it after `presentable`: a cut could leave half of a secret."""
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
    """Return a line of code behind a gutter; if it wraps, the following lines are indented further."""
    deep = min(40, len(code.plain) - len(code.plain.lstrip(" "))) + 4
    return HangingText(code, first or gutter, gutter + " " * deep, style)


LIVE_ROWS = 8


class Transcript(Protocol):
    """Where renderers and commands write."""

    @property
    def width(self) -> int: ...

    @property
    def colour(self) -> bool: ...

    steered: bool
    """True if the terminal understands escape sequences."""

    def write(self, *things: RenderableType) -> None:
        """Append anything rich can render, or plain text as it is."""

    def raw(self, data: str, rows: int) -> None:
        """Append terminal graphics that take `rows` rows."""

    def live(self, thing: RenderableType | None) -> None:
        """Replace the live region above the input, at most 8 rows; None clears it."""


class Terminal(Protocol):
    """The terminal that a transcript writes to."""

    steered: bool

    @property
    def columns(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def append(self, text: str) -> None:
        """Append whole lines to the scrollback."""

    def set_live_lines(self, lines: list[str]) -> None: ...

    def set_completions(
        self, commands: Iterable[tuple[str, str]], arguments: Callable[[str, str], Iterable[str]], workspace: Path
    ) -> None: ...


class TerminalTranscript:
    """A `Transcript` on a `Terminal`."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self.steered = steered = terminal.steered
        self._console = Console(
            file=io.StringIO(),
            force_terminal=steered,
            force_interactive=False,
            color_system="auto" if steered else None,
            markup=False,
            highlight=False,
            emoji=False,
            legacy_windows=False,
        )

    @property
    def width(self) -> int:
        return self._terminal.columns

    @property
    def colour(self) -> bool:
        return self.steered and not self._console.no_color and self._console.color_system is not None

    def write(self, *things: RenderableType) -> None:
        for thing in things:
            self._terminal.append(self._render(thing))

    def raw(self, data: str, rows: int) -> None:
        self._terminal.append(data + "\n" * max(0, rows - data.count("\n")))

    def live(self, thing: RenderableType | None) -> None:
        if thing is None:
            self._terminal.set_live_lines([])
        else:
            room = max(1, min(LIVE_ROWS, self._terminal.rows - LIVE_ROWS))
            self._terminal.set_live_lines(self._render(thing).splitlines()[-room:])

    def _render(self, thing: RenderableType) -> str:
        if isinstance(thing, str):
            return presentable(thing) + "\n"
        self._console.width = self._terminal.columns
        with self._console.capture() as capture:
            self._console.print(thing)
        return capture.get()


class SpacedTranscript:
    """Adds blank lines between parts: never two in a row, none at the top."""

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._at_gap = True
        self._held: list[RenderableType] | None = None

    @property
    def width(self) -> int:
        return max(20, self.transcript.width)

    def write(self, *things: RenderableType) -> None:
        if things:
            self._put(*things)
            self._at_gap = False

    def raw(self, data: str, rows: int) -> None:
        assert self._held is None
        self.transcript.raw(data, rows)
        self._at_gap = False

    def gap(self) -> None:
        if not self._at_gap:
            self._put("")
            self._at_gap = True

    @contextmanager
    def together(self) -> Generator[None]:
        """Write everything from this block at once, so that the live region is redrawn only once."""
        if self._held is not None:
            yield
            return
        self._held = []
        try:
            yield
        finally:
            held, self._held = self._held, None
            if held:
                self.transcript.write(*held)

    def _put(self, *things: RenderableType) -> None:
        if self._held is None:
            self.transcript.write(*things)
        else:
            self._held += things
