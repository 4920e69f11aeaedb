"""`pinfold sessions show ID --display N`: writes a display to a pipe or a file, or opens it with a program."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from pinfold.app import ConfigError
from pinfold.app.storage.exports import Target, display_file, display_form, find_outside_source, writable_folders
from pinfold.events import BlobId, Entry
from pinfold.text import presentable_line

_OPENERS = ("xdg-open", "open", "wslview")


def show_display(
    folder: Path,
    entries: Sequence[Entry],
    blob: Callable[[BlobId], bytes],
    number: int,
    *,
    output: Path | None,
    opens: bool,
    mime: str | None,
    force: bool,
) -> None:
    if opens:
        path = display_file(folder, entries, blob, number, mime, safe=True)
        click.echo(presentable_line(str(path)))
        open_file(path)
    elif output is not None and str(output) != "-":
        with Target(output, writable_folders(entries)) as target:
            outside = find_outside_source(entries[0].session, entries)
            target.write(display_form(entries, blob, number, mime).data, force=force, outside=outside)
        click.echo(presentable_line(str(output)), err=True)
    elif sys.stdout.isatty():
        # Raw bytes could control the terminal, so it gets the path of a file instead.
        click.echo(presentable_line(str(display_file(folder, entries, blob, number, mime, safe=False))))
    else:
        sys.stdout.buffer.write(display_form(entries, blob, number, mime).data)
        sys.stdout.buffer.flush()


def open_file(path: Path) -> None:
    """Open a file with the program that this machine has for it. Raises ConfigError."""
    program = next((found for name in _OPENERS if (found := shutil.which(name))), None)
    if program is None:
        raise ConfigError(f"found no program that opens files ({', '.join(_OPENERS)}); the file is at {path}")
    quiet = subprocess.DEVNULL
    opened = subprocess.Popen([program, str(path)], stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=True)
    threading.Thread(target=opened.wait, daemon=True).start()  # collects the exit status, maybe much later
