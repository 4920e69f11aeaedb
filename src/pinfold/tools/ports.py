"""Protocols for what tools need; the app provides the implementations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from pinfold.events import Sent


class Ran(Protocol):
    """How a program ended."""

    @property
    def status(self) -> Literal["ok", "error", "timeout"]: ...

    @property
    def code(self) -> int | None: ...

    @property
    def stdout(self) -> bytes: ...

    @property
    def stderr(self) -> bytes: ...

    @property
    def dropped_bytes(self) -> int: ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What the sandbox did about it, such as rolling back, one line each."""
        ...


class Inside(Protocol):
    """The session: a program that runs here can reach exactly what the session's code can."""

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a program and wait for it. `python3` is the interpreter of the cells."""
        ...


Kept: TypeAlias = Callable[[str], bytes | None]
"""Returns the whole of a result that was too long to show, by its handle."""


class Host(Protocol):
    """The user's own machine, outside the sandbox. Policy has already allowed each command."""

    async def run(self, command: str, *, workdir: str, timeout_s: float) -> Ran: ...


class Fetched(Struct, frozen=True, kw_only=True):
    """An HTTP response."""

    status: int
    url: str
    """The final URL, after redirects."""
    mime: str
    """The content type header, parameters included."""
    body: bytes
    is_cut: bool
    """True if the body was longer than the limit."""
    sent: tuple[Sent, ...]


class Web(Protocol):
    """Other machines, as far as policy allows."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Fetched:
        """Send a request; `headers` go to the host of `url` only. Raises BadCall with a message for the model."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """The ports of declared tools; a call that needs a missing one reports it."""

    inside: Inside | None = None
    web: Web | None = None
    secret: Callable[[str, str], str | None] | None = None
    """Returns a secret by name and host, if the user has set it for that host."""
