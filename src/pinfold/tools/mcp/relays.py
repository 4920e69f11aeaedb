"""A call that is judged and recorded as any, while somebody else carries it to the server word for word."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

from pinfold.tools.results import Result

Relay: TypeAlias = Callable[[str], Awaitable[Result]]
"""Given the digest of what the user agreed to. Raises BadCall."""
_relay: ContextVar[Relay | None] = ContextVar("relay", default=None)


@contextmanager
def relaying(relay: Relay) -> Generator[None]:
    """Calls of servers' tools that this task makes go this way instead of over the session's own connection."""
    token = _relay.set(relay)
    try:
        yield
    finally:
        _relay.reset(token)


def relay_now() -> Relay | None:
    return _relay.get()
