"""Sending one command to a session and following what comes of it, wherever the session lives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from msgspec import Struct

from pinfold.app.errors import OwnerGone
from pinfold.app.live import Standing
from pinfold.app.owner import Link
from pinfold.events import Command, Delta, Entry

Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Link]]
_TRIES = 20
"""How often an owner may leave just as we come in."""


class Spoken(Struct, frozen=True, kw_only=True):
    link: Link
    standing: Standing
    """Before the command."""
    command: Command
    feed: AsyncIterator[Entry | Delta]
    """From there on."""


@asynccontextmanager
async def spoken(opening: Opening, command_for: Callable[[Standing], Command]) -> AsyncGenerator[Spoken]:
    """Open the session, subscribe, and submit; start over if its owner leaves before it has taken the command."""
    for attempt in range(1, _TRIES + 1):
        async with AsyncExitStack() as stack:
            try:
                link = await stack.enter_async_context(opening())
                standing = await link.standing()
                feed = await stack.enter_async_context(link.subscribe(standing.seq))
                command = command_for(standing)
                await link.submit(command)
            except OwnerGone:
                if attempt == _TRIES:
                    raise
                continue
            yield Spoken(link=link, standing=standing, command=command, feed=feed)
            return
