"""`pinfold completion`, and the completion of sessions and models, which click cannot do by itself."""

from __future__ import annotations

from collections.abc import Callable

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class, get_completion_class

_MOST = 60


class _Fish(FishComplete):
    """Replaces commas in help texts: click's script for fish cuts them at the first one."""

    def format_completion(self, item: CompletionItem) -> str:
        words = item.help.replace(",", ";") if item.help else None
        return super().format_completion(CompletionItem(item.value, item.type, words))


add_completion_class(_Fish)


def with_completers(command: click.Command) -> click.Command:
    """Complete parameters named `session` or `model`, in the command and its subcommands."""
    for parameter in command.params:
        if completer := _COMPLETERS.get(parameter.name or ""):
            setattr(parameter, "shell_complete", completer)  # noqa: B010 - a method of the class, this instance's own
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_completers(below)
    return command


def _sessions(_: click.Context, incomplete: str) -> list[CompletionItem]:
    """Complete ids, with titles as their help; titles; and `last`."""
    from pinfold.app import SessionStore
    from pinfold.app.storage import list_nodes
    from pinfold.events import PinfoldError

    try:
        everyone = list_nodes(SessionStore())
    except PinfoldError:
        return []
    from pinfold.text import first_line, presentable

    by_id = [kin for kin in everyone if kin.id.startswith(incomplete)]
    found = [CompletionItem(str(kin.id), help=first_line(presentable(kin.title), 60)) for kin in by_id]
    if incomplete:  # only titles that need no quoting
        by_title = [kin for kin in everyone if kin.named and kin.title.startswith(incomplete)]
        found += [CompletionItem(kin.title, help=kin.id) for kin in by_title if _is_plain(kin.title)]
    if everyone and "last".startswith(incomplete):
        found.append(CompletionItem("last", help="the session used last"))
    return found[:_MOST]


def _is_plain(title: str, more: str = "") -> bool:
    return all(char.isalnum() or char in f"-_.{more}" for char in title)


def _models(_: click.Context, incomplete: str) -> list[CompletionItem]:
    from pinfold.app.models import list_model_names
    from pinfold.events import PinfoldError

    try:
        names = [name for name in list_model_names() if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names if _is_plain(name, "/:@+")]
    except PinfoldError:
        return []


_COMPLETERS: dict[str, Callable[[click.Context, str], list[CompletionItem]]] = {
    "session": _sessions,
    "sessions": _sessions,
    "model": _models,
}


_HOW = {
    "bash": 'eval "$(pinfold completion bash)"    # in ~/.bashrc',
    "zsh": 'eval "$(pinfold completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "pinfold completion fish > ~/.config/fish/completions/pinfold.fish",
}


@click.command("completion", epilog="\b\n" + "\n".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
@click.pass_context
def completion_command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options, sessions and models."""
    kind = get_completion_class(shell)
    assert kind is not None  # click has all three
    click.echo(kind(ctx.find_root().command, {}, "pinfold", "_PINFOLD_COMPLETE").source())
