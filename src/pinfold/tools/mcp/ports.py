"""What MCP needs from the app, which puts the concrete things in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

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
