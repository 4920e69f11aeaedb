"""Waits for what another process does."""

from __future__ import annotations

from collections.abc import Callable

import anyio

PATIENCE_S = 30.0


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE_S):
        while not is_so():
            await anyio.sleep(0.05)
