"""Sending one command to a session and following what comes of it, wherever the session lives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TypeAlias

from msgspec import Struct

from pinfold.app.errors import OwnerGone
from pinfold.app.ownership.owner import Link
from pinfold.app.session.live_session import SessionStatus
from pinfold.events import Command, Delta, Entry

Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Link]]
_TRIES = 20
"""How often an owner may leave just as we come in."""


class Submission(Struct, frozen=True, kw_only=True):
    link: Link
    standing: SessionStatus
    """Before the command."""
    command: Command
    feed: AsyncIterator[Entry | Delta]
    """From there on."""


@asynccontextmanager
async def submit_and_follow(
    opening: Opening, command_for: Callable[[SessionStatus], Command]
) -> AsyncGenerator[Submission]:
    """Open the session, subscribe, and submit; start over if its owner leaves before it has taken the command."""
    for attempt in range(1, _TRIES + 1):
        async with AsyncExitStack() as stack:
            try:
                link = await stack.enter_async_context(opening())
                standing = await link.status()
                feed = await stack.enter_async_context(link.subscribe(standing.seq))
                command = command_for(standing)
                await link.submit(command)
            except OwnerGone:
                if attempt == _TRIES:
                    raise
                continue
            yield Submission(link=link, standing=standing, command=command, feed=feed)
            return
