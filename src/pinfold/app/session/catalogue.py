"""Tells the guest, when it asks, what the package `servers` of a session contains. Calls no tool."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from pinfold.events import Json
from pinfold.sandbox import Answer
from pinfold.tools import AnyTool, Registry, ToolError
from pinfold.tools.stubs.modules import module_source
from pinfold.tools.stubs.shapes import module_names

if TYPE_CHECKING:
    from pinfold.app.session.mcp.servers import SessionServers

ASK = "servers"
"""The name the guest calls to ask; no tool has it."""
FOUND = 50
"""Most tools that one search returns."""
OWN_MODULES: Mapping[str, str] = {
    "filesystem": "Files of the workspace and of the data",
    "data": "Tables of any size",
    "web": "Pages of the web",
    "memory": "Notes that outlive the session",
    "project": "The plan, its tasks and the lab notebook",
    "skills": "Instructions for certain tasks, and functions that were kept as tools",
    "sql": "The user's databases, read only",
    "system": "Commands, packages, time, arithmetic, questions to the user",
    "agents": "Sub-agents that work on a fork of this session",
    "tools": "The user's own tools",
}

_WITHHELD = '"""Not told yet: `import servers.{0}; help(servers.{0})` asks the server what it has."""\n'


class Catalogue:
    def __init__(self, registry: Registry, late: SessionServers | None = None) -> None:
        self._registry = registry
        self._late = late
        """The MCP servers: some of their tools are not known before they are started."""
        self._written: dict[str, str] = {}
        self._writing = Lock()

    def write(self, folder: Path, is_met: bool) -> None:
        """Write the modules as files, for code that reads them. `is_met`: this session has read outside text."""
        with self._writing:  # calls of one cell arrive concurrently
            folder.mkdir(parents=True, exist_ok=True)
            if not self._written:  # files that another process left
                for stale in folder.glob("*.py"):
                    stale.unlink()
            for server, module in self._modules().items():
                source = _WITHHELD.format(module)
                is_shown = is_met or not self._late or not self._late.mentions_untrusted_server(server)
                if is_shown and self._registry.servers.get(server):
                    source = self._source(server)
                if self._written.get(module) != source:
                    file = folder / f"{module}.py"
                    file.write_text(source, encoding="utf-8", errors="backslashreplace")
                    file.chmod(0o644)  # the session of a root user runs under another uid
                    self._written[module] = source

    async def answer(self, args: Mapping[str, Json]) -> Answer:
        match args:
            case {"module": str(name)}:
                return await self._module(name)
            case {"search": str(words), "limit": int(limit)}:
                return await self._search(words, limit)
            case _:
                return Answer(status="ok", value=list(self._modules().values()))

    async def _module(self, name: str) -> Answer:
        servers = {module: server for server, module in self._modules().items()}
        if name not in servers:
            there = ", ".join(servers) or "none"
            return Answer(status="failed", value=f"no server is called {name!r}; there are {there}")
        server = servers[name]
        try:
            if self._late and server in self._late.find_unknown():
                await self._late.start_servers(server)
        except ToolError as error:
            return Answer(status="failed", value=str(error))
        return Answer(status="ok", value=self._source(server))

    def _source(self, server: str) -> str:
        return module_source(server, OWN_MODULES.get(server, ""), self._registry.servers.get(server, ()))

    async def _search(self, words: str, limit: int) -> Answer:
        if self._late and (unknown := self._late.find_unknown()):
            await self._late.start_servers(*unknown)
        from pinfold.tools.search import search

        tools: list[AnyTool] = [one for tools in self._registry.servers.values() for one in tools]
        return Answer(status="ok", value=search(words, tools, max(1, min(limit, FOUND))))

    def _modules(self) -> Mapping[str, str]:
        """Return the names of the modules by the names of their servers."""
        return module_names(list(self._registry.servers))
