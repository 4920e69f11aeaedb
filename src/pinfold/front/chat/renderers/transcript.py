"""Where the chat writes: the transcript, and the live region below it. Rendered by rich."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.console import Console, RenderableType

from pinfold.text import presentable

LIVE_ROWS = 8


class Transcript(Protocol):
    """What renderers and commands may write."""

    @property
    def width(self) -> int: ...

    @property
    def colour(self) -> bool: ...

    def write(self, *things: RenderableType) -> None:
        """Append anything rich can render, or plain text as it is."""
        ...

    def raw(self, data: str, rows: int) -> None:
        """Append terminal graphics that take `rows` rows."""
        ...

    def live(self, thing: RenderableType | None) -> None:
        """Replace the live region above the input, at most 8 rows; None clears it."""
        ...


class Surface(Protocol):
    """The terminal below a transcript."""

    @property
    def columns(self) -> int: ...

    @property
    def rows(self) -> int: ...

    def append(self, text: str) -> None:
        """Whole lines."""
        ...

    def set_live_lines(self, lines: list[str]) -> None: ...


class Terminal(Surface, Protocol):
    """What the conversation needs of the frame."""

    steered: bool

    def set_completions(
        self, commands: Iterable[tuple[str, str]], arguments: Callable[[str, str], Iterable[str]], workspace: Path
    ) -> None: ...


class TerminalTranscript:
    """A transcript on a terminal."""

    def __init__(self, surface: Surface, *, steered: bool) -> None:
        """`steered`: the terminal understands escape sequences."""
        self._surface = surface
        self.steered = steered
        self._console = _console(surface.columns, steered=steered)

    @property
    def width(self) -> int:
        return self._surface.columns

    @property
    def colour(self) -> bool:
        return self.steered and not self._console.no_color and self._console.color_system is not None

    def write(self, *things: RenderableType) -> None:
        for thing in things:
            self._surface.append(self._render(thing))

    def raw(self, data: str, rows: int) -> None:
        self._surface.append(data + "\n" * max(0, rows - data.count("\n")))

    def live(self, thing: RenderableType | None) -> None:
        if thing is None:
            self._surface.set_live_lines([])
        else:
            room = max(1, min(LIVE_ROWS, self._surface.rows - LIVE_ROWS))
            self._surface.set_live_lines(self._render(thing).splitlines()[-room:])

    def _render(self, thing: RenderableType) -> str:
        if isinstance(thing, str):
            return presentable(thing) + "\n"
        self._console.width = self._surface.columns
        with self._console.capture() as capture:
            self._console.print(thing)
        return capture.get()


def _console(width: int, *, steered: bool) -> Console:
    import io

    return Console(
        file=io.StringIO(),
        width=width,
        force_terminal=steered,
        force_interactive=False,
        color_system="auto" if steered else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )


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
        """Write everything inside at once, so that the live region is redrawn once."""
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
