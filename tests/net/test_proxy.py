"""The proxy's manners: what it asks, tells, counts and bounds."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.net.listeners import GOOD, World, why_not
from tests.net.proxy_client import answer_to, status_of

from pinfold.net import AllowList, Destination, Egress, EgressLimits, How, Proxy, ProxyLimits

pytestmark = [pytest.mark.integration]


def egress_of(
    places: World, gate: Callable[[Destination, How], Awaitable[str | None]] | None = None, **limits: float
) -> Egress:
    allow = AllowList([f"good.example.org:{places.port}"])

    async def go(_destination: Destination, _how: How) -> str | None:
        return None

    bounds = EgressLimits(**limits)  # pyright: ignore[reportArgumentType]
    return Egress(allow, gate or go, limits=bounds, resolver=places.resolve, why_not=why_not)


def tunnel(places: World, host: str = "good.example.org") -> bytes:
    return f"CONNECT {host}:{places.port} HTTP/1.1\r\n\r\n".encode()


def mode_of(path: Path) -> int | None:
    return path.stat().st_mode & 0o777 if path.exists() else None


class Client:
    """A program that stays."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def say(self, raw: bytes) -> None:
        await self._loop.sock_connect(self.socket, str(self._path))
        await self._loop.sock_sendall(self.socket, raw)

    async def hear(self, until: bytes = b"") -> bytes:
        """To the end, or until that was heard."""
        heard = bytearray()
        with anyio.fail_after(50):
            while piece := await self._loop.sock_recv(self.socket, 1 << 16):
                heard += piece
                if until and until in heard:
                    break
        return bytes(heard)


