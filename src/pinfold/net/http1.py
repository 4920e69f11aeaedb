"""Reads HTTP/1.1 from a socket, strictly: requests can be smuggled where two parsers differ in one byte."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Literal, TypeAlias

import anyio
from msgspec import Struct

from pinfold.net.egress import How
from pinfold.net.hosts import BadDestination, Destination, NetError, parse_authority, parse_url

Body: TypeAlias = int | Literal["chunked"]
"""The number of bytes of a body, or that it is chunked."""
HEADERS = 100
PIECE_BYTES = 1 << 16
CHUNK_LINE_BYTES = 64
_HALF_END = re.compile(rb"(?<!\r)\n|\r(?=[^\n])")
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,12}")
_REQUEST_LINE = re.compile(rb"([A-Z][A-Z-]{0,31}) ([!-~]{1,16384}) (HTTP/1\.[01])")
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~\x80-\xff]*)")
_LENGTH = re.compile(r"[0-9]{1,18}")
_STATUS_LINE = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [\t -~\x80-\xff]*)?")
_HOP_BY_HOP = """connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer transfer-encoding
upgrade"""
_OF_THIS_HOP = frozenset((b"connection", b"keep-alive", b"proxy-connection", b"proxy-authenticate", b"upgrade"))
_FRAMING = frozenset(("host", "content-length", "transfer-encoding", "expect"))
"""Headers that the proxy writes itself, and that `Connection` must not name."""
_ONCE = ("host", "content-length", "transfer-encoding")


class BadRequest(NetError):
    """Not a valid proxy request; the message says what is wrong."""


class Head(Struct, frozen=True, kw_only=True):
    how: How
    destination: Destination
    passed_on: bytes = b""
    """The head to send to the server; empty for a tunnel."""
    body: Body = 0
    wants_continue: bool = False


def parse_head(raw: bytes) -> Head:
    """Parse the head of a request. `raw` ends before the empty line. Raises BadRequest and BadDestination."""
    lines = _lines(raw)
    found = _REQUEST_LINE.fullmatch(lines[0])
    if found is None:
        raise BadRequest("the first line is not that of an HTTP/1.1 request")
    method, target, version = (part.decode("ascii") for part in found.groups())
    headers = _headers(lines[1:])
    if method != "CONNECT":
        return _request(method, target, version, headers)
    destination = parse_authority(target)
    _check_host(headers, destination, destination.port)
    if {"content-length", "transfer-encoding"} & {name.lower() for name, _ in headers}:
        raise BadRequest("CONNECT has no body")
    return Head(how="tunnel", destination=destination)


def parse_status(raw: bytes) -> tuple[int, bytes]:
    """Return the status of a server's head, and the head to send to the client. Raises BadRequest.

    Checked less strictly: only the client's own program reads it, and nothing follows on this connection.
    """
    lines = raw.split(b"\r\n")
    found = _STATUS_LINE.fullmatch(lines[0])
    if found is None:
        raise BadRequest("the server's answer is not HTTP/1.1")
    kept = [line for line in lines[1:] if line.partition(b":")[0].strip().lower() not in _OF_THIS_HOP]
    return int(found[1]), b"\r\n".join([lines[0], *kept, b"Connection: close", b"", b""])


def _lines(raw: bytes) -> list[bytes]:
    lines = raw.split(b"\r\n")
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise BadRequest("a line ends with a lone CR or LF")
    if any(line.startswith((b" ", b"\t")) for line in lines):
        raise BadRequest("a header continues on the next line")
    if len(lines) > HEADERS + 1:
        raise BadRequest(f"there are more than {HEADERS} headers")
    return lines


def _headers(lines: list[bytes]) -> list[tuple[str, str]]:
    headers: list[tuple[str, str]] = []
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequest("a header is invalid: its name is malformed, or it has a control character")
        headers.append((found[1].decode("ascii"), found[2].decode("latin-1").rstrip(" \t")))
    names = [name.lower() for name, _ in headers]
    for name in _ONCE:
        if names.count(name) > 1:
            raise BadRequest(f"the header {name} is there more than once")
    return headers


def _request(method: str, target: str, version: str, headers: list[tuple[str, str]]) -> Head:
    if target.startswith("/") or target == "*":
        raise BadRequest("this is a proxy: the first line must name the whole URL")
    url = parse_url(target)
    if url.scheme != "http":
        raise BadRequest("for https this proxy accepts CONNECT only")
    has_host = _check_host(headers, url.destination, 80)
    if version == "HTTP/1.1" and not has_host:
        raise BadRequest("there is no Host header")
    known = {name.lower(): value for name, value in headers}
    body = _body(known, version)
    expects = known.get("expect", "").lower()
    if expects not in ("", "100-continue"):
        raise BadRequest("the header Expect asks for something unknown")
    dropped = {*_HOP_BY_HOP.split()} | _FRAMING | _named_by_connection(headers)
    kept = [(name, value) for name, value in headers if name.lower() not in dropped]
    framing = [("Transfer-Encoding", "chunked")] if body == "chunked" else []
    if "content-length" in known:
        framing = [("Content-Length", str(body))]
    whole = [("Host", url.host_header), *kept, *framing, ("Connection", "close")]
    text = f"{method} {url.target} {version}\r\n" + "".join(f"{name}: {value}\r\n" for name, value in whole)
    return Head(
        how="request",
        destination=url.destination,
        passed_on=f"{text}\r\n".encode("latin-1"),
        body=body,
        wants_continue=bool(expects) and version == "HTTP/1.1",
    )


def _check_host(headers: list[tuple[str, str]], destination: Destination, port: int) -> bool:
    """Return whether there is a Host header. Raises BadRequest if it differs from the first line."""
    host = next((value for name, value in headers if name.lower() == "host"), None)
    if host is None:
        return False
    try:
        named = parse_authority(host, port=port)
    except BadDestination as error:
        raise BadRequest(f"the Host header is wrong: {error}") from None
    if named != destination:
        raise BadRequest(f"the first line names {destination}, the Host header {named}")
    return True


def _body(known: dict[str, str], version: str) -> Body:
    length, coding = known.get("content-length"), known.get("transfer-encoding")
    if coding is not None:
        if length is not None:
            raise BadRequest("there are both Content-Length and Transfer-Encoding")
        if coding.lower() != "chunked" or version != "HTTP/1.1":
            raise BadRequest("the only Transfer-Encoding here is chunked, in HTTP/1.1")
        return "chunked"
    if length is None:
        return 0
    if not _LENGTH.fullmatch(length):
        raise BadRequest("the Content-Length is not a number")
    return int(length)


def _named_by_connection(headers: list[tuple[str, str]]) -> frozenset[str]:
    """Return the headers that the client wants dropped at this hop."""
    values = (value for name, value in headers if name.lower() == "connection")
    named = frozenset(word.strip().lower() for value in values for word in value.split(","))
    if named & _FRAMING:
        raise BadRequest("the Connection header names one that says where the request ends or goes")
    return named


class Line:
    """A non-blocking socket with the bytes that were received and not used yet."""

    def __init__(self, peer: socket.socket) -> None:
        peer.setblocking(False)
        self._peer = peer
        self._held = bytearray()
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        self._peer.close()

    async def receive(self) -> bytes:
        """Receive some bytes; empty at the end of the stream."""
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
        """Receive up to the empty line, which is consumed; None if the other end hangs up first. Raises BadRequest."""
        while True:
            if self._held and not 0x41 <= self._held[0] <= 0x5A:
                raise BadRequest("this is not HTTP; this proxy speaks HTTP, not SOCKS")
            at = self._held.find(b"\r\n\r\n")
            # Line ends must be unambiguous even before the whole head is there.
            if _HALF_END.search(self._held, 0, at if at >= 0 else max(0, len(self._held) - 1)):
                raise BadRequest("a line ends with a lone CR or LF")
            if at >= 0:
                head = bytes(self._held[:at])
                del self._held[: at + 4]
                return head
            if len(self._held) > limit:
                raise BadRequest(f"the head is longer than {limit} bytes")
            if not await self._receive_more():
                return None

    async def _receive_more(self) -> bool:
        """Receive more bytes into `_held`; False at the end of the stream."""
        piece = await self._loop.sock_recv(self._peer, PIECE_BYTES)
        self._held += piece
        return bool(piece)

    async def wait_for_hangup(self, limit: int) -> None:
        """Wait until the other end hangs up. Keep what it sends meanwhile; stop reading after `limit` bytes."""
        while len(self._held) < limit:
            # A cancelled wait must not lose what was received.
            await anyio.wait_readable(self._peer)
            with suppress(BlockingIOError):
                piece = self._peer.recv(PIECE_BYTES)
                if not piece:
                    return
                self._held += piece
        await anyio.sleep_forever()

    async def exactly(self, count: int) -> AsyncGenerator[bytes]:
        """Yield `count` bytes in pieces. Raises BadRequest if the other end hangs up before."""
        while count > 0:
            piece = await self.receive()
            if not piece:
                raise BadRequest("the body ends before it should")
            self._held[:0] = piece[count:]
            yield piece[:count]
            count -= len(piece[:count])

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield a chunked body to pass on; extensions and trailers are refused. Raises BadRequest."""
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
            raise BadRequest("trailers after a body are not accepted")
        yield b"0\r\n\r\n"

    async def _short_line(self) -> bytes:
        while (at := self._held.find(b"\r\n")) < 0:
            if len(self._held) > CHUNK_LINE_BYTES:
                break
            if not await self._receive_more():
                raise BadRequest("the body ends before it should")
        if not 0 <= at <= CHUNK_LINE_BYTES:
            raise BadRequest("a chunk does not begin with its size")
        line = bytes(self._held[:at])
        del self._held[: at + 2]
        return line


async def copy(source: Line, sink: Line, count: Callable[[int], None]) -> None:
    """Copy to the end, and pass the end on. Counts bytes before they are sent, so never too few. Raises OSError."""
    while piece := await source.receive():
        count(len(piece))
        await sink.send(piece)
    sink.end_sending()
