"""Whom a program greets in a tunnel: real TLS and made-up greetings through the real proxy."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio.to_thread
import pytest
from tests.net.listeners import GOOD, World, why_not
from tests.net.proxy_client import PATIENCE_S, answer_to

from pinfold.net import AllowList, Egress, Proxy, ProxyLimits

pytestmark = [pytest.mark.safety]
ALERT = bytes((21, 3, 3, 0, 2, 2, 112))
ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"


def proxy_of(places: World, *patterns: str, idle_s: float = PATIENCE_S) -> Proxy:
    egress = Egress(AllowList(patterns), resolver=places.resolve, why_not=why_not)
    return Proxy(egress, limits=ProxyLimits(handshake_s=PATIENCE_S, idle_s=idle_s))


@asynccontextmanager
async def tls_place(context: ssl.SSLContext) -> AsyncGenerator[tuple[int, list[str | None]]]:
    """A server of many names, which says `safe`; and by which names it was asked for."""
    names: list[str | None] = []
    context.sni_callback = lambda _, name, __: names.append(name)

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\n")
        writer.write(b"safe\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(attend, GOOD, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], names


def talked(path: Path, place: str, name: str | None, client: ssl.SSLContext) -> str:
    """What a real TLS client hears that asks for `place` and greets `name`."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(str(path))
        line.sendall(f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
        assert line.recv(len(ESTABLISHED)) == ESTABLISHED
        try:
            with client.wrap_socket(line, server_hostname=name) as inside:
                inside.sendall(b"hello\n")
                return inside.recv(100).decode()
        except ssl.SSLError as error:
            return error.reason or "closed"


async def test_tls_in_a_tunnel_is_for_the_host_that_was_asked_for(
    places: World, folder: Path, certified: Callable[[str], tuple[ssl.SSLContext, ssl.SSLContext]]
) -> None:
    server, client = certified("good.example.org")
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    asks_again, _ = certified("good.example.org")
    asks_again.set_ecdh_curve("secp384r1")  # not what a client offers first: it is asked to greet once more
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode, old.maximum_version = False, ssl.CERT_NONE, ssl.TLSVersion.TLSv1_2
    for context in (server, asks_again):
        async with tls_place(context) as (port, names):
            listed = f"good.example.org:{port}", f"{GOOD}:{port}"
            async with proxy_of(places, *listed).listening(folder / "p"):

                async def heard(place: str, name: str | None, client: ssl.SSLContext = client) -> str:
                    run = anyio.to_thread.run_sync
                    return await run(talked, folder / "p", f"{place}:{port}", name, client)

                for tls in (client, old):
                    assert await heard("good.example.org", "good.example.org", tls) == "safe\n"
                    assert await heard("good.example.org", "GOOD.example.org", tls) == "safe\n"
                    assert await heard(GOOD, "any.name", tls) == "safe\n"  # listed by its address
                    before = list(names)
                    assert set(before) == {"good.example.org", "GOOD.example.org", "any.name"}
                    for name in ("evil.org", "a.good.example.org", "good.example.org.evil.org", None):
                        assert "UNRECOGNIZED_NAME" in await heard("good.example.org", name, tls)
                    assert names == before  # and the same server does answer to any name
                    names.clear()


def vector(size: int, data: bytes) -> bytes:
    return len(data).to_bytes(size) + data


def extension(kind: int, data: bytes) -> bytes:
    return kind.to_bytes(2) + vector(2, data)


def names(*listed: str) -> bytes:
    return extension(0, vector(2, b"".join(b"\0" + vector(2, name.encode()) for name in listed)))


def hello(*extensions: bytes) -> bytes:
    body = b"\x03\x03" + bytes(32) + vector(1, b"") + vector(2, b"\x13\x01") + vector(1, b"\0")
    body += vector(2, b"".join(extensions))
    return b"\x01" + vector(3, body)


def record(data: bytes, kind: int = 22) -> bytes:
    return bytes((kind, 3, 1)) + vector(2, data)


def records(data: bytes, size: int) -> bytes:
    return b"".join(record(data[at : at + size]) for at in range(0, len(data), size))


OURS, OTHER = hello(names("good.example.org")), hello(names("evil.org"))
PADDED = hello(names("evil.org"), extension(21, bytes(60_000)))
REFUSED = {
    "another name": record(OTHER),
    "another name, a byte a record": records(OTHER, 1),
    "another name in two records": records(OTHER, 60),
    "another name far behind": records(hello(extension(21, bytes(60_000)), names("evil.org")), 16_000),
    "two names": record(hello(names("good.example.org", "evil.org"))),
    "two lists of names": record(hello(names("good.example.org"), names("evil.org"))),
    "no name": record(hello()),
    "an empty name": record(hello(names(""))),
    "a name with a NUL": record(hello(names("good.example.org\0.evil.org"))),
    "a name that is an address": record(hello(names("127.0.0.66"))),
    "the parent": record(hello(names("example.org"))),
    "an encrypted greeting": record(hello(names("good.example.org"), extension(0xFE0D, b"\0" * 20))),
    "a second greeting": record(OURS) + record(OTHER),
    "a second greeting in the same record": record(OURS + OTHER),
    "a second greeting after the ciphers": record(OURS) + record(b"\x01", 20) + record(OTHER),
    "a second greeting, in pieces": record(OURS) + record(b"\x01", 20) + records(OTHER, 7),
    "a second greeting, long": record(OURS) + record(b"\x01", 20) + records(PADDED, 16_000),
    "something else first": record(b"\0\0\0\0" + OTHER),
    "an alert first": record(b"\x01\0", 21) + record(OTHER),
    "more than anybody takes": record(b"\x01\xff\xff\xff" + bytes(100)),
    "nonsense": record(b"\x01" + vector(3, b"\x03\x03short")),
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: evil.org\r\n\r\n",
    "plain HTTP, second Host": b"GET / HTTP/1.1\r\nHost: good.example.org\r\nhost : evil.org\r\n\r\n",
    "plain HTTP, whole URL": b"GET http://evil.org/ HTTP/1.1\r\nHost: good.example.org\r\n\r\n",
    "plain HTTP, half line ends": b"GET / HTTP/1.1\nX: a\rHost: evil.org\n\n",
    "plain HTTP, folded": b"GET / HTTP/1.1\r\nHost:\r\n evil.org\r\n\r\n",
    "plain HTTP, endless": b"GET / HTTP/1.1\r\nX: " + b"a" * 20_000,
}
PASSED = {
    "the name": record(OURS),
    "a byte a record": records(OURS, 1),
    "the name in capitals, and more": record(hello(extension(10, b"\0\0"), names("Good.Example.ORG"))),
    "two greetings, then secrets": record(OURS) + record(b"\x01", 20) + record(OURS) + record(b"\0" * 40, 23),
    "an old handshake": record(OURS) + record(b"\x10\0\0\x01x") + record(b"\x01", 20) + record(b"\x01" * 40),
    "an old one that is taken up": record(OURS) + record(b"\x01", 20) + record(b"\x01\xff" * 20),
    "plain HTTP": b"GET / HTTP/1.1\r\nHost: good.example.org\r\n\r\n",
    "plain HTTP with a port": b"GET / HTTP/1.1\r\nHost: good.example.org:P\r\n\r\n",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "a command of another protocol": b"GET key\r\n",
}


async def test_no_greeting_to_another_host_reaches_the_server_in_any_pieces(places: World, folder: Path) -> None:
    tunnel = f"CONNECT good.example.org:{places.port} HTTP/1.1\r\n\r\n".encode()
    async with proxy_of(places, f"good.example.org:{places.port}", idle_s=2).listening(folder / "p"):
        for what, said in REFUSED.items():
            answer = await answer_to(folder / "p", tunnel + said)
            whole = b"".join(map(bytes, places.good.said))
            assert b"evil.org" not in whole, what
            refused = answer.removeprefix(ESTABLISHED)
            assert refused == ALERT or refused.startswith(b"HTTP/1.1 403 "), (what, answer)
        places.good.said.clear()
        passed = [raw.replace(b":P\r\n", b":%d\r\n" % places.port) for raw in PASSED.values()]
        await asyncio.gather(*(answer_to(folder / "p", tunnel + said) for said in passed))
        assert sorted(map(bytes, places.good.said)) == sorted(passed)
