"""Programs inside, as the proxy hears them."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import anyio

PATIENCE_S = 10


async def answer_to(path: Path, raw: bytes) -> bytes:
    """All that is said to `raw`, to the end."""
    loop = asyncio.get_running_loop()
    heard = bytearray()
    with socket.socket(socket.AF_UNIX) as client, anyio.fail_after(PATIENCE_S):
        client.setblocking(False)
        await loop.sock_connect(client, str(path))
        try:
            await loop.sock_sendall(client, raw)
            while piece := await loop.sock_recv(client, 1 << 16):
                heard += piece
        except OSError:  # it did not want to hear it all
            pass
    return bytes(heard)


def status_of(answer: bytes) -> int:
    """0 if there was none."""
    words = answer.split(b" ", 2)
    return int(words[1]) if len(words) == 3 and words[0].startswith(b"HTTP/1.") else 0
