"""Protocols for what MCP needs, implemented by the app; limits on what a server may send and how long it may take."""

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
    """A server that communicates over its standard streams, inside or outside a sandbox."""

    @property
    def stdin(self) -> ByteSendStream: ...

    @property
    def stdout(self) -> ByteReceiveStream: ...

    @property
    def said(self) -> str:
        """The last part of its standard error, bounded."""
        ...

    async def wait_for_exit(self) -> int | None:
        """Wait until it ends; return its exit status, if known."""
        ...


class Pins(Protocol):
    """Stores the listing of each server that the user last agreed to, outside the agent's reach."""

    def get(self, server: str) -> Mapping[str, Json] | None: ...

    def put(self, server: str, manifest: Mapping[str, Json], /) -> None: ...

    def is_trusted(self, server: str) -> bool:
        """True if the user trusts the server's annotations."""
        ...


class Credentials(Protocol):
    """Stores OAuth tokens and registrations, one JSON text per server."""

    def get(self, server: str) -> str | None: ...

    def put(self, server: str, text: str | None, /) -> None: ...


class Person(Protocol):
    """Asks the user on behalf of a server while a call runs."""

    async def elicit(self, server: str, message: str, schema: Mapping[str, Json]) -> Mapping[str, Json] | None:
        """Return the filled-in form; None if the user declined."""
        ...

    async def open_page(self, server: str, url: str, why: str) -> bool:
        """Ask the user to open a page; return True if they agreed."""
        ...


class Sampler(Protocol):
    async def sample(
        self, server: str, messages: Sequence[Mapping[str, Json]], *, system: str, max_tokens: int
    ) -> tuple[str, str] | None:
        """Return a model's text and its name; None if policy or the user does not allow the request."""
        ...


@dataclass(kw_only=True)
class McpPorts:
    start_program: Callable[[ServerSpec], AbstractAsyncContextManager[Process]]
    """Runs a server for as long as the context lasts. Raises BadCall with what to fix."""
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
    """Maximum size of one message."""
    window_s: float = 10.0
    """The period in which unsolicited messages are counted."""
    unasked: int = 5_000
    unasked_bytes: int = 64 << 20
    streams: int = 50
    """Maximum number of event streams opened in one window."""
    tools: int = 1_000
    pages: int = 100
    questions: int = 8
    """Maximum number of open elicitation and sampling requests of a server."""
    start_s: float = 60.0
    """Time to start and list its tools; the server's own timeout applies if longer."""
    close_s: float = 2.0
    patience: float = 10.0
    """A call that reports progress may take this many times its timeout in all."""
    longest_s: float = 3600.0
    reread_s: float = 1.0
    """Minimum time between two readings of a server's tools."""
    quick_s: float = 10.0
    """A server that ends sooner than this counts as a quick failure, unless a call succeeded."""
    quick_failures: int = 3
    """Quick failures in a row after which the server is paused."""
    first_wait_s: float = 0.25
    """Wait after the second failure in a row; doubles with each further one."""
    first_pause_s: float = 30.0
    longest_pause_s: float = 600.0
    sign_in_s: float = 300.0

    def total_s(self, timeout_s: float) -> float:
        return max(timeout_s, min(timeout_s * self.patience, self.longest_s))


class Patience:
    """All timeouts for one server. None expires while the server itself waits for a person or a model."""

    def __init__(self) -> None:
        self._waits: dict[anyio.CancelScope, float] = {}
        """Each wait with the seconds that the server may be silent."""
        self._asking = 0

    @contextmanager
    def waiting(self, silent_s: float) -> Generator[anyio.CancelScope]:
        """Open a scope that is cancelled when the server is silent for this long."""
        with anyio.CancelScope() as scope:
            self._waits[scope] = silent_s
            self.renew(scope)
            try:
                yield scope
            finally:
                self._waits.pop(scope, None)

    def renew(self, scope: anyio.CancelScope) -> None:
        """Restart a timeout after a sign of life, which may also come after the wait has ended."""
        scope.deadline = math.inf if self._asking else anyio.current_time() + self._waits.get(scope, math.inf)

    def release(self, scope: anyio.CancelScope) -> None:
        """Remove a timeout whose wait succeeded; its scope continues without a limit."""
        del self._waits[scope]
        scope.deadline = math.inf

    @contextmanager
    def asking(self) -> Generator[None]:
        """Suspend all timeouts while the server waits for a person or a model."""
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
