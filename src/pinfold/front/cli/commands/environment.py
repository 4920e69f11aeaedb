"""`pinfold env` and `pinfold extras`: the packages of cells, and those of Pinfold itself."""

from __future__ import annotations

import time

import click

from pinfold.app import (
    Environment,
    EnvironmentStatus,
    build_environment,
    current_folder,
    environment_status,
    load_config,
)
from pinfold.app.config import SandboxConfig
from pinfold.app.models import EXTRAS, add_extras, installation, missing_modules, requirements
from pinfold.app.session import BUILDING, build_for_session
from pinfold.events import plain_json
from pinfold.front.progress import ProgressDisplay, make_reporter, say
from pinfold.text import presentable_line


@click.group("env")
def env_command() -> None:
    """Build and show the Python environment that cells run in."""


@env_command.command("build")
@click.option("--package", "packages", multiple=True, metavar="NAME", help="Add this package; may be repeated.")
@click.option("--rebuild", is_flag=True, help="Build it even if it exists.")
def build(packages: tuple[str, ...], rebuild: bool) -> None:
    """Build the environment: the usual packages, those in the configuration, and those given here.

    Does nothing if it exists. Needs the network once.
    """
    sandbox = _load_sandbox_config()
    shown = ProgressDisplay(step=0.25)
    began = time.monotonic()
    try:
        environment = build_environment((*sandbox.packages, *packages), make_reporter(shown.show), rebuild=rebuild)
    finally:
        shown.end()
    if shown.began:
        words = f"{len(environment.packages)} packages, {_megabytes(environment)}"
        say(f"ready in {time.monotonic() - began:.0f} s: {words}, {environment.folder}")
        if sandbox.python:
            say(f"cells still run in {sandbox.python}, as sandbox.python is set")


def build_with_progress(packages: tuple[str, ...]) -> None:
    """Build it for a session; without a network the session starts without it."""
    shown = ProgressDisplay(step=0.25)
    say(BUILDING)
    began = time.monotonic()
    try:
        problem = build_for_session(packages, make_reporter(shown.show))
    finally:
        shown.end()
    say(problem or f"ready in {time.monotonic() - began:.0f} s")


@env_command.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(as_json: bool) -> None:
    """Print the environment's packages, its place, and whether cells use it."""
    sandbox = _load_sandbox_config()
    standing = environment_status(sandbox.packages, sandbox.python)
    if as_json:
        click.echo(plain_json(_fields(standing)))
        return
    environment = standing.environment
    if environment is None:
        _line(f"not built: `pinfold env build` makes it in {standing.folder}")
        _line(f"cells run in {standing.used}")
        return
    used = "yes" if standing.used == environment.python else f"no, cells run in {standing.used}"
    rows = {
        "key": environment.key,
        "path": environment.folder,
        "python": f"{environment.version}, {environment.python}",
        "built": f"{environment.built_at:%Y-%m-%d %H:%M}",
        "size": _megabytes(environment),
        "used": used,
        "added": ", ".join(environment.asked) or "nothing",
    }
    for name, value in rows.items():
        _line(f"{name:<9} {value}")
    click.echo("packages")
    for name, version in environment.packages.items():
        _line(f"  {name} {version}")


def _load_sandbox_config() -> SandboxConfig:
    loaded = load_config(current_folder())
    if loaded.notice:
        say(loaded.notice)
    return loaded.config.sandbox


def _line(text: str) -> None:
    click.echo(presentable_line(text))


def _fields(standing: EnvironmentStatus) -> dict[str, object]:
    environment = standing.environment
    fields: dict[str, object] = {
        "built": environment is not None,
        "key": standing.key,
        "path": str(standing.folder),
        "cells_run_in": str(standing.used),
    }
    if environment is None:
        return fields
    return {
        **fields,
        "used": standing.used == environment.python,
        "python": str(environment.python),
        "python_version": environment.version,
        "added": list(environment.asked),
        "packages": dict(environment.packages),
        "size": environment.size,
        "built_at": environment.built_at.isoformat(),
    }


def _megabytes(environment: Environment) -> str:
    return f"{environment.size / 1e6:,.0f} MB"


@click.group("extras")
def extras_command() -> None:
    """List and install optional parts of Pinfold: providers, databases, serving."""


@extras_command.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per extra.")
def list_(as_json: bool) -> None:
    """List the extras, what they are for, and which are installed."""
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
    """Install extras into Pinfold's own environment: with the lock file in a checkout, else with uv or pipx.

    They stay when Pinfold is upgraded.
    """
    wanted = [name for name in dict.fromkeys(names) if missing_modules(name)]
    if not wanted:
        say(f"{' and '.join(names)}: installed already")
        return
    here = installation()
    packages = ", ".join(package for name in wanted for package in requirements(name))
    say(f"adding {' and '.join(wanted)} ({packages}) to the {here.kind} {here.folder}")
    shown = ProgressDisplay(step=0.25)
    began = time.monotonic()
    try:
        add_extras(wanted, make_reporter(shown.show))
    finally:
        shown.end()
    say(f"ready in {time.monotonic() - began:.0f} s: {' and '.join(wanted)} installed")
