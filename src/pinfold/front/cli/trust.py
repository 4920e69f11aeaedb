"""`pinfold trust`: look at what a folder tells the agent, and let it be obeyed."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from pinfold.app import ConfigError, current_folder
from pinfold.app.obeyed import Obeyed, obeyed
from pinfold.app.trust import Standing, forget, standing, trust
from pinfold.front.cli.showing import is_closed
from pinfold.text import exact_line, listed, presentable_line


@click.command("trust")
@click.argument("folder", required=False, type=click.Path(path_type=Path))
@click.option(
    "--show", is_flag=True, help="Only say what would be obeyed; exits with 1 if it is not trusted."
)
@click.option("--forget", "forgets", is_flag=True, help="Obey it no longer.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
def trust_command(folder: Path | None, show: bool, forgets: bool, yes: bool) -> int:
    """Let the agent obey what is in FOLDER, or in this one: AGENTS.md, pinfold.toml, .mcp.json and the like.

    Until then they are ignored. Any change to any of them ends the trust.
    """
    place = folder or current_folder()
    if not place.is_dir():
        raise ConfigError(f"{place} is not a folder")
    if forgets:
        was = forget(place)
        click.echo(presentable_line(f"{place} is {'no longer' if was else 'not'} trusted"), err=True)
        return 0
    found = obeyed(place)
    stands = standing(found)
    _show(found, stands)
    if show:
        return 0 if stands.trusted or not (found.files or found.odd) else 1
    if stands.trusted:
        return 0
    if found.files and not found.odd and not yes:
        _ask()
    trust(found)
    click.echo(presentable_line(f"{found.workspace} is trusted, as long as none of these changes"), err=True)
    return 0


def _show(found: Obeyed, stands: Standing) -> None:
    if not found.files and not found.odd:
        click.echo(presentable_line(f"nothing in {found.workspace} would be obeyed"))
        return
    for file in found.files:
        mark = "*" if file.name in stands.changed else " "
        first, *more = found.what(file)
        for line in (f"{mark} {file.name:<16} {first}", *(f"  {line}" for line in more)):
            click.echo(exact_line(line))
    for name, why in found.odd.items():
        click.echo(presentable_line(f"! {name:<16} cannot be trusted: {why}"))
    how = "trusted" if stands.trusted else "not trusted"
    if stands.changed:
        how += f"; since {stands.at} changed (*): {listed(stands.changed, 10)}"
    click.echo(presentable_line(f"{found.workspace} is {how}"))


def _ask() -> None:
    if is_closed(sys.stdin) or not sys.stdin.isatty():
        raise click.UsageError("nobody can be asked here; look at it with --show, then say --yes")
    click.confirm("Let the agent obey these?", abort=True, err=True)
