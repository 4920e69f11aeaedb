"""Slash commands in an editor's prompt: undo, redo, fork, variables, plan and others, and the users' own commands."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

import anyio.to_thread

from pinfold.app import CommandRefused, ConfigError, SessionStore, fork, plan_in_words
from pinfold.app.clients import (
    SessionHistory,
    UserCommands,
    build_history,
    entries_of,
    fill_command,
    load_user_commands,
)
from pinfold.events import Clear, Compact, Configure, ContextCompacted, Json, Plan, Redo, Rename, SessionRewound, Undo
from pinfold.front.acp.session import EditorSession
from pinfold.front.acp.updates import fence
from pinfold.front.pages import cost_page, tools_page, variables_page
from pinfold.text import presentable

_Run: TypeAlias = Callable[[EditorSession, str], Awaitable[None]]
_PLAN = "use /plan, /plan lock, /plan agree or /plan clear"


async def _undo(session: EditorSession, rest: str) -> None:
    history = await _history(session)
    match rest.split():
        case []:
            to = None
        case ["to", cell] if cell.isdecimal():
            to = int(cell)
        case [count] if count.isdecimal() and 0 < int(count) <= len(history.path):
            to = (0, *history.path)[-int(count) - 1]
        case [count] if count.isdecimal():
            raise ConfigError(f"{count} cells cannot be undone: there are {len(history.path)}")
        case _:
            raise ConfigError("write /undo, /undo N for the last N cells, or /undo to CELL")
    await session.submit(Undo(to=to), SessionRewound)


async def _redo(session: EditorSession, _: str) -> None:
    await session.submit(Redo(), SessionRewound)


async def _fork(session: EditorSession, rest: str) -> None:
    new, damage = await fork(SessionStore(), session.id, rest or None)
    lost = f" The log is damaged: {damage}; the rest was copied." if damage else ""
    await session.say(f"Forked as {new}: same conversation and variables, same folder. Open it from the list.{lost}")


async def _vars(session: EditorSession, rest: str) -> None:
    await _show(session, variables_page(await session.link.query("variables"), rest))


async def _tools(session: EditorSession, rest: str) -> None:
    await _show(session, tools_page(await session.link.query("tools"), rest))


async def _cost(session: EditorSession, _: str) -> None:
    await _show(session, cost_page(await _history(session)))


async def _plan(session: EditorSession, rest: str) -> None:
    plan = session.updates.plan
    match rest:
        case "":
            await session.say(
                presentable(plan_in_words(plan)) or f"There is no plan yet; the agent makes one, or {_PLAN}."
            )
        case "lock":
            await session.set_mode("plan")
            await session.say("Plan mode: nothing is changed until you send /plan agree or choose another mode.")
        case "agree":
            await session.set_mode(session.updates.mode)
            await session.say("The agent may carry the plan out.")
        case "clear":
            await session.change(Configure(plan=Plan(notes=plan.notes)))
            await session.say("The plan is empty.")
        case _:
            raise ConfigError(_PLAN)


async def _compact(session: EditorSession, rest: str) -> None:
    await session.submit(Compact(keep=rest), ContextCompacted)


async def _clear(session: EditorSession, _: str) -> None:
    await session.submit(Clear(), ContextCompacted)


async def _rename(session: EditorSession, rest: str) -> None:
    if not rest:
        raise ConfigError("what name? /rename TITLE")
    await session.change(Rename(title=rest))
    await session.say(f"The session is called {presentable(rest)!r}.")


_COMMANDS: Mapping[str, tuple[_Run, str, str]] = {
    "undo": (_undo, "undo the last cell, the last N, or all after a cell", "N, or: to CELL"),
    "redo": (_redo, "reverse the last undo", ""),
    "fork": (_fork, "start a second session from here", "title"),
    "vars": (_vars, "list variables: type, shape, size, cell", "words"),
    "plan": (_plan, "show the plan; lock: change nothing until agreed", "lock, agree or clear"),
    "tools": (_tools, "list tools that code can call", "words"),
    "cost": (_cost, "tokens and dollars, by model", ""),
    "compact": (_compact, "replace the conversation by a summary", "what the summary should keep"),
    "clear": (_clear, "clear the conversation; variables and files stay", ""),
    "rename": (_rename, "give this session a name", "title"),
}
"""For each name: the function to run, what the command does, and a hint on its arguments."""


async def list_commands(session: EditorSession) -> list[Json]:
    rows = [(name, words, hint) for name, (_, words, hint) in _COMMANDS.items()]
    try:
        found = await anyio.to_thread.run_sync(load_user_commands, session.workspace)
    except ConfigError:  # reported when the session was opened
        found = UserCommands()
    mine = found.commands
    rows += [(one.name, one.words or one.name, one.hint) for one in mine.values() if one.name not in _COMMANDS]
    return [
        {"name": name, "description": presentable(words)} | ({"input": {"hint": presentable(hint)}} if hint else {})
        for name, words, hint in rows
    ]


async def run_command(session: EditorSession, name: str, rest: str) -> str | None:
    """Run a command. For one that users wrote, return the text to send to the model instead. Raises PinfoldError."""
    if found := _COMMANDS.get(name.lower()):
        try:
            await found[0](session, rest)
        except (CommandRefused, ConfigError) as error:  # an answer to the user, not a fault of the editor
            await session.say(f"/{name}: {presentable(str(error))}")
        return None
    mine = await anyio.to_thread.run_sync(load_user_commands, session.workspace)
    if command := mine.commands.get(name):
        return await anyio.to_thread.run_sync(fill_command, command, rest, session.workspace)
    if name in mine.untrusted:
        words = f"it belongs to this folder, which is not trusted; review with: pinfold trust {session.workspace}"
    else:
        words = f"there is no such command; use one of {', '.join(f'/{one}' for one in (*_COMMANDS, *mine.commands))}"
    await session.say(f"/{name}: {presentable(words)}")
    return None


async def _history(session: EditorSession) -> SessionHistory:
    return build_history(session.id, await anyio.to_thread.run_sync(entries_of, session.link))


async def _show(session: EditorSession, lines: Sequence[str]) -> None:
    await session.say(fence("\n".join(lines)))
