"""A non-blocking socket with what has been read of it and not used yet, and the bytes that go over it counted."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress

import anyio

from pinfold.net.heads import BadRequest

PIECE_BYTES = 1 << 16
CHUNK_LINE_BYTES = 64
_HALF_END = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,12}")


class Line:
    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._held = bytearray()
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._peer.close()

    async def receive(self) -> bytes:
        """Nothing at the end."""
        if self._held:
            piece = bytes(self._held[:PIECE_BYTES])
            del self._held[:PIECE_BYTES]
            return piece
        return await self._loop.sock_recv(self._peer, PIECE_BYTES)

    async def send(self, data: bytes) -> None:
        await self._loop.sock_sendall(self._peer, data)

    def end_sending(self) -> None:
        with suppress(OSError):  # the other end is gone already
            self._peer.shutdown(socket.SHUT_WR)

    async def head(self, limit: int) -> bytes | None:
        """Up to the empty line, which is taken too; None if the other end hangs up first. Raises BadRequest."""
        while True:
            if self._held and not 0x41 <= self._held[0] <= 0x5A:
                raise BadRequest("this is no HTTP; an HTTP proxy is all there is here, no SOCKS")
            at = self._held.find(b"\r\n\r\n")
            # Where a line ends must be beyond doubt even before all of it is there.
            if _HALF_END.search(self._held, 0, at if at >= 0 else max(0, len(self._held) - 1)):
                raise BadRequest("a line ends with half of a line end")
            if at >= 0:
                head = bytes(self._held[:at])
                del self._held[: at + 4]
                return head
            if len(self._held) > limit:
                raise BadRequest(f"the head is longer than {limit} bytes")
            piece = await self._loop.sock_recv(self._peer, PIECE_BYTES)
            if not piece:
                return None
            self._held += piece

    async def wait_for_hangup(self, limit: int) -> None:
        """Returns when the other end hangs up. What it says meanwhile is kept, to `limit`, and then not listened to."""
        while len(self._held) < limit:
            # Waiting is cut short at any time; what was received by then must not be lost with it.
            await anyio.wait_readable(self._peer)
            with suppress(BlockingIOError):
                piece = self._peer.recv(PIECE_BYTES)
                if not piece:
                    return
                self._held += piece
        await anyio.sleep_forever()

    async def exactly(self, count: int) -> AsyncGenerator[bytes]:
        """So many bytes, in pieces. Raises BadRequest if the other end hangs up before."""
        while count > 0:
            piece = await self.receive()
            if not piece:
                raise BadRequest("the body ends before it should")
            self._held[:0] = piece[count:]
            yield piece[:count]
            count -= len(piece[:count])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """A chunked body as it is to be sent on: its extensions and trailers stay here. Raises BadRequest."""
        while True:
            size = await self._short_line()
            if not _SIZE.fullmatch(size):
                raise BadRequest("a chunk does not begin with its size")
            left = int(size, 16)
            if left == 0:
                break
            yield b"%x\r\n" % left
            async for piece in self.exactly(left):
                yield piece
            if await self._short_line():
                raise BadRequest("a chunk does not end where it should")
            yield b"\r\n"
        if await self._short_line():
            raise BadRequest("trailers after a body are not taken")
        yield b"0\r\n\r\n"

    async def _short_line(self) -> bytes:
        while (at := self._held.find(b"\r\n")) < 0:
            if len(self._held) > CHUNK_LINE_BYTES:
                break
            piece = await self._loop.sock_recv(self._peer, PIECE_BYTES)
            if not piece:
                raise BadRequest("the body ends before it should")
            self._held += piece
        if not 0 <= at <= CHUNK_LINE_BYTES:
            raise BadRequest("a chunk does not begin with its size")
        line = bytes(self._held[:at])
        del self._held[: at + 2]
        return line


async def copy(source: Line, sink: Line, count: Callable[[int], None]) -> None:
    """To the end, which is passed on. Counted before it is sent: too much rather than too little. Raises OSError."""
    while piece := await source.receive():
        count(len(piece))
        await sink.send(piece)
    sink.end_sending()
