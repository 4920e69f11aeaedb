"""`pinfold cleanup`: ends and removes what a killed Pinfold left behind."""

from __future__ import annotations

import json

import click

from pinfold.app.storage.session_store import clean_up
from pinfold.text import presentable_line

_DONE = {"process": "ended"}


@click.command("cleanup")
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def cleanup_command(dry_run: bool, as_json: bool) -> None:
    """End processes and remove folders, sockets and control groups of a Pinfold that was killed.

    Only what is surely Pinfold's, yours, and used by nobody alive.
    """
    found = clean_up(dry_run=dry_run)
    if as_json:
        items = [{"kind": kind, "name": name} for kind, name in found]
        click.echo(json.dumps({"dry_run": dry_run, "leftovers": items}))
        return
    count = 0
    for count, (kind, name) in enumerate(found, 1):  # noqa: B007 - counted for the last line
        done = _DONE.get(kind, "removed")
        click.echo(presentable_line(f"{'would be ' if dry_run else ''}{done}: {kind} {name}"))
    if not count:
        click.echo("nothing was left behind")
