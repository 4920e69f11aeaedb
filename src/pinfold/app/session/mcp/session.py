"""The session that MCP servers serve, as they see it."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from pinfold.app.models.session_models import CallOptions, SessionModels, SpendingLedger
from pinfold.engine import Journal
from pinfold.events import Noticed, Reply, Request, RequestFailed, Sent, plain_json
from pinfold.model import destination_of
from pinfold.sandbox import Limits, Provider


class ServerContext(Struct, frozen=True, kw_only=True):
    workspace: Path
    provider: Provider
    limits: Limits
    asked: SessionModels
    calling: CallOptions
    journal: Journal

    async def notice(self, line: str) -> None:
        await self.journal.append(Noticed(text=line))

    async def answer(self, request: Request) -> tuple[Reply, str, tuple[Sent, ...]]:
        """Its model's reply. Raises PinfoldError."""
        model = self.asked.model
        async for piece in model.stream(request):
            if isinstance(piece, Reply):
                if not piece.from_cache:
                    SpendingLedger().add(piece.usage, piece.cost)
                to = destination_of(model.name, access=self.calling.access())
                out, back = len(plain_json(request).encode()), len(piece.text.encode("utf-8", "replace"))
                return piece, model.name, (Sent(to=to, out=out, back=back),) if to else ()
        raise RequestFailed("the reply broke off")


def project_file(workspace: Path) -> str:
    return str(workspace / ".mcp.json")
