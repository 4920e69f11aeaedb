"""Pass a session's MCP servers on to a client: the protocol unchanged, each call judged by policy and logged."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias, cast

import anyio
from anyio.abc import TaskStatus
from mcp.shared.exceptions import MCPError

from pinfold.app.clients.client_session import ClientSession
from pinfold.app.errors import ConfigError
from pinfold.app.session.approvals import Approve
from pinfold.app.session.mcp.servers import SessionServers
from pinfold.engine import CommandRefused
from pinfold.events import CallTool, Json, new_action_id
from pinfold.text import cap_text
from pinfold.tools import BadCall
from pinfold.tools.mcp.passthrough import ClientHello, Line, Peer
from pinfold.tools.mcp.servers import relaying
from pinfold.tools.results import Result

Forward: TypeAlias = Callable[[], Awaitable[dict[str, object]]]
_TOLD = 10_000
"""Characters of a result that are logged."""


class Upstream:
    """The servers of one session, for one client, or for all clients if they cannot be distinguished."""

    def __init__(self, session: ClientSession) -> None:
        self.session = session
        self._held: dict[tuple[str, str], Line] = {}
        self._opening = anyio.Lock()

    @property
    def names(self) -> tuple[str, ...]:
        servers = self.session.live.servers
        return servers.names if servers else ()

    async def get_lasting_line(self, server: str, hello: ClientHello, peer: Peer) -> Line:
        """Return the connection that lasts as long as the session; reconnect if it ended. Raises BadCall, MCPError."""
        async with self._opening:
            known = self._held.get((server, hello.version))
            if known is None or known.over.event.is_set():
                known = await self.session.tasks.start(self._keep_line, server, hello, peer)
            return known

    def open_request_line(
        self, server: str, hello: ClientHello, peer: Peer, like: Line
    ) -> AbstractAsyncContextManager[Line]:
        """Open a connection for a single request."""
        return self._servers().line(server, hello, peer, like=like)

    async def _keep_line(self, server: str, hello: ClientHello, peer: Peer, *, task_status: TaskStatus[Line]) -> None:
        key, made = (server, hello.version), False
        try:
            async with self._servers().line(server, hello, peer) as line:
                self._held[key], made = line, True
                task_status.started(line)
                await line.over.event.wait()
        except Exception:
            if not made:
                raise  # `start` raises it in the task that asked
        finally:
            self._held.pop(key, None)

    def is_remote(self, server: str) -> bool:
        """True if connecting starts no process."""
        spec = self._servers().spec(server)
        return spec is not None and spec.transport != "stdio"

    def _servers(self) -> SessionServers:
        servers = self.session.live.servers
        if servers is None:
            raise ConfigError("no MCP server is configured; `pinfold mcp add` adds one")
        return servers

    async def forward_call(
        self, line: Line, server: str, call: tuple[str, Mapping[str, Json]], forward: Forward, approve: Approve | None
    ) -> dict[str, object]:
        """Return the server's answer to a call (tool name, arguments), if policy allows the call.

        Raises the server's MCPError, or CommandRefused if the server was not called.
        """
        tool, args = call
        answer: dict[str, object] | None = None
        refusal: MCPError | None = None

        async def relay(agreed: str) -> Result:
            nonlocal answer, refusal
            if line.has_changed:
                await line.read_listing()
            entry = line.manifest.entries.get(tool)
            if tool not in line.agreed or entry is None or entry.digest != agreed:
                raise BadCall(f"{server} has changed this tool since the user agreed to it; nothing was called")
            try:
                answer = await forward()
            except MCPError as error:
                refusal = error
                raise BadCall(error.error.message) from error
            text = _text(answer)
            if answer.get("isError") is True:
                raise BadCall(text)
            return Result(text=text)

        action = CallTool(tool=f"{server}.{tool}", args=dict(args))
        id_ = new_action_id()
        with self.session.mark_in_use(), self.session.ask_client(id_, approve), relaying(relay):
            done = await self.session.live.act_now(id_, action)
        if answer is not None:
            return answer
        if refusal is not None:
            raise refusal
        raise CommandRefused(cap_text(done.observation.removeprefix(f"{action.tool} failed: "), _TOLD))


def _text(answer: Mapping[str, object]) -> str:
    parts: list[str] = []
    content = answer.get("content")
    for one in cast("list[object]", content) if isinstance(content, list) else []:
        match one:
            case {"type": "text", "text": str(text)}:
                parts.append(text)
            case {"type": str(kind)}:
                parts.append(f"[{kind}]")
            case _:
                pass
    return cap_text("\n".join(parts) or f"[{answer.get('resultType', 'complete')}]", _TOLD)
