"""The slash commands. A command's module is loaded when it is used."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Literal, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

Group: TypeAlias = Literal["conversation", "undo", "look", "settings", "sessions"]
GROUPS: Mapping[Group, str] = {
    "conversation": "Conversation",
    "undo": "Undo and branches",
    "look": "Look inside",
    "settings": "Settings",
    "sessions": "Sessions",
}


class Command(Struct, frozen=True, kw_only=True):
    name: str
    usage: str
    """With its arguments, as /help shows it."""
    words: str
    """What it does, in one line."""
    group: Group
    run: Callable[[ChatContext, str], Awaitable[None]]
    """Takes the text after its name. Raises PinfoldError, which is shown in one line."""
    at_rest: bool = False
    """It waits for the end of the turn; other commands run at once."""
    complete: Callable[[ChatContext, str], Iterable[str]] | None = None
    """Completes arguments."""


_Row: TypeAlias = tuple[Group, str, str, str, str, str]
"""Group, name, arguments, description, module, completer."""


def _load_command(module: str, name: str) -> Callable[..., Awaitable[None]]:
    async def run(chat: ChatContext, rest: str) -> None:
        await getattr(import_module(f"{__package__}.{module}"), name)(chat, rest)

    return run


def _completer(name: str) -> Callable[[ChatContext, str], Iterable[str]]:
    def complete(chat: ChatContext, typed: str) -> Iterable[str]:
        return getattr(import_module(f"{__package__}.completions"), name)(chat, typed)

    return complete


_TABLE: tuple[_Row, ...] = (
    ("conversation", "help", "[COMMAND]", "this list, or one command", "help_page", "commands"),
    ("conversation", "clear", "", "clear the context; variables and files stay", "session_commands", ""),
    ("conversation", "new", "", "start a new session in this folder", "session_commands", ""),
    ("conversation", "output", "[CELL]", "show a long output whole: the last, or a cell's", "inspection", "cells"),
    ("conversation", "thinking", "", "show the model's reasoning, or collapse it", "inspection", ""),
    ("conversation", "copy", "[FILE]", "copy the last answer to the clipboard or a file", "files", ""),
    ("conversation", "exit", "", "leave; the session is kept", "session_commands", ""),
    ("undo", "undo", "[N | to CELL]", "undo the last cell, the last N, or all after CELL", "rewind", "undo"),
    ("undo", "redo", "", "reverse the last undo", "rewind", ""),
    ("undo", "rewind", "[TURN [WHAT]]", "go back to before a turn: all, chat, files, variables", "rewind", "rewind"),
    ("undo", "fork", "[TITLE]", "start a second session from here", "session_commands", ""),
    ("undo", "branches", "", "forks of this session, and its parent", "session_commands", ""),
    ("undo", "checkpoint", "[on | off | N]", "git checkpoints: list, on, off, restore N", "rewind", "checkpoint"),
    ("look", "vars", "[WORDS]", "list variables: type, shape, size, cell", "inspection", ""),
    ("look", "files", "", "files this session changed, and the folder", "files", ""),
    ("look", "diff", "[all|CELL]", "how files changed: short, whole, or by a cell", "files", "cells"),
    ("look", "open", "[FILE | N]", "open a file, or figure N, in its program", "files", "files"),
    ("look", "tools", "[WORDS]", "list tools that code can call", "inspection", ""),
    ("look", "mcp", "[trust SERVER]", "list MCP servers and problems; trust one", "inspection", "servers"),
    ("look", "cost", "", "tokens and dollars, by model", "inspection", ""),
    ("look", "sent", "", "what was sent from this machine, and where to", "inspection", ""),
    ("settings", "model", "[NAME]", "list models; change the model", "settings", "models"),
    ("settings", "mode", "[NAME]", "what the agent may do without asking you", "settings", "modes"),
    ("settings", "grants", "[revoke N]", "your standing permissions; revoke one", "settings", "grants"),
    ("settings", "add", "PATH[:rw]", "let code read a path, or write there", "settings", ""),
    ("settings", "data", "[NAME=]PATH", "let code read data at /mnt/datasets/NAME", "settings", ""),
    ("settings", "init", "", "draft an AGENTS.md for this folder", "files", ""),
    ("settings", "doctor", "", "check what works here, and how to fix the rest", "settings", ""),
    ("settings", "map", "", "draw this session: model, sandbox, tools, permissions", "settings", ""),
    ("sessions", "sessions", "[WORDS]", "list sessions on this machine", "session_commands", ""),
    ("sessions", "resume", "[SESSION]", "continue another session", "session_commands", "sessions"),
    ("sessions", "rename", "TITLE", "give this session a name", "session_commands", ""),
    ("sessions", "export", "FORMAT [FILE]", "save this session to a file", "session_commands", "formats"),
)
"""Group, name, arguments, description, module, completer. The module has a function NAME_command(chat, rest)."""
_AT_REST = ("clear", "new", "undo", "redo", "rewind", "fork", "branches", "checkpoint", "resume", "add", "data")
"""Commands that wait until no turn is running."""


def _command(row: _Row) -> Command:
    group, name, arguments, words, module, completer = row
    return Command(
        name=name,
        usage=f"/{name} {arguments}".rstrip(),
        words=words,
        group=group,
        run=_load_command(module, f"{name}_command"),
        at_rest=name in _AT_REST,
        complete=_completer(completer) if completer else None,
    )


COMMANDS: Mapping[str, Command] = {row[1]: _command(row) for row in _TABLE}
