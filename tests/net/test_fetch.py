"""`fetch`: every hop is judged, pinned and bounded, and what is meant for one host is not told to another."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from tests.net.attacks import HOSTS, PORTS
from tests.net.listeners import GOOD, World, why_not

from pinfold.net import (
    AllowList,
    BadDestination,
    Destination,
    Egress,
    FetchLimits,
    How,
    NetError,
    Refused,
    Unreachable,
    fetch,
)

pytestmark = [pytest.mark.safety]


def egress_of(places: World, asked: list[Destination] | None = None) -> Egress:
    async def gate(destination: Destination, how: How) -> str | None:
        assert how == "request"
        if asked is not None:
            asked.append(destination)
        return None

    allow = AllowList([f"good.example.org:{places.port}", f"*.example.net:{places.port}"])
    return Egress(allow, gate, resolver=places.resolve, why_not=why_not)


def answered(body: bytes, *headers: str, status: str = "200 OK") -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def redirect(to: str) -> bytes:
    return answered(b"", f"Location: {to}", status="302 Found")


async def test_a_page_comes_with_its_type_and_where_it_came_from(places: World) -> None:
    places.good.answer = answered("gr\xfc\xdfe".encode(), 'Content-Type: Text/HTML; charset="UTF-8"')
    url = f"HTTP://Good.Example.org.:{places.port}/a b/\xfc?q=1#part"
    got = await fetch(url, egress=egress_of(places), headers={"X-Key": "secret"})
    assert (got.status, got.mime, got.body.decode()) == (200, 'Text/HTML; charset="UTF-8"', "gr\xfc\xdfe")
    assert got.hops == (f"http://good.example.org:{places.port}/a%20b/%C3%BC?q=1",)
    assert got.url == got.hops[-1]
    assert got.is_whole
    head = bytes(places.good.said[0])
    assert head.startswith(f"GET /a%20b/%C3%BC?q=1 HTTP/1.1\r\nHost: good.example.org:{places.port}\r\n".encode())
    assert b"X-Key: secret\r\n" in head


async def test_no_url_and_no_redirect_leads_to_a_forbidden_place(places: World) -> None:
    tried = 0
    port, other = places.port, places.other_port
    texts = [f"{host}:{port}" for host in HOSTS.values()]
    texts += [text.replace("P", str(port)).replace("Q", str(other)) for text in PORTS.values()]
    for text in texts:
        for scheme in ("http", "https"):
            with pytest.raises(NetError):
                await fetch(f"{scheme}://{text}/", egress=egress_of(places))
            tried += 1
        if text.isascii() and text.isprintable():
            places.good.answer = redirect(f"http://{text}/")
            with pytest.raises(NetError):
                await fetch(f"http://good.example.org:{port}/", egress=egress_of(places))
            tried += 1
    assert await places.breaches() == []
    assert tried >= 400
    assert all(name.endswith(("good.example.org", ".example.net")) for name in places.asked)


@pytest.mark.parametrize(
    "location",
    [
        *("//evil.org:P/", "http:\\\\evil.org:P/", "\\\\evil.org:P/", "http://good.example.org:P@evil.org:P/"),
        *("file:///etc/passwd", "javascript:alert(1)", "http://evil.org:P", "HTTP://EVIL.ORG:P/"),
        *("http://[::1]:P/", "http://0x7f.66:P/", "//127.0.0.66:P", "http://inside.example.net:P/"),
        *("/ok\r\nX: 1", "http://good.example.org:Q/", "gopher://evil.org:P/_x"),
    ],
)
async def test_a_redirect_is_judged_as_if_it_had_been_asked_for(places: World, location: str) -> None:
    to = location.replace(":P", f":{places.port}").replace(":Q", f":{places.other_port}")
    places.good.answer = redirect(to)
    with pytest.raises(NetError) as caught:
        await fetch(f"http://good.example.org:{places.port}/", egress=egress_of(places))
    assert "\n" not in str(caught.value)
    assert await places.breaches() == []


async def test_each_hop_asks_the_gate_and_the_resolver_again(places: World) -> None:
    asked: list[Destination] = []
    places.good.answer = redirect(f"http://rebind.example.net:{places.port}/")
    with pytest.raises(Refused, match=r"rebind\.example\.net leads to 127\.0\.0\.66, a loopback address"):
        await fetch(f"http://good.example.org:{places.port}/", egress=egress_of(places, asked))
    names = ["good.example.org", "rebind.example.net", "rebind.example.net"]
    assert [one.host for one in asked] == names
    assert await places.breaches() == []


async def test_redirects_end(places: World) -> None:
    places.good.answer = redirect("/again")
    with pytest.raises(Refused, match="redirects more than 5 times"):
        await fetch(f"http://good.example.org:{places.port}/", egress=egress_of(places))
    await places.good.visits()
    assert len(places.good.said) == 6


async def test_headers_for_a_host_do_not_follow_to_another_and_do_not_come_back(places: World) -> None:
    said: list[tuple[str, bool]] = []

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        host = head.partition("Host: ")[2].partition(":")[0]
        said.append((host, "secret" in head))
        match len(said):
            case 1:
                writer.write(redirect("/there"))
            case 2:
                writer.write(redirect(f"http://sub.example.net:{port}/"))
            case 3:
                writer.write(redirect(f"http://good.example.org:{port}/back"))
            case _:
                writer.write(answered(b"done"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(attend, GOOD, 0)
    port = server.sockets[0].getsockname()[1]
    egress = Egress(
        AllowList([f"good.example.org:{port}", f"sub.example.net:{port}"]), resolver=places.resolve, why_not=why_not
    )
    async with server:
        got = await fetch(f"http://good.example.org:{port}/", egress=egress, headers={"Authorization": "secret"})
    assert got.body == b"done"
    assert said == [
        ("good.example.org", True),
        ("good.example.org", True),
        ("sub.example.net", False),
        ("good.example.org", False),
    ]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("X", "a\r\nY: b"),
        ("X", "a\0"),
        ("X Y", "a"),
        ("X:", "a"),
        ("Host", "evil.org"),
        ("transfer-encoding", "chunked"),
    ],
)
async def test_a_header_cannot_carry_another(places: World, name: str, value: str) -> None:
    with pytest.raises(BadDestination):
        await fetch(f"http://good.example.org:{places.port}/", egress=egress_of(places), headers={name: value})
    assert not places.asked


async def test_a_long_body_is_cut_and_said_to_be(places: World) -> None:
    bomb = gzip.compress(b"0" * 50_000_000)
    for body, headers in ((b"0" * 3000, ()), (bomb, ("Content-Encoding: gzip",))):
        places.good.answer = answered(body, *headers)
        got = await fetch(
            f"http://good.example.org:{places.port}/", egress=egress_of(places), limits=FetchLimits(body_bytes=1000)
        )
        assert got.body == b"0" * 1000
        assert not got.is_whole


async def test_a_server_that_is_silent_or_talks_nonsense_is_unreachable(places: World) -> None:
    places.good.answer = b"nonsense\r\n\r\n"
    with pytest.raises(Unreachable):
        await fetch(f"http://good.example.org:{places.port}/", egress=egress_of(places))

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1 << 16):
            pass
        writer.close()

    silent = await asyncio.start_server(listen, GOOD, 0)
    port = silent.sockets[0].getsockname()[1]
    egress = Egress(AllowList([f"good.example.org:{port}"]), resolver=places.resolve, why_not=why_not)
    for limits in (FetchLimits(idle_s=0.05), FetchLimits(whole_s=0.05)):
        with pytest.raises(Unreachable, match="was not fetched") as caught:
            await fetch(f"http://good.example.org:{port}/", egress=egress, limits=limits)
        assert caught.value.may_have_arrived
    silent.close()
    await silent.wait_closed()
    with pytest.raises(Unreachable) as caught:
        await fetch(f"http://good.example.org:{port}/", egress=egress)
    assert not caught.value.may_have_arrived


async def test_what_a_server_says_too_much_is_nobodys_answer(places: World) -> None:
    """Each request has a connection of its own: a second answer on one, or one that comes early, waits for nobody."""
    poison = answered(b"poisoned")
    places.good.answer = answered(b"mine") + poison + poison
    egress = Egress(AllowList([f"*.example.net:{places.port}"]), resolver=places.resolve, why_not=why_not)
    for _ in range(3):
        got = await fetch(f"http://sub.example.net:{places.port}/a", egress=egress)
        assert got.body == b"mine"
    assert len(places.good.said) == 3
    assert all(heard.count(b"GET ") == 1 for heard in places.good.said)


@asynccontextmanager
async def tls_server(context: ssl.SSLContext, seen: list[str]) -> AsyncGenerator[int]:
    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(writer.get_extra_info("sockname")[0])
        writer.write(answered(b"safe"))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(attend, GOOD, 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(("host", "is_fine"), [("good.example.org", True), ("sub.example.net", False)])
async def test_tls_is_checked_for_the_name_though_the_address_is_pinned(
    places: World, certified: Callable[[str], tuple[ssl.SSLContext, ssl.SSLContext]], host: str, is_fine: bool
) -> None:
    server, client = certified("good.example.org")
    seen: list[str] = []
    lookups: list[str] = []

    async def resolver(name: str) -> Sequence[str]:
        lookups.append(name)
        return [GOOD]

    async with tls_server(server, seen) as port:
        egress = Egress(AllowList([f"{host}:{port}"]), resolver=resolver, why_not=why_not)
        if is_fine:
            got = await fetch(f"https://{host}:{port}/", egress=egress, tls=client)
            assert (got.body, seen) == (b"safe", [GOOD])
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await fetch(f"https://{host}:{port}/", egress=egress)
        else:
            with pytest.raises(Unreachable, match="certificate verify failed"):
                await fetch(f"https://{host}:{port}/", egress=egress, tls=client)
            assert seen == []
    assert lookups == [host] * (2 if is_fine else 1)
