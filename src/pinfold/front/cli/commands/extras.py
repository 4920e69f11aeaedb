"""`pinfold extras`: parts of Pinfold that are installed when they are needed."""

from __future__ import annotations

import time

import click

from pinfold.app.models.extras import EXTRAS, add_extras, installation, missing_modules, requirements
from pinfold.events import plain_json
from pinfold.front.cli.commands.environment import make_reporter
from pinfold.front.cli.progress import make_progress_display, say


@click.group("extras")
def extras_command() -> None:
    """Add parts of Pinfold that not everybody needs: providers, databases, serving."""


@extras_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per extra.")
def list_(as_json: bool) -> None:
    """Print what can be added, what it is for and what is there."""
    for name, extra in EXTRAS.items():
        is_here = not missing_modules(name)
        if as_json:
            fields = {"name": name, "installed": is_here, "for": extra.words, "packages": requirements(name)}
            click.echo(plain_json(fields))
        else:
            click.echo(f"{name:<14}{'installed' if is_here else 'not here':<11}{extra.words}")


@extras_command.command("add")
@click.argument("names", nargs=-1, required=True, type=click.Choice(list(EXTRAS)), metavar="NAME...")
def add(names: tuple[str, ...]) -> None:
    """Install extras beside Pinfold: by the lock in a checkout, by uv or pipx where those installed it.

    They stay when Pinfold is set up or upgraded again. One that is there already is left as it is.
    """
    wanted = [name for name in dict.fromkeys(names) if missing_modules(name)]
    if not wanted:
        say(f"{' and '.join(names)}: installed already")
        return
    here = installation()
    packages = ", ".join(package for name in wanted for package in requirements(name))
    say(f"adding {' and '.join(wanted)} ({packages}) to the {here.kind} {here.folder}")
    shown = make_progress_display(step=0.25)
    began = time.monotonic()
    try:
        add_extras(wanted, make_reporter(shown.show))
    finally:
        shown.end()
    say(f"ready in {time.monotonic() - began:.0f} s: {' and '.join(wanted)} can be imported")
