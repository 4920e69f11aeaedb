"""`pinfold sessions`: list, show, search and delete sessions."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import anyio
import click
from msgspec.structs import asdict

from pinfold.app import (
    OutboundTotal,
    SessionStore,
    StoredSession,
    label_cells,
    load_config,
    read_session,
    rename,
    rewound_in_words,
    sum_outbound,
)
from pinfold.events import (
    ActionFinished,
    ActionId,
    ActionProposed,
    CallTool,
    Entry,
    ModelReplied,
    Noticed,
    RunCell,
    SessionForked,
    SessionRewound,
    TurnFailed,
    TurnInterrupted,
    UserSpoke,
    plain_json,
)
from pinfold.front.cli.session_views import ago, folder_of, rows, session_status, title_of, view_options
from pinfold.front.flags import PATH
from pinfold.front.pages import cut, size_in_words
from pinfold.text import cap_text, presentable, presentable_line

_SHOWN = 4000
_HITS = 3
"""Shown of one session."""


@click.group("sessions", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
@click.pass_context
def sessions_command(ctx: click.Context, as_json: bool) -> None:
    """List the sessions on this machine, the last used first."""
    if ctx.invoked_subcommand:
        return
    shelved = SessionStore().sessions()
    if as_json:
        for item in shelved:
            click.echo(plain_json(_row(item)))
        return
    if not shelved:
        click.echo("No sessions yet.", err=True)
    elif sys.stdout.isatty():
        for line in rows(shelved):
            click.echo(presentable_line(line))
        return
    for item in shelved:
        size = size_in_words(item.size)
        row = f"{item.id}  {item.summary.last[:16]}  {size:>9}  {session_status(item):<8}  {folder_of(item)}  {_title(item)}"
        click.echo(presentable_line(row))


@sessions_command.command("show")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines: every event, or every destination.")
@click.option("--sent", is_flag=True, help="What left this machine, by destination.")
@click.option(
    "--display", type=click.IntRange(min=1), metavar="N", help="Write its Nth figure or table to a pipe or to -o."
)
@click.option("-o", "--output", type=PATH, help="With --display: file to write.")
@click.option("--open", "opens", is_flag=True, help="With --display: open it in its program.")
@click.option("--mime", metavar="TYPE", help="With --display: which form of it.")
@click.option("--force", is_flag=True, help="With -o: overwrite an existing file.")
@view_options
def show(session: str, as_json: bool, sent: bool, display: int | None, **given: Any) -> None:
    """Print what happened in a session, or one figure or table of it."""
    if display is None and (given["output"] or given["opens"] or given["mime"]):
        raise click.UsageError("-o, --open and --mime go with --display N")
    found, folder = SessionStore().find(session)
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
            from pinfold.app.storage.exports import label_stored_display

            entries = list(log.read(damage=damage))
            cells = label_cells(entries)
            shown = 0
            for entry in entries:
                _show(entry, cells)
                if isinstance(entry.event, ActionFinished):
                    for ref in entry.event.displays:
                        shown += 1
                        words = label_stored_display(shown, ref, log.blobs.get)
                        click.echo(presentable_line(f"  [{words}]").encode())
    if damage:
        click.echo(presentable_line(f"pinfold: the log is damaged: {damage}; the rest is intact"), err=True)


def _show_sent(gone: list[OutboundTotal], *, as_json: bool) -> None:
    for one in gone:
        if as_json:
            click.echo(plain_json(asdict(one)))
            continue
        tokens = (
            f", {one.input_tokens:,} tokens in, {one.output_tokens:,} out"
            if one.input_tokens or one.output_tokens
            else ""
        )
        times = "once" if one.times == 1 else f"{one.times:,} times"
        words = f"{one.to}  {times}, {one.bytes_out:,} bytes out, {one.bytes_back:,} back{tokens}"
        click.echo(presentable_line(words))
    if not gone and not as_json:
        click.echo("Nothing left this machine.", err=True)


@sessions_command.command("search")
@click.argument("words", nargs=-1, required=True)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
def search(words: tuple[str, ...], as_json: bool) -> int:
    """Find sessions by what was said, run or printed in them. All words must occur; quote words to search a phrase."""
    found = SessionStore().search(words)
    for item, hits in found:
        if as_json:
            places = [{"place": hit.place, "seq": hit.seq, "text": hit.text} for hit in hits]
            click.echo(plain_json({**_row(item), "matches": places}))
            continue
        click.echo(presentable_line(f"{item.id}  {ago(item.summary.last)}  {_title(item)}").encode())
        for hit in hits[:_HITS]:
            click.echo(presentable_line(f"  {hit.place:<6}  {hit.text[:200]}").encode())
        if len(hits) > _HITS:
            click.echo(f"  and {len(hits) - _HITS} more")
    if not found:
        click.echo("Nothing found.", err=True)
    return 0 if found else 1


@sessions_command.command("rm")
@click.argument("sessions", nargs=-1, required=True)
def rm(sessions: tuple[str, ...]) -> None:
    """Delete sessions with everything they stored."""
    shelf = SessionStore()
    for found in dict.fromkeys(shelf.find(name)[0] for name in sessions):
        shelf.remove(found)
        click.echo(f"removed {found}", err=True)


@sessions_command.command("gc")
@click.option("--keep-days", type=float, help="Delete sessions not used for this many days.")
@click.option("--quota-gb", type=float, help="Then delete the oldest until the rest fits.")
def gc(keep_days: float | None, quota_gb: float | None) -> None:
    """Delete old sessions, or those over the quota. Live ones stay."""
    flags: dict[str, Any] = {"sessions.keep_days": keep_days, "sessions.quota_gb": quota_gb}
    limits = load_config(flags=flags).config.sessions
    gone = SessionStore().collect(keep_days=limits.keep_days, quota_bytes=limits.quota_gb * 1e9)
    for item in gone:
        click.echo(presentable_line(f"removed {item.id}  {_title(item)}"), err=True)
    click.echo(f"{len(gone)} removed, {size_in_words(sum(item.size for item in gone))} freed", err=True)


@sessions_command.command("rename")
@click.argument("session")
@click.argument("title")
def rename_command(session: str, title: str) -> None:
    """Give a session a name."""
    found, folder = SessionStore().find(session)
    anyio.run(rename, folder, found, title)


def _row(item: StoredSession) -> dict[str, Any]:
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


def _title(item: StoredSession) -> str:
    return cut(title_of(item), 60)


def _show(entry: Entry, cells: Mapping[ActionId, str]) -> None:
    match entry.event:
        case UserSpoke(text=text):
            _block("you", text)
        case ModelReplied(text=text) if text:
            _block("agent", text)
        case ActionProposed(id=id_, action=RunCell(code=code)):
            _block(cells.get(id_, "cell that did not run"), code)
        case ActionProposed(action=CallTool(tool=tool, args=args)):
            _block(tool, plain_json(args))
        case ActionFinished(outcome=outcome, observation=observation):
            _block(outcome, observation)
        case SessionRewound() as event:
            _block("undo", f"The user {rewound_in_words(event)}")
        case SessionForked(source=source):
            _block("fork", f"All before was copied from {source}.")
        case Noticed(text=text):
            _block("notice", text)
        case TurnFailed(error=error):
            _block("failed", error)
        case TurnInterrupted(reason=reason):
            _block("interrupted", reason)
        case _:
            pass


def _block(label: str, text: str) -> None:
    body = cap_text(presentable(text.rstrip("\n")), _SHOWN).replace("\n", "\n  ")
    click.echo(f"[{presentable_line(label)}]\n  {body}".encode())
