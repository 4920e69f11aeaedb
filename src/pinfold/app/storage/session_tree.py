"""Sessions by name and by descent, looked up without measuring or loading any of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from msgspec import Struct

from pinfold.app.storage.lock import holder_of
from pinfold.app.storage.session_store import SessionStore
from pinfold.events import SessionId
from pinfold.log import summarise


class SessionNode(Struct, frozen=True, kw_only=True):
    """A session as a list shows it."""

    id: SessionId
    title: str
    """As the user named it; else the first thing they said."""
    named: bool = False
    last: str
    """When it was last used."""
    workspace: str = ""
    source: SessionId | None = None
    """The session it was forked from."""
    is_live: bool = False


class SessionTree(Struct, frozen=True, kw_only=True):
    ancestors: tuple[SessionNode, ...]
    """Where it came from, the nearest first; those that are removed by now only in name."""
    children: tuple[tuple[int, SessionNode], ...]
    """Forked from it, each with how many steps away, children after their parents."""


def list_nodes(shelf: SessionStore) -> list[SessionNode]:
    """Every session that can be read, the last used first."""
    return sorted(_read_nodes(shelf), key=lambda kin: kin.last, reverse=True)


def _read_nodes(shelf: SessionStore) -> Iterator[SessionNode]:
    for folder in shelf.root.glob("s_*"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            summary = summarise(folder)
            if summary is None or not summary.events:
                continue
            yield SessionNode(
                id=SessionId(folder.name),
                title=summary.title,
                named=summary.named,
                last=summary.last,
                workspace=summary.workspace,
                source=SessionId(summary.source) if summary.source else None,
                is_live=holder_of(folder) is not None,
            )


def build_session_tree(session: SessionId, everyone: list[SessionNode]) -> SessionTree:
    by_id = {kin.id: kin for kin in everyone}
    return SessionTree(
        ancestors=tuple(_ancestors(session, by_id)), children=tuple(_children(session, everyone, 1, {session}))
    )


def _ancestors(session: SessionId, by_id: Mapping[SessionId, SessionNode]) -> Iterator[SessionNode]:
    seen = {session}
    here = by_id.get(session)
    while here and here.source and here.source not in seen:
        seen.add(here.source)
        source, here = here.source, by_id.get(here.source)
        yield here or SessionNode(id=source, title="(removed)", last="")


def _children(
    session: SessionId, everyone: list[SessionNode], depth: int, seen: set[SessionId]
) -> Iterator[tuple[int, SessionNode]]:
    for kin in everyone:
        if kin.source == session and kin.id not in seen:
            seen.add(kin.id)
            yield depth, kin
            yield from _children(kin.id, everyone, depth + 1, seen)
