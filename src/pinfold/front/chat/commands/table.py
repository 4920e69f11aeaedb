"""The slash commands, built in and the user's own: finds, runs and lists them. Their modules are loaded when used."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

import anyio.to_thread
from msgspec import Struct

from pinfold.app.clients import UserCommands, fill_command, load_user_commands
from pinfold.events import PinfoldError
from pinfold.front.chat.commands.context import BadArguments, ChatContext
from pinfold.front.pages import cut
from pinfold.text import join_names, presentable_line


class Command(Struct, frozen=True):
    group: str
    """Heading in /help."""
    name: str
    arguments: str
    """The arguments as /help shows them."""
    words: str
    """Description in one line."""
    module: str
    """The module that has the function NAME_command(chat, rest)."""

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.arguments}".rstrip()

    @property
    def at_rest(self) -> bool:
        """True if the command waits for the end of the turn; other commands run at once."""
        return self.name in _AT_REST

    async def run(self, chat: ChatContext, rest: str) -> None:
        """Run the command with the text after its name. Raises PinfoldError, which is shown in one line."""
        await getattr(import_module(f"{__package__}.{self.module}"), f"{self.name}_command")(chat, rest)

    def complete(self, chat: ChatContext, typed: str) -> Iterable[str]:
        """Complete arguments with `complete_NAME` of `completions`, if there is one."""
        completer = getattr(import_module(f"{__package__}.completions"), f"complete_{self.name}", None)
        return completer(chat, typed) if completer else ()


_TABLE: Mapping[str, tuple[tuple[str, str, str, str], ...]] = {
    "Conversation": (
        ("help", "[COMMAND]", "this list, or one command", "table"),
        ("clear", "", "clear the context; variables and files stay", "session_commands"),
        ("compact", "[WORDS]", "replace the context by a summary that keeps WORDS", "session_commands"),
        ("new", "", "start a new session in this folder", "session_commands"),
        ("output", "[CELL]", "show a whole output: the last, or a cell's", "inspection"),
        ("thinking", "", "show the model's reasoning, or collapse it", "inspection"),
        ("copy", "[FILE]", "copy the last answer to the clipboard or a file", "files"),
        ("exit", "", "leave; the session is kept", "session_commands"),
    ),
    "Undo and branches": (
        ("undo", "[N | to CELL]", "undo the last cell, the last N, or all after CELL", "session_commands"),
        ("redo", "", "reverse the last undo", "session_commands"),
        ("rewind", "[TURN [WHAT]]", "go back to before a turn: all, chat, files, variables", "session_commands"),
        ("fork", "[TITLE]", "start a second session from here", "session_commands"),
        ("branches", "", "forks of this session, and its parent", "session_commands"),
        ("checkpoint", "[on | off | N]", "git checkpoints: list, on, off, restore N", "session_commands"),
    ),
    "Look inside": (
        ("plan", "[add | done N | lock ...]", "the plan; lock: change nothing until /plan agree", "session_commands"),
        ("notebook", "[KIND TEXT]", "the lab notebook: hypotheses, results, decisions", "session_commands"),
        ("memory", "[search WORDS | forget N]", "notes the agent keeps across sessions", "inspection"),
        ("vars", "[WORDS]", "list variables: type, shape, size, cell", "inspection"),
        ("files", "", "files this session changed, and the folder", "files"),
        ("diff", "[all|CELL]", "how files changed: in short, whole, or by one cell", "files"),
        ("open", "[FILE | N]", "open a file, or figure N, in its program", "files"),
        ("agents", "[NAME]", "list sub-agents; show everything one did", "inspection"),
        ("tools", "[WORDS]", "list tools that code can call", "inspection"),
        ("skills", "[NAME]", "list skills, or show one", "inspection"),
        ("mcp", "[trust SERVER]", "list MCP servers and problems; trust one", "inspection"),
        ("cost", "", "tokens and dollars, by model", "inspection"),
        ("sent", "", "what was sent from this machine, and where to", "inspection"),
    ),
    "Settings": (
        ("model", "[NAME]", "list models; change the model", "settings"),
        ("mode", "[NAME]", "what the agent may do without asking you", "settings"),
        ("grants", "[revoke N]", "your standing permissions; revoke one", "settings"),
        ("add", "PATH[:rw]", "let code read a path, or write there", "settings"),
        ("data", "[NAME=]PATH", "let code read data at /mnt/datasets/NAME", "settings"),
        ("init", "", "draft an AGENTS.md for this folder", "files"),
        ("doctor", "", "check what works here, and how to fix the rest", "settings"),
        ("map", "", "draw this session: model, sandbox, tools, permissions", "settings"),
    ),
    "Sessions": (
        ("sessions", "[WORDS]", "list sessions on this machine", "session_commands"),
        ("resume", "[SESSION]", "continue another session", "session_commands"),
        ("rename", "TITLE", "give this session a name", "session_commands"),
        ("export", "FORMAT [FILE]", "save this session to a file", "session_commands"),
    ),
}
"""Commands by group: name, arguments, words and module."""
_WAITS = "clear compact new undo redo rewind fork branches checkpoint resume add data"
_AT_REST = _WAITS.split()
"""Commands that wait until no turn is running."""
COMMANDS: Mapping[str, Command] = {row[0]: Command(group, *row) for group, rows in _TABLE.items() for row in rows}
_ALIASES = {"?": "help", "quit": "exit"}


def find_command(name: str) -> Command | None:
    return COMMANDS.get(_ALIASES.get(name.lower(), name.lower()))


_NAMED = 6
_found: dict[Path, UserCommands] = {}
"""Cache of the user's commands, since completion needs them at every key."""
_said: set[str] = set()


