"""The MCP servers of one session: their tools in its registry, held to what the user agreed to.

Nothing of them is started before code imports one or a tool is called.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from pinfold.app.errors import ConfigError
from pinfold.app.mcp.asking import Answer, ForTheUser
from pinfold.app.mcp.credentials import KeptCredentials
from pinfold.app.mcp.files import Named
from pinfold.app.mcp.pins import FilePins
from pinfold.app.mcp.placing import is_boxed
from pinfold.app.mcp.programs import Programs
from pinfold.app.tasks import background
from pinfold.engine import Performed
from pinfold.events import CallTool
from pinfold.sandbox import Limits, Provider
from pinfold.tools import Registry, Tool
from pinfold.tools.mcp.manifest import Difference
from pinfold.tools.mcp.ports import Person, Sampler
from pinfold.tools.mcp.servers import Servers
from pinfold.tools.mcp.spec import ServerSpec

logger = logging.getLogger(__name__)
_SPARE = 100
"""Lines for the user that wait to be recorded."""


class SessionServers:
    def __init__(self, named: Named, servers: Servers, asking: ForTheUser) -> None:
        self._specs = {spec.name: spec for spec in named.specs}
        self._servers = servers
        self._asking = asking
        self._registry: Registry | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return self._servers.names

    def spec(self, name: str) -> ServerSpec | None:
        return self._specs.get(name)

    def register(self, registry: Registry) -> None:
        """From now on it knows what each server offers; of one that was never seen, nothing yet."""
        self._registry = registry
        for name in self.names:
            self.changed(name)

    def changed(self, name: str) -> None:
        """What a server offers is not what it was."""
        if self._registry is None:
            return
        try:
            found = self._servers.pinned_tools(name) or ()
        except ConfigError as error:  # what was agreed to cannot be read: nothing was
            logger.warning("%s: %s", name, error)
            found = ()
        self._registry.put(name, tuple(map(self._wrapped, found)))

    async def tools(self, name: str) -> tuple[Tool[..., Any], ...]:
        """What it offers, started for it if need be. Raises BadCall."""
        with self._asking.during(name):
            await self._servers.tools(name)
        registry = self._registry
        assert registry is not None
        return tuple(
            tool for one in registry.names if (tool := registry.get(one)) and tool.server == name
        )

    async def close(self) -> None:
        await self._servers.close()

    # For policy

    def leaves(self, server: str) -> bool:
        """Whether what a call gives it may leave this machine."""
        spec = self._specs[server]
        return not is_boxed(spec) or bool(spec.hosts)

    def difference(self, server: str) -> Difference:
        return self._servers.difference(server)

    def samples(self, action: CallTool) -> bool:
        return self._asking.samples(action)

    async def sampled(self, action: CallTool) -> Performed:
        return await self._asking.sampled(action)

    def _wrapped(self, tool: Tool[..., Any]) -> Tool[..., Any]:
        """As an action of this session: the server may ask meanwhile, and what was held has been agreed to by now."""

        async def called(**arguments: Any) -> Any:
            with self._asking.during(tool.server):
                if tool.held:
                    self._servers.accept(tool.server)
                return await tool.function(**arguments)

        # How far a call goes is for policy to say of a server as a whole.
        return replace(tool, function=called, reach="outside")


@asynccontextmanager
async def servers_of(
    named: Named,
    *,
    workspace: Path,
    provider: Callable[[], Awaitable[Provider]],
    limits: Limits,
    answer: Answer,
    notice: Callable[[str], Awaitable[None]],
) -> AsyncGenerator[SessionServers | None]:
    """None where none is named: then nothing of this is loaded."""
    if not named.specs:
        yield None
        return
    said, heard = anyio.create_memory_object_stream[str](_SPARE)
    asking = ForTheUser(answer)
    made: list[SessionServers] = []

    def changed(name: str) -> None:
        for one in made:
            one.changed(name)

    def told(line: str) -> None:
        try:
            said.send_nowait(line)
        except anyio.WouldBlock:
            logger.warning("%s", line)

    async def tell() -> None:
        async for line in heard:
            await notice(line)

    servers = connections(
        named.specs,
        programs=Programs(workspace, provider, limits),
        person=asking,
        sampler=asking,
        roots=(workspace,),
        on_changed=changed,
        notice=told,
    )
    async with heard, said, background() as tasks:
        tasks.start_soon(tell)
        async with servers:
            made.append(SessionServers(named, servers, asking))
            yield made[0]


def connections(
    specs: Sequence[ServerSpec],
    *,
    programs: Programs,
    person: Person,
    sampler: Sampler,
    roots: Sequence[Path],
    on_changed: Callable[[str], None],
    notice: Callable[[str], None],
) -> Servers:
    """The servers with what they are known by: pins and credentials of the user's."""
    return Servers(
        specs,
        programs=programs,
        pins=FilePins(specs),
        credentials=KeptCredentials(specs),
        person=person,
        sampler=sampler,
        roots=roots,
        on_changed=on_changed,
        notice=notice,
    )

