"""Sessions by name and by descent, looked up without measuring or loading any of them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from msgspec import Struct

from pinfold.app.lock import holder_of
from pinfold.app.shelf import Shelf
from pinfold.events import SessionId
from pinfold.log import summarise


class Kin(Struct, frozen=True, kw_only=True):
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


class Family(Struct, frozen=True, kw_only=True):
    ancestors: tuple[Kin, ...]
    """Where it came from, the nearest first; those that are removed by now only in name."""
    children: tuple[tuple[int, Kin], ...]
    """Forked from it, each with how many steps away, children after their parents."""


def all_kin(shelf: Shelf) -> list[Kin]:
    """Every session that can be read, the last used first."""
    return sorted(_each(shelf), key=lambda kin: kin.last, reverse=True)


def _each(shelf: Shelf) -> Iterator[Kin]:
    for folder in shelf.root.glob("s_*"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            summary = summarise(folder)
            if summary is None or not summary.events:
                continue
            yield Kin(
                id=SessionId(folder.name),
                title=summary.title,
                named=summary.named,
                last=summary.last,
                workspace=summary.workspace,
                source=SessionId(summary.source) if summary.source else None,
                is_live=holder_of(folder) is not None,
            )


def family_of(session: SessionId, everyone: list[Kin]) -> Family:
    by_id = {kin.id: kin for kin in everyone}
    return Family(
        ancestors=tuple(_ancestors(session, by_id)),
        children=tuple(_children(session, everyone, 1, {session})),
    )


def _ancestors(session: SessionId, by_id: Mapping[SessionId, Kin]) -> Iterator[Kin]:
    seen = {session}
    here = by_id.get(session)
    while here and here.source and here.source not in seen:
        seen.add(here.source)
        source, here = here.source, by_id.get(here.source)
        yield here or Kin(id=source, title="(removed)", last="")


def _children(
    session: SessionId, everyone: list[Kin], depth: int, seen: set[SessionId]
) -> Iterator[tuple[int, Kin]]:
    for kin in everyone:
        if kin.source == session and kin.id not in seen:
            seen.add(kin.id)
            yield depth, kin
            yield from _children(kin.id, everyone, depth + 1, seen)
