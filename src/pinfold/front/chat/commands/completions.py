"""Completions of slash commands and their arguments. They are computed at every key, so they must be cheap."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, TypeVar, get_args

from pinfold.app import SessionStore
from pinfold.app.clients import SessionHistory, build_history, entries_of
from pinfold.app.session import checkpoints_in
from pinfold.app.storage import list_nodes
from pinfold.events import Mode, NoteKind, PinfoldError
from pinfold.front.chat.commands.context import ChatContext
from pinfold.front.chat.commands.table import COMMANDS, find_commands
from pinfold.text import presentable_line

_MOST = 50
_FRESH_S = 2.0
_kept: dict[str, tuple[float, Any]] = {}
T = TypeVar("T")


def list_commands(chat: ChatContext) -> list[tuple[str, str]]:
    """Return every command that works here with its description, the user's own last."""
    mine = find_commands(chat.workspace).commands.values()
    return [
        *((command.name, command.words) for command in COMMANDS.values()),
        *((own.name, presentable_line(own.words)) for own in mine),
    ]


def list_arguments(chat: ChatContext, name: str, typed: str) -> list[str]:
    """Return completions for a command's arguments."""
    command = COMMANDS.get(name.lower())
    if command is None:
        return []
    try:
        offered = (
            one for one in command.complete(chat, typed) if one.startswith(typed) and one == presentable_line(one)
        )
        return [*islice(offered, _MOST)]
    except PinfoldError:  # what cannot be read is not offered
        return []


def _keep(what: str, make: Callable[[], T]) -> T:
    """Return the result of `make`, which may be up to `_FRESH_S` seconds old."""
    at, made = _kept.get(what, (-_FRESH_S, None))
    if made is None or time.monotonic() - at > _FRESH_S:
        made = make()
        _kept[what] = (time.monotonic(), made)
    return made


def _history(chat: ChatContext) -> SessionHistory:
    return _keep(f"history {chat.session}", lambda: build_history(chat.session, entries_of(chat.link)))


# The completers return all possible arguments; `list_arguments` filters them by what is typed.


def complete_help(chat: ChatContext, typed: str) -> Iterable[str]:
    return (f"{'/' * typed.startswith('/')}{name}" for name, _ in list_commands(chat))


def complete_output(chat: ChatContext, _: str) -> Iterable[str]:
    """Return the numbers of cells, the last first."""
    return (str(cell.number) for cell in reversed(_history(chat).cells))


complete_diff = complete_output


def complete_undo(chat: ChatContext, _: str) -> Iterable[str]:
    return (f"to {cell}" for cell in (*reversed(_history(chat).path[:-1]), 0))


def complete_rewind(chat: ChatContext, typed: str) -> Iterable[str]:
    number, space, _ = typed.partition(" ")
    if space:
        return (f"{number} {what}" for what in ("all", "chat", "files", "variables"))
    return (str(turn.number) for turn in reversed(_history(chat).turns) if not turn.forgotten)


def complete_checkpoint(chat: ChatContext, _: str) -> Iterable[str]:
    made = checkpoints_in(entries_of(chat.link))
    return ("on", "off", *(str(one.number) for one in reversed(made)))


def complete_open(chat: ChatContext, _: str) -> Iterable[str]:
    """Return the files that the session has changed, the last first."""
    return (change.path for change in reversed(_history(chat).changes()))


def _always(*words: str) -> Callable[[ChatContext, str], Iterable[str]]:
    """Return a completer that offers these words."""
    return lambda _chat, _typed: words


complete_plan = _always("add ", "done ", "doing ", "todo ", "dropped ", "lock", "agree", "save", "clear")
complete_notebook = _always(*(f"{kind} " for kind in get_args(NoteKind)), "remove ")
complete_memory = _always("search ", "show ", "forget ")
complete_grants = _always("revoke ")
complete_mode = _always(*get_args(Mode))


def complete_mcp(chat: ChatContext, _: str) -> Iterable[str]:
    from pinfold.app.session.mcp import load_servers_for

    return (f"trust {spec.name}" for spec in load_servers_for(chat.workspace).specs)


def complete_model(*_: object) -> Iterable[str]:
    from pinfold.app.models import list_model_names

    return list_model_names()


def complete_resume(chat: ChatContext, typed: str) -> Iterable[str]:
    """Return matching session ids, or the titles if no id matches."""
    everyone = _keep("sessions", lambda: list_nodes(SessionStore()))
    others = [kin for kin in everyone if kin.id != chat.session]
    ids = [kin.id for kin in others if kin.id.startswith(typed)]
    return ids or [presentable_line(kin.title) for kin in others if kin.named]


def complete_export(_: ChatContext, typed: str) -> Iterable[str]:
    from pinfold.app.storage.exports import SessionExport

    return () if " " in typed else (f"{one} " for one in get_args(SessionExport))
