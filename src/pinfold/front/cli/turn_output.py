"""Prints turns and cells: the answer or the cell's own output on stdout, everything else on stderr."""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from pinfold.app import changed_in_words, event_of
from pinfold.events import (
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    CallTool,
    Delta,
    Entry,
    ModelFailed,
    Noticed,
    OutputDelta,
    RunCell,
    SessionOpened,
    TurnEnded,
    TurnFailed,
    entry_line,
    plain_json,
)
from pinfold.text import cap_text, presentable

if TYPE_CHECKING:
    from pinfold.front.progress import Spinner


_SHOWN = 2000


def is_closed(stream: TextIO | None) -> bool:
    """True if the stream is closed; after a shell's `<&-` it is None."""
    return stream is None or stream.closed


def can_be_redrawn(stream: TextIO | None) -> bool:
    """True for a terminal with escape sequences."""
    is_terminal = stream is not None and not stream.closed and stream.isatty()
    return is_terminal and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


class JsonLines:
    """Every durable event, one per line, nothing else on stdout."""

    spinner: Spinner | None = None

    def show(self, item: Entry | Delta) -> None:
        if isinstance(item, Entry):
            sys.stdout.write(entry_line(item) + "\n")
            sys.stdout.flush()


class Plain:
    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self.spinner: Spinner | None = None
        if not quiet and can_be_redrawn(sys.stderr):
            from pinfold.front.progress import Spinner

            self.spinner = Spinner()

    def show(self, item: Entry | Delta) -> None:
        if not isinstance(item, Entry):
            return
        if self.spinner:
            self.spinner.take(item)
            self.spinner.clear()
        self._show_end(item)
        if not self._quiet:
            self._show_work(item)

    @staticmethod
    def answer(text: str) -> None:
        """Print the answer; made safe on a terminal, as it is in a pipe."""
        click.echo(presentable(text) if sys.stdout.isatty() else text.encode("utf-8", "backslashreplace"))

    def _show_end(self, item: Entry) -> None:
        match item.event:
            case TurnEnded(text=text):
                self.answer(text)
            case TurnFailed(error=error):
                _say(f"pinfold: {error}")
            case Noticed() | SessionOpened():
                show_notice(item)
            case ModelFailed(error=error, retry_in_s=wait_s) if wait_s is not None:
                _say(f"pinfold: the model failed ({error}); trying again in {wait_s:.1f} s")
            case _:
                pass

    def _show_work(self, item: Entry) -> None:
        match item.event:
            case ActionProposed(action=RunCell(code=code)):
                _say(f"> {_indent_text(code)}")
            case ActionProposed(action=CallTool(tool=tool, args=args)):
                _say(f"> {tool} {cap_text(presentable(plain_json(args)), 200)}")
            case ActionDenied(reason=reason):
                _say(f"  not run: {reason}")
            case ActionFinished(outcome=outcome, observation=observation, duration_s=took) as event:
                _say(f"  {_indent_text(observation)}")
                more = f"; {changed_in_words(event.variables)}" if event.variables else ""
                _say(f"  [{outcome}, {took:.2f} s{more}]")
            case _:
                pass


def show_notice(item: Entry | Delta) -> None:
    """Print a notice, or what was lost when the session was reopened; nothing for other events."""
    match event_of(item):
        case Noticed(text=text):
            _say(f"pinfold: {text}")
        case SessionOpened(lost=lost) if lost:
            _say(f"pinfold: the session was reopened; lost: {', '.join(lost)}")
        case _:
            pass


def _indent_text(text: str) -> str:
    # Remove secrets first: a cut could leave half of one, which would not be recognised.
    return cap_text(presentable(text.rstrip("\n")), _SHOWN).replace("\n", "\n  ")


def _say(text: str) -> None:
    click.echo(presentable(text), err=True)


ALLOWED = "nobody can be asked here; `--mode full` allows what needs approval"


_EXIT = re.compile(r"(?:\A|\n)SystemExit(?:: (?:None|(?P<code>-?\d{1,9})))?\s*\Z")


class Streams:
    """Prints the streams of one cell at a time."""

    spinner: Spinner | None = None

    def __init__(self, cell: ActionId | None = None) -> None:
        self._cell = cell

    def follow(self, cell: ActionId) -> None:
        self._cell = cell

    def show(self, item: Entry | Delta) -> None:
        match event_of(item):
            case OutputDelta(id=id_, stream=stream, text=text) if id_ == self._cell:
                write(sys.stderr if stream == "stderr" else sys.stdout, text)
            case Noticed() | SessionOpened():
                show_notice(item)
            case ApprovalDecided(by="nobody"):
                write(sys.stderr, f"pinfold: {ALLOWED}\n")
            case ActionFinished(id=id_, value=value, error=error, outcome=outcome, notices=notices) if (
                id_ == self._cell
            ):
                for notice in notices:
                    write(sys.stderr, f"pinfold: {presentable(notice)}\n")
                if value is not None:
                    write(sys.stdout, f"{value}\n")
                if exit_code(error) is None and (error or outcome != "ok"):
                    # A cell that never ran has no output: this is our message.
                    whose = "pinfold: " if outcome == "not_run" else ""
                    write(sys.stderr, f"{whose}{(error or outcome).rstrip()}\n")
            case _:
                pass


def exit_code(error: str | None) -> int | None:
    """The code a program passed to `sys.exit`, 0 without one; None if it did not call it."""
    found = _EXIT.search(error or "")
    return None if found is None else int(found["code"] or 0) & 0xFF


def write(stream: Any, text: str) -> None:
    if stream.isatty():
        text = presentable(text)
    stream.buffer.write(text.encode("utf-8", "backslashreplace"))
    stream.flush()
