"""`pinfold config`: show and change settings."""

from __future__ import annotations

import json

import click

from pinfold.app import ConfigError, config_schema, current_folder, load_config
from pinfold.events import plain_json
from pinfold.front.cli.terminal import show, tell
from pinfold.front.progress import say

_FIRST_WORDS = """\
# To see all settings and their values: pinfold config show --origin
"""


@click.group("config")
def config_command() -> None:
    """Show the configuration, where it comes from, and change it."""


@config_command.command("show")
@click.option("--origin", is_flag=True, help="Also print where each value comes from.")
def show_settings(origin: bool) -> None:
    """Print every setting that applies in this folder."""
    loaded = load_config(current_folder())
    if loaded.notice:
        say(loaded.notice)
    for dotted, value, source in loaded.rows():
        line = f"{dotted} = {plain_json(value)}"
        show(f"{line:<40}  # {source}" if origin else line)


@config_command.command("get")
@click.argument("key")
def get(key: str) -> None:
    """Print one setting as it applies in this folder. Values other than text are printed as JSON."""
    from pinfold.app.config import value_of

    value, _ = value_of(key, current_folder())
    show(value if isinstance(value, str) else plain_json(value))


@config_command.command("set")
@click.argument("key")
@click.argument("value", required=False)
@click.option("--unset", is_flag=True, help="Remove KEY, so that the default applies.")
@click.option("--project", is_flag=True, help="Write to this folder's pinfold.toml instead of your config.toml.")
def set_(key: str, value: str | None, unset: bool, project: bool) -> None:
    """Set KEY, such as model.name, in your config.toml. Comments stay.

    VALUE is text, a number, true or false; a list is written A,B or ["A", "B"].
    """
    from pinfold.app.config import set_value

    if unset == (value is not None):
        raise click.UsageError("give either a VALUE or --unset")
    folder = current_folder() if project else None
    change = set_value(key, value, project=folder)
    if change.line:
        is_hidden = key.endswith(".password") and "${secret:" not in str(change.after)
        now = "(hidden)" if is_hidden else plain_json(change.after)
        tell(f"{change.path}, line {change.line}: {key} = {now}")
    else:
        was = "is no longer set there" if change.before is not None else "was not set there"
        tell(f"{change.path}: {key} {was}")
    if change.wins:
        say(f"{change.wins} also sets {key}, and takes precedence")
    if project:
        say(f"it applies once this folder is trusted: pinfold trust {folder}")


@config_command.command("path")
def path_() -> None:
    """Print the path of your config.toml, whether it exists or not."""
    from pinfold.app.config import config_file

    show(str(config_file()))


@config_command.command("edit")
def edit() -> None:
    """Edit your config.toml in $VISUAL or $EDITOR. It is saved only if it is valid."""
    from pinfold.app.config import config_file, replace_config

    path = config_file()
    before = path.read_bytes() if path.exists() else _FIRST_WORDS.encode()
    after = click.edit(before, extension=".toml")
    if after is None or after == before:
        tell("nothing was changed")
        return
    try:
        replace_config(after)
    except ConfigError as error:
        aside = path.with_name("config.toml.broken")
        aside.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        aside.touch(mode=0o600)
        aside.write_bytes(after)
        raise ConfigError(f"{error}; {path} is unchanged; your version is in {aside}") from error
    tell(f"{path} is changed")


@config_command.command("schema")
def schema() -> None:
    """Print the JSON schema of config.toml."""
    click.echo(json.dumps(config_schema(), indent=2))
