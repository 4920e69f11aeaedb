"""/help: the commands by group, and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from pinfold.front.chat.commands.output import BadArguments, write_lines, write_note
from pinfold.front.chat.commands.table import COMMANDS, GROUPS
from pinfold.front.chat.commands.user_commands import find_commands, no_such, notices
from pinfold.front.pages import cut
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_USAGE = 27
_KEYS = {
    "!COMMAND": "run a shell command in the session; the model sees it",
    "@FILE": "show the model a file",
    "Esc or Ctrl-C": "stop what runs; Ctrl-D leaves",
    "Alt-Enter": "new line; Ctrl-R searches history, Ctrl-X Ctrl-E opens an editor",
}


async def help_command(chat: ChatContext, rest: str) -> None:
    if rest:
        _show_command(chat, rest.split(maxsplit=1)[0].removeprefix("/"))
        return
    page = Text()
    for group, title in GROUPS.items():
        page.append(f"{title}\n", style="bold")
        for command in COMMANDS.values():
            if command.group == group:
                page.append(f"{_line(chat, command.usage, command.words)}\n")
    mine = find_commands(chat.workspace, again=True)
    if mine.commands:
        page.append("Yours\n", style="bold")
        for own in mine.commands.values():
            usage = presentable_line(f"/{own.name} {own.hint}".rstrip())
            page.append(f"{_line(chat, usage, presentable_line(own.words))}\n")
    page.append("Keys\n", style="bold")
    for usage, words in _KEYS.items():
        page.append(f"{_line(chat, usage, words)}\n")
    page.rstrip()
    chat.transcript.write(page)
    for notice in notices(chat.workspace):
        write_note(chat, notice)


def _line(chat: ChatContext, usage: str, words: str) -> str:
    return cut(f"  {usage:<{_USAGE}} {words}", chat.transcript.width)


def _show_command(chat: ChatContext, name: str) -> None:
    command = COMMANDS.get(name.lower())
    own = find_commands(chat.workspace, again=True).commands.get(name)
    if command:
        write_lines(chat, [f"{command.usage}", f"  {command.words}"])
    elif own:
        write_lines(
            chat,
            [presentable_line(f"/{own.name} {own.hint}".rstrip()), presentable_line(f"  {own.words} ({own.origin})")],
        )
    else:
        raise BadArguments(no_such(name, chat))
