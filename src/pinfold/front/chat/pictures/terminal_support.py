"""Which way of drawing pictures this terminal has, as far as its environment tells: nothing is asked of it."""

from __future__ import annotations

import struct
import sys
from collections.abc import Mapping
from typing import Literal, TypeAlias

from pinfold.app import PictureMode

Way: TypeAlias = Literal["kitty", "iterm", "sixel", "blocks", "path"]
_KITTY = ("kitty", "ghostty")
_ITERM = ("iterm.app", "wezterm", "mintty")
_SIXEL = ("foot", "mlterm", "contour", "yaft", "xterm-sixel")
_ROWS_AND_PIXELS = "HHHH"


def choose_way(asked: PictureMode, environ: Mapping[str, str], *, colour: bool) -> Way:
    """What was asked for; else what the terminal is known to have. Without colours there are no pictures at all."""
    term = environ.get("TERM", "").lower()
    if not colour or term in ("", "dumb") or environ.get("NO_COLOR"):
        return "path"
    if asked != "auto":
        return asked
    if "TMUX" in environ or "STY" in environ or term.startswith(("screen", "tmux")):
        return "blocks"  # it would have to be told to let graphics through
    program = environ.get("TERM_PROGRAM", "").lower()
    if "KITTY_WINDOW_ID" in environ or any(name in (program, term.removeprefix("xterm-")) for name in _KITTY):
        return "kitty"
    if program in _ITERM or "ITERM_SESSION_ID" in environ or any(one.startswith("WEZTERM_") for one in environ):
        return "iterm"
    if term.startswith(_SIXEL):
        return "sixel"
    return "blocks"


def cell_size() -> tuple[int, int]:
    """Pixels of one character, as the terminal says; a common size where it does not."""
    try:
        import fcntl
        import termios

        asked = fcntl.ioctl(sys.stdout.fileno(), termios.TIOCGWINSZ, bytes(8))
        rows, columns, wide, high = struct.unpack(_ROWS_AND_PIXELS, asked)
    except (ImportError, OSError, ValueError):
        return 8, 16
    if not (rows and columns and wide >= 4 * columns and high >= 8 * rows):
        return 8, 16
    return min(64, wide // columns), min(128, high // rows)
