"""The loop of the HTTP servers: it wakes once a second, and at once for a signal."""

from __future__ import annotations

import signal

import anyio
import pytest
import uvicorn
from starlette.applications import Starlette

from pinfold.front.http_server import Address, HttpServer

pytestmark = pytest.mark.integration


class RecordedServer(HttpServer):
    """Notes when it wakes, and sends itself a signal after some ticks."""

    def __init__(self, config: uvicorn.Config, *, most: int) -> None:
        super().__init__(config)
        self._most = most
        self.ticks: list[float] = []

    async def on_tick(self, counter: int) -> bool:
        self.ticks.append(anyio.current_time())
        if len(self.ticks) == self._most:
            signal.raise_signal(signal.SIGTERM)
        return await super().on_tick(counter)


async def test_an_idle_server_wakes_once_a_second_and_stops_at_once() -> None:
    config = uvicorn.Config(Starlette(), lifespan="off", log_config=None)
    server = RecordedServer(config, most=3)
    with anyio.fail_after(20):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.stop_on_signal)
            await server.serve(sockets=[Address(port=0).bind()])
            tasks.cancel_scope.cancel()
    first, *_, signalled, last = server.ticks
    assert len(server.ticks) == 4
    assert signalled - first >= 1.9
    assert last - signalled < 0.9
    assert b"date" in dict(server.server_state.default_headers)
