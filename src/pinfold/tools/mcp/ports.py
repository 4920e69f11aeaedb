"""What MCP needs from the app, which puts the concrete things in; and limits on what a server may send and how long it may take."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream

from pinfold.events import Json
from pinfold.tools.mcp.spec import ServerSpec


class Process(Protocol):
    """A server that speaks over its standard streams, wherever it runs."""

    @property
    def stdin(self) -> ByteSendStream: ...

    @property
    def stdout(self) -> ByteReceiveStream: ...

    @property
    def said(self) -> str:
        """The end of what it wrote to standard error, bounded."""
        ...

    async def wait_for_exit(self) -> int | None:
        """Wait for its end; its exit status, where that is known."""
        ...


class Pins(Protocol):
    """What each server said it offers when the user last agreed, outside the agent's reach."""

    def get(self, server: str) -> Mapping[str, Json] | None: ...

    def put(self, server: str, manifest: Mapping[str, Json], /) -> None: ...

    def is_trusted(self, server: str) -> bool:
        """Whether the user has said that its annotations count."""
        ...


class Credentials(Protocol):
    """OAuth's tokens and registrations, one JSON text for each server."""

    def get(self, server: str) -> str | None: ...

    def put(self, server: str, text: str | None, /) -> None: ...


class Person(Protocol):
    """Answers for the user while a call runs."""

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """The form filled in; None: declined."""
        ...

    async def open_page(self, server: str, url: str, why: str) -> bool:
        """Have the user look at a page; whether they agreed."""
        ...


class Sampler(Protocol):
    async def sample(
        self, server: str, messages: Sequence[Mapping[str, Json]], *, system: str, max_tokens: int
    ) -> tuple[str, str] | None:
        """Text of a model and the model's name, if policy and user let the server ask; else None."""
        ...


@dataclass(kw_only=True)
class World:
    start_program: Callable[[ServerSpec], AbstractAsyncContextManager[Process]]
    """Runs a server for as long as the context lasts. Raises BadCall with what to mend."""
    pins: Pins
    credentials: Credentials
    person: Person
    sampler: Sampler
    roots: Sequence[Path]
    on_changed: Callable[[str], None]
    """Called with the name of a server whose tools changed."""
    notice: Callable[[str], None]
    """One line for the user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    frame_bytes: int = 16 << 20
    """Of one message."""
    window_s: float = 10.0
    """In which unasked messages are counted."""
    unasked: int = 5_000
    unasked_bytes: int = 64 << 20
    streams: int = 50
    """Event streams that may be opened in one window."""
    tools: int = 1_000
    pages: int = 100
    questions: int = 8
    """Requests a server may have open at once: elicitation, sampling, roots."""
    start_s: float = 60.0
    """To start and to list what it offers; at least the time its user gives a call."""
    close_s: float = 2.0
    patience: float = 10.0
    """A call that reports progress may take this many times its timeout in all."""
    longest_s: float = 3600.0
    reread_s: float = 1.0
    """At least, between two readings of a server's tools."""
    quick_s: float = 10.0
    """A server that ends sooner than this failed quickly, unless a call succeeded."""
    quick_failures: int = 3
    """In a row; then the server is paused."""
    first_wait_s: float = 0.25
    """After the second failure in a row; doubles with each."""
    first_pause_s: float = 30.0
    longest_pause_s: float = 600.0
    sign_in_s: float = 300.0

    def total_s(self, timeout_s: float) -> float:
        return max(timeout_s, min(timeout_s * self.patience, self.longest_s))


class Patience:
    """All waits for one server. None of them ends while a person or a model keeps the server waiting."""

    def __init__(self) -> None:
        self._waits: dict[anyio.CancelScope, float] = {}
        """Each with the seconds that the server may be silent."""
        self._asking = 0

    @contextmanager
    def waiting(self, silent_s: float) -> Generator[anyio.CancelScope]:
        """The scope is cancelled when the server gave no sign of life for so long."""
        with anyio.CancelScope() as scope:
            self._waits[scope] = silent_s
            self.renew(scope)
            try:
                yield scope
            finally:
                self._waits.pop(scope, None)

    def renew(self, scope: anyio.CancelScope) -> None:
        """The server gave a sign of life, perhaps after the wait has ended."""
        scope.deadline = math.inf if self._asking else anyio.current_time() + self._waits.get(scope, math.inf)

    def release(self, scope: anyio.CancelScope) -> None:
        """The wait succeeded; its scope goes on without a limit."""
        del self._waits[scope]
        scope.deadline = math.inf

    @contextmanager
    def asking(self) -> Generator[None]:
        """A person or a model keeps the server waiting."""
        self._asking += 1
        self._renew_all()
        try:
            yield
        finally:
            self._asking -= 1
            self._renew_all()

    def _renew_all(self) -> None:
        for scope in self._waits:
            self.renew(scope)
