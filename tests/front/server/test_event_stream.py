"""Many readers of one session, and readers that take nothing."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from tests.front.server.served import begin, create, end, follow, until

from pinfold.app.session.live_session import LiveSession, open_session
from pinfold.app.session.options import Options
from pinfold.events import Noticed, SessionId
from pinfold.front.http_server import Address
from pinfold.front.server.event_stream import SLOW_S, EventStream, stream_events
from pinfold.front.server.server import listen

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
READERS = 20
EVENTS, SIZE = 400, 100_000
TAKEN_AHEAD = EVENTS // 2
"""More than the buffers of both ends hold."""


def test_twenty_readers_of_a_session_all_get_every_event(
    workspace: Path, script: Callable[..., str], cell: Callable[..., dict[str, Any]]
) -> None:
    served = begin(workspace, "--model", script(cell("print(6 * 7)"), {"text": "It is 42. " * 20}))
    told: list[list[dict[str, Any]]] = []
    try:
        with served.client() as client:
            session = create(client)
            all_follow = threading.Barrier(READERS + 1)

            def read() -> None:
                with follow(client, session) as events:
                    begun = until(events, "SessionOpened")
                    all_follow.wait(60)
                    told.append([*begun, *until(events, "TurnEnded")])

            readers = [threading.Thread(target=read) for _ in range(READERS)]
            for reader in readers:
                reader.start()
            all_follow.wait(60)
            client.post(f"/api/sessions/{session}/commands", json={"kind": "Say", "text": "go"})
            for reader in readers:
                reader.join()
            whole = client.get(f"/api/sessions/{session}/events", headers={"Accept": "application/json"}).json()
    finally:
        assert end(served) == 0
    assert len(told) == READERS
    for events in told:
        stored = [one for one in events if "seq" in one]
        assert stored == whole["events"][: len(stored)]
        assert stored[-1]["text"] == "It is 42. " * 20
        assert "".join(one["text"] for one in events if one["kind"] == "TextDelta") == "It is 42. " * 20


class Streams:
    """An application that streams a session's events, as the server does, and notes how it went."""

    def __init__(self, live: LiveSession, slow_s: float) -> None:
        self._live = live
        self.slow_s = slow_s
        self.sent = 0
        self.ended = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.sent = 0
        after = int(scope["path"].strip("/"))
        await EventStream(self._counted(stream_events(self._live, after)), slow_s=self.slow_s)(scope, receive, send)
        self.ended.set()

    async def _counted(self, chunks: AsyncGenerator[str]) -> AsyncGenerator[str]:
        async with aclosing(chunks):
            async for chunk in chunks:
                self.sent += 1
                yield chunk


@asynccontextmanager
async def streaming(workspace: Path, slow_s: float) -> AsyncGenerator[tuple[Streams, LiveSession, socket.socket]]:
    """With a client that is connected and has asked for nothing yet."""
    async with open_session(None, SessionId("s_0"), Options(workspace=workspace, sandbox="namespaces")) as live:
        for _ in range(EVENTS):
            await live.log.append(Noticed(text="x" * SIZE))
        app = Streams(live, slow_s)
        listener = listen(Address(port=0))
        listener.listen()
        server = uvicorn.Server(uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve, [listener])
            with socket.create_connection(listener.getsockname()) as client:
                yield app, live, client
            server.should_exit = True


def ask(client: socket.socket, after: int) -> None:
    client.sendall(f"GET /{after} HTTP/1.1\r\nHost: here\r\n\r\n".encode())


def read_events(client: socket.socket, last: int) -> list[int]:
    """The numbers of what comes, up to this one."""
    with client.makefile("rb") as lines:
        seqs: list[int] = []
        for line in lines:
            if line.startswith(b"data: "):
                seqs.append(json.loads(line[6:])["seq"])
                if seqs[-1] == last:
                    return seqs
    raise AssertionError(f"the stream ended after {seqs[-1:]}")


@pytest.mark.anyio
async def test_a_reader_that_takes_nothing_is_cut_off_and_can_resume(workspace: Path) -> None:
    async with streaming(workspace, slow_s=0.1) as (app, live, client):
        ask(client, 0)
        await app.ended.wait()
        assert app.sent < TAKEN_AHEAD, "what is not read is not taken from the log"
        assert live.log.subscribers == 1, "only the hooks follow"
        app.slow_s = SLOW_S
        with socket.create_connection(client.getpeername()) as again:
            ask(again, 7)
            assert await anyio.to_thread.run_sync(read_events, again, live.log.seq) == list(range(8, live.log.seq + 1))


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_reader_that_reads_is_not_cut_off(workspace: Path) -> None:
    async with streaming(workspace, slow_s=SLOW_S) as (app, live, client):
        ask(client, 0)
        assert await anyio.to_thread.run_sync(read_events, client, live.log.seq) == list(range(1, live.log.seq + 1))
        assert not app.ended.is_set()
        assert live.log.subscribers == 2
