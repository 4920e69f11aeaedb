"""`pinfold trust`: show a folder's instructions for the agent, and follow them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from pinfold.app import ConfigError, current_folder
from pinfold.app.trust import ProjectFiles, TrustStatus, find_untrusted, forget, read_project_files, trust, trust_status
from pinfold.app.trust import clean as clean_files
from pinfold.front.cli.turn_output import is_closed
from pinfold.front.flags import PATH
from pinfold.text import exact_line, join_names, numerous, presentable_line, redact


@click.command("trust")
@click.argument("folder", required=False, type=PATH)
@click.option("--show", is_flag=True, help="Only show the instructions; exit with 1 if they are not trusted.")
@click.option("--forget", "forgets", is_flag=True, help="Stop following this folder's instructions.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--clean", multiple=True, type=PATH, metavar="FILE", help="You have read FILE: it is no longer outside text."
)
@click.option("--clean-all", is_flag=True, help="The same for every such file in the folder.")
def trust_command(folder: Path | None, clean: tuple[Path, ...], clean_all: bool, **given: bool) -> int:
    """Let the agent follow the instructions in FOLDER (default: this one): AGENTS.md, pinfold.toml, .mcp.json and others.

    Until then they are ignored; any change to one of them ends the trust. Also lists files that were written after a
    session had read outside text: sessions here count as having read that text too, until you use --clean.
    """
    place = folder or current_folder()
    if not place.is_dir():
        raise ConfigError(f"{place} is not a folder")
    if given["forgets"]:
        was = forget(place)
        click.echo(presentable_line(f"{place} is {'no longer' if was else 'not'} trusted"), err=True)
        return 0
    if clean or clean_all:
        return _clean(place, [place / one for one in clean] or [place])
    found = read_project_files(place)
    stands = trust_status(found)
    _show(found, stands)
    is_marked = _show_untrusted(place)
    if is_marked and not found.files and not found.odd:
        return 0
    if given["show"]:
        return 0 if stands.trusted or not (found.files or found.odd) else 1
    if stands.trusted:
        return 0
    if found.files and not found.odd and not given["yes"]:
        _ask()
    trust(found)
    click.echo(presentable_line(f"{found.workspace} is trusted until one of these changes"), err=True)
    return 0


def _show(found: ProjectFiles, stands: TrustStatus) -> None:
    if not found.files and not found.odd:
        click.echo(presentable_line(f"{found.workspace} has no project instructions"))
        return
    for file in found.files:
        mark = "*" if file.name in stands.changed else " "
        first, *more = found.describe_effects(file)
        for line in (f"{mark} {redact(file.name):<16} {first}", *(f"  {line}" for line in more)):
            click.echo(exact_line(line))
    for name, why in found.odd.items():
        click.echo(presentable_line(f"! {name:<16} cannot be trusted: {why}"))
    how = "trusted" if stands.trusted else "not trusted"
    if stands.changed:
        how += f"; since {stands.at} changed (*): {join_names(stands.changed, 10)}"
    click.echo(presentable_line(f"{found.workspace} is {how}"))


def _show_untrusted(place: Path) -> bool:
    marked = find_untrusted([place])
    for path, mark in sorted(marked.items()):
        about = f"written after outside text was read, by {mark.session} until {mark.at}"
        click.echo(presentable_line(f"~ {os.path.relpath(path, place.resolve()):<16} {about}"))
    if marked:
        click.echo("sessions here count as having read outside text; once you have read these files: --clean FILE")
    return bool(marked)


def _clean(place: Path, paths: list[Path]) -> int:
    count = clean_files(paths)
    if not count:
        there = ", ".join(os.path.relpath(path, place.resolve()) for path in find_untrusted([place])) or "none"
        raise ConfigError(f"no such file is marked as outside text; in {place} there are: {there}")
    click.echo(f"{numerous('file', count)} no longer count{'s' * (count == 1)} as outside text", err=True)
    return 0


def _ask() -> None:
    if is_closed(sys.stdin) or not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask on; look at it with --show, then use --yes")
    click.confirm("Follow these instructions?", abort=True, err=True)
