"""Writes a picture of a real terminal: a program is run in a pseudo-terminal, and its screen is drawn as SVG.

    python docs/make_picture.py OUT.svg [--size 100x30] [--type TEXT]... -- COMMAND...

Each `--type` is typed once the screen has been still for a moment, and the recording ends when it is still after the last
one, or with the program; `\\r` in it is the return key. The picture is what the screen shows at the end, or with `--history`
all that was ever on it.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from collections.abc import Sequence
from fcntl import ioctl
from html import escape
from pathlib import Path

import pyte
from pyte.screens import Char

NBSP = "\N{NO-BREAK SPACE}"
CELL_W, CELL_H, MARGIN, BAR = 8.4, 18, 14, 26
STILL_S = 2.0
"""How long nothing may change before a screen counts as finished."""
LONGEST_S = 600.0
_PALETTE = {
    "black": "#1d2129",
    "red": "#e06c75",
    "green": "#98c379",
    "brown": "#e5c07b",
    "blue": "#61afef",
    "magenta": "#c678dd",
    "cyan": "#56b6c2",
    "white": "#c8ccd4",
    "brightblack": "#7f8794",
    "brightred": "#ef7f88",
    "brightgreen": "#a9d38a",
    "brightbrown": "#f0cd8c",
    "brightblue": "#74c0ff",
    "brightmagenta": "#d68aec",
    "brightcyan": "#68c7d3",
    "brightwhite": "#ffffff",
}
_FONTS = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
_INK, _PAPER = "#c8ccd4", "#1d2129"


def record(argv: Sequence[str], typed: Sequence[str], columns: int, rows: int) -> pyte.HistoryScreen:
    """Run it to its end, or until the screen is still and everything was typed."""
    screen = pyte.HistoryScreen(columns, rows, history=5000, ratio=1.0)
    stream = pyte.ByteStream(screen)
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.execvp(argv[0], list(argv))
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    waiting = list(typed)
    end = time.monotonic() + LONGEST_S
    try:
        while time.monotonic() < end:
            ready, _, _ = select.select([terminal], [], [], STILL_S)
            if not ready:
                if not waiting:
                    if typed:
                        break
                    continue
                os.write(terminal, waiting.pop(0).encode().replace(b"\\r", b"\r"))
                continue
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:  # it has ended, and nobody holds the other side any more
                break
            if not data:
                break
            stream.feed(data)
    finally:
        os.kill(pid, signal.SIGHUP)
        os.close(terminal)
        os.waitpid(pid, 0)
    return screen


def lines_of(screen: pyte.HistoryScreen, *, history: bool) -> list[list[Char]]:
    shown = [[screen.buffer[y][x] for x in range(screen.columns)] for y in range(screen.lines)]
    above = [[line[x] for x in range(screen.columns)] for line in screen.history.top] if history else []
    lines = above + shown
    while lines and not "".join(char.data for char in lines[-1]).strip():
        lines.pop()
    return lines


def drawn(lines: Sequence[Sequence[Char]], columns: int, title: str) -> str:
    """The screen as SVG: text stays text, so that it can be selected and read aloud."""
    width, height = columns * CELL_W + 2 * MARGIN, len(lines) * CELL_H + 2 * MARGIN + BAR
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label="{escape(title)}">',
        f"<title>{escape(title)}</title>",
        f'<rect width="100%" height="100%" rx="8" fill="{_PAPER}"/>',
        *(
            f'<circle cx="{MARGIN + 6 + 18 * i}" cy="17" r="5.5" fill="{colour}"/>'
            for i, colour in enumerate(("#e06c75", "#e5c07b", "#98c379"))
        ),
        f'<g font-family="{_FONTS}" font-size="14" fill="{_INK}">',
    ]
    for number, line in enumerate(lines):
        parts += _row(line, MARGIN + BAR + number * CELL_H)
    return "\n".join([*parts, "</g>", "</svg>", ""])


def _row(line: Sequence[Char], top: float) -> list[str]:
    parts: list[str] = []
    x = 0
    while x < len(line):
        first, begin = line[x], x
        while x < len(line) and _look(line[x]) == _look(first):
            x += 1
        text = "".join(char.data for char in line[begin:x])
        ink, paper, extra = _look(first)
        if paper:
            place = f'x="{_left(begin):.1f}" y="{top:.1f}" width="{(x - begin) * CELL_W:.1f}"'
            parts.append(f'<rect {place} height="{CELL_H}" fill="{paper}"/>')
        if words := text.strip():
            left = _left(begin + len(text) - len(text.lstrip()))
            fill = f' fill="{ink}"' if ink != _INK else ""
            # Blanks that are kept, and a length that is given: any font then stands as in the terminal.
            place = f'x="{left:.1f}" y="{top + 13.5:.1f}" textLength="{len(words) * CELL_W:.1f}"'
            parts.append(f"<text {place}{fill}{extra}>{escape(words).replace(' ', NBSP)}</text>")
    return parts


def _left(column: int) -> float:
    return MARGIN + column * CELL_W


def _look(char: Char) -> tuple[str, str, str]:
    """Ink, paper (empty: the page's own), and what else an SVG text needs."""
    ink, paper = _colour(char.fg, _INK), _colour(char.bg, "")
    if char.reverse:
        ink, paper = paper or _PAPER, ink
    extra = ' font-weight="bold"' if char.bold else ""
    extra += ' font-style="italic"' if char.italics else ""
    extra += ' text-decoration="underline"' if char.underscore else ""
    return ink, paper, extra


def _colour(name: str, otherwise: str) -> str:
    if name == "default":
        return otherwise
    return _PALETTE.get(name) or f"#{name}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--size", default="100x30", help="columns and rows")
    parser.add_argument("--type", dest="typed", action="append", default=[], help="keys, in order")
    parser.add_argument("--title", default="Pinfold in a terminal")
    parser.add_argument("--history", action="store_true", help="also what has scrolled off")
    parser.add_argument("--text", type=Path, help="the same as plain text, into this file")
    parser.add_argument("command", nargs="+")
    given = parser.parse_args()
    columns, rows = map(int, given.size.split("x"))
    screen = record(given.command, given.typed, columns, rows)
    lines = lines_of(screen, history=given.history)
    if not lines:
        print("the program showed nothing", file=sys.stderr)
        return 1
    given.out.write_text(drawn(lines, columns, given.title), encoding="utf-8")
    if given.text:
        plain = ("".join(char.data for char in line).rstrip() for line in lines)
        given.text.write_text("\n".join(plain) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
