"""What an endpoint needs of whatever runs the model."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from pinfold.events import Json
from pinfold.model.local.serving.call_extraction import Chunk
from pinfold.model.local.serving.openai_requests import Body


class Backend(Protocol):
    @property
    def name(self) -> str: ...

    @property
    def context(self) -> int | None: ...

    @property
    def tells_tools(self) -> bool:
        """The model's template tells it of tools, and it was trained to go by that."""
        ...

    def chunks(self, body: Body) -> AsyncGenerator[Chunk]:
        """A reply in chunks. Raises Refusal before the first of them."""
        ...

    async def answer(self, body: Body) -> Chunk:
        """A reply in one piece. Raises Refusal."""
        ...

    async def embed(self, body: Body) -> Json:
        """Vectors for texts. Raises Refusal."""
        ...

    async def aclose(self) -> None: ...
