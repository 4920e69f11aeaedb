"""What tools and MCP need from the app, which puts the concrete things in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from anyio.abc import ByteReceiveStream, ByteSendStream
from msgspec import Struct

from pinfold.events import Json, Sent
from pinfold.tools.mcp.spec import ServerSpec


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


class Kept(Protocol):
    """Results that were too long to be shown whole."""

    def get(self, handle: str) -> bytes | None: ...


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


class Secrets(Protocol):
    async def secret(self, name: str, host: str) -> str | None:
        """Its value, if the user has set it for this host."""
        ...


class Ports(Struct, frozen=True, kw_only=True):
    """What declared tools run with; a missing one is reported when it is needed."""

    inside: Inside | None = None
    web: Web | None = None
    secrets: Secrets | None = None


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

    @property
    def where(self) -> str:
        """For the user: `this machine`, or the name of the sandbox."""
        ...

    async def wait_for_exit(self) -> int | None:
        """Wait for its end; its exit status, where that is known."""
        ...


class Programs(Protocol):
    def start(self, spec: ServerSpec) -> AbstractAsyncContextManager[Process]:
        """Run it for as long as the context lasts. Raises BadCall with what to mend."""
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
    programs: Programs
    pins: Pins
    credentials: Credentials
    person: Person
    sampler: Sampler
    roots: Sequence[Path]
    on_changed: Callable[[str], None]
    """Called with the name of a server whose tools changed."""
    notice: Callable[[str], None]
    """One line for the user."""
