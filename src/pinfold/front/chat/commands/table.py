"""The slash commands. A command's module is loaded when it is used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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


class Command(Struct, frozen=True):
    group: Group
    name: str
    arguments: str
    """As /help shows them."""
    words: str
    """What it does, in one line."""
    module: str
    """Has a function NAME_command(chat, rest)."""
    completer: str
    """The function of `completions` that completes its arguments."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.arguments}".rstrip()

    @property
    def at_rest(self) -> bool:
        """It waits for the end of the turn; other commands run at once."""
        return self.name in _AT_REST

    async def run(self, chat: ChatContext, rest: str) -> None:
        """Takes the text after its name. Raises PinfoldError, which is shown in one line."""
        await getattr(import_module(f"{__package__}.{self.module}"), f"{self.name}_command")(chat, rest)

    def complete(self, chat: ChatContext, typed: str) -> Iterable[str]:
        if not self.completer:
            return ()
        return getattr(import_module(f"{__package__}.completions"), self.completer)(chat, typed)


_TABLE: tuple[tuple[Group, str, str, str, str, str], ...] = (
    ("conversation", "help", "[COMMAND]", "this list, or one command", "dispatch", "commands"),
    ("conversation", "clear", "", "clear the context; variables and files stay", "session_commands", ""),
    ("conversation", "compact", "[WORDS]", "replace the context by a summary that keeps WORDS", "session_commands", ""),
    ("conversation", "new", "", "start a new session in this folder", "session_commands", ""),
    ("conversation", "output", "[CELL]", "show a long output whole: the last, or a cell's", "inspection", "cells"),
    ("conversation", "thinking", "", "show the model's reasoning, or collapse it", "inspection", ""),
    ("conversation", "copy", "[FILE]", "copy the last answer to the clipboard or a file", "files", ""),
    ("conversation", "exit", "", "leave; the session is kept", "session_commands", ""),
    ("undo", "undo", "[N | to CELL]", "undo the last cell, the last N, or all after CELL", "session_commands", "undo"),
    ("undo", "redo", "", "reverse the last undo", "session_commands", ""),
    (
        "undo",
        "rewind",
        "[TURN [WHAT]]",
        "go back to before a turn: all, chat, files, variables",
        "session_commands",
        "rewind",
    ),
    ("undo", "fork", "[TITLE]", "start a second session from here", "session_commands", ""),
    ("undo", "branches", "", "forks of this session, and its parent", "session_commands", ""),
    (
        "undo",
        "checkpoint",
        "[on | off | N]",
        "git checkpoints: list, on, off, restore N",
        "session_commands",
        "checkpoint",
    ),
    (
        "look",
        "plan",
        "[add | done N | lock ...]",
        "the plan; /plan lock: change nothing until /plan agree",
        "plan",
        "plan",
    ),
    ("look", "notebook", "[KIND TEXT]", "the lab notebook: hypotheses, results, decisions", "plan", "notebook"),
    (
        "look",
        "memory",
        "[search WORDS | forget N]",
        "notes the agent keeps across sessions",
        "inspection",
        "memory",
    ),
    ("look", "vars", "[WORDS]", "list variables: type, shape, size, cell", "inspection", ""),
    ("look", "files", "", "files this session changed, and the folder", "files", ""),
    ("look", "diff", "[all|CELL]", "how files changed: short, whole, or by a cell", "files", "cells"),
    ("look", "open", "[FILE | N]", "open a file, or figure N, in its program", "files", "files"),
    ("look", "agents", "[NAME]", "list sub-agents; show all that one did", "inspection", ""),
    ("look", "tools", "[WORDS]", "list tools that code can call", "inspection", ""),
    ("look", "skills", "[NAME]", "list skills, or show one", "inspection", ""),
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
"""As the fields of `Command`."""
_AT_REST = (
    "clear",
    "compact",
    "new",
    "undo",
    "redo",
    "rewind",
    "fork",
    "branches",
    "checkpoint",
    "resume",
    "add",
    "data",
)
"""Commands that wait until no turn is running."""
COMMANDS: Mapping[str, Command] = {row[1]: Command(*row) for row in _TABLE}
_ALIASES = {"?": "help", "quit": "exit"}


def find_command(name: str) -> Command | None:
    return COMMANDS.get(_ALIASES.get(name.lower(), name.lower()))
