"""Runs slash commands: the built-in ones, and those users wrote themselves. /help shows both."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

import anyio.to_thread

from pinfold.app.clients import UserCommands, fill_command, load_user_commands
from pinfold.events import PinfoldError
from pinfold.front.chat.commands.context import BadArguments, ChatContext
from pinfold.front.chat.commands.table import COMMANDS, GROUPS, find_command
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
    chat.write_error(no_such(name, chat))
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
    groups = {
        title: [(command.usage, command.words) for command in COMMANDS.values() if command.group == group]
        for group, title in GROUPS.items()
    }
    mine = find_commands(chat.workspace, again=True).commands.values()
    groups["Yours"] = [(f"/{own.name} {own.hint}".rstrip(), own.words) for own in mine]
    groups["Keys"] = [*_KEYS.items()]
    for title, rows in groups.items():
        if rows:
            lines = (presentable_line(f"  {usage:<{_USAGE}} {words}") for usage, words in rows)
            chat.write_section(title, (cut(line, chat.transcript.width) for line in lines))
    for notice in notices(chat.workspace):
        chat.write_note(notice)


def _show_command(chat: ChatContext, name: str) -> None:
    command = COMMANDS.get(name.lower())
    own = find_commands(chat.workspace, again=True).commands.get(name)
    if command:
        chat.write_lines([command.usage, f"  {command.words}"])
    elif own:
        lines = (f"/{own.name} {own.hint}".rstrip(), f"  {own.words} ({own.origin})")
        chat.write_lines(map(presentable_line, lines))
    else:
        raise BadArguments(no_such(name, chat))


async def run_command(chat: ChatContext, line: str) -> bool:
    """Run a slash command. If there is none of that name, print so and return False.

    A path is not a command: such a line goes to the model as it is.
    """
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = find_command(name)
    try:
        if "/" in name:
            await chat.say(line)
        elif command is None:
            return await run_user_command(chat, name, rest.strip())
        else:
            await command.run(chat, rest.strip())
    except PinfoldError as error:
        chat.write_error(f"/{name}: {error}")
    return True
