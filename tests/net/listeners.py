"""Real listeners that remember who came, on addresses of this machine's loopback that stand for others.

127.77.0.0/16 plays the public internet, everything else of 127.0.0.0/8 is what it is. Names are the resolver's to give:
it answers as a machine's own would, odd notations included, so that whatever slips through arrives somewhere.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_address, ip_network

from pinfold.net import why_special
from pinfold.net.hosts import Address

PUBLIC = ip_network("127.77.0.0/16")
GOOD, EVIL, INSIDE = "127.77.0.1", "127.77.0.9", "127.0.0.66"
SMUGGLED = b"SMUGGLED"


def why_not(address: Address) -> str | None:
    return None if address in PUBLIC else why_special(address)


@dataclass
class Place:
    """Answers everything with its own name, and keeps what was said to it."""

    address: str
    port: int
    answer: bytes = b""
    waits_for: int = 0
    """Bytes to be said to it before it answers."""
    said: list[bytearray] = field(default_factory=list[bytearray])

    async def attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard = bytearray()
        self.said.append(heard)
        try:
            is_answered = False
            while piece := await reader.read(1 << 16):
                heard += piece
                if b"\r\n\r\n" in heard and len(heard) >= self.waits_for and not is_answered:
                    is_answered = True
                    writer.write(self.answer or f"HTTP/1.1 200 OK\r\n\r\n{self.address}".encode())
                    await writer.drain()
                    writer.write_eof()
        except OSError:
            pass
        finally:
            writer.close()

    async def visits(self) -> int:
        """How many came until now: the kernel's queue is in order, so that our own visit is the last."""
        before = len(self.said)
        ours = socket.socket(socket.AF_INET6 if ":" in self.address else socket.AF_INET)
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        with ours:
            await loop.sock_connect(ours, (self.address, self.port))
            await loop.sock_sendall(ours, b"OURS\r\n\r\n")
            while await loop.sock_recv(ours, 4096):
                pass
        count = len(self.said) - 1
        assert count >= before
        del self.said[-1]
        return count


@dataclass
class World:
    port: int
    other_port: int
    good: Place
    forbidden: list[Place]
    asked: Counter[str] = field(default_factory=Counter[str])
    """Names the resolver was asked for."""
    stays_home: bool = False
    """For a weakened build, which would connect to whatever it is told: then no answer leaves this machine."""

    async def breaches(self) -> list[str]:
        """Visits to places that are forbidden, and requests at the allowed one that nobody sent there."""
        found = [f"{place.address}:{place.port}" for place in self.forbidden for _ in range(await place.visits())]
        await self.good.visits()
        return found + ["smuggled" for heard in self.good.said if SMUGGLED in heard]

    async def resolve(self, host: str) -> Sequence[str]:
        """As attackers would have it: their names lead wherever they like, and differently each time."""
        found = self._found(host)
        if self.stays_home:
            return [one if one.startswith(("127.", "::1", "::ffff:127.")) else INSIDE for one in found]
        return found

    def _found(self, host: str) -> list[str]:
        self.asked[host] += 1
        match host.partition("\0")[0].rstrip(".").lower():
            case "good.example.org" | "sub.example.net" | "xn--bcher-kva.example.net":
                return [GOOD]
            case "inside.example.net":
                return [INSIDE]
            case "mixed.example.net":
                return [GOOD, INSIDE]
            case "mapped.example.net":
                return ["::ffff:127.0.0.66"]
            case "meta.example.net":
                return ["169.254.169.254"]
            case "zone.example.net":
                return ["fe80::1%lo"]
            case "rebind.example.net":
                return [GOOD if self.asked[host] == 1 else INSIDE]
            case "localhost":
                return ["127.0.0.1", "::1"]
            case name:
                return [_as_address(name) or EVIL]


def _as_address(text: str) -> str | None:
    try:
        return str(ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        return str(IPv4Address(socket.inet_aton(text)))
    except OSError:
        return None


@asynccontextmanager
async def world() -> AsyncGenerator[World]:
    """One allowed place, and forbidden ones at the same port of other addresses, and at another port of the same."""
    servers: list[asyncio.Server] = []

    async def place(address: str, port: int) -> Place:
        made = Place(address, port)
        server = await asyncio.start_server(made.attend, address, port)
        servers.append(server)
        made.port = server.sockets[0].getsockname()[1]
        return made

    try:
        with socket.socket() as reserved:
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind(("", 0))  # a port that is free at every address, which no other program gets meanwhile
            port = reserved.getsockname()[1]
            good = await place(GOOD, port)
            forbidden = [await place(address, port) for address in (EVIL, INSIDE, "127.0.0.1", *_ipv6())]
        elsewhere = await place(GOOD, 0)
        yield World(port, elsewhere.port, good, [*forbidden, elsewhere])
    finally:
        for server in servers:
            server.close()
            await server.wait_closed()


def _ipv6() -> list[str]:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return []
    return ["::1"]
