"""How commands answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import anyio.to_thread
from rich.text import Text

from pinfold.app.story import SessionHistory, build_history, entries_of
from pinfold.events import Entry, PinfoldError
from pinfold.text import presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.talk import Talk


class BadWords(PinfoldError):
    """What was typed behind a command makes no sense; says what would."""

    exit_code = 2


def tell(talk: Talk, lines: Iterable[str]) -> None:
    """Lines that are fit to print already."""
    talk.paper.write(Text("\n".join(lines)))


def table(talk: Talk, lines: Sequence[str]) -> None:
    """The same, the first of them a heading."""
    talk.paper.write(Text.assemble((lines[0], "bold"), "\n" * (len(lines) > 1), "\n".join(lines[1:])))


def headed(talk: Talk, title: str, lines: Iterable[str]) -> None:
    talk.paper.write(Text.assemble((title, "bold"), "\n", "\n".join(lines)))


def remark(talk: Talk, text: str) -> None:
    """One line beside the story."""
    talk.paper.write(Text(presentable(text), style="dim"))


def complain(talk: Talk, text: str) -> None:
    talk.paper.write(Text(presentable_line(text), style="red"))


async def all_entries(talk: Talk) -> list[Entry]:
    """Raises PinfoldError."""
    return await anyio.to_thread.run_sync(entries_of, talk.link)


async def the_story(talk: Talk) -> SessionHistory:
    """Raises PinfoldError."""
    return build_history(talk.session, await all_entries(talk))


def number_in(text: str, what: str, *, least: int = 1) -> int:
    """Raises BadWords."""
    try:
        number = int(text)
    except ValueError:
        raise BadWords(f"{text!r} is no {what}; give its number") from None
    if number < least:
        raise BadWords(f"{number} is no {what}; they are counted from {least}")
    return number


async def at_rest(talk: Talk, what: str) -> SessionHistory:
    """Raises BadWords while something runs."""
    story = await the_story(talk)
    if story.is_busy:
        raise BadWords(f"a turn is under way; stop it (Esc) or wait for its end, then {what}")
    return story
