"""`pinfold env`: the Python environment cells run in."""

from __future__ import annotations

import time
from collections.abc import Callable

import click

from pinfold.app import (
    Environment,
    EnvironmentStatus,
    Progress,
    build_environment,
    current_folder,
    environment_status,
    load_config,
)
from pinfold.app.config.schema import SandboxConfig
from pinfold.app.session.environment import BUILDING, build_for_session
from pinfold.events import plain_json
from pinfold.front.cli.progress import make_progress_display, say
from pinfold.text import presentable_line

_PHASES = {
    "wait": "waiting for another build",
    "resolve": "resolving",
    "download": "downloading",
    "install": "installing",
    "compile": "compiling",
}


@click.group("env")
def env_command() -> None:
    """Build and show the Python environment cells run in."""


@env_command.command("build")
@click.option("--package", "packages", multiple=True, metavar="NAME", help="Add this one; may be repeated.")
@click.option("--rebuild", is_flag=True, help="Build it again even if it is there.")
def build(packages: tuple[str, ...], rebuild: bool) -> None:
    """Build the environment: the usual packages, those of the configuration, and those given here.

    One that is there already is left as it is, and nothing is printed. Needs the network once.
    """
    sandbox = _load_sandbox_config()
    shown = make_progress_display(step=0.25)
    began = time.monotonic()
    try:
        environment = build_environment((*sandbox.packages, *packages), make_reporter(shown.show), rebuild=rebuild)
    finally:
        shown.end()
    if shown.began:
        words = f"{len(environment.packages)} packages, {_megabytes(environment)}"
        say(f"ready in {time.monotonic() - began:.0f} s: {words}, {environment.folder}")
        if sandbox.python:
            say(f"cells still run in {sandbox.python}: the setting sandbox.python says so")


def build_with_progress(packages: tuple[str, ...]) -> None:
    """For a session that would miss it; without a network it is gone on without."""
    shown = make_progress_display(step=0.25)
    say(BUILDING)
    began = time.monotonic()
    try:
        problem = build_for_session(packages, make_reporter(shown.show))
    finally:
        shown.end()
    say(problem or f"ready in {time.monotonic() - began:.0f} s")


def make_reporter(show: Callable[[str, int, int, str], None]) -> Callable[[Progress], None]:
    """Puts into words how far a build or an installation is."""

    def report(progress: Progress) -> None:
        done, total = progress.done, progress.total
        counted = f"{done / 1e6:,.0f} of {total / 1e6:,.0f} MB" if progress.phase == "download" else f"{done}/{total}"
        show(_PHASES[progress.phase], done, total, counted if total else "")

    return report


@env_command.command("show")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def show(as_json: bool) -> None:
    """Print what the environment holds, where it is and whether cells use it."""
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
    _line(f"key       {environment.key}")
    _line(f"path      {environment.folder}")
    _line(f"python    {environment.version}, {environment.python}")
    _line(f"built     {environment.built_at:%Y-%m-%d %H:%M}")
    _line(f"size      {_megabytes(environment)}")
    _line(f"used      {used}")
    _line(f"added     {', '.join(environment.asked) or 'nothing'}")
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
