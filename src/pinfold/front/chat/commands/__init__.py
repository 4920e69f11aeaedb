"""Commands of the chat: lines that begin with a slash. What each takes is loaded when it is used.

They say nothing of what the renderer shows anyway: that a session was renamed, changed, or brought back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pinfold.front.chat.commands.table import COMMANDS

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

__all__ = ["COMMANDS", "arguments", "list_commands", "run_command"]
_ALIASES = {"?": "help", "quit": "exit"}


async def run_command(chat: ChatContext, line: str) -> bool:
    """Do what a line says that begins with a slash; False if there is no such command, which is said.

    A path is no command: such a line is said to the model as it is.
    """
    from pinfold.events import PinfoldError
    from pinfold.front.chat.commands.output import write_error
    from pinfold.front.chat.commands.user_commands import run_user_command

    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = COMMANDS.get(_ALIASES.get(name.lower(), name.lower()))
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
    """What could stand behind a command instead of what is typed there."""
    from pinfold.front.chat.commands.completions import arguments_of

    return arguments_of(chat, name, typed)
