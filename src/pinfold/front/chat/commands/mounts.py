"""/add and /data: more of the host's for a session that is under way, by the rules of --mount and --data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import anyio.to_thread

from pinfold.app import check_paths, mounts_of, parse_named_paths
from pinfold.app.session.options import refuse_overlap
from pinfold.front.chat.commands.output import BadArguments, require_idle, write_note

if TYPE_CHECKING:
    from pinfold.front.chat.commands.context import ChatContext


async def add_command(talk: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("which path? /add PATH, or /add PATH:rw to let code write there")
    await require_idle(talk, "/add")
    had = (await talk.link.status()).mounts
    given = [*(f"{path}:{'rw' if writable else 'ro'}" for path, writable in had.items()), _at_home(rest)]
    mounts = await anyio.to_thread.run_sync(mounts_of, given)
    refuse_overlap(mounts, talk.workspace)
    how = "code may write there, and undo does not cover it" if mounts[-1].writable else "code may read it"
    await talk.reopen(mounts=mounts)
    write_note(talk, f"adding {mounts[-1].path}: {how}")


async def data_command(talk: ChatContext, rest: str) -> None:
    if not rest:
        raise BadArguments("which path? /data PATH, or /data NAME=PATH; code reads it at /mnt/datasets/NAME")
    await require_idle(talk, "/data")
    had = (await talk.link.status()).data
    given = [*(f"{name}={path}" for name, path in had.items()), _at_home(rest)]
    data = await anyio.to_thread.run_sync(lambda: check_paths(parse_named_paths(given)))
    await talk.reopen(data=data)
    write_note(talk, f"adding {rest}: code may read it at /mnt/datasets/{[*data][-1]}")


def _at_home(text: str) -> str:
    """No shell has seen it."""
    return str(Path(text).expanduser()) if text.startswith("~") else text
