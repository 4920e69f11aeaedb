"""Servers of a session, passed on to a client of ours: their protocol word for word, their calls judged and on record."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias, cast

import anyio
from anyio.abc import TaskStatus
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_REQUEST

from pinfold.app.approving import Approve
from pinfold.app.errors import ConfigError
from pinfold.app.mcp.servers import SessionServers
from pinfold.app.offered import Offered
from pinfold.events import CallTool
from pinfold.text import capped
from pinfold.tools import BadCall
from pinfold.tools.mcp.limits import Limits
from pinfold.tools.mcp.lines import LATEST, Line, Peer, Speech
from pinfold.tools.mcp.relays import relaying
from pinfold.tools.results import Result

__all__ = ["LATEST", "Exported", "Line", "Peer", "Speech", "Upstream", "judged"]
Forward: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
_TOLD = 10_000
"""Characters of a result that are on record."""


class Exported:
    """A line that is held, and what of it may be passed on."""

    def __init__(self, server: str, line: Line, agreed: frozenset[str]) -> None:
        self.server = server
        self.line = line
        self.agreed = agreed

    @property
    def tools(self) -> list[dict[str, Any]]:
        """As the server tells them, of those the user agreed to."""
        return [dict(one) for one in self.line.listed if one.get("name") in self.agreed]

    async def every(self, method: str, key: str) -> list[Mapping[str, Any]]:
        return await self.line.every(method, key, Limits())


class Upstream:
    """The lines of one client, or of all clients where one cannot be told from another."""

    def __init__(self, offered: Offered) -> None:
        self._offered = offered
        self._held: dict[str, Exported] = {}
        self._opening = anyio.Lock()

    @property
    def is_gone(self) -> bool:
        return self._offered.gone.is_set()

    @property
    def offered(self) -> Offered:
        return self._offered

    async def held(self, server: str, speech: Speech, peer: Peer) -> Exported:
        """One that lasts as long as the session, made again if it ended. Raises BadCall, MCPError."""
        async with self._opening:
            known = self._held.get(server)
            if known is None or known.line.over.event.is_set():
                known = await self._offered.tasks.start(self._hold, server, speech, peer)
            return known

    @asynccontextmanager
    async def own(self, server: str, speech: Speech, peer: Peer) -> AsyncGenerator[Exported]:
        """One for a single request."""
        async with self._line(server, speech, peer) as (line, agreed):
            yield Exported(server, line, agreed)

    def _line(
        self, server: str, speech: Speech, peer: Peer
    ) -> AbstractAsyncContextManager[tuple[Line, frozenset[str]]]:
        return self._servers().line(server, speech, peer)

    async def _hold(
        self, server: str, speech: Speech, peer: Peer, *, task_status: TaskStatus[Exported]
    ) -> None:
        made: Exported | None = None
        try:
            async with self._line(server, speech, peer) as (line, agreed):
                self._held[server] = made = Exported(server, line, agreed)
                task_status.started(made)
                await line.over.event.wait()
        except Exception:
            if made is None:
                raise  # to whoever asked for it
            made.line.over.end("the connection failed")
        finally:
            self._held.pop(server, None)

    def is_remote(self, server: str) -> bool:
        """Whether a connection costs no process."""
        spec = self._servers().spec(server)
        return spec is not None and spec.transport != "stdio"

    def _servers(self) -> SessionServers:
        servers = self._offered.live.servers
        if servers is None:
            raise ConfigError("no MCP server is configured; `pinfold mcp add` adds one")
        return servers


def names_of(offered: Offered) -> tuple[str, ...]:
    servers = offered.live.servers
    return servers.names if servers else ()


async def judged(
    offered: Offered, exported: Exported, tool: str, args: Mapping[str, Any], forward: Forward, approve: Approve | None
) -> dict[str, Any]:
    """What the server answers, if policy lets it be asked. Raises MCPError, and PinfoldError with why not."""
    answer: dict[str, Any] | None = None
    refusal: MCPError | None = None

    async def relay(agreed: str) -> Result:
        nonlocal answer, refusal
        entry = exported.line.manifest.entries.get(tool)
        if tool not in exported.agreed or entry is None or entry.digest != agreed:
            raise BadCall(
                f"{exported.server} describes it otherwise than when the user agreed to it; nothing was called"
            )
        try:
            answer = await forward()
        except MCPError as error:
            refusal = error
            raise BadCall(error.error.message) from error
        text = _text(answer)
        if answer.get("isError") is True:
            raise BadCall(text)
        return Result(text=text)

    action = CallTool(tool=f"{exported.server}.{tool}", args=dict(args))
    with offered.in_use(), offered.asking(action.tool, approve), relaying(relay):
        done = await offered.live.act_beside(action)
    if answer is not None:
        return answer
    if refusal is not None:
        raise refusal
    words = done.observation.removeprefix(f"{action.tool} failed: ")
    raise MCPError(code=INVALID_REQUEST, message=capped(words, _TOLD))


def _text(answer: Mapping[str, Any]) -> str:
    parts: list[str] = []
    content: Any = answer.get("content")
    for one in cast("list[Any]", content) if isinstance(content, list) else []:
        match one:
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": str(kind)}:
                parts.append(f"[{kind}]")
            case _:
                pass
    return capped("\n".join(parts) or f"[{answer.get('resultType', 'complete')}]", _TOLD)
