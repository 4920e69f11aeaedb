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
    """Notes when it wakes, and sends itself signals in given ticks."""

    def __init__(self, signals: dict[int, signal.Signals]) -> None:
        super().__init__(uvicorn.Config(Starlette(), lifespan="off", log_config=None))
        self._signals = signals
        self.ticks: list[float] = []

    async def on_tick(self, counter: int) -> bool:
        self.ticks.append(anyio.current_time())
        if number := self._signals.get(len(self.ticks)):
            signal.raise_signal(number)
        return await super().on_tick(counter)

    async def run_until_stopped(self) -> None:
        with anyio.fail_after(20):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self.stop_on_signal)
                await self.serve(sockets=[Address(port=0).bind()])
                tasks.cancel_scope.cancel()


async def test_an_idle_server_wakes_once_a_second_and_stops_at_once() -> None:
    server = RecordedServer({3: signal.SIGTERM})
    await server.run_until_stopped()
    first, *_, signalled, last = server.ticks
    assert len(server.ticks) == 4
    assert signalled - first >= 1.9
    assert last - signalled < 0.9
    assert b"date" in dict(server.server_state.default_headers)


@pytest.mark.parametrize(("ignored", "ticks"), [(True, 4), (False, 2)])
async def test_a_server_under_nohup_outlives_its_terminal(ignored: bool, ticks: int) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        server = RecordedServer({1: signal.SIGHUP, 3: signal.SIGTERM})
        await server.run_until_stopped()
    finally:
        signal.signal(signal.SIGHUP, before)
    assert len(server.ticks) == ticks