def find_commands(workspace: Path, *, again: bool = False) -> UserCommands:
    """Return the user's commands, without those that have the name of a built-in command."""
    if again or workspace not in _found:
        try:
            _found[workspace] = load_user_commands(workspace)
        except PinfoldError as error:
            _found[workspace] = UserCommands(faults=(str(error),))
    found = _found[workspace]
    usable = {name: one for name, one in found.commands.items() if name.lower() not in COMMANDS}
    return UserCommands(commands=usable, untrusted=found.untrusted, faults=found.faults)


def notices(workspace: Path) -> Iterator[str]:
    """Yield warnings about the user's commands: untrusted commands each time, the rest once."""
    find_commands(workspace)
    found = _found[workspace]
    if found.untrusted:
        names = join_names([f"/{name}" for name in found.untrusted], _NAMED)
        yield f"ignored, because this folder is not trusted: {names}; review with: pinfold trust {workspace}"
    shadowing = [
        f"your /{name} is ignored: a built-in command has that name"
        for name in found.commands
        if name.lower() in COMMANDS
    ]
    for line in (*shadowing, *found.faults):
        if line not in _said:
            _said.add(line)
            yield line


async def run_user_command(chat: ChatContext, name: str, arguments: str) -> None:
    """Run a turn with a command that the user wrote. Raises PinfoldError."""
    found = await anyio.to_thread.run_sync(lambda: find_commands(chat.workspace, again=True))
    if command := found.commands.get(name):
        await chat.say(await anyio.to_thread.run_sync(fill_command, command, arguments, chat.workspace))
    elif name in found.untrusted:
        raise BadArguments(
            f"it belongs to this folder, which is not trusted; review with: pinfold trust {chat.workspace}"
        )
    else:
        chat.write_error(no_such(name, chat))


def no_such(name: str, chat: ChatContext) -> str:
    """Return an error message with the nearest command, if any."""
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
        title: [(command.usage, command.words) for command in COMMANDS.values() if command.group == title]
        for title in _TABLE
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


async def run_command(chat: ChatContext, line: str) -> None:
    """Run a slash command. A path is not a command: such a line goes to the model unchanged."""
    name, _, rest = line.strip().removeprefix("/").partition(" ")
    command = find_command(name)
    try:
        if "/" in name:
            await chat.say(line)
        elif command is None:
            await run_user_command(chat, name, rest.strip())
        else:
            await command.run(chat, rest.strip())
    except PinfoldError as error:
        chat.write_error(f"/{name}: {error}")
