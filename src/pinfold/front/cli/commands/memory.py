"""`pinfold memory`: lets the user read and change the notes that the agent keeps."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from pinfold.app import current_folder, load_config
from pinfold.app.session import Note, describe_note, open_memory, refuse_secrets, search_notes
from pinfold.events import plain_json
from pinfold.front.cli.terminal import confirm, is_terminal, show, show_page, tell
from pinfold.front.flags import PATH
from pinfold.front.pages import note_fields, notes_page
from pinfold.text import first_line, pluralize

_PIPED = 10_000
"""Columns used if there is no terminal: more than any note has."""
_HERE = click.option("--here", is_flag=True, help="Only notes that sessions in this folder recall.")
_ALL = click.option("--all", "superseded", is_flag=True, help="Include notes that newer ones have replaced.")
_JSON = click.option("--json", "as_json", is_flag=True, help="Print one JSON object per note.")


@click.group("memory")
def memory_command() -> None:
    """Manage the notes that the agent keeps across sessions, on this machine."""


@memory_command.command("list")
@_HERE
@_ALL
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100), default=50, show_default=True, help="Show at most this many notes."
)
@_JSON
def list_command(here: bool, superseded: bool, limit: int, as_json: bool) -> None:
    """List notes, the newest first."""
    _show(open_memory(_place(here=here)).latest(limit, superseded=superseded), as_json=as_json, nothing="No notes yet.")


@memory_command.command("search")
@click.argument("words", nargs=-1, required=True)
@_HERE
@_ALL
@click.option(
    "-n", "--limit", type=click.IntRange(1, 100), default=10, show_default=True, help="Show at most this many notes."
)
@_JSON
def search_command(words: tuple[str, ...], here: bool, superseded: bool, limit: int, as_json: bool) -> int:
    """Find notes by their words, the best match first."""
    config = load_config().config
    found = search_notes(" ".join(words), limit, config, workspace=_place(here=here), superseded=superseded)
    if found.notice:
        tell(f"pinfold: {found.notice}")
    _show(found.notes, as_json=as_json, nothing="Nothing found.")
    return 0 if found.notes else 1


@memory_command.command("show")
@click.argument("number", type=int)
@_JSON
def show_command(number: int, as_json: bool) -> None:
    """Print a note and where it came from."""
    note = open_memory().get(number)
    if as_json:
        click.echo(plain_json(describe_note(note)))
        return
    for line in note.text.splitlines():
        show(line)
    for name, value in note_fields(note):
        show(f"  {name:<9} {value}")


@memory_command.command("edit")
@click.argument("number", type=int)
@click.argument("text", required=False)
def edit_command(number: int, text: str | None) -> None:
    """Edit a note in $VISUAL or $EDITOR, or replace its text by TEXT."""
    note = open_memory().get(number)
    if text is None:
        text = click.edit(note.text) or note.text
    text = text.strip()
    if text == note.text:
        tell("nothing was changed")
        return
    refuse_secrets(text)
    open_memory().edit(number, text)
    tell(f"note {number} is changed")


@memory_command.command("forget")
@click.argument("numbers", nargs=-1, type=int, required=True, metavar="NUMBER...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def forget_command(numbers: tuple[int, ...], yes: bool) -> None:
    """Delete notes for good."""
    memory = open_memory()
    notes = [memory.get(number) for number in dict.fromkeys(numbers)]
    if not yes:
        for note in notes:
            show(f"{note.id}. {first_line(note.text, 100)}")
    confirm(f"Delete {pluralize('note', len(notes))}?", yes=yes)
    for note in notes:
        memory.forget(note.id, trusted=True)
        tell(f"note {note.id} is forgotten")


@memory_command.command("export")
@click.option("-o", "--output", type=PATH, help="File to write; stdout by default.")
@click.option("--json", "as_json", is_flag=True, help="Changes nothing: the export is always JSON.")
def export_command(output: Path | None, as_json: bool) -> None:  # noqa: ARG001 - accepted, as by other commands
    """Write all notes as JSON lines, the oldest first, including those that were replaced."""
    notes = open_memory().all()
    data = "".join(f"{plain_json(describe_note(note))}\n" for note in notes).encode()
    if output is None or str(output) == "-":
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        with output.open("xb") as file:
            output.chmod(0o600)
            file.write(data)
    except FileExistsError:
        raise click.UsageError(f"{output} exists; name another file, or remove it") from None
    except OSError as error:
        raise click.UsageError(f"{output} cannot be written: {error.strerror}") from error
    tell(f"Saved {pluralize('note', len(notes))} in {output}")


def _place(*, here: bool) -> Path | None:
    return current_folder() if here else None


def _show(notes: Sequence[Note], *, as_json: bool, nothing: str) -> None:
    width = shutil.get_terminal_size().columns if is_terminal(sys.stdout) else _PIPED
    show_page(map(describe_note, notes), notes_page(notes, width=width), as_json=as_json, nothing=nothing)
