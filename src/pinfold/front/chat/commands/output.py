"""How commands answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

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
