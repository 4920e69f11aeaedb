"""`pinfold sessions`: what is on this machine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import anyio
import click

from pinfold.app import (
    Departure,
    Shelf,
    Shelved,
    cells_of,
    departures,
    load_config,
    read_session,
    rename,
    rewound_in_words,
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
from pinfold.text import capped, first_line, presentable, presentable_line

_SHOWN = 4000


@click.group("sessions", invoke_without_command=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object per session.")
@click.pass_context
def sessions_command(ctx: click.Context, as_json: bool) -> None:
    """List the sessions on this machine, the last used first."""
    if ctx.invoked_subcommand:
        return
    shelved = Shelf().sessions()
    if as_json:
        for item in shelved:
            click.echo(plain_json(_row(item)))
        return
    if not shelved:
        click.echo("No sessions yet.", err=True)
    for item in shelved:
        row = f"{item.id}  {item.summary.last[:16]}  {_size(item.size):>9}  {_standing(item):<8}  {_title(item)}"
        click.echo(presentable_line(row))


@sessions_command.command("show")
@click.argument("session")
@click.option("--json", "as_json", is_flag=True, help="As lines of JSON: every event, or every destination.")
@click.option("--sent", is_flag=True, help="What left this machine, by destination.")
def show(session: str, as_json: bool, sent: bool) -> None:
    """Print what happened in a session."""
    found, folder = Shelf().find(session)
    with read_session(folder, found) as (log, damage):
        if sent:
            _show_sent(departures(log.read(damage=damage)), as_json=as_json)
        elif as_json:
            for line in log.lines(damage):
                click.echo(line)
        else:
            entries = list(log.read(damage=damage))
            cells = cells_of(entries)
            for entry in entries:
                _show(entry, cells)
    if damage:
        click.echo(presentable_line(f"pinfold: the log is damaged: {damage}; the rest is intact"), err=True)


def _show_sent(gone: list[Departure], *, as_json: bool) -> None:
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


@sessions_command.command("rm")
@click.argument("sessions", nargs=-1, required=True)
def rm(sessions: tuple[str, ...]) -> None:
    """Remove sessions with everything they kept."""
    shelf = Shelf()
    for found in dict.fromkeys(shelf.find(name)[0] for name in sessions):
        shelf.remove(found)
        click.echo(f"removed {found}", err=True)


@sessions_command.command("gc")
@click.option("--keep-days", type=float, help="Remove what was not used for longer.")
@click.option("--quota-gb", type=float, help="Then remove the oldest until the rest fits.")
def gc(keep_days: float | None, quota_gb: float | None) -> None:
    """Remove sessions that are too old or too many. Live ones stay."""
    flags: dict[str, Any] = {"sessions.keep_days": keep_days, "sessions.quota_gb": quota_gb}
    limits = load_config(flags=flags).config.sessions
    gone = Shelf().collect(keep_days=limits.keep_days, quota_bytes=limits.quota_gb * 1e9)
    for item in gone:
        click.echo(presentable_line(f"removed {item.id}  {_title(item)}"), err=True)
    click.echo(f"{len(gone)} removed, {_size(sum(item.size for item in gone))} freed", err=True)


@sessions_command.command("rename")
@click.argument("session")
@click.argument("title")
def rename_command(session: str, title: str) -> None:
    """Give a session a name."""
    found, folder = Shelf().find(session)
    anyio.run(rename, folder, found, title)


def _row(item: Shelved) -> dict[str, Any]:
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


def _standing(item: Shelved) -> str:
    if item.owner is not None:
        return "live"
    return "cut off" if item.summary.cut_off else ""


def _title(item: Shelved) -> str:
    return first_line(presentable(item.summary.title), 60) or "(untitled)"


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB" if count >= 100_000 else f"{count / 1e3:.0f} kB"


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
    body = capped(presentable(text.rstrip("\n")), _SHOWN).replace("\n", "\n  ")
    click.echo(f"[{presentable_line(label)}]\n  {body}".encode())
