"""`pinfold sessions show --vars` and the like: one side of a session instead of its whole history."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Literal, TypeAlias, assert_never, cast

import anyio
import click
import msgspec

from pinfold.app import SessionStore, StoredSession, connect, read_session, resume_options
from pinfold.app.clients import SessionHistory, build_history, entries_on_disk
from pinfold.app.storage import build_session_tree, list_nodes
from pinfold.events import FileChange, Json, PinfoldError, SessionId, plain_json
from pinfold.front.pages import (
    Contents,
    branches_page,
    changes_page,
    columns,
    cost_page,
    diff_page,
    size_in_words,
    variables_page,
)
from pinfold.text import first_line, homely, presentable, presentable_line

View: TypeAlias = Literal["vars", "files", "diff", "cost", "branches"]
_VIEWS: Mapping[View, str] = {
    "vars": "Print its variables; opens the session.",
    "files": "Print the files it changed.",
    "diff": "Print how it changed them.",
    "cost": "Print tokens and dollars, by model.",
    "branches": "Print its parent and its forks.",
}


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """With an option for each view; where one is given, it is shown instead of what the command would."""

    @wraps(command)
    def run_or_view(session: str, as_json: bool, view: View | None, **given: Any) -> Any:
        if view is None:
            return command(session=session, as_json=as_json, **given)
        return show_view(view, SessionStore().find(session)[0], as_json=as_json)

    for view, words in reversed([*_VIEWS.items()]):
        run_or_view = click.option(f"--{view}", "view", flag_value=view, help=words)(run_or_view)
    return run_or_view


def show_view(view: View, session: SessionId, *, as_json: bool) -> None:
    if view == "vars":
        variables = anyio.run(_variables, session)
        _print(variables, variables_page(variables), as_json=as_json)
        return
    history = build_history(session, entries_on_disk(session))
    match view:
        case "files":
            _print(
                [{"path": one.path, "how": one.how} for one in history.changes()],
                changes_page(history.changes(), history.more_files),
                as_json=as_json,
                nothing="It changed no files.",
            )
        case "diff":
            changes = history.changes()
            lines = diff_page(changes, _contents(session, changes))
            _print(map(msgspec.to_builtins, changes), lines, as_json=as_json, nothing="It changed no files.")
        case "cost":
            _print(map(_bill, history.bills), cost_page(history), as_json=as_json)
        case "branches":
            _branches(history, as_json=as_json)
        case _:
            assert_never(view)


def _bill(bill: Any) -> Json:
    return msgspec.to_builtins(bill)


def _branches(history: SessionHistory, *, as_json: bool) -> None:
    family = build_session_tree(history.session, list_nodes(SessionStore()))
    rows = [
        *({"session": kin.id, "title": kin.title, "is": "ancestor"} for kin in family.ancestors),
        *({"session": kin.id, "title": kin.title, "is": "fork", "of": kin.source} for _, kin in family.children),
    ]
    _print(rows, branches_page(history, family), as_json=as_json)


async def _variables(session: SessionId) -> Sequence[Mapping[str, Json]]:
    folder = SessionStore().folder_of(session)
    async with connect(folder, session, resume_options(session, folder, None, {})) as link:
        return cast("Sequence[Mapping[str, Json]]", await link.query("variables"))


def _contents(session: SessionId, changes: Iterable[FileChange]) -> Contents:
    """Of files before and after, as far as they are still kept."""
    found: dict[Any, bytes] = {}
    with read_session(SessionStore().folder_of(session), session) as (log, _):
        for blob in {blob for one in changes for blob in (one.before, one.after) if blob is not None}:
            try:
                found[blob] = log.blobs.get(blob)
            except PinfoldError:
                continue
    return found


def _print(rows: Iterable[Json], lines: Iterable[str], *, as_json: bool, nothing: str = "") -> None:
    shown = [plain_json(row) for row in rows] if as_json else list(lines)
    for line in shown:
        click.echo(line.encode("utf-8", "backslashreplace"))
    if not shown and nothing and not as_json:
        click.echo(nothing, err=True)


_WIDE = 80
_FOLDER = 32


def rows(stored: Sequence[StoredSession], width: int | None = None) -> list[str]:
    """A heading and a line for each session, fitted to the terminal; the title takes the room that is left."""
    width = width or shutil.get_terminal_size().columns
    table = {
        "ID": [str(item.id) for item in stored],
        "LAST USED": [ago(item.summary.last) for item in stored],
        "SIZE": [size_in_words(item.size) for item in stored],
        "STATE": [session_status(item) for item in stored],
        "FOLDER": [_last(folder_of(item), max(8, min(_FOLDER, width // 4))) for item in stored],
        "TITLE": [title_of(item) for item in stored],
    }
    if not any(table["STATE"]):
        del table["STATE"]
    if width < _WIDE:
        del table["SIZE"]
    return columns(zip(*([name, *cells] for name, cells in table.items()), strict=True), width=width)


def _last(text: str, room: int) -> str:
    return text if len(text) <= room else f"…{text[1 - room :]}"


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
