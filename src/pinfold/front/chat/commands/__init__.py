"""Commands of the chat: lines that begin with a slash. A command's module is imported when the command is used.

Commands do not print what the event renderer shows anyway, such as a new title of the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.front.chat.commands.table import COMMANDS, Command

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

__all__ = ["COMMANDS", "arguments", "find_command", "list_commands", "run_command"]
_ALIASES = {"?": "help", "quit": "exit"}


def find_command(name: str) -> Command | None:
    return COMMANDS.get(_ALIASES.get(name.lower(), name.lower()))


async def run_command(chat: ChatContext, line: str) -> bool:
    """Run a slash command. If there is none of that name, print so and return False.

    A path is not a command: such a line goes to the model as it is.
    """
    from pinfold.events import PinfoldError
    from pinfold.front.chat.commands.output import write_error
    from pinfold.front.chat.commands.user_commands import run_user_command

    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = find_command(name)
    try:
        if "/" in name:
            await chat.say(line)
            return True
        if command is None:
            return await run_user_command(chat, name, rest.strip())
        await command.run(chat, rest.strip())
    except PinfoldError as error:
        write_error(chat, f"/{name}: {error}")
    return True


def list_commands(chat: ChatContext) -> list[tuple[str, str]]:
    """Every command that works here, the user's own last, each with what it does."""
    from pinfold.front.chat.commands.completions import names

    return names(chat)


def arguments(chat: ChatContext, name: str, typed: str) -> list[str]:
    """Completions for a command's arguments."""
    from pinfold.front.chat.commands.completions import arguments_of

    return arguments_of(chat, name, typed)
