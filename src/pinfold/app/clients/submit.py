"""Submit a command to a session, in this or another process, and follow its events to the command's end."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing, asynccontextmanager, suppress
from typing import TypeAlias

import anyio
from msgspec import Struct

from pinfold.app.errors import OwnerGone, TurnError
from pinfold.app.ownership.owner import Link
from pinfold.app.session.options import SessionStatus
from pinfold.engine import CommandRefused
from pinfold.events import (
    ActionFinished,
    ActionId,
    Command,
    Delta,
    DisplayRef,
    Entry,
    Event,
    Execute,
    Interrupt,
    Redo,
    Rewind,
    Say,
    SessionRewound,
    TurnEnded,
    TurnFailed,
    TurnId,
    TurnInterrupted,
    Undo,
)

Opening: TypeAlias = Callable[[], AbstractAsyncContextManager[Link]]
Target: TypeAlias = TurnId | ActionId
MAX_OWNER_CHANGES = 20
"""Retries when the owner exits while we connect."""
_STOP_S = 10.0
"""How long a cell or a turn may take to end after it was interrupted."""


class Submission(Struct, frozen=True, kw_only=True):
    link: Link
    feed: AsyncIterator[Entry | Delta]
    """Everything from the command on, up to the end of the turn or cell; without end for other commands."""
    target: Target | None
    """The turn or cell that the command begins or continues."""


@asynccontextmanager
async def submit_and_follow(
    opening: Opening, command_for: Callable[[SessionStatus], Command]
) -> AsyncGenerator[Submission]:
    """Connect, subscribe, submit. Retries if the owner exits before it accepts the command."""
    for attempt in range(1, MAX_OWNER_CHANGES + 1):
        async with AsyncExitStack() as stack:
            try:
                link = await stack.enter_async_context(opening())
                status = await link.status()
                feed = await stack.enter_async_context(link.subscribe(status.seq))
                command = command_for(status)
                await link.submit(command)
            except OwnerGone:
                if attempt == MAX_OWNER_CHANGES:
                    raise
                continue
            target = _target_of(command) or status.turn
            yield Submission(link=link, feed=until_end(feed, target), target=target)
            return


async def follow(link: Link, command: Command, after: int) -> AsyncGenerator[Entry | Delta]:
    """Submit a command and yield the events after `after`, up to its end.

    Use it with `aclosing`: a caller that leaves early or is cancelled interrupts the turn or cell, and waits for its end.
    """
    target = _target_of(command)
    async with link.subscribe(after) as feed:
        await link.submit(command)
        ended = False
        try:
            async for item in feed:
                ended = is_end(item, target)
                yield item
                if ended:
                    return
        finally:
            if target is not None and not ended:
                await stop(link, feed, target)


async def finish_turn(
    feed: AsyncGenerator[Entry | Delta], say: Say, show: Callable[[Entry | Delta], None] = lambda _: None
) -> tuple[TurnEnded, tuple[DisplayRef, ...]]:
    """Follow a turn; return its end and its displays. Raises TurnError if it ends without an answer."""
    displays: list[DisplayRef] = []
    async with aclosing(feed):
        async for item in feed:
            show(item)
            match event_of(item):
                case ActionFinished(displays=shown):
                    displays += shown
                case TurnEnded(turn=say.turn) as end:
                    return end, tuple(displays)
                case TurnFailed(turn=say.turn, error=words):
                    raise TurnError(words)
                case TurnInterrupted(turn=say.turn, reason=words):
                    raise TurnError(f"interrupted: {words}")
                case _:
                    pass
    raise TurnError("the session ended before the turn did")


async def rewind(link: Link, command: Undo | Redo | Rewind, after: int) -> SessionRewound:
    """Raises CommandRefused."""
    async with aclosing(follow(link, command, after)) as feed:
        async for item in feed:
            if isinstance(rewound := event_of(item), SessionRewound):
                return rewound
    raise TurnError("the session ended")


async def until_end(feed: AsyncIterator[Entry | Delta], target: Target | None) -> AsyncGenerator[Entry | Delta]:
    async for item in feed:
        yield item
        if is_end(item, target):
            return


async def stop(link: Link, feed: AsyncIterator[Entry | Delta], target: Target) -> None:
    """Interrupt a turn or cell and wait for its end, so that later commands do not queue behind it."""
    with anyio.CancelScope(shield=True), suppress(CommandRefused):
        await link.submit(Interrupt(target=target))
        with anyio.move_on_after(_STOP_S):
            async for _ in until_end(feed, target):
                pass


def event_of(item: Entry | Delta) -> Event | Delta:
    return item.event if isinstance(item, Entry) else item


def is_end(item: Entry | Delta, target: Target | None) -> bool:
    """True for the event that ends this turn or cell; for a rewind if there is no target."""
    match event_of(item):
        case ActionFinished(id=ended) | TurnEnded(turn=ended) | TurnFailed(turn=ended) | TurnInterrupted(turn=ended):
            return ended == target
        case SessionRewound():
            return target is None
        case _:
            return False


def _target_of(command: Command) -> Target | None:
    match command:
        case Say(turn=turn):
            return turn
        case Execute(id=id_):
            return id_
        case _:
            return None
