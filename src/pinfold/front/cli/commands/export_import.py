"""`pinfold export` and `pinfold import`: sessions as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import get_args

import click

from pinfold.app import SessionStore, read_session
from pinfold.app.storage.exports import SessionExport, export_name, save, session_bytes
from pinfold.front.flags import PATH
from pinfold.text import presentable_line

_TO_STDOUT = ("jsonl", "replay")
"""Formats that go to stdout unless a file is named."""


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
        raise click.UsageError("--embed goes with --to md")
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
            more = f" and {_pictures(len(written) - 1)} in {written[1].parent.name}/" if written[1:] else ""
            click.echo(presentable_line(f"Saved {target}{more}"), err=True)
    if damage:
        click.echo(presentable_line(f"pinfold: the log is damaged: {damage}; the rest was exported"), err=True)


def _pictures(count: int) -> str:
    return "1 picture" if count == 1 else f"{count} pictures"


@click.command("import")
@click.argument("file", type=PATH)
def import_command(file: Path) -> None:
    """Import a session from a bundle or JSON lines, and print its id."""
    session, count = SessionStore().import_session(file)
    click.echo(session)
    click.echo(f"pinfold: {count} events; continue with: pinfold resume {session} --model NAME PROMPT", err=True)
