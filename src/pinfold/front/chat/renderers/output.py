"""Output of a program: its last lines while it runs, its first and last lines once it has ended."""

from __future__ import annotations

from collections import deque
from typing import Literal

from msgspec import Struct
from rich.console import RenderableType
from rich.text import Text

from pinfold.front.chat.renderers.lines import HangingText, cut
from pinfold.text import presentable

INDENT = "    "
TAIL = 8192
"""Characters of streamed output that are kept. More than the live region shows, so that secrets are recognised."""
_ENDS = 1 << 16
"""Bytes at either end of a long output that are searched for its first and last lines."""
STDERR = "[stderr]"


class Bounds(Struct, frozen=True):
    """Lines shown at the beginning and at the end."""

    head: int
    tail: int


CELL = Bounds(14, 8)
TOOL = Bounds(5, 3)


class Stream:
    """Output as it arrives; adding a piece only counts its lines."""

    def __init__(self) -> None:
        self._kept: deque[str] = deque()
        self._size = 0
        self.lines = 0
        self.characters = 0

    def add(self, text: str) -> None:
        self.lines += text.count("\n")
        self.characters += len(text)
        text = text[-TAIL:]
        self._kept.append(text)
        self._size += len(text)
        while self._size - len(self._kept[0]) >= TAIL:
            self._size -= len(self._kept.popleft())

    def last(self, rows: int, width: int) -> Text:
        tail = "".join(self._kept)[-TAIL:].rstrip("\n")
        lines = presentable(_apply_carriage_returns(tail)).split("\n")
        room = max(8, width - len(INDENT) - 1)
        text = Text("\n".join(INDENT + line.expandtabs(4)[-room:] for line in lines[-rows:]), "dim")
        if self.lines > rows:
            text.append(f"\n{INDENT}{self.lines:,} lines so far", "dim italic")
        return text


def _apply_carriage_returns(text: str) -> str:
    """Drops what a carriage return overwrites, as progress bars do."""
    if "\r" not in text:
        return text
    return "\n".join(line.removesuffix("\r").rpartition("\r")[2] for line in text.split("\n"))


class Excerpt(Struct, frozen=True, kw_only=True):
    """The first and last lines of a text, safe for a terminal, and the number between."""

    head: tuple[str, ...]
    tail: tuple[str, ...] = ()
    between: int = 0


def excerpt_text(text: str, bounds: Bounds) -> Excerpt:
    """For a text that is not very long."""
    text = _apply_carriage_returns(text.rstrip("\n"))
    lines = presentable(text).split("\n") if text.strip("\n") else []
    most = bounds.head + bounds.tail
    if len(lines) <= most + 1:
        return Excerpt(head=tuple(lines))
    return Excerpt(head=tuple(lines[: bounds.head]), tail=tuple(lines[-bounds.tail :]), between=len(lines) - most)


def excerpt_bytes(whole: bytes, bounds: Bounds) -> Excerpt:
    """For any length: reads only the ends, and counts the lines."""
    if len(whole) <= 2 * _ENDS:
        return excerpt_text(whole.decode("utf-8", "replace"), bounds)
    count = whole.count(b"\n") + (not whole.endswith(b"\n"))
    head = excerpt_text(whole[:_ENDS].decode("utf-8", "replace"), Bounds(bounds.head + 1, bounds.tail)).head
    last = excerpt_text(whole[-_ENDS:].decode("utf-8", "replace"), bounds)
    tail = (last.tail or last.head)[-bounds.tail :]
    head = head[: min(bounds.head, count)]
    return Excerpt(head=head, tail=tail, between=max(0, count - len(head) - len(tail)))


def render_excerpt(
    text: Excerpt, width: int, *, way: str = "/output", kind: Literal["stdout", "stderr"] = "stdout"
) -> list[RenderableType]:
    style = "red" if kind == "stderr" else ""
    limit = 4 * width

    def fit_line(line: str) -> str:
        return f"{cut(line, limit)}: {way}" if len(line) > limit else line

    def lines(some: tuple[str, ...]) -> list[RenderableType]:
        return [HangingText(Text(fit_line(line.expandtabs(4)), style), INDENT) for line in some]

    if not text.between:
        return lines(text.head + text.tail)
    more = Text(f"{INDENT}... {text.between:,} lines more: {way}", "dim italic")
    return [*lines(text.head), more, *lines(text.tail)]


def traceback(error: str) -> list[RenderableType]:
    """The failing line of the cell and the error in bold."""
    lines = presentable(error.rstrip("\n")).split("\n")
    frames = [place for place, line in enumerate(lines) if line.startswith('  File "')]
    own = [place for place in frames if '"<cell ' in lines[place]] or frames
    failing = own[-1] + 1 if own and own[-1] + 1 < len(lines) else -1
    last = max((n for n, line in enumerate(lines) if line[:1].strip()), default=len(lines) - 1)
    styled: list[RenderableType] = []
    for place, line in enumerate(lines):
        if place == failing:
            style = "bold"
        elif place == last and place:
            style = "bold red"
        elif line.strip() and not line.strip("~^ "):
            style = "red"
        else:
            style = "dim" if line.startswith(("Traceback", '  File "', "    ")) and place < last else "red"
        styled.append(HangingText(Text(cut(line, 2000), style), INDENT))
    return styled
