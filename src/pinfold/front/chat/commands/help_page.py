"""/help: the commands by group, and keys. Commands that users wrote themselves: found, shown and said to the model."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import anyio.to_thread
from rich.text import Text

from pinfold.app.clients import UserCommands, fill_command, load_user_commands
from pinfold.events import PinfoldError
from pinfold.front.chat.commands.output import BadArguments, ChatContext, write_error, write_lines, write_note
from pinfold.front.chat.commands.table import COMMANDS, GROUPS
from pinfold.front.pages import cut
from pinfold.text import join_names, presentable_line

_NAMED = 6
_found: dict[Path, UserCommands] = {}
"""A cache, as completion asks at every key."""
_said: set[str] = set()


def find_commands(workspace: Path, *, again: bool = False) -> UserCommands:
    """The usable ones, without those that have the name of a built-in command."""
    if again or workspace not in _found:
        try:
            _found[workspace] = load_user_commands(workspace)
        except PinfoldError as error:
            _found[workspace] = UserCommands(faults=(str(error),))
    found = _found[workspace]
    usable = {name: one for name, one in found.commands.items() if name.lower() not in COMMANDS}
    return UserCommands(commands=usable, untrusted=found.untrusted, faults=found.faults)


def notices(workspace: Path) -> Iterator[str]:
    """Warnings about them: ignored commands each time, the rest once."""
    find_commands(workspace)
    found = _found[workspace]
    if found.untrusted:
        names = join_names([f"/{name}" for name in found.untrusted], _NAMED)
        yield f"ignored, as this folder is not trusted: {names}; review with: pinfold trust {workspace}"
    shadowing = [
        f"your /{name} is ignored: a built-in command has that name"
        for name in found.commands
        if name.lower() in COMMANDS
    ]
    for line in (*shadowing, *found.faults):
        if line not in _said:
            _said.add(line)
            yield line


async def run_user_command(chat: ChatContext, name: str, arguments: str) -> bool:
    """Raises PinfoldError."""
    found = await anyio.to_thread.run_sync(lambda: find_commands(chat.workspace, again=True))
    command = found.commands.get(name)
    if command is not None:
        await chat.say(await anyio.to_thread.run_sync(fill_command, command, arguments, chat.workspace))
        return True
    if name in found.untrusted:
        raise BadArguments(
            f"it belongs to this folder, which is not trusted; review with: pinfold trust {chat.workspace}"
        )
    write_error(chat, no_such(name, chat))
    return False


def no_such(name: str, chat: ChatContext) -> str:
    """In one line, with the nearest there is."""
    known = [*(command.name for command in COMMANDS.values()), *find_commands(chat.workspace).commands]
    near = get_close_matches(name.lower(), known, n=1) or [one for one in known if name and one.startswith(name)]
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    return f"no command /{name}; {hint}"


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
