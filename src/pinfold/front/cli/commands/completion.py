"""`pinfold completion`: what makes a shell complete Pinfold's commands."""

from __future__ import annotations

from typing import Any

import click

_HOW = {
    "bash": 'eval "$(pinfold completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(pinfold completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "pinfold completion fish > ~/.config/fish/completions/pinfold.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
def completion_command(shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, sessions and models."""
    from click.shell_completion import get_completion_class

    from pinfold.front.cli.main import cli

    kind: Any = get_completion_class(shell)
    click.echo(kind(cli, {}, "pinfold", "_PINFOLD_COMPLETE").source())
