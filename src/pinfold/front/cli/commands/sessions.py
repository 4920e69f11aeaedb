"""`pinfold sessions`, `export` and `import`: list, show, search and delete sessions, and sessions as files."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, TypeAlias, assert_never, get_args

import anyio
import click

from pinfold import events
from pinfold.app import (
    OutboundTotal,
    SessionStore,
    StoredSession,
    configure,
    connect,
    label_cells,
    load_config,
    read_session,
    resume_options,
    rewound_in_words,
    sum_outbound,
)
from pinfold.app.clients import build_history, entries_on_disk
from pinfold.app.storage import build_session_tree, list_nodes
from pinfold.app.storage.exports import SessionExport, export_name, label_stored_display, save, session_bytes
from pinfold.events import BlobId, Event, Json, PinfoldError, Rename, SessionId
from pinfold.front import pages
from pinfold.front.cli.terminal import show, show_page, show_rows, tell
from pinfold.front.flags import PATH
from pinfold.text import abbreviate_home, cap_text, first_line, pluralize, presentable, presentable_line

View: TypeAlias = Literal["vars", "files", "diff", "cost", "branches"]
_SHOWN = 4000
_HITS = 3
"""Most matches shown of one session."""
_WIDE = 80
_FOLDER = 32
_TO_STDOUT = ("jsonl", "replay")
"""Formats that go to stdout unless a file is named."""
_NO_FILES = "It changed no files."


@click.group("sessions", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
@click.pass_context
def sessions_command(ctx: click.Context, as_json: bool) -> None:
    """List the sessions on this machine, the last used first."""
    if ctx.invoked_subcommand:
        return
    stored = SessionStore().sessions()
    if stored and not as_json and sys.stdout.isatty():
        for line in rows(stored):
            show(line)
        return
    show_rows(((_fields(item), _line(item)) for item in stored), as_json=as_json, nothing="No sessions yet.")


@sessions_command.command("show")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: every event, or every destination.")
@click.option("--sent", is_flag=True, help="Print what left this machine, by destination.")
@click.option(
    "--display", type=click.IntRange(min=1), metavar="N", help="Write its Nth figure or table to stdout or to -o."
)
@click.option("-o", "--output", type=PATH, help="With --display: file to write.")
@click.option("--open", "opens", is_flag=True, help="With --display: open it with this machine's program for it.")
@click.option("--mime", metavar="TYPE", help="With --display: the form to write, such as image/png.")
@click.option("--force", is_flag=True, help="With -o: overwrite an existing file.")
@click.option("--vars", "view", flag_value="vars", help="Print its variables; opens the session.")
@click.option("--files", "view", flag_value="files", help="Print the files it changed.")
@click.option("--diff", "view", flag_value="diff", help="Print how it changed them.")
@click.option("--cost", "view", flag_value="cost", help="Print tokens and dollars, by model.")
@click.option("--branches", "view", flag_value="branches", help="Print its parent and its forks.")
def show_command(session: str, view: View | None, as_json: bool, sent: bool, display: int | None, **given: Any) -> None:
    """Print what happened in a session, or one figure or table of it."""
    if display is None and (given["output"] or given["opens"] or given["mime"]):
        raise click.UsageError("-o, --open and --mime need --display N")
    found, folder = SessionStore().find(session)
    if view:
        _show_view(view, found, as_json=as_json)
        return
    with read_session(folder, found) as (log, damage):
        if display is not None:
            from pinfold.front.displays import show_display

            show_display(folder, [*log.read(damage=damage)], log.blobs.get, display, **given)
        elif sent:
            _show_sent(sum_outbound(log.read(damage=damage)), as_json=as_json)
        elif as_json:
            for line in log.lines(damage):
                click.echo(line)
        else:
            entries = list(log.read(damage=damage))
            cells = label_cells(entries)
            shown = 0
            for entry in entries:
                _show_event(entry.event, cells)
                for ref in entry.event.displays if isinstance(entry.event, events.ActionFinished) else ():
                    shown += 1
                    show(f"  [{label_stored_display(shown, ref, log.blobs.get)}]")
    if damage:
        tell(f"pinfold: the log is damaged: {damage}; the rest is intact")


def _show_sent(totals: Iterable[OutboundTotal], *, as_json: bool) -> None:
    rows: list[tuple[Json, str]] = []
    for one in totals:
        has_tokens = one.input_tokens or one.output_tokens
        tokens = f", {one.input_tokens:,} tokens in, {one.output_tokens:,} out" if has_tokens else ""
        times = "once" if one.times == 1 else f"{one.times:,} times"
        rows.append((one, f"{one.to}  {times}, {one.bytes_out:,} bytes out, {one.bytes_back:,} back{tokens}"))
    show_rows(rows, as_json=as_json, nothing="Nothing left this machine.")


@sessions_command.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
@click.option("--exact", is_flag=True, help="All words must occur as they are; quote words to search a phrase.")
def search(words: tuple[str, ...], as_json: bool, exact: bool) -> int:
    """Find sessions by what was said, run or printed in them, the best match first."""
    store = SessionStore()
    found = store.search_exactly(words) if exact else store.search(words)
    for item, hits in found:
        if as_json:
            click.echo(events.plain_json({**_fields(item), "matches": hits}))
            continue
        show(f"{item.id}  {ago(item.summary.last)}  {_title(item)}")
        for hit in hits[:_HITS]:
            show(f"  {hit.place:<6}  {hit.text[:200]}")
        if len(hits) > _HITS:
            show(f"  and {len(hits) - _HITS} more")
    if not found:
        tell("Nothing found.")
    return 0 if found else 1


@sessions_command.command("rm")
@click.argument("sessions", nargs=-1, required=True)
def rm(sessions: tuple[str, ...]) -> None:
    """Delete sessions with everything they stored."""
    store = SessionStore()
    for found in store.remove_all(dict.fromkeys([store.find(name)[0] for name in sessions])):
        tell(f"removed {found}")


@sessions_command.command("gc")
@click.option("--keep-days", type=float, help="Delete sessions not used for this many days.")
@click.option("--quota-gb", type=float, help="Delete the oldest sessions until the rest fits into this many GB.")
def gc(keep_days: float | None, quota_gb: float | None) -> None:
    """Delete old sessions, or those over the quota. Live ones stay."""
    limits = load_config(flags={"sessions.keep_days": keep_days, "sessions.quota_gb": quota_gb}).config.sessions
    gone = SessionStore().collect(keep_days=limits.keep_days, quota_bytes=limits.quota_gb * 1e9)
    for item in gone:
        tell(f"removed {item.id}  {_title(item)}")
    tell(f"{len(gone)} removed, {pages.size_in_words(sum(item.size for item in gone))} freed")


@sessions_command.command("rename")
@click.argument("session")
@click.argument("title")
def rename_command(session: str, title: str) -> None:
    """Give a session a name."""
    found, folder = SessionStore().find(session)
    anyio.run(configure, folder, found, Rename(title=title))


def _fields(item: StoredSession) -> dict[str, Json]:
    summary = item.summary
    return {
        "session": item.id,
        "title": summary.title,
        "began": summary.began,
        "last": summary.last,
        "events": summary.events,
        "bytes": item.size,
        "workspace": summary.workspace,
        "owner": item.owner,
        "cut_off": summary.cut_off and item.owner is None,
    }


def _line(item: StoredSession) -> str:
    size, status = pages.size_in_words(item.size), _status(item)
    return f"{item.id}  {item.summary.last[:16]}  {size:>9}  {status:<8}  {_folder(item)}  {_title(item)}"


def rows(stored: Sequence[StoredSession], width: int | None = None) -> list[str]:
    """Return a heading and a line for each session, fitted to the terminal; the title gets the remaining room."""
    width = width or shutil.get_terminal_size().columns
    table = {
        "ID": [str(item.id) for item in stored],
        "LAST USED": [ago(item.summary.last) for item in stored],
        "SIZE": [pages.size_in_words(item.size) for item in stored],
        "STATE": [_status(item) for item in stored],
        "FOLDER": [pages.cut_start(_folder(item), max(8, min(_FOLDER, width // 4))) for item in stored],
        "TITLE": [_whole_title(item) for item in stored],
    }
    if not any(table["STATE"]):
        del table["STATE"]
    if width < _WIDE:
        del table["SIZE"]
    return pages.columns(zip(*([name, *cells] for name, cells in table.items()), strict=True), width=width)


def _folder(item: StoredSession) -> str:
    return presentable_line(abbreviate_home(item.summary.workspace))


def _whole_title(item: StoredSession) -> str:
    return first_line(presentable(item.summary.title)) or "(untitled)"


def _title(item: StoredSession) -> str:
    return pages.cut(_whole_title(item), 60)


def _status(item: StoredSession) -> str:
    if item.owner is not None:
        return "live"
    return "cut off" if item.summary.cut_off else ""


def ago(at: str) -> str:
    """Return, for example, `3 min ago`; the date after a week."""
    try:
        then = datetime.fromisoformat(at)
    except ValueError:
        return at[:10]
    then = then if then.tzinfo else then.replace(tzinfo=UTC)
    minutes = (datetime.now(UTC) - then).total_seconds() // 60
    if minutes < 1:
        return "just now"
    if minutes < 60:
        return f"{minutes:.0f} min ago"
    if minutes < 24 * 60:
        return f"{minutes // 60:.0f} h ago"
    days = minutes // (24 * 60)
    if days < 7:
        return f"{days:.0f} {'day' if days == 1 else 'days'} ago"
    return then.astimezone().strftime("%Y-%m-%d")


def _show_event(event: Event, cells: Mapping[events.ActionId, str]) -> None:
    match event:
        case events.UserSpoke(text=text):
            label = "you"
        case events.ModelReplied(text=text) if text:
            label = "agent"
        case events.ActionProposed(id=id_, action=events.RunCell(code=text)):
            label = cells.get(id_, "cell that did not run")
        case events.ActionProposed(action=events.CallTool(tool=label, args=args)):
            text = events.plain_json(args)
        case events.ActionFinished(outcome=label, observation=text):
            pass
        case events.SessionRewound():
            label, text = "undo", f"The user {rewound_in_words(event)}"
        case events.SessionForked(source=source):
            label, text = "fork", f"Everything above was copied from {source}."
        case events.Noticed(text=text):
            label = "notice"
        case events.TurnFailed(error=text):
            label = "failed"
        case events.TurnInterrupted(reason=text):
            label = "interrupted"
        case _:
            return
    body = cap_text(presentable(text.rstrip("\n")), _SHOWN).replace("\n", "\n  ")
    click.echo(f"[{presentable_line(label)}]\n  {body}".encode())


def _show_view(view: View, session: SessionId, *, as_json: bool) -> None:
    if view == "vars":
        variables = anyio.run(_variables, session)
        show_page(variables, pages.variables_page(variables), as_json=as_json)
        return
    history = build_history(session, entries_on_disk(session))
    changes = history.changes()
    match view:
        case "files":
            fields = [{"path": one.path, "how": one.how} for one in changes]
            show_page(fields, pages.changes_page(changes, history.more_files), as_json=as_json, nothing=_NO_FILES)
        case "diff":
            lines = pages.diff_page(changes, _contents(session, changes))
            show_page(changes, lines, as_json=as_json, nothing=_NO_FILES)
        case "cost":
            show_page(history.bills, pages.cost_page(history), as_json=as_json)
        case "branches":
            family = build_session_tree(session, list_nodes(SessionStore()))
            above = [{"session": kin.id, "title": kin.title, "is": "ancestor"} for kin in family.ancestors]
            below = [
                {"session": kin.id, "title": kin.title, "is": "fork", "of": kin.source} for _, kin in family.children
            ]
            show_page([*above, *below], pages.branches_page(history, family), as_json=as_json)
        case _:
            assert_never(view)


async def _variables(session: SessionId) -> Sequence[Mapping[str, Json]]:
    folder = SessionStore().folder_of(session)
    async with connect(folder, session, resume_options(session, folder, None, {})) as link:
        return await link.query("variables")


def _contents(session: SessionId, changes: Iterable[events.FileChange]) -> pages.Contents:
    """Return the content of files before and after their changes, as far as it is still stored."""
    found: dict[BlobId, bytes] = {}
    with read_session(SessionStore().folder_of(session), session) as (log, _):
        for blob in {blob for one in changes for blob in (one.before, one.after) if blob is not None}:
            with suppress(PinfoldError):
                found[blob] = log.blobs.get(blob)
    return found


@click.command("export")
@click.argument("session")
@click.option(
    "--to",
    "form",
    type=click.Choice(get_args(SessionExport)),
    required=True,
    help="ipynb: a notebook that runs; md, html: to read; py: a program; bundle: everything in one file; "
    "json, jsonl: the events; replay: a recording for --model replay:FILE. jsonl and replay go to stdout by default.",
)
@click.option("-o", "--output", type=PATH, help="File to write, - for stdout. Default: named after the session.")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@click.option("--embed", is_flag=True, help="With md: put pictures inside the file.")
def export_command(session: str, form: SessionExport, output: Path | None, force: bool, embed: bool) -> None:
    """Write a session to a file.

    SESSION is an id, the start of one, a name, or `last`.
    """
    if embed and form != "md":
        raise click.UsageError("--embed needs --to md")
    found, folder = SessionStore().find(session)
    to_stdout = str(output) == "-" or (output is None and form in _TO_STDOUT)
    if to_stdout and form == "bundle":
        raise click.UsageError("a bundle needs a file: name one with -o")
    if to_stdout and form not in _TO_STDOUT and sys.stdout.isatty():
        raise click.UsageError(f"{form} cannot be printed on a terminal: name a file with -o, or use a pipe")
    with read_session(folder, found) as (log, damage):
        if to_stdout:
            sys.stdout.buffer.write(session_bytes(log, form, damage).data)
            sys.stdout.buffer.flush()
        else:
            target = output or Path(export_name(folder, found, form))
            written = save(log, form, target, damage, force=force, embed=embed)
            pictures = pluralize("picture", len(written) - 1)
            tell(f"Saved {target}" + (f" and {pictures} in {written[1].parent.name}/" if written[1:] else ""))
    if damage:
        tell(f"pinfold: the log is damaged: {damage}; the rest was exported")


@click.command("import")
@click.argument("file", type=PATH)
def import_command(file: Path) -> None:
    """Import a session from a bundle or JSON lines, and print its id."""
    session, count = SessionStore().import_session(file)
    click.echo(session)
    tell(f"pinfold: {count} events; continue with: pinfold resume {session} --model NAME PROMPT")
