"""`pinfold undo`, `redo`, `fork` and `checkpoint`: go back, or branch off."""

from __future__ import annotations

from contextlib import aclosing
from typing import cast

import anyio
import click

from pinfold.app import (
    SessionStore,
    configure,
    connect,
    event_of,
    follow,
    fork,
    list_lasting_effects,
    read_session,
    resume_options,
    rewound_in_words,
)
from pinfold.app.clients import build_history, entries_on_disk
from pinfold.app.session import checkpoints_in
from pinfold.events import Configure, Redo, Rewind, Rewindable, SessionId, SessionRewound, Undo, What
from pinfold.front.cli.terminal import show_rows, tell
from pinfold.front.cli.turn_streams import show_notice
from pinfold.front.pages import rewind_page
from pinfold.text import first_line, presentable

_session = click.argument("session", default="last")


@click.command("undo")
@_session
@click.option(
    "--to", type=click.IntRange(min=0), metavar="CELL", help="Go back to the state after this cell; 0: the start."
)
@click.option("--turn", type=int, metavar="N", help="Go back to before this turn, and forget it; -1 is the last.")
@click.option(
    "--what",
    type=click.Choice(["all", "chat", "variables", "files"]),
    default="all",
    help="What to undo. `chat` needs --turn.",
)
def undo_command(session: str, to: int | None, turn: int | None, what: Rewindable) -> int:
    """Undo the last cell of a session: its changes to variables and to files of the workspace.

    SESSION is an id, the start of one, a name, or `last`. Your own changes to files stay.
    """
    if turn is not None and to is not None:
        raise click.UsageError("--to and --turn cannot be combined")
    if turn is None and what == "chat":
        raise click.UsageError("--what chat needs --turn N; -1 is the last turn")
    found, folder = SessionStore().find(session)
    if turn is not None:
        history = build_history(found, entries_on_disk(found))
        chosen = history.turn(turn)
        for line in rewind_page(history, chosen, what):
            click.echo(line, err=True)
        return anyio.run(_run_rewind, found, Rewind(turn=chosen.id, what=what))
    for effect in list_lasting_effects(folder, found, to):
        tell(f"pinfold: cannot be undone: {first_line(presentable(effect), 200)}")
    return anyio.run(_run_rewind, found, Undo(to=to, what=cast(What, what)))


@click.command("redo")
@_session
def redo_command(session: str) -> int:
    """Reverse the last undo of a session, if no cell has run since."""
    found, _ = SessionStore().find(session)
    return anyio.run(_run_rewind, found, Redo())


@click.command("fork")
@click.argument("session")
@click.option("--title", help="A name for the new session.")
def fork_command(session: str, title: str | None) -> None:
    """Start a second session from where SESSION is: same conversation and variables, in the same folder."""
    store = SessionStore()
    found, _ = store.find(session)
    new, damage = anyio.run(fork, store, found, title)
    if damage:
        tell(f"pinfold: the log is damaged: {damage}; the rest was copied")
    click.echo(new)


async def _run_rewind(session: SessionId, command: Undo | Rewind | Redo) -> int:
    folder = SessionStore().folder_of(session)
    async with (
        connect(folder, session, resume_options(session, folder, None, {})) as link,
        aclosing(follow(link, command, (await link.status()).seq)) as feed,
    ):
        async for item in feed:
            show_notice(item)
            if isinstance(rewound := event_of(item), SessionRewound):
                click.echo(presentable(rewound_in_words(rewound)))
                return 0
    return 1


_session_option = click.option(
    "-s", "--session", default="last", show_default=True, help="An id, the start of one, or a name."
)


@click.group("checkpoint")
def checkpoint_command() -> None:
    """Commit the workspace's files after each cell that changes any, on a separate git ref.

    Your index, HEAD and branches are never touched. `[checkpoint] git = true` turns this on for new sessions.
    """


@checkpoint_command.command("on")
@_session_option
def on(session: str) -> None:
    """Make checkpoints, starting with the next cell."""
    _set_checkpoints(session, on=True)


@checkpoint_command.command("off")
@_session_option
def off(session: str) -> None:
    """Stop making checkpoints. Existing ones stay."""
    _set_checkpoints(session, on=False)


@checkpoint_command.command("list")
@_session_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per checkpoint.")
def list_(session: str, as_json: bool) -> None:
    """List checkpoints: number, time, commit, message."""
    found, folder = SessionStore().find(session)
    with read_session(folder, found) as (log, damage):
        made = checkpoints_in(log.read(damage=damage))
    rows = ((one, f"{one.number:>4}  {one.at[:19]}  {one.commit[:12]}  {one.message}") for one in made)
    nothing = f"{found} has no checkpoints; turn them on: pinfold checkpoint on -s {found}"
    show_rows(rows, as_json=as_json, nothing=nothing)


@checkpoint_command.command("restore")
@click.argument("number", type=click.IntRange(min=1))
@_session_option
def restore(number: int, session: str) -> None:
    """Restore the workspace's files from checkpoint NUMBER. The current files are saved in a checkpoint first."""
    found, folder = SessionStore().find(session)
    options = resume_options(found, folder, None, {})

    async def run_restore() -> str:
        async with connect(folder, found, options) as link:
            return await link.restore(number)

    tell(f"pinfold: {anyio.run(run_restore)}")


def _set_checkpoints(session: str, *, on: bool) -> None:
    found, folder = SessionStore().find(session)
    anyio.run(configure, folder, found, Configure(checkpoints=on))
    tell(f"pinfold: git checkpoints of {found} are {'on' if on else 'off'}")
