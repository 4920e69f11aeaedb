"""A small HTTP/1.1 client: of what a benchmark measures on two cores, as little as possible is the client's own work."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

OVER = frozenset({"TurnEnded", "TurnFailed", "TurnInterrupted"})
WAIT_S = 300.0
"""For anything at all."""


class HttpError(Exception):
    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body[:300].decode('utf-8', 'replace')}")
        self.status = status


class Connection:
    """One connection that is kept."""

    def __init__(self, url: str, token: str) -> None:
        host, _, port = url.removeprefix("http://").rpartition(":")
        self._host, self._port = host, int(port)
        self._common = f"Host: {host}:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(
        self, method: str, path: str, body: bytes | None = None, more: str = ""
    ) -> tuple[int, dict[str, str]]:
        """The status and the headers; what follows is still to be read."""
        if self._writer is None or (self._reader and self._reader.at_eof()):
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port, limit=1 << 20)
        assert self._reader
        head = f"{method} {path} HTTP/1.1\r\n{self._common}{more}"
        if body is not None:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self._writer.write(f"{head}\r\n".encode() + (body or b""))
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines[1:])
        return int(lines[0].split()[1]), {name.lower(): value.strip() for name, _, value in pairs}

    async def call(self, method: str, path: str, body: Any = None, more: str = "") -> Any:
        """The JSON of the answer. Raises HttpError."""
        async with asyncio.timeout(WAIT_S):
            status, headers = await self.send(method, path, None if body is None else json.dumps(body).encode(), more)
            data = await self.read(headers)
        if status >= 400:
            raise HttpError(status, data)
        return json.loads(data) if data and headers.get("content-type") == "application/json" else data

    async def read(self, headers: dict[str, str]) -> bytes:
        assert self._reader
        if "chunked" in headers.get("transfer-encoding", ""):
            return b"".join([chunk async for chunk in self.chunks()])
        return await self._reader.readexactly(int(headers.get("content-length", "0")))

    async def chunks(self) -> AsyncIterator[bytes]:
        assert self._reader
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:-2]
        await self._reader.readexactly(2)

    def close(self) -> None:
        """At once, as a client does that is killed."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._reader = self._writer = None


@dataclass
class Reader:
    """Follows a session's events and notes when each came."""

    connection: Connection
    session: str
    after: int = 0
    seqs: list[int] = field(default_factory=list[int])
    kinds: list[str] = field(default_factory=list[str])
    delays: list[float] = field(default_factory=list[float])
    """From the time an event bears, which is before it is on disk, to its arrival."""
    deltas: int = 0
    text: str = ""
    """Of the last turn."""
    said: str = ""
    """Of its deltas."""
    is_whole: bool = True
    """Each turn's deltas together were its text."""
    first: asyncio.Event = field(default_factory=asyncio.Event)
    over: asyncio.Event = field(default_factory=asyncio.Event)
    first_at: float = 0.0
    over_at: float = 0.0

    def expect_turn(self) -> None:
        self.first.clear()
        self.over.clear()

    async def follow(self) -> None:
        """Until the stream ends, or it is cancelled. Raises HttpError."""
        path = f"/api/sessions/{self.session}/events?after={self.after}"
        try:
            status, headers = await self.connection.send("GET", path)
            if status != 200:
                raise HttpError(status, await self.connection.read(headers))
            rest = b""
            async for chunk in self.connection.chunks():
                *whole, rest = (rest + chunk).split(b"\n\n")
                for message in whole:
                    self._take(message)
        finally:  # no more events will come, so waiting for them must end
            self.first.set()
            self.over.set()

    def _take(self, message: bytes) -> None:
        lines = message.split(b"\n")
        data = next((line[5:] for line in lines if line.startswith(b"data:")), None)
        if data is None:
            return
        event = json.loads(data)
        if (kind := event["kind"]) == "TextDelta":
            self.deltas += 1
            self.said += event["text"]
        if "seq" not in event:
            return
        if not self.first.is_set():
            self.first_at = time.perf_counter()
            self.first.set()
        self.delays.append(time.time() - datetime.fromisoformat(event["at"]).timestamp())
        self.seqs.append(event["seq"])
        self.kinds.append(kind)
        if kind in OVER:
            self.text = event.get("text") or json.dumps(event)
            self.is_whole = self.is_whole and self.said == self.text
            self.said = ""
            self.over_at = time.perf_counter()
            self.over.set()

    @property
    def lost_or_twice(self) -> int:
        """How many numbers are missing or came twice, of those up to the last."""
        last = self.seqs[-1] if self.seqs else self.after
        expected = range(self.after + 1, last + 1)
        return len(set(expected) ^ set(self.seqs)) + len(self.seqs) - len(set(self.seqs))


@asynccontextmanager
async def following(readers: list[Reader]) -> AsyncGenerator[None]:
    tasks = [asyncio.create_task(one.follow()) for one in readers]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for one in readers:
            one.connection.close()
