"""What tools need from the app, which puts the concrete things in."""

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
        """What was done about it, a line each."""
        ...


class Inside(Protocol):
    """The session: what runs here can reach exactly what its code can."""

    async def command(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float,
        stdin: bytes = b"",
        workdir: str = "",
        env: Mapping[str, str] | None = None,
    ) -> Ran:
        """Run a program and wait for it. `python3` is the one the cells run in."""
        ...


Kept: TypeAlias = Callable[[str], bytes | None]
"""A result that was too long to be shown whole, by its handle."""


class Host(Protocol):
    """The user's own machine, outside the sandbox. Whether a command may run there was decided before."""

    async def run(self, command: str, *, workdir: str, timeout_s: float) -> Ran: ...


class Fetched(Struct, frozen=True, kw_only=True):
    """What a server answered."""

    status: int
    url: str
    """Where it came from in the end."""
    mime: str
    """The content type as the server gave it, parameters included."""
    body: bytes
    is_cut: bool
    """There was more of the body than was asked for."""
    sent: tuple[Sent, ...]


class Web(Protocol):
    """Other machines, as far as policy allows."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Fetched:
        """Raises BadCall with words for the model. `headers` go to the host of `url` and to no other."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """What declared tools run with; a missing one is reported when it is needed."""

    inside: Inside | None = None
    web: Web | None = None
    secret: Callable[[str, str], str | None] | None = None
    """The value of a secret by its name, if the user has set it for this host."""