async def test_the_gate_is_asked_with_the_canonical_destination_and_its_reason_is_told(
    places: World, folder: Path
) -> None:
    asked: list[tuple[Destination, How]] = []

    async def gate(destination: Destination, how: How) -> str | None:
        asked.append((destination, how))
        return "the user said no\r\nX-Evil: 1"

    place = f"GOOD.example.org.:{places.port}"
    async with Proxy(egress_of(places, gate)).listening(folder / "p"):
        first = await answer_to(folder / "p", f"CONNECT {place} HTTP/1.1\r\n\r\n".encode())
        second = await answer_to(folder / "p", f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    destination = Destination("good.example.org", places.port)
    assert asked == [(destination, "tunnel"), (destination, "request")]
    for answer in (first, second):
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 403 Forbidden: the user said no")
        assert b"\r\nX-Pinfold-Refused: the user said no??X-Evil: 1" in head
        assert not any(line.startswith(b"X-Evil") for line in head.split(b"\r\n"))
        assert body == b"the user said no??X-Evil: 1\n"
    assert not places.asked


async def test_an_unlisted_destination_is_the_gates_to_decide_only_where_that_is_asked_for(
    places: World, folder: Path
) -> None:
    asked: list[Destination] = []

    async def gate(destination: Destination, _how: How) -> str | None:
        asked.append(destination)
        return None

    refusing = Egress(AllowList(), gate, resolver=places.resolve, why_not=why_not)
    async with Proxy(refusing).listening(folder / "p"):
        answer = await answer_to(folder / "p", tunnel(places))
    assert b"is not on the list of allowed hosts" in answer
    assert asked == []
    asking = Egress(AllowList(), gate, unlisted="ask", resolver=places.resolve, why_not=why_not)
    async with Proxy(asking).listening(folder / "p"):
        open_tunnel = Client(folder / "p")
        with open_tunnel.socket:
            await open_tunnel.say(tunnel(places))
            assert b"200 Connection established" in await open_tunnel.hear(b"\r\n\r\n")
        inside = await answer_to(folder / "p", tunnel(places, "127.0.0.66"))
    assert [one.host for one in asked] == ["good.example.org", "127.0.0.66"]
    assert f"127.0.0.66 is a loopback address; to allow it, list '127.0.0.66:{places.port}'".encode() in inside


async def test_a_gate_that_lists_an_address_lets_it_through(places: World, folder: Path) -> None:
    async def gate(destination: Destination, _how: How) -> str | None:
        egress.allow = AllowList([*egress.allow.patterns, str(destination)])
        return None

    egress = Egress(AllowList(), gate, unlisted="ask", resolver=places.resolve, why_not=why_not)
    place = f"127.0.0.66:{places.port}"
    async with Proxy(egress).listening(folder / "p"):
        answer = await answer_to(folder / "p", f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    assert answer.endswith(b"127.0.0.66")


@pytest.mark.parametrize("fault", ["raises", "is silent"])
async def test_a_gate_that_fails_refuses(places: World, folder: Path, fault: str) -> None:
    async def gate(_destination: Destination, _how: How) -> str | None:
        if fault == "is silent":
            await anyio.sleep_forever()
        raise RuntimeError("a bug of the caller's")

    async with Proxy(egress_of(places, gate, gate_s=0.1)).listening(folder / "p"):
        answers = [await answer_to(folder / "p", tunnel(places)) for _ in range(2)]
    assert [status_of(answer) for answer in answers] == [403, 403]
    assert b"bug" not in answers[0]


async def test_a_program_that_does_not_wait_ends_the_question(places: World, folder: Path) -> None:
    asked, given_up = anyio.Event(), anyio.Event()

    async def gate(_destination: Destination, _how: How) -> str | None:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            given_up.set()

    async with Proxy(egress_of(places, gate)).listening(folder / "p"):
        client = Client(folder / "p")
        with anyio.fail_after(60):
            await client.say(tunnel(places))
            await asked.wait()
            client.socket.close()
            await given_up.wait()


async def test_what_a_program_sends_while_the_question_is_open_arrives(places: World, folder: Path) -> None:
    asked, answered = anyio.Event(), anyio.Event()

    async def gate(_destination: Destination, _how: How) -> str | None:
        asked.set()
        await answered.wait()
        return None

    place = f"good.example.org:{places.port}"
    async with Proxy(egress_of(places, gate)).listening(folder / "p"):
        client = Client(folder / "p")
        with client.socket:
            await client.say(
                f"POST http://{place}/ HTTP/1.1\r\nHost: {place}\r\nContent-Length: 10\r\n\r\n01234".encode()
            )
            await asked.wait()
            await asyncio.get_running_loop().sock_sendall(client.socket, b"56789")
            answered.set()
            assert (await client.hear()).endswith(GOOD.encode())
    assert bytes(places.good.said[0]).endswith(b"\r\n\r\n0123456789")


async def test_traffic_is_told_by_destination_and_every_byte_is_counted(places: World, folder: Path) -> None:
    told: list[tuple[Destination, int, int]] = []

    def on_traffic(to: Destination, sent: int, received: int) -> None:
        told.append((to, sent, received))

    async def told_of(sent: int, received: int) -> None:
        with anyio.fail_after(60):
            while sum(one[1] for one in told) < sent or sum(one[2] for one in told) < received:
                await anyio.lowlevel.checkpoint()

    limits = ProxyLimits(report_s=0.01)
    async with Proxy(egress_of(places), on_traffic=on_traffic, limits=limits).listening(folder / "p"):
        client = Client(folder / "p")
        with client.socket:
            await client.say(tunnel(places))
            await client.hear(b"\r\n\r\n")
            await asyncio.get_running_loop().sock_sendall(client.socket, b"x" * 100_000)
            await told_of(100_000, 0)
            await asyncio.get_running_loop().sock_sendall(client.socket, b"\r\n\r\n")
            answer = await client.hear()
        await told_of(100_004, len(answer))
        tunnel_reports = len(told)
        place = f"good.example.org:{places.port}"
        await answer_to(folder / "p", f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
    tunnels, requests = told[:tunnel_reports], told[tunnel_reports:]
    assert sum(sent for _, sent, _ in tunnels) == 100_004
    assert sum(received for _, _, received in tunnels) == len(answer)
    assert sum(sent for _, sent, _ in requests) == len(places.good.said[-1])
    assert {to for to, _, _ in told} == {Destination("good.example.org", places.port)}


async def test_what_cannot_be_told_does_not_flow_and_the_proxy_goes_on(places: World, folder: Path) -> None:
    def fail(_to: Destination, _sent: int, _received: int) -> None:
        raise RuntimeError("the log is full")

    limits = ProxyLimits(report_s=0.01)
    async with Proxy(egress_of(places), on_traffic=fail, limits=limits).listening(folder / "p"):
        for _ in range(2):
            client = Client(folder / "p")
            with client.socket:
                await client.say(tunnel(places))
                await client.hear(b"\r\n\r\n")
                await asyncio.get_running_loop().sock_sendall(client.socket, b"x")
                assert await client.hear() == b""


async def test_close_all_cuts_tunnels_and_questions_and_takes_new_ones(places: World, folder: Path) -> None:
    asks = False
    asked = anyio.Event()

    async def gate(_destination: Destination, _how: How) -> str | None:
        if asks:
            asked.set()
            await anyio.sleep_forever()
        return None

    proxy = Proxy(egress_of(places, gate))
    async with proxy.listening(folder / "p"):
        live, waiting, later = Client(folder / "p"), Client(folder / "p"), Client(folder / "p")
        with live.socket, waiting.socket, later.socket:
            await live.say(tunnel(places))
            await live.hear(b"\r\n\r\n")
            asks = True
            await waiting.say(tunnel(places))
            await asked.wait()
            assert proxy.live == 2
            proxy.close_all()
            assert await live.hear() == b""
            assert await waiting.hear() == b""
            asks = False
            await later.say(tunnel(places))
            assert b"200" in await later.hear(b"\r\n\r\n")


async def test_one_connection_too_many_is_turned_away_and_room_is_made_again(places: World, folder: Path) -> None:
    async with Proxy(egress_of(places), limits=ProxyLimits(connections=2)).listening(folder / "p"):
        clients = [Client(folder / "p") for _ in range(2)]
        for client in clients:
            await client.say(tunnel(places))
            await client.hear(b"\r\n\r\n")
        assert b"503 Busy: more than 2 connections" in await answer_to(folder / "p", tunnel(places))
        for client in clients:
            client.socket.close()
        with anyio.fail_after(60):
            while status_of(answer := await answer_to(folder / "p", tunnel(places, "evil.org"))) == 503:
                pass
        assert status_of(answer) == 403


async def test_a_silent_program_and_an_idle_tunnel_are_cut(places: World, folder: Path) -> None:
    async with Proxy(egress_of(places), limits=ProxyLimits(handshake_s=0.05)).listening(folder / "p"):
        assert status_of(await answer_to(folder / "p", b"CONNECT good.exam")) == 408
    async with Proxy(egress_of(places), limits=ProxyLimits(idle_s=0.05)).listening(folder / "p"):
        answer = await answer_to(folder / "p", tunnel(places))
    assert answer == b"HTTP/1.1 200 Connection established\r\n\r\n"


async def test_what_cannot_be_reached_is_said_with_the_address(places: World, folder: Path) -> None:
    async def closed(_host: str) -> list[str]:
        return ["127.77.0.201", "127.77.0.202"]

    async def missing(_host: str) -> list[str]:
        raise OSError("Name or service not known")

    allow = AllowList([f"good.example.org:{places.port}"])
    for resolver, why in ((closed, b"127.77.0.202: "), (missing, b"good.example.org was not found")):
        egress = Egress(allow, resolver=resolver, why_not=why_not)
        async with Proxy(egress).listening(folder / "p"):
            answer = await answer_to(folder / "p", tunnel(places))
        assert status_of(answer) == 502
        assert why in answer


async def test_the_second_address_is_tried_where_the_first_is_dead(places: World, folder: Path) -> None:
    async def two(_host: str) -> list[str]:
        return ["127.77.0.201", GOOD]

    egress = Egress(AllowList([f"good.example.org:{places.port}"]), resolver=two, why_not=why_not)
    place = f"good.example.org:{places.port}"
    async with Proxy(egress).listening(folder / "p"):
        answer = await answer_to(folder / "p", f"GET http://{place}/ HTTP/1.0\r\n\r\n".encode())
    assert answer.endswith(GOOD.encode())


async def test_hop_by_hop_headers_stay_here_and_the_others_arrive(places: World, folder: Path) -> None:
    place = f"good.example.org:{places.port}"
    raw = (
        f"POST http://{place}/p?q HTTP/1.1\r\nHost: {place}\r\nConnection: keep-alive, X-Mine\r\nX-Mine: 1\r\n"
        f"Proxy-Authorization: Basic x\r\nTE: trailers\r\nKeep-Alive: 5\r\nAuthorization: Bearer y\r\nX-Other: \xe9\r\n"
        f"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n5;a=b\r\n"
    ).encode("latin-1")
    good = raw.replace(b"5;a=b\r\n", b"5\r\nhello\r\n0\r\n\r\n")
    async with Proxy(egress_of(places)).listening(folder / "p"):
        assert not (await answer_to(folder / "p", raw)).endswith(GOOD.encode())
        answer = await answer_to(folder / "p", good)
    assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nConnection: close\r\n\r\n")
    assert bytes(places.good.said[-1]) == (
        f"POST /p?q HTTP/1.1\r\nHost: {place}\r\nAuthorization: Bearer y\r\nX-Other: \xe9\r\n"
        "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
    ).encode("latin-1")


async def test_a_socket_in_an_open_folder_is_refused(places: World, folder: Path) -> None:
    os.chmod(folder, 0o755)  # noqa: PTH101
    with pytest.raises(PermissionError, match="mode 0700"):
        async with Proxy(egress_of(places)).listening(folder / "p"):
            raise AssertionError("it listens")


async def test_a_path_of_any_length_will_do_and_is_gone_afterwards(places: World, folder: Path) -> None:
    long = folder / ("a" * 100) / ("b" * 100)
    os.makedirs(long, mode=0o700)  # noqa: PTH103
    async with Proxy(egress_of(places)).listening(long / "p"):
        assert mode_of(long / "p") == 0o600
    assert mode_of(long / "p") is None
