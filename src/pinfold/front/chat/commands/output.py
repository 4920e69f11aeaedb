"""How commands answer."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from rich.text import Text

from pinfold.app.clients.session_history import SessionHistory, build_history, entries_of
from pinfold.events import Entry, PinfoldError
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext


class BadArguments(PinfoldError):
    """What was typed behind a command makes no sense; says what would."""

    exit_code = 2


def write_lines(talk: ChatContext, lines: Iterable[str]) -> None:
    """Lines that are fit to print already."""
    talk.paper.write(Text("\n".join(lines)))


def write_table(talk: ChatContext, lines: Sequence[str]) -> None:
    """The same, the first of them a heading."""
    talk.paper.write(Text.assemble((lines[0], "bold"), "\n" * (len(lines) > 1), "\n".join(lines[1:])))


def write_section(talk: ChatContext, title: str, lines: Iterable[str]) -> None:
    talk.paper.write(Text.assemble((title, "bold"), "\n", "\n".join(lines)))


def write_note(talk: ChatContext, text: str) -> None:
    """One line beside the story."""
    talk.paper.write(Text(presentable(text), style="dim"))


def write_error(talk: ChatContext, text: str) -> None:
    talk.paper.write(Text(presentable_line(text), style="red"))


async def load_entries(talk: ChatContext) -> list[Entry]:
    """Raises PinfoldError."""
    return await anyio.to_thread.run_sync(entries_of, talk.link)


async def load_story(talk: ChatContext) -> SessionHistory:
    """Raises PinfoldError."""
    return build_history(talk.session, await load_entries(talk))


def parse_number(text: str, what: str, *, least: int = 1) -> int:
    """Raises BadWords."""
    try:
        number = int(text)
    except ValueError:
        raise BadArguments(f"{text!r} is no {what}; give its number") from None
    if number < least:
        raise BadArguments(f"{number} is no {what}; they are counted from {least}")
    return number


async def require_idle(talk: ChatContext, what: str) -> SessionHistory:
    """Raises BadWords while something runs."""
    story = await load_story(talk)
    if story.is_busy:
        raise BadArguments(f"a turn is under way; stop it (Esc) or wait for its end, then {what}")
    return story


_LIMIT_S = 120.0


async def run_cli_command(talk: ChatContext, *args: str, done: str = "") -> None:
    """What it prints is shown; what it complains of is raised. `done` is said where it says nothing itself."""
    # `-P`: the folder the chat is in gives it no modules, for a session may have written them.
    command = [sys.executable, "-P", "-m", "pinfold", *args]
    env = {**os.environ, "NO_COLOR": "1", "COLUMNS": str(talk.paper.width)}
    with anyio.move_on_after(_LIMIT_S) as waiting:
        ran = await anyio.run_process(command, stdin=subprocess.DEVNULL, check=False, env=env)
        out = ran.stdout.decode("utf-8", "replace").rstrip("\n")
        said = ran.stderr.decode("utf-8", "replace").strip()
        if out:
            write_lines(talk, presentable(out).splitlines())
        if ran.returncode and not out:
            last = said.splitlines()[-1] if said else f"it exited with {ran.returncode}"
            raise BadArguments(presentable_line(last.removeprefix("pinfold: ").removeprefix("Error: ")))
        if said or (done and not out):
            write_note(talk, said or done)
    if waiting.cancelled_caught:
        raise BadArguments(f"it took more than {_LIMIT_S:.0f} s and was stopped")
