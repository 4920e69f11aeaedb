"""What a shell could go on with where click itself does not know: sessions and models."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem, FishComplete, add_completion_class

if TYPE_CHECKING:
    from pinfold.app.storage.session_store import SessionNode

_MOST = 60


class _Fish(FishComplete):
    """Click's script for it cuts an item's words at the first comma."""

    def format_completion(self, item: CompletionItem) -> str:
        words = item.help.replace(",", ";") if item.help else None
        return super().format_completion(CompletionItem(item.value, item.type, words))


add_completion_class(_Fish)


def with_completers(command: click.Command) -> click.Command:
    """Each argument that is a session or a model by its name completes as one, in the command and those below it."""
    for parameter in command.params:
        if completer := _COMPLETERS.get(parameter.name or ""):
            setattr(parameter, "shell_complete", completer)  # noqa: B010 - a method of the class, this instance's own
    if isinstance(command, click.Group):
        for below in command.commands.values():
            with_completers(below)
    return command


def export_formats() -> tuple[str, ...]:
    from pinfold.front.cli.commands.export_import import export_command

    for parameter in export_command.params:
        if isinstance(parameter.type, click.Choice):
            return tuple(map(str, parameter.type.choices))
    return ()


def _sessions(_: click.Context, incomplete: str) -> list[CompletionItem]:
    """By id, each with its title; by title where one begins so. Sessions that cannot be looked at are not offered."""
    from pinfold.app import SessionStore
    from pinfold.app.storage.session_store import list_nodes
    from pinfold.events import PinfoldError

    try:
        everyone = list_nodes(SessionStore())
    except PinfoldError:
        return []
    found = [*_by_id(everyone, incomplete), *_by_title(everyone, incomplete)]
    if everyone and "last".startswith(incomplete):
        found.append(CompletionItem("last", help="the one used last"))
    return found[:_MOST]


def _by_id(everyone: list[SessionNode], incomplete: str) -> Iterator[CompletionItem]:
    from pinfold.text import first_line, presentable

    for kin in everyone:
        if kin.id.startswith(incomplete):
            yield CompletionItem(kin.id, help=first_line(presentable(kin.title), 60))


def _by_title(everyone: list[SessionNode], incomplete: str) -> Iterator[CompletionItem]:
    """Only where a shell can take it as it is: quoting is each shell's own."""
    for kin in everyone:
        if incomplete and kin.named and kin.title.startswith(incomplete) and _is_plain(kin.title):
            yield CompletionItem(kin.title, help=kin.id)


def _is_plain(title: str, more: str = "") -> bool:
    return all(char.isalnum() or char in f"-_.{more}" for char in title)


def _models(_: click.Context, incomplete: str) -> list[CompletionItem]:
    from pinfold.app.models.local_models import list_model_names
    from pinfold.events import PinfoldError

    try:
        names = [name for name in list_model_names() if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names if _is_plain(name, "/:@+")]
    except PinfoldError:
        return []


_COMPLETERS: dict[str, Any] = {"session": _sessions, "sessions": _sessions, "model": _models}
