"""A proxy as one is tempted to write it: the end of the raw text decides, and each step parses anew. For controls only."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import unquote

from tests.net.listeners import World

LISTED = ("good.example.org", ".example.net")


@asynccontextmanager
async def naive_proxy(world: World, path: Path) -> AsyncGenerator[None]:
    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, ValueError, IndexError, OverflowError):
            await _carry(world, reader, writer)
        writer.close()

    world.stays_home = True
    server = await asyncio.start_unix_server(attend, path)
    try:
        yield
    finally:
        server.close()
        await server.wait_closed()


async def _carry(world: World, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    raw = await asyncio.wait_for(reader.read(1 << 17), 1)
    first, _, rest = raw.replace(b"\r\n", b"\n").partition(b"\n")
    target = first.split(b" ", 1)[1].rpartition(b" ")[0].decode()
    authority = target.partition("://")[2].partition("/")[0] or target
    host, _, port = authority.rpartition(":")
    named = [line[6:].decode().rpartition(":")[0] for line in rest.split(b"\n") if line.startswith(b"Host: ")]
    if not any(one.endswith(LISTED) for one in (host, *named)):
        writer.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
        return
    name = unquote(host).rpartition("@")[2].split("\0")[0]
    for end in "#?/\\;, \t":
        name = name.split(end)[0]
    address = (await world.resolve(name))[0]
    out, back = await asyncio.open_connection(address.strip("[]"), int(port))
    back.write(raw)
    await back.drain()
    writer.write(await asyncio.wait_for(out.read(1 << 16), 1))
    back.close()
