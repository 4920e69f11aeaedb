"""The MCP servers of one session: puts their tools, as the user agreed to them, into its registry.

A server is started only when code imports it or searches for tools, or when one of its tools is called.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import TYPE_CHECKING, Any

import anyio
from anyio.abc import TaskStatus
from msgspec.structs import replace

from pinfold.app.errors import ConfigError
from pinfold.app.session.mcp.credentials import StoredCredentials
from pinfold.app.session.mcp.files import CLIENT, NamedServers
from pinfold.app.session.mcp.pins import FilePins, identity, note_failure, note_success
from pinfold.app.session.mcp.programs import Programs
from pinfold.app.session.mcp.server_requests import ServerContext, ServerRequests
from pinfold.app.trust.mcp_reach import is_sandboxed
from pinfold.app.trust.project_files import SERVERS
from pinfold.events import Json, Noticed, PinfoldError
from pinfold.tools import AnyTool, BadCall, Registry, ToolError
from pinfold.tools.mcp.ports import McpPorts
from pinfold.tools.mcp.servers import Servers
from pinfold.tools.mcp.spec import ServerSpec

if TYPE_CHECKING:
    from pinfold.tools.mcp.passthrough import ClientHello, Line, Peer

logger = logging.getLogger(__name__)
_SPARE = 100
"""Most lines for the user that wait to be recorded."""


class SessionServers:
    def __init__(
        self, named: NamedServers, servers: Servers, asking: ServerRequests, notice: Callable[[str], None], project: str
    ) -> None:
        """`notice` takes a line for the user; `project` is the workspace's own file of servers."""
        self._project = project
        self._notice = notice
        self._specs = {spec.name: spec for spec in named.specs}
        self._servers = servers
        self._asking = asking
        self.names, self.difference = servers.names, servers.difference
        self.is_sampling, self.run_sampling = asking.is_sampling, asking.run_sampling
        self._registry: Registry | None = None
        self._known: set[str] = set()
        self._shown: dict[str, str] = {}

    def spec(self, name: str) -> ServerSpec | None:
        return self._specs.get(name)

    def register(self, registry: Registry) -> None:
        """Put the known tools of each server into the registry; there are none yet of a server never seen."""
        self._registry = registry
        for name in self.names:
            self.refresh_tools(name)

    def refresh_tools(self, name: str) -> None:
        """Update the registry to what the server offers now."""
        if self._registry is None:
            return
        try:
            found = self._servers.pinned_tools(name)
            if self._servers.status(name).state == "ready":
                note_success(name)
        except ConfigError as error:  # the pins cannot be read, so nothing counts as agreed to
            self._notice(str(error))
            found = None
        if found is not None:
            self._known.add(name)
        self._registry.put(name, tuple(map(self._wrap_tool, found or ())))

    def find_unknown(self) -> Sequence[str]:
        """Servers whose tools are unknown until they are started."""
        return tuple(name for name in self.names if name not in self._known)

    @asynccontextmanager
    async def line(
        self, name: str, hello: ClientHello, peer: Peer, *, like: Line | None = None
    ) -> AsyncGenerator[Line]:
        """Open a line as `Servers.line` does. Registers the tools of a server seen for the first time."""
        async with self._servers.line(name, hello, peer, like=like) as line:
            if self._registry and not any(one.startswith(f"{name}.") for one in self._registry.names):
                self.refresh_tools(name)
            yield line

    async def start_servers(self, *names: str) -> None:
        """Start servers concurrently and register their tools. A failure raises BadCall only if one server is named."""
        failed: list[ToolError] = []

        async def start(name: str) -> None:
            try:
                with self._asking.track_call(name), self._record_failures():
                    await self._servers.tools(name)
            except ToolError as error:
                failed.append(error)

        async with anyio.create_task_group() as tasks:
            for name in names:
                tasks.start_soon(start, name)
        if failed and len(names) == 1:
            raise failed[0]

    @contextmanager
    def _record_failures(self) -> Generator[None]:
        try:
            yield
        except ToolError:
            self.note_failures()
            raise

    def note_failures(self) -> None:
        for name in self.names:
            with suppress(ConfigError):
                status = self._servers.status(name)
                if status.why:
                    note_failure(name, status.why, status.retry_in_s)

    def list_status(self) -> list[Json]:
        """Return the status of each server, for the user."""
        found: list[Json] = []
        for name in self.names:
            try:
                status = self._servers.status(name)
                found.append({"name": name, "state": status.state, "tools": status.tools, "problem": status.why})
            except ConfigError as error:
                found.append({"name": name, "state": "failed", "tools": 0, "problem": str(error)})
        return found

    # For policy

    def leaves(self, tool: AnyTool) -> bool:
        """Return True if a call's arguments may leave this machine; even a tool that only reads gets arguments."""
        spec = self._specs[tool.server]
        return bool(spec.hosts) if is_sandboxed(spec) else tool.reach != "nothing"

    def mentions_untrusted_server(self, text: str) -> bool:
        """Return True if the text names a project's or editor's server whose descriptions the user has not trusted."""
        return any(
            spec.origin in (self._project, CLIENT) and re.search(rf"\b{name}\b", text) and not self._is_agreed_to(name)
            for name, spec in self._specs.items()
        )

    def _is_agreed_to(self, server: str) -> bool:
        with suppress(ConfigError):
            return self._servers.is_trusted(server)
        return False

    def identity(self, server: str) -> str:
        """Return a short identity; another program under the same name has a different one."""
        return identity(self._specs[server])[:8]

    def show_difference(self, server: str) -> str:
        """Return how a server has changed, for the user to decide. A yes covers exactly this change."""
        self._shown[server] = text = self.difference(server).text
        return text

    def _wrap_tool(self, tool: AnyTool) -> AnyTool:
        """Wrap a tool for this session: the server may send requests during a call; a held tool was approved before."""

        async def call_tool(**arguments: Any) -> Any:
            with self._asking.track_call(tool.server), self._record_failures():
                if tool.held:
                    if self._shown.get(tool.server) != self.difference(tool.server).text:
                        raise BadCall(f"{tool.server} has changed once more since it was agreed to; nothing was called")
                    self._servers.accept(tool.server)
                return await tool.function(**arguments)

        return replace(tool, function=call_tool)


async def serve(named: NamedServers, context: ServerContext, *, task_status: TaskStatus[SessionServers]) -> None:
    """Run the servers until the session ends."""
    said, heard = anyio.create_memory_object_stream[str](_SPARE)
    asking = ServerRequests(context)
    mine: SessionServers | None = None

    def on_tools_changed(name: str) -> None:
        if mine:
            mine.refresh_tools(name)

    def notify(line: str) -> None:
        if mine:
            mine.note_failures()
        try:
            said.send_nowait(line)
        except anyio.WouldBlock:
            logger.warning("%s", line)

    world = McpPorts(
        pins=FilePins(named.specs),
        credentials=StoredCredentials(named.specs),
        start_program=Programs(context.spec.workspace, context.provider, context.spec.limits).start,
        person=asking,
        sampler=asking,
        roots=(context.spec.workspace,),
        on_changed=on_tools_changed,
        notice=notify,
    )
    servers = Servers(named.specs, world)
    async with heard, said, servers:
        mine = SessionServers(named, servers, asking, notify, str(context.spec.workspace / SERVERS))
        task_status.started(mine)
        async for line in heard:
            try:
                await context.log.append(Noticed(text=line))
            except PinfoldError as error:  # a lost line must not end the session
                logger.warning("%s (not recorded: %s)", line, error)
