"""`pinfold undo`, `redo` and `fork`: a session as it was, or twice."""

from __future__ import annotations

from typing import Any

import anyio
import click

from pinfold.app import SessionStore, connect, fork, list_lasting_effects, resume_options, rewound_in_words
from pinfold.app.clients.session_history import build_history, entries_on_disk
from pinfold.events import Entry, Redo, Rewind, SessionId, SessionRewound, Undo
from pinfold.front.cli.turn_output import show_notice
from pinfold.front.pages import rewind_page
from pinfold.text import first_line, presentable, presentable_line

_session = click.argument("session", default="last")


@click.command("undo")
@_session
@click.option(
    "--to", type=click.IntRange(min=0), metavar="CELL", help="Go back to the state after this cell; 0 is the start."
)
@click.option(
    "--turn", type=int, metavar="N", help="Go back to before this turn, what was said included; -1 is the last one."
)
@click.option(
    "--what",
    type=click.Choice(["all", "chat", "variables", "files"]),
    default="all",
    help="What goes back; all unless given. `chat` goes by turns.",
)
def undo_command(session: str, to: int | None, turn: int | None, what: Any) -> int:
    """Take back the last cell of a session: its variables, and the files of the workspace.

    SESSION is an id, the beginning of one, a name, or `last`. What you changed in the files yourself stays.
    """
    if turn is not None and to is not None:
        raise click.UsageError("--to and --turn are two ways to say how far; give one of them")
    if turn is None and what == "chat":
        raise click.UsageError("the chat goes back by turns: add --turn N, -1 for the last one")
    found, folder = SessionStore().find(session)
    if turn is not None:
        return anyio.run(_run_rewind, found, _make_rewind(found, turn, what))
    for effect in list_lasting_effects(folder, found, to):
        words = f"pinfold: this stays, it cannot be undone: {first_line(presentable(effect), 200)}"
        click.echo(words, err=True)
    return anyio.run(_run_rewind, found, Undo(to=to, what=what))


@click.command("redo")
@_session
def redo_command(session: str) -> int:
    """Take the last undo of a session back, if no cell has run since."""
    found, _ = SessionStore().find(session)
    return anyio.run(_run_rewind, found, Redo())


@click.command("fork")
@click.argument("session")
@click.option("--title", help="A name for the new session.")
def fork_command(session: str, title: str | None) -> None:
    """Begin a second session where SESSION is now: with its story and its variables, in the same workspace."""
    shelf = SessionStore()
    found, _ = shelf.find(session)
    new, damage = anyio.run(fork, shelf, found, title)
    if damage:
        click.echo(presentable_line(f"pinfold: the log is damaged: {damage}; the rest was copied"), err=True)
    click.echo(new)


def _make_rewind(session: SessionId, number: int, what: Any) -> Rewind:
    story = build_history(session, entries_on_disk(session))
    chosen = story.turn(number)
    for line in rewind_page(story, chosen, what):
        click.echo(line, err=True)
    return Rewind(turn=chosen.id, what=what)


async def _run_rewind(session: SessionId, command: Undo | Rewind | Redo) -> int:
    folder = SessionStore().folder_of(session)
    async with connect(folder, session, resume_options(session, folder, None, {})) as link:
        after = (await link.status()).seq
        async with link.subscribe(after) as feed:
            await link.submit(command)
            async for item in feed:
                if not isinstance(item, Entry):
                    continue
                show_notice(item)
                if isinstance(item.event, SessionRewound):
                    click.echo(presentable(rewound_in_words(item.event)))
                    return 0
    return 1
