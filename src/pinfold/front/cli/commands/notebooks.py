"""`pinfold exec nb.ipynb`: a notebook's cells in a session, no model at all."""

from __future__ import annotations

import sys
from pathlib import Path

import anyio
import click

from pinfold.app import Opening, background
from pinfold.app.clients import Notebook, NotebookResult, failure_in_words, read_notebook, run_notebook, with_outputs
from pinfold.app.storage.exports import Target, display_label
from pinfold.front.cli.commands.run import stop_on_signal
from pinfold.front.cli.turn_output import JsonLines, Streams, write
from pinfold.text import presentable_line


def exec_notebook(
    file: Path,
    opening: Opening,
    shown: JsonLines | Streams,
    *,
    target: Target | None,
    force: bool,
    keep_going: bool,
    timeout_s: float | None,
) -> int:
    """Run its code cells in one session; 1 if one of them fails."""
    notebook = read_notebook(file)
    if not notebook.programs:
        _say(f"{notebook.name} has no code cells")
    if target and not force:
        target.check()
    ran, outside = anyio.run(_run_notebook, opening, notebook, shown, keep_going, timeout_s)
    if target:
        target.write(with_outputs(notebook, ran), force=force, outside=outside)
        _say(f"saved {target.path}")
    failed = [one for one in ran if one.failed]
    if any(one.finished.outcome == "interrupted" for one in failed):
        return 130
    if left := len(notebook.programs) - len(ran):
        _say(f"{left} {'cell' if left == 1 else 'cells'} after it not run (--keep-going runs them)")
    return 1 if failed else 0


async def _run_notebook(
    opening: Opening, notebook: Notebook, shown: JsonLines | Streams, keep_going: bool, timeout_s: float | None
) -> tuple[list[NotebookResult], str]:
    """And the session, if outside text may be in what it showed."""

    async def each(one: NotebookResult) -> None:
        if isinstance(shown, Streams):
            for display in one.told.displays:
                plain = display.forms.get("text/plain")
                is_picture = any(mime.startswith("image/") for mime in display.forms)
                if plain and not is_picture:
                    write(sys.stdout, f"{plain.text.rstrip()}\n")
                else:
                    _say(display_label(display.number, display.forms))
        if one.failed:
            _say(failure_in_words(notebook, one))

    async with opening() as link, background() as tasks:
        tasks.start_soon(stop_on_signal, link, None)
        ran = await run_notebook(
            link,
            notebook,
            shown.show,
            keep_going=keep_going,
            timeout_s=timeout_s,
            each=each,
            begin=lambda _, id_: shown.follow(id_) if isinstance(shown, Streams) else None,
        )
        return ran, (await link.status()).outside


def _say(text: str) -> None:
    click.echo(presentable_line(f"pinfold: {text}"), err=True)
