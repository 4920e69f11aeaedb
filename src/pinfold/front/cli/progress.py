"""How far something is, on stderr: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import math
import sys
import time

import click

from pinfold.text import presentable

_BAR = 24
_REDRAW_S = 0.1


def shown_progress(step: float = math.inf) -> Lines | Bar:
    """`step`: how much of the whole has to be new for another line, where there is no bar."""
    return Bar() if sys.stderr.isatty() else Lines(step)


class Lines:
    """One line for each thing that is done, for a log."""

    def __init__(self, step: float = math.inf) -> None:
        self.began = False
        self._step = step
        self._words = ""
        self._said = 0.0

    def show(self, words: str, done: int = 0, total: int = 0, counted: str = "") -> None:
        self.began = True
        share = done / total if total else 0.0
        if words != self._words:
            say(f"{words} ...")
        elif share >= self._said + self._step:
            say(f"{words} {counted}".rstrip())
        else:
            return
        self._words, self._said = words, share

    def end(self) -> None:
        """Nothing is left open."""


class Bar:
    """One line that is drawn again and again, for a terminal."""

    def __init__(self) -> None:
        self.began = False
        self._drawn_at = 0.0
        self._words = ""

    def show(self, words: str, done: int = 0, total: int = 0, counted: str = "") -> None:
        self.began = True
        now = time.monotonic()
        is_new = words != self._words or done == total
        if not is_new and now - self._drawn_at < _REDRAW_S:
            return
        self._drawn_at, self._words = now, words
        full = round(done / total * _BAR) if total else 0
        line = f"{'#' * full}{'-' * (_BAR - full)} {words} {counted}".rstrip()
        click.echo(f"\r\x1b[K{line}", err=True, nl=False)

    def end(self) -> None:
        if self.began:
            click.echo("\r\x1b[K", err=True, nl=False)


def say(text: str) -> None:
    click.echo(presentable(f"pinfold: {text}"), err=True)
