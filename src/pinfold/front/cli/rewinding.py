"""`pinfold undo`, `redo` and `fork`: a session as it was, or twice."""

from __future__ import annotations

from typing import Any

import anyio
import click

from pinfold.app import Shelf, attach, fork, resumed_options, rewound_in_words, what_stays
from pinfold.events import Entry, Redo, SessionId, SessionRewound, Undo
from pinfold.front.cli.showing import show_notice
from pinfold.text import first_line, presentable, presentable_line

_session = click.argument("session", default="last")


@click.command("undo")
@_session
@click.option(
    "--to",
    type=click.IntRange(min=0),
    metavar="CELL",
    help="Go back to the state after this cell; 0 is the start.",
)
@click.option(
    "--what",
    type=click.Choice(["all", "variables", "files"]),
    default="all",
    help="What goes back; all unless given.",
)
def undo_command(session: str, to: int | None, what: Any) -> int:
    """Take back the last cell of a session: its variables, and the files of the workspace.

    SESSION is an id, the beginning of one, a name, or `last`. What you changed in the files yourself stays.
    """
    found, folder = Shelf().find(session)
    for effect in what_stays(folder, found, to):
        words = f"pinfold: this stays, it cannot be undone: {first_line(presentable(effect), 200)}"
        click.echo(words, err=True)
    return anyio.run(_rewound, found, Undo(to=to, what=what))


@click.command("redo")
@_session
def redo_command(session: str) -> int:
    """Take the last undo of a session back, if no cell has run since."""
    found, _ = Shelf().find(session)
    return anyio.run(_rewound, found, Redo())


@click.command("fork")
@click.argument("session")
@click.option("--title", help="A name for the new session.")
def fork_command(session: str, title: str | None) -> None:
    """Begin a second session where SESSION is now: with its story and its variables, in the same workspace."""
    shelf = Shelf()
    found, _ = shelf.find(session)
    new, damage = anyio.run(fork, shelf, found, title)
    if damage:
        click.echo(presentable_line(f"pinfold: the log is damaged: {damage}; the rest was copied"), err=True)
    click.echo(new)


async def _rewound(session: SessionId, command: Undo | Redo) -> int:
    folder = Shelf().place(session)
    async with attach(folder, session, resumed_options(session, folder, None, {})) as link:
        after = (await link.standing()).seq
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
