"""How commands read from and write to the terminal, or the pipe or file in its place."""

from __future__ import annotations

import os
import subprocess
import sys
import termios
from collections.abc import Iterable
from pathlib import Path
from typing import TextIO

import anyio
import click

from pinfold.events import Json, plain_json
from pinfold.front.progress import say
from pinfold.front.signals import receive_stop_signals
from pinfold.text import presentable_line


def is_closed(stream: TextIO | None) -> bool:
    """True if the stream is closed; after a shell's `<&-` it is None."""
    return stream is None or stream.closed


def is_terminal(stream: TextIO | None) -> bool:
    return stream is not None and not stream.closed and stream.isatty()


def can_be_redrawn(stream: TextIO | None) -> bool:
    """True for a terminal that understands escape sequences."""
    return is_terminal(stream) and os.environ.get("TERM") not in (None, "", "dumb", "unknown")


def show(line: str) -> None:
    """Print a line of the result, made safe."""
    click.echo(presentable_line(line).encode("utf-8", "backslashreplace"))


def tell(line: str) -> None:
    """Print a line that is not part of the result, on stderr."""
    click.echo(presentable_line(line), err=True)


def show_rows(rows: Iterable[tuple[Json, str]], *, as_json: bool, nothing: str = "") -> None:
    """Print each row as JSON or as its line. If there are none, `nothing` goes to stderr."""
    count = 0
    for count, (fields, line) in enumerate(rows, 1):  # noqa: B007 - counted for the last line
        if as_json:
            click.echo(plain_json(fields))
        else:
            show(line)
    if not count and nothing and not as_json:
        click.echo(nothing, err=True)


def show_page(rows: Iterable[Json], lines: Iterable[str], *, as_json: bool, nothing: str = "") -> None:
    """Print the rows as JSON, or the lines, which are safe. If there are none, `nothing` goes to stderr."""
    shown = [plain_json(row) for row in rows] if as_json else list(lines)
    for line in shown:
        click.echo(line.encode("utf-8", "backslashreplace"))
    if not shown and nothing and not as_json:
        tell(nothing)


def agrees(question: str) -> bool:
    termios.tcflush(sys.stdin, termios.TCIFLUSH)  # ignore what was typed before the question
    return click.confirm(presentable_line(question), err=True)


def confirm(question: str, look: str = "look at it first", *, yes: bool) -> None:
    """Ask, unless `yes` is the answer already. Raises Abort if the user does not agree.

    `look` says what to do first where there is no terminal.
    """
    if yes:
        return
    if not is_terminal(sys.stdin):
        raise click.UsageError(f"cannot ask without a terminal; {look}, then use --yes")
    if not agrees(question):
        raise click.Abort


async def set_on_signal(stopping: anyio.Event, words: str) -> None:
    """On the first Ctrl-C print `words` and set the event; on the second leave at once."""
    with receive_stop_signals() as signals:
        async for _ in signals:
            if stopping.is_set():
                raise KeyboardInterrupt
            say(words)
            stopping.set()


def start_in_background(arguments: Iterable[str], log: Path) -> subprocess.Popen[bytes]:
    """Start Pinfold in a process that outlives this one."""
    with log.open("ab") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "pinfold", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
