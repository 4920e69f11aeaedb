"""`pinfold checkpoint`: commits of the workspace's files, made beside the user's own history."""

from __future__ import annotations

import anyio
import click

from pinfold.app import SessionStore, configure, connect, read_session, resume_options
from pinfold.app.session.checkpoints import checkpoints_in
from pinfold.events import plain_json
from pinfold.text import presentable_line

_session = click.option("-s", "--session", default="last", show_default=True, help="An id, its beginning, a name.")


@click.group("checkpoint")
def checkpoint_command() -> None:
    """Commits of the workspace's files after each cell that changed some, on a ref of their own.

    Your index, HEAD and branches are never touched. `[checkpoint] git = true` in the configuration turns them on for
    new sessions.
    """


@checkpoint_command.command("on")
@_session
def on(session: str) -> None:
    """Make checkpoints from the next cell on."""
    _set_checkpoints(session, on=True)


@checkpoint_command.command("off")
@_session
def off(session: str) -> None:
    """Make no more of them. Those that are there stay."""
    _set_checkpoints(session, on=False)


@checkpoint_command.command("list")
@_session
@click.option("--json", "as_json", is_flag=True, help="One JSON object per checkpoint.")
def list_(session: str, as_json: bool) -> None:
    """Number, time, commit and message of each."""
    found, folder = SessionStore().find(session)
    with read_session(folder, found) as (log, damage):
        made = checkpoints_in(log.read(damage=damage))
    if not made and not as_json:
        click.echo(f"{found} has no checkpoints; turn them on: pinfold checkpoint on -s {found}", err=True)
    for one in made:
        if as_json:
            row = {"number": one.number, "at": one.at, "message": one.message, "commit": one.commit}
            click.echo(plain_json(row))
        else:
            row = f"{one.number:>4}  {one.at[:19]}  {one.commit[:12]}  {one.message}"
            click.echo(presentable_line(row))


@checkpoint_command.command("restore")
@click.argument("number", type=click.IntRange(min=1))
@_session
def restore(number: int, session: str) -> None:
    """Bring the workspace's files back to checkpoint NUMBER. What is there now is kept in another one first."""
    found, folder = SessionStore().find(session)
    options = resume_options(found, folder, None, {})

    async def run_restore() -> str:
        async with connect(folder, found, options) as link:
            return await link.restore(number)

    click.echo(presentable_line(f"pinfold: {anyio.run(run_restore)}"), err=True)


def _set_checkpoints(session: str, *, on: bool) -> None:
    found, folder = SessionStore().find(session)

    async def apply_change() -> None:
        await configure(folder, found, checkpoints=on)

    anyio.run(apply_change)
    click.echo(f"pinfold: git checkpoints of {found} are {'on' if on else 'off'}", err=True)
