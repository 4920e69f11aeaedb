"""What our two HTTP servers share: uvicorn that leaves signals to us, and reading who asks, and for which host."""

from __future__ import annotations

import ipaddress
import signal
from collections.abc import Generator
from contextlib import contextmanager

import anyio
import uvicorn
from starlette.datastructures import Headers

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TICK_S = 1.0


class HttpServer(uvicorn.Server):
    """Ignores signals: uvicorn would end the process before sessions are closed. Wakes once a second, not ten times."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopped = anyio.Event()

    async def stop_on_signal(self) -> None:
        with anyio.open_signal_receiver(*SIGNALS) as signals:
            async for _ in signals:
                self.should_exit = True
                self._stopped.set()

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # keeps the header `date` right
            with anyio.move_on_after(_TICK_S):
                await self._stopped.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def only_value(headers: Headers, name: str) -> str:
    """Empty if the header is missing or given twice."""
    values = headers.getlist(name)
    return values[0] if len(values) == 1 else ""
