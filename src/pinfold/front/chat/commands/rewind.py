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
    load_history,
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


async def undo_command(chat: ChatContext, rest: str) -> None:
    await chat.link.submit(Undo(to=_target(await load_history(chat), rest)))


def _target(history: SessionHistory, rest: str) -> int | None:
    """The cell to return to; None for before the last one. Raises BadArguments."""
    match rest.split():
        case []:
            return None
        case ["to", cell]:
            return parse_number(cell, "cell", least=0)
        case [count]:
            number = parse_number(count, "number of cells")
            if number > len(history.path):
                there = f"only {len(history.path)}" if history.path else "none"
                raise BadArguments(f"{number} cells cannot be undone: there are {there}")
            return (0, *history.path)[-number - 1]
        case _:
            raise BadArguments("write /undo, /undo N for the last N cells, or /undo to CELL")


async def redo_command(chat: ChatContext, _: str) -> None:
    await chat.link.submit(Redo())


async def rewind_command(chat: ChatContext, rest: str) -> None:
    number, _, word = rest.partition(" ")
    history = await require_idle(chat, "/rewind")
    turn = await _turn(chat, history, number)
    if turn is None:
        return
    what = await _what(chat, word.strip())
    if what is None:
        return
    write_lines(chat, rewind_page(history, turn, what))
    if await chat.ask("Go back?", {"y": "yes", "n": "no"}) == "y":
        await chat.link.submit(Rewind(turn=turn.id, what=what))


async def _turn(chat: ChatContext, history: SessionHistory, number: str) -> TurnRecord | None:
    if number:
        return history.turn(parse_number(number, "turn"))
    turns = [turn for turn in history.turns if not turn.forgotten]
    if not turns:
        raise BadArguments("there is no turn to go back to yet")
    options = [(str(turn.number), _line(turn)) for turn in reversed(turns)]
    chosen = await chat.choose("Go back to before", options[:_SHOWN])
    return next((turn for turn in turns if str(turn.number) == chosen), None)


def _line(turn: TurnRecord) -> str:
    cells = f"  ({join_numbers('cell', turn.cells)})" if turn.cells else ""
    return presentable_line(f"{turn.number:>3}  {first_line(presentable(turn.text), 50)}{cells}")


async def _what(chat: ChatContext, word: str) -> Rewindable | None:
    if word:
        for known in get_args(Rewindable):
            if known == word:
                return known
        raise BadArguments(f"{word!r} cannot be rewound; use all, chat, files or variables")
    chosen = await chat.choose("What to take back", [(what, f"{what:<10}{words}") for what, words in _WHATS])
    return next((what for what, _ in _WHATS if what == chosen), None)


async def checkpoint_command(chat: ChatContext, rest: str) -> None:
    match rest.split():
        case [] | ["list"]:
            await _list_checkpoints(chat)
        case [("on" | "off") as word]:
            await chat.link.submit(Configure(checkpoints=word == "on"))
        case ["restore", number] | [number]:
            write_note(chat, await chat.link.restore(parse_number(number, "checkpoint")))
        case _:
            raise BadArguments("write /checkpoint, /checkpoint on, /checkpoint off, or /checkpoint N to go back")


async def _list_checkpoints(chat: ChatContext) -> None:
    entries = await load_entries(chat)
    made = checkpoints_in(entries)
    on = (await load_history(chat)).state.checkpoints
    if made:
        rows = [("", "made", "commit", "")]
        rows += [(str(one.number), one.at[:19].replace("T", " "), one.commit[:12], one.message) for one in made]
        write_table(chat, columns(rows, width=chat.transcript.width))
        write_note(chat, f"checkpoints are {'on' if on else 'off'}; restore one: /checkpoint N")
    elif on:
        write_note(chat, "checkpoints are on; there are none yet")
    else:
        write_note(chat, "checkpoints are off; /checkpoint on makes a commit after each cell that changes files")
