"""The commands of the chat, each with the module that does it, which is loaded when it is used."""

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
    """Given what stands behind its name. Raises PinfoldError, whose one line is shown."""
    at_rest: bool = False
    """It waits for the end of a turn, or is refused; the others may be obeyed while one runs."""
    complete: Callable[[ChatContext, str], Iterable[str]] | None = None
    """Whole arguments that begin with what is typed so far."""


_Row: TypeAlias = tuple[Group, str, str, str, str, str]
"""Group, name, arguments, what it does, the module it lives in, its completer."""


def _load_command(module: str, name: str) -> Callable[..., Awaitable[None]]:
    async def run(talk: ChatContext, rest: str) -> None:
        await getattr(import_module(f"{__package__}.{module}"), name)(talk, rest)

    return run


def _completer(name: str) -> Callable[[ChatContext, str], Iterable[str]]:
    def complete(talk: ChatContext, typed: str) -> Iterable[str]:
        return getattr(import_module(f"{__package__}.completions"), name)(talk, typed)

    return complete


_TABLE: tuple[_Row, ...] = (
    ("conversation", "help", "[COMMAND]", "this list, or one of them", "help_page", "commands"),
    ("conversation", "clear", "", "fresh context; variables and files stay", "session_commands", ""),
    ("conversation", "new", "", "a new session in this folder", "session_commands", ""),
    ("conversation", "output", "[CELL]", "all of a long output: the last, or a cell's", "inspection", "cells"),
    ("conversation", "thinking", "", "show the model's reasoning, or collapse it", "inspection", ""),
    ("conversation", "copy", "[FILE]", "the last answer: to the clipboard, or a file", "files", ""),
    ("conversation", "exit", "", "leave; the session is kept", "session_commands", ""),
    ("undo", "undo", "[N | to CELL]", "take back the last cell, or N, or all after CELL", "rewind", "undo"),
    ("undo", "redo", "", "take the last undo back", "rewind", ""),
    ("undo", "rewind", "[TURN [WHAT]]", "to before a turn: all, chat, files, variables", "rewind", "rewind"),
    ("undo", "fork", "[TITLE]", "a second session that goes on from here", "session_commands", ""),
    ("undo", "branches", "", "forks of this session, and where it came from", "session_commands", ""),
    ("undo", "checkpoint", "[on | off | N]", "git checkpoints: list, on, off, back to N", "rewind", "checkpoint"),
    ("look", "vars", "[WORDS]", "variables: type, shape, size, origin", "inspection", ""),
    ("look", "files", "", "what the session changed, and the folder's top", "files", ""),
    ("look", "diff", "[all|CELL]", "how files changed: in short, whole, or by a cell", "files", "cells"),
    ("look", "open", "[FILE | N]", "show a file, or figure N, in its program", "files", "files"),
    ("look", "tools", "[WORDS]", "tools that code can call", "inspection", ""),
    ("look", "mcp", "[trust SERVER]", "MCP servers, their state and problems", "inspection", "servers"),
    ("look", "cost", "", "tokens and dollars, by model", "inspection", ""),
    ("look", "sent", "", "what left this machine, and where to", "inspection", ""),
    ("settings", "model", "[NAME]", "which models can be had; change to one", "settings", "models"),
    ("settings", "mode", "[NAME]", "what may run unasked", "settings", "modes"),
    ("settings", "grants", "[revoke N]", "what you have allowed; take it back", "settings", "grants"),
    ("settings", "add", "PATH[:rw]", "let code see one more path, or write there", "settings", ""),
    ("settings", "data", "[NAME=]PATH", "give code data to read, at /mnt/datasets/NAME", "settings", ""),
    ("settings", "init", "", "write an AGENTS.md from a look at this folder", "files", ""),
    ("settings", "doctor", "", "what works here, and how to fix the rest", "settings", ""),
    ("settings", "map", "", "this session: model, sandbox, tools, what is allowed", "settings", ""),
    ("sessions", "sessions", "[WORDS]", "sessions on this machine", "session_commands", ""),
    ("sessions", "resume", "[SESSION]", "go on with another session", "session_commands", "sessions"),
    ("sessions", "rename", "TITLE", "give this session a name", "session_commands", ""),
    ("sessions", "export", "FORMAT [FILE]", "write this session to a file", "session_commands", "formats"),
)


_AT_REST = ("clear", "new", "undo", "redo", "rewind", "fork", "branches", "checkpoint", "resume", "add", "data")


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
