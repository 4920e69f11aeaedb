"""A door on loopback that adds the bearer token to what goes through: the suite brings none of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

HEAD = 64 << 10


@asynccontextmanager
async def door(port: int, token: str, listen: int = 0) -> AsyncGenerator[int]:
    """Its port. Host and Origin go through as they are: whether they are right is the server's to say."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n"))[:-4].split(b"\r\n")
            kept = [line for line in head if not line.lower().startswith((b"connection:", b"authorization:"))]
            kept += [f"Authorization: Bearer {token}".encode(), b"Connection: close"]
            there, away = await asyncio.open_connection("127.0.0.1", port)
            away.write(b"\r\n".join(kept) + b"\r\n\r\n")
            await asyncio.gather(_poured(reader, away), _poured(there, writer))
        writer.close()

    listening = await asyncio.start_server(attend, "127.0.0.1", listen, limit=HEAD)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def _poured(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await source.read(HEAD):
            target.write(data)
            await target.drain()
        target.close()
