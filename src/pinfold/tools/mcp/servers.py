"""The MCP servers of a session, by name. Each is started when it is first used and fails on its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from anyio.abc import TaskGroup

from pinfold.tools.mcp.limits import Limits
from pinfold.tools.mcp.manifest import Difference
from pinfold.tools.mcp.ports import World
from pinfold.tools.mcp.server_lifecycle import Life, Status
from pinfold.tools.mcp.server_tools import offered_tools
from pinfold.tools.mcp.spec import ServerSpec
from pinfold.tools.results import BadCall, BadTool
from pinfold.tools.tool import Tool

if TYPE_CHECKING:
    from pinfold.tools.mcp.passthrough import Line, Peer, Speech


class Servers:
    """Use as an async context; what it started ends with it."""

    def __init__(self, specs: Sequence[ServerSpec], world: World, limits: Limits | None = None) -> None:
        self._specs = {spec.name: spec for spec in specs}
        if len(self._specs) != len(specs):
            raise BadTool("two MCP servers have the same name; rename one")
        self._limits = limits or Limits()
        self._world = world
        self._tasks: TaskGroup | None = None
        self._lives: dict[str, Life] = {}

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        self._lives = {name: Life(spec, self._world, self._limits, self._tasks) for name, spec in self._specs.items()}
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc_val: BaseException | None, exc_tb: TracebackType | None
    ) -> None:
        assert self._tasks is not None
        try:
            with anyio.CancelScope(shield=True):
                await self.close()
        finally:
            self._tasks.cancel_scope.cancel()
            # An error of the body reaches the caller unchanged.
            await self._tasks.__aexit__(None, None, None)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._specs)

    def status(self, name: str) -> Status:
        return self._life(name).status()

    async def start(self, *names: str) -> Mapping[str, str]:
        """Start these side by side, all if none is named. Those that did not start, and why."""
        failed: dict[str, str] = {}

        async def start(name: str) -> None:
            try:
                await self._life(name).connect()
            except BadCall as error:
                failed[name] = str(error)

        async with anyio.create_task_group() as tasks:
            for name in names or self.names:
                tasks.start_soon(start, name)
        return failed

    async def tools(self, name: str) -> tuple[Tool[..., Any], ...]:
        """What it offers, of what the user agreed to. Connects; raises BadCall if that fails."""
        await self._life(name).connect()
        return self.pinned_tools(name) or ()

    def pinned_tools(self, name: str) -> tuple[Tool[..., Any], ...] | None:
        """What the user agreed to, without starting anything; None if the server was never seen.

        A call connects. Where the server turns out to describe the tool otherwise, nothing is called.
        """
        life = self._life(name)
        pinned = life.load_pinned()
        if pinned is None:
            return None
        return offered_tools(life, pinned, self._limits, is_trusted=self._world.pins.is_trusted(name))

    def is_trusted(self, name: str) -> bool:
        """Whether the user has agreed to what it says of its tools."""
        return self._world.pins.is_trusted(name)

    def line(
        self, name: str, speech: Speech, peer: Peer, *, like: Line | None = None
    ) -> AbstractAsyncContextManager[Line]:
        """Its own protocol, word for word, over a connection of its own.

        Raises BadCall, and MCPError where it refuses to speak so. `like`: a line to the same server that was looked at.
        """
        from pinfold.tools.mcp.passthrough import line_to

        return line_to(self._life(name).spec, self._world, self._limits, speech, peer, like=like)

    def difference(self, name: str) -> Difference:
        """Between what the user agreed to and what the server last said; none if it was not asked."""
        return self._life(name).difference()

    def accept(self, name: str) -> None:
        """What the server last said is what the user agrees to."""
        self._life(name).accept()

    async def close(self) -> None:
        """End all of them. Later calls fail."""
        for life in self._lives.values():
            life.stop()
        with anyio.move_on_after(self._limits.close_s * 2):
            for life in self._lives.values():
                await life.wait_until_stopped()

    def _life(self, name: str) -> Life:
        life = self._lives.get(name)
        if life is None:
            known = ", ".join(self._specs) or "none is configured"
            raise BadCall(f"no MCP server is called {name!r}; there is {known}")
        return life
