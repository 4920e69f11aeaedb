"""`pinfold export` and `pinfold import`: sessions as files."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pinfold.app import Shelf, export_bundle, read_session, record
from pinfold.text import presentable_line


@click.command("export")
@click.argument("session")
@click.option(
    "--to",
    "form",
    type=click.Choice(["bundle", "jsonl", "replay"]),
    required=True,
    help="bundle: one file with everything; jsonl: the events; replay: a recording for --model replay:FILE.",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Where to; stdout for jsonl and replay."
)
def export_command(session: str, form: str, output: Path | None) -> None:
    """Write a session to a file."""
    found, folder = Shelf().find(session)
    with read_session(folder, found) as (log, damage):
        if form == "bundle":
            target = output or Path(f"{found}.pinfold")
            export_bundle(log, target, damage)
            click.echo(presentable_line(f"{target}"), err=True)
        else:
            lines = log.lines(damage) if form == "jsonl" else record(log.read(damage=damage))
            text = "".join(f"{line}\n" for line in lines)
            if output:
                _write(output, text)
            else:
                sys.stdout.write(text)
    if damage:
        click.echo(
            presentable_line(f"pinfold: the log is damaged: {damage}; the rest was exported"), err=True
        )


@click.command("import")
@click.argument("file", type=click.Path(path_type=Path))
def import_command(file: Path) -> None:
    """Bring a session in from a bundle or JSON lines, and print its id."""
    session, count = Shelf().bring_in(file)
    click.echo(session)
    click.echo(f"pinfold: {count} events; go on with: pinfold resume {session} --model NAME PROMPT", err=True)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"{path} cannot be written: {error.strerror}") from error
