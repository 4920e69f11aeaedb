"""Rows of sessions, fitted to the terminal they are read on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime

from pinfold.app import StoredSession
from pinfold.front.pages import cells_of, cut, size_in_words
from pinfold.text import first_line, homely, presentable, presentable_line

_NARROWEST = 20
_FOLDER = 32


def rows(shelved: Sequence[StoredSession], columns: int | None = None) -> Iterator[str]:
    """A head, then a line each; the title takes what room is left."""
    width = columns or shutil.get_terminal_size().columns
    table = {
        "ID": [str(item.id) for item in shelved],
        "LAST USED": [ago(item.summary.last) for item in shelved],
        "SIZE": [size_in_words(item.size) for item in shelved],
        "STATE": [session_status(item) for item in shelved],
    }
    if not any(table["STATE"]):
        del table["STATE"]
    folders = [folder_of(item) for item in shelved]
    folder = max(len("FOLDER"), min(_FOLDER, width // 4, max(map(len, folders), default=0)))
    while len(table) > 1 and width - _table_width(table) - folder - 2 < _NARROWEST:
        table.popitem()
    room = max(_NARROWEST, width - _table_width(table) - folder - 2)
    titles = ["TITLE", *(cut(title_of(item), room) for item in shelved)]
    for place, title in enumerate(titles):
        parts = [_format_cell(name, cells, place) for name, cells in table.items()]
        where = folders[place - 1] if place else "FOLDER"
        end = where if len(where) <= folder else f"…{where[1 - folder :]}"
        yield "  ".join((*parts, f"{title}{' ' * (room - cells_of(title))}", end)).rstrip()


def _table_width(table: Mapping[str, Sequence[str]]) -> int:
    return sum(max(map(len, (name, *cells))) + 2 for name, cells in table.items())


def _format_cell(name: str, cells: Sequence[str], place: int) -> str:
    size = max(map(len, (name, *cells)))
    text = cells[place - 1] if place else name
    return text.rjust(size) if name == "SIZE" else text.ljust(size)


def folder_of(item: StoredSession) -> str:
    return presentable_line(homely(item.summary.workspace))


def title_of(item: StoredSession) -> str:
    return first_line(presentable(item.summary.title)) or "(untitled)"


def session_status(item: StoredSession) -> str:
    if item.owner is not None:
        return "live"
    return "cut off" if item.summary.cut_off else ""


def ago(at: str, now: datetime | None = None) -> str:
    """`3 min ago`; the day, where that says more."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at[:10]
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    seconds = ((now or datetime.now(UTC)) - then).total_seconds()
    if seconds < 60:
        return "just now"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min ago"
    if seconds < 24 * 3600:
        return f"{seconds // 3600:.0f} h ago"
    if seconds < 7 * 24 * 3600:
        days = seconds // (24 * 3600)
        return f"{days:.0f} {'day' if days == 1 else 'days'} ago"
    return then.astimezone().strftime("%Y-%m-%d")
