"""What a command could go on with, cheaply known: this is asked at every key."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, get_args

from pinfold.app import SessionStore
from pinfold.app.clients import SessionHistory, build_history, entries_of
from pinfold.app.session import checkpoints_in
from pinfold.app.storage import SessionNode, list_nodes
from pinfold.events import PinfoldError, SessionId
from pinfold.front.chat.commands.table import COMMANDS
from pinfold.front.chat.commands.user_commands import find_commands
from pinfold.text import presentable_line

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext

_MOST = 50
_FRESH_S = 2.0
_stories: dict[SessionId, tuple[float, SessionHistory]] = {}
_kin: list[tuple[float, list[SessionNode]]] = []


def names(chat: ChatContext) -> list[tuple[str, str]]:
    mine = find_commands(chat.workspace).commands.values()
    return [
        *((command.name, command.words) for command in COMMANDS.values()),
        *((own.name, presentable_line(own.words)) for own in mine),
    ]


def arguments_of(chat: ChatContext, name: str, typed: str) -> list[str]:
    command = COMMANDS.get(name.lower())
    if command is None or command.complete is None:
        return []
    try:
        offered = (one for one in command.complete(chat, typed) if one == presentable_line(one))
        return [*islice(offered, _MOST)]
    except PinfoldError:  # what cannot be read is not offered
        return []


def _history(chat: ChatContext) -> SessionHistory:
    """As it was a moment ago at most."""
    at, history = _stories.get(chat.session, (-_FRESH_S, None))
    if history is None or time.monotonic() - at > _FRESH_S:
        history = build_history(chat.session, entries_of(chat.link))
        _stories.clear()
        _stories[chat.session] = (time.monotonic(), history)
    return history


def _all_sessions() -> list[SessionNode]:
    if not _kin or time.monotonic() - _kin[0][0] > _FRESH_S:
        _kin[:] = [(time.monotonic(), list_nodes(SessionStore()))]
    return _kin[0][1]


def _filter_by_prefix(options: Iterable[str], typed: str) -> list[str]:
    return [option for option in options if option.startswith(typed)]


def commands(chat: ChatContext, typed: str) -> Sequence[str]:
    return _filter_by_prefix((name for name, _ in names(chat)), typed.removeprefix("/"))


def cells(chat: ChatContext, typed: str) -> Sequence[str]:
    """The last one first."""
    history = _history(chat)
    return _filter_by_prefix((str(cell.number) for cell in reversed(history.cells)), typed)


def undo(chat: ChatContext, typed: str) -> Sequence[str]:
    history = _history(chat)
    return _filter_by_prefix([f"to {cell}" for cell in (*reversed(history.path[:-1]), 0)], typed)


def rewind(chat: ChatContext, typed: str) -> Sequence[str]:
    number, space, _ = typed.partition(" ")
    if space:
        return _filter_by_prefix([f"{number} {what}" for what in ("all", "chat", "files", "variables")], typed)
    history = _history(chat)
    return _filter_by_prefix([str(turn.number) for turn in reversed(history.turns) if not turn.forgotten], typed)


def checkpoint(chat: ChatContext, typed: str) -> Sequence[str]:
    made = checkpoints_in(entries_of(chat.link))
    return _filter_by_prefix(["on", "off", *(str(one.number) for one in reversed(made))], typed)


def files(chat: ChatContext, typed: str) -> Sequence[str]:
    """What the session has changed, the last first."""
    return _filter_by_prefix([change.path for change in reversed(_history(chat).changes())], typed)


def grants(_: ChatContext, typed: str) -> Sequence[str]:
    return _filter_by_prefix(["revoke "], typed)


def servers(chat: ChatContext, typed: str) -> Sequence[str]:
    from pinfold.app.session.mcp import load_servers_for

    return _filter_by_prefix([f"trust {spec.name}" for spec in load_servers_for(chat.workspace).specs], typed)


def modes(_: ChatContext, typed: str) -> Sequence[str]:
    return _filter_by_prefix(["read-only", "ask", "auto", "full"], typed)


def models(_: ChatContext, typed: str) -> Sequence[str]:
    from pinfold.app.models import list_model_names

    return _filter_by_prefix(list_model_names(), typed)


def sessions(chat: ChatContext, typed: str) -> Sequence[str]:
    """By id; by title where that is what is typed."""
    everyone = [kin for kin in _all_sessions() if kin.id != chat.session]
    ids = _filter_by_prefix((kin.id for kin in everyone), typed)
    return ids or _filter_by_prefix((presentable_line(kin.title) for kin in everyone if kin.named), typed)


def formats(_: ChatContext, typed: str) -> Sequence[str]:
    from pinfold.app.storage.exports import SessionExport

    return [] if " " in typed else [f"{one} " for one in _filter_by_prefix(get_args(SessionExport), typed)]
