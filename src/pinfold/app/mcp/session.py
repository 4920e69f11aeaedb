"""From the options of a session to its MCP servers. Loads nothing of them where none is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anyio.abc import TaskGroup
from msgspec import Struct

from pinfold.app.models import Asked, Calling, Purse
from pinfold.app.paths import config_dir
from pinfold.app.toolbox import ToolOptions
from pinfold.engine import Journal
from pinfold.events import Noticed, Reply, Request, RequestFailed, Sent, plain_json
from pinfold.model import destination_of
from pinfold.sandbox import Limits, Provider

if TYPE_CHECKING:
    from pinfold.app.mcp.servers import SessionServers


class Around(Struct, frozen=True, kw_only=True):
    """The session they serve."""

    workspace: Path
    provider: Provider
    limits: Limits
    asked: Asked
    calling: Calling
    journal: Journal

    async def notice(self, line: str) -> None:
        await self.journal.append(Noticed(text=line))

    async def answer(self, request: Request) -> tuple[Reply, str, tuple[Sent, ...]]:
        """Its model's reply. Raises PinfoldError."""
        model = self.asked.model
        async for piece in model.stream(request):
            if isinstance(piece, Reply):
                if not piece.from_cache:
                    Purse().add(piece.usage, piece.cost)
                to = destination_of(model.name, access=self.calling.access())
                out, back = len(plain_json(request).encode()), len(piece.text.encode("utf-8", "replace"))
                return piece, model.name, (Sent(to=to, out=out, back=back),) if to else ()
        raise RequestFailed("the reply broke off")


def project_file(workspace: Path) -> str:
    return str(workspace / ".mcp.json")


async def servers_for(
    options: ToolOptions, around: Around, tasks: TaskGroup
) -> tuple[SessionServers | None, tuple[str, ...]]:
    """They live among `tasks`. And a line for each that cannot be used. Raises ConfigError."""
    if options.mcp is None and options.more_mcp is None and not (config_dir() / "mcp.json").exists():
        return None, ()
    from pinfold.app.mcp.files import servers_named
    from pinfold.app.mcp.servers import serve

    named = servers_named(options.mcp, project_file(around.workspace), options.more_mcp)
    return await tasks.start(serve, named, around) if named.specs else None, named.faults
