"""A session in a new empty folder of its own, from any provider; some have one ready."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from pinfold.sandbox.contract import Limits, Provider, Session, Spec
from pinfold.sandbox.folders import Folder


class HasScratch(Protocol):
    async def open_scratch(self, limits: Limits) -> tuple[Session, Folder]:
        """The caller closes the one and then removes the other. Raises SandboxUnavailable."""
        ...


async def scratch(
    provider: Provider, limits: Limits, data: Mapping[str, Path] | None = None
) -> tuple[Session, Folder]:
    """As `HasScratch.open_scratch`; with `data` it is not kept ready."""
    ready: HasScratch | None = cast(Any, provider) if hasattr(provider, "open_scratch") else None
    if ready and not data:
        return await ready.open_scratch(limits)
    made = Folder("workspace")
    try:
        return await provider.open(Spec(workspace=made.path, data=data or {}, limits=limits)), made
    except BaseException:
        made.remove()
        raise
