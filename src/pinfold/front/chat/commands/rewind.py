"""/undo, /redo, /rewind and /checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, get_args

from pinfold.app.clients import SessionHistory, TurnRecord
from pinfold.app.session import checkpoints_in
from pinfold.events import Configure, Redo, Rewind, Rewindable, Undo
from pinfold.front.chat.commands.output import (
    BadArguments,
    load_entries,
    load_story,
    parse_number,
    require_idle,
    write_lines,
    write_note,
    write_table,
)
from pinfold.front.pages import columns, rewind_page
from pinfold.text import first_line, join_numbers, presentable, presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_SHOWN = 30
"""Turns to choose from."""
_WHATS: Sequence[tuple[Rewindable, str]] = (
    ("all", "chat, files and variables"),
    ("chat", "only the chat; files and variables stay"),
    ("files", "only the files"),
    ("variables", "only the variables"),
)


async def undo_command(talk: ChatContext, rest: str) -> None:
    await talk.link.submit(Undo(to=_target(await load_story(talk), rest)))


def _target(story: SessionHistory, rest: str) -> int | None:
    """The cell to return to; None for before the last one. Raises BadArguments."""
    match rest.split():
        case []:
            return None
        case ["to", cell]:
            return parse_number(cell, "cell", least=0)
        case [count]:
            number = parse_number(count, "number of cells")
            if number > len(story.path):
                there = f"only {len(story.path)}" if story.path else "none"
                raise BadArguments(f"{number} cells cannot be undone: there are {there}")
            return (0, *story.path)[-number - 1]
        case _:
            raise BadArguments("write /undo, /undo N for the last N cells, or /undo to CELL")


async def redo_command(talk: ChatContext, _: str) -> None:
    await talk.link.submit(Redo())


async def rewind_command(talk: ChatContext, rest: str) -> None:
    number, _, word = rest.partition(" ")
    story = await require_idle(talk, "/rewind")
    turn = await _turn(talk, story, number)
    if turn is None:
        return
    what = await _what(talk, word.strip())
    if what is None:
        return
    write_lines(talk, rewind_page(story, turn, what))
    if await talk.ask("Go back?", {"y": "yes", "n": "no"}) == "y":
        await talk.link.submit(Rewind(turn=turn.id, what=what))


async def _turn(talk: ChatContext, story: SessionHistory, number: str) -> TurnRecord | None:
    if number:
        return story.turn(parse_number(number, "turn"))
    turns = [turn for turn in story.turns if not turn.forgotten]
    if not turns:
        raise BadArguments("there is no turn to go back to yet")
    options = [(str(turn.number), _line(turn)) for turn in reversed(turns)]
    chosen = await talk.choose("Go back to before", options[:_SHOWN])
    return next((turn for turn in turns if str(turn.number) == chosen), None)


def _line(turn: TurnRecord) -> str:
    cells = f"  ({join_numbers('cell', turn.cells)})" if turn.cells else ""
    return presentable_line(f"{turn.number:>3}  {first_line(presentable(turn.text), 50)}{cells}")


async def _what(talk: ChatContext, word: str) -> Rewindable | None:
    if word:
        for known in get_args(Rewindable):
            if known == word:
                return known
        raise BadArguments(f"{word!r} cannot be rewound; use all, chat, files or variables")
    chosen = await talk.choose("What to take back", [(what, f"{what:<10}{words}") for what, words in _WHATS])
    return next((what for what, _ in _WHATS if what == chosen), None)


async def checkpoint_command(talk: ChatContext, rest: str) -> None:
    match rest.split():
        case [] | ["list"]:
            await _list_checkpoints(talk)
        case [("on" | "off") as word]:
            await talk.link.submit(Configure(checkpoints=word == "on"))
        case ["restore", number] | [number]:
            write_note(talk, await talk.link.restore(parse_number(number, "checkpoint")))
        case _:
            raise BadArguments("write /checkpoint, /checkpoint on, /checkpoint off, or /checkpoint N to go back")


async def _list_checkpoints(talk: ChatContext) -> None:
    entries = await load_entries(talk)
    made = checkpoints_in(entries)
    on = (await load_story(talk)).checkpoints
    if made:
        rows = [("", "made", "commit", "")]
        rows += [(str(one.number), one.at[:19].replace("T", " "), one.commit[:12], one.message) for one in made]
        write_table(talk, columns(rows, width=talk.paper.width))
        write_note(talk, f"checkpoints are {'on' if on else 'off'}; restore one: /checkpoint N")
    elif on:
        write_note(talk, "checkpoints are on; there are none yet")
    else:
        write_note(talk, "checkpoints are off; /checkpoint on makes a commit after each cell that changes files")
