"""Progress on stderr: a bar or a spinner on a terminal, lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import anyio
import click

from pinfold import events
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.app import Progress
    from pinfold.app.models import Pulling

_BAR = 24
_REDRAW_S = 0.1
_GUESS_S = 1.0
"""Seconds of progress before the time left is estimated."""
_FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_CLEAR = "\r\x1b[2K"
_PHASES = {
    "wait": "waiting for another process",
    "resolve": "resolving",
    "download": "downloading",
    "check": "checking",
    "install": "installing",
    "compile": "compiling",
}
_IN_BYTES = ("download", "check")
"""Phases that count bytes; the others count packages."""


def make_reporter(show: Callable[[str, int, int, str], None]) -> Callable[[Progress | Pulling], None]:
    """Describe the progress of a build, an installation or a download through `show`."""

    def report(progress: Progress | Pulling) -> None:
        done, total = progress.done, progress.total
        counted = f"{done}/{total}" if total else ""
        if progress.phase in _IN_BYTES and (done or total):
            of = f" of {total / 1e6:,.0f}" if total else ""
            counted = f"{done / 1e6:,.0f}{of} MB"
        show(_PHASES[progress.phase], done, total, counted)

    return report


def short(count: int) -> str:
    """Abbreviate a count: 1,234 becomes 1.2k."""
    if count < 1000:
        return str(count)
    value, unit = (count / 1e6, "M") if count >= 999_500 else (count / 1e3, "k")
    return f"{value:.1f}{unit}" if value < 10 else f"{value:.0f}{unit}"


class TimeLeft:
    """The time left, estimated from the speed so far."""

    def __init__(self) -> None:
        self._words = ""
        self._began = (0.0, 0)

    def after(self, words: str, done: int, total: int, now: float | None = None) -> str:
        """Text to append to the count; empty while there is no estimate."""
        now = time.monotonic() if now is None else now
        if words != self._words or done < self._began[1]:
            self._words, self._began = words, (now, done)
        since, first = self._began
        if not first < done < total or now - since < _GUESS_S:
            return ""
        left = (now - since) * (total - done) / (done - first)
        return f", {left:.0f} s left" if left < 90 else f", {left / 60:.0f} min left"


class ProgressDisplay:
    """A bar that is redrawn on a terminal; elsewhere, such as in a log, a line for each task and each step of it."""

    def __init__(self, step: float = math.inf) -> None:
        """`step`: where there is no bar, the share of the whole after which another line is printed."""
        self.began = False
        self._left = TimeLeft()
        self._is_bar = sys.stderr.isatty()
        self._step = step
        self._words = ""
        self._share = self._drawn_at = 0.0

    def show(self, words: str, done: int = 0, total: int = 0, counted: str = "") -> None:
        self.began = True
        is_new, self._words = words != self._words, words
        share = done / total if total else 0.0
        line = f"{words} {counted}{self._left.after(words, done, total)}".rstrip()
        if self._is_bar:
            now = time.monotonic()
            if is_new or done == total or now - self._drawn_at >= _REDRAW_S:
                self._drawn_at = now
                full = round(share * _BAR)
                click.echo(f"\r\x1b[K{'#' * full}{'-' * (_BAR - full)} {line}", err=True, nl=False)
        elif is_new or share >= self._share + self._step:
            say(f"{words} ..." if is_new else line)
            self._share = share

    def end(self) -> None:
        if self.began and self._is_bar:
            click.echo("\r\x1b[K", err=True, nl=False)


def say(text: str) -> None:
    click.echo(presentable(f"pinfold: {text}"), err=True)


class Spinner:
    """A line that shows what a turn is doing, for how long, and its tokens so far."""

    def __init__(self, doing: str = "starting") -> None:
        self._doing, self._since = doing, time.monotonic()
        self._usage = events.Usage()
        self._proposed = "running code"
        self._is_drawn = False

    async def spin(self) -> None:
        frame = 0
        while True:
            sys.stderr.write(f"{_CLEAR}{_FRAMES[frame % len(_FRAMES)]} {self.line(time.monotonic())}")
            sys.stderr.flush()
            self._is_drawn = True
            frame += 1
            await anyio.sleep(_REDRAW_S)

    def line(self, now: float) -> str:
        tokens = f"{short(self._usage.input_tokens)} in {short(self._usage.output_tokens)} out"
        parts = [self._doing, f"{int(now - self._since)} s", tokens if self._usage.total else ""]
        return presentable_line(" · ".join(filter(None, parts)))

    def clear(self) -> None:
        """Erase the line. Call this before anything else is written."""
        if self._is_drawn:
            sys.stderr.write(_CLEAR)
            sys.stderr.flush()
            self._is_drawn = False

    def take(self, item: events.Entry | events.Delta) -> None:
        match item.event if isinstance(item, events.Entry) else None:
            case events.ModelCalled() | events.ActionFinished():
                self._turn_to("thinking")
            case events.ModelReplied(usage=usage, from_cache=cached):
                if not cached:
                    self._usage += usage
            case events.ActionProposed(action=action):
                self._proposed = f"running {action.tool}" if isinstance(action, events.CallTool) else "running code"
            case events.ActionStarted():
                self._turn_to(self._proposed)
            case _:
                pass

    def _turn_to(self, doing: str) -> None:
        self._doing, self._since = doing, time.monotonic()
