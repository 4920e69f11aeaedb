"""`pinfold config`: what is configured, and by whom."""

from __future__ import annotations

import json

import click

from pinfold.app import config_schema, current_folder, load_config
from pinfold.events import plain_json
from pinfold.front.cli.progress import say
from pinfold.text import presentable_line


@click.group("config")
def config_command() -> None:
    """Show the configuration and where it comes from."""


@config_command.command("show")
@click.option("--origin", is_flag=True, help="Where each value comes from.")
def show(origin: bool) -> None:
    """Print every setting in force in this folder."""
    loaded = load_config(current_folder())
    if loaded.notice:
        say(loaded.notice)
    for dotted, value, source in loaded.rows():
        line = f"{dotted} = {plain_json(value)}"
        click.echo(presentable_line(f"{line:<40}  # {source}" if origin else line))


@config_command.command("schema")
def schema() -> None:
    """Print the JSON schema of config.toml."""
    click.echo(json.dumps(config_schema(), indent=2))
