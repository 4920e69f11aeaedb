"""Requests that want to go where they may not, against the real proxy, with real listeners that must stay unvisited."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from tests.net.attacks import HARMLESS_OUTSIDE, attacks
from tests.net.listeners import GOOD, World, why_not
from tests.net.naive_proxy import naive_proxy
from tests.net.proxy_client import answer_to, status_of

from pinfold.net import AllowList, Destination, Egress, How, Proxy, ProxyLimits
from pinfold.net.hosts import WhyNot

pytestmark = [pytest.mark.safety]
LEAST = 200


def listed(places: World) -> AllowList:
    return AllowList([f"good.example.org:{places.port}", f"*.example.net:{places.port}"])


def proxy_of(places: World, why: WhyNot = why_not, asked: list[Destination] | None = None) -> Proxy:
    async def gate(destination: Destination, _how: How) -> str | None:
        if asked is not None:
            asked.append(destination)
        return None

    egress = Egress(listed(places), gate, resolver=places.resolve, why_not=why)
    return Proxy(egress, limits=ProxyLimits(handshake_s=2, idle_s=0.3))


async def test_no_attack_reaches_a_place_that_is_not_listed(places: World, folder: Path) -> None:
    asked: list[Destination] = []
    statuses: Counter[int] = Counter()
    got_through: list[str] = []
    async with proxy_of(places, asked=asked).listening(folder / "p"):
        for name, raw in attacks(places.port, places.other_port):
            status = status_of(await answer_to(folder / "p", raw))
            statuses[status] += 1
            if status == 200 and name not in HARMLESS_OUTSIDE:
                got_through.append(name)
    assert await places.breaches() == []
    assert got_through == []
    assert statuses.total() >= LEAST
    assert statuses[403] + statuses[400] >= LEAST  # answered, rather than cut off
    assert {one.host for one in asked} == set(places.asked)
    assert all(name.endswith(("good.example.org", ".example.net")) for name in places.asked)


async def test_what_is_listed_gets_through(places: World, folder: Path) -> None:
    port = places.port
    async with proxy_of(places).listening(folder / "p"):
        for host in (
            "good.example.org",
            "GOOD.Example.Org",
            "good.example.org.",
            "sub.example.net",
            "xn--bcher-kva.example.net",
        ):
            place = f"{host}:{port}"
            plain = await answer_to(folder / "p", f"GET http://{place}/a?b HTTP/1.1\r\nHost: {place}\r\n\r\n".encode())
            assert plain.endswith(GOOD.encode()), host
            tunnel = f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\nGET / HTTP/1.1\r\n\r\n"
            said = await answer_to(folder / "p", tunnel.encode())
            assert said.startswith(b"HTTP/1.1 200 Connection established\r\n\r\n"), host
            assert said.endswith(GOOD.encode()), host
    assert await places.breaches() == []
    assert len(places.good.said) == 10


async def test_against_a_naive_proxy_the_same_attacks_do_get_through(places: World, folder: Path) -> None:
    async with naive_proxy(places, folder / "p"):
        for _, raw in attacks(places.port, places.other_port):
            await answer_to(folder / "p", raw)
    breaches = Counter(await places.breaches())
    assert breaches.total() >= 50
    assert breaches["smuggled"] >= 5
    assert len(breaches) >= 3


async def test_without_the_check_of_addresses_listed_names_lead_inside(places: World, folder: Path) -> None:
    places.stays_home = True
    async with proxy_of(places, lambda _address: None).listening(folder / "p"):
        for _, raw in attacks(places.port, places.other_port):
            await answer_to(folder / "p", raw)
    breaches = await places.breaches()
    assert len(breaches) >= 4
    assert {one.partition(":")[0] for one in breaches} == {"127.0.0.66"}


async def test_a_name_is_resolved_once_for_each_connection_and_judged_each_time(places: World, folder: Path) -> None:
    place = f"rebind.example.net:{places.port}"
    raw = f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n".encode()
    async with proxy_of(places).listening(folder / "p"):
        first = await answer_to(folder / "p", raw)
        assert places.asked["rebind.example.net"] == 1
        second = await answer_to(folder / "p", raw)
    assert first.endswith(GOOD.encode())
    assert status_of(second) == 403
    assert b"127.0.0.66, a loopback address" in second
    assert places.asked["rebind.example.net"] == 2
    assert await places.breaches() == []


async def test_no_name_server_hears_of_a_host_that_is_not_let_through(places: World, folder: Path) -> None:
    async def gate(destination: Destination, _how: How) -> str | None:
        return "not this one" if destination.host.startswith("secret") else None

    proxy = Proxy(Egress(listed(places), gate, resolver=places.resolve, why_not=why_not))
    async with proxy.listening(folder / "p"):
        for host in ("c0ffee.evil.org", "secret.example.net"):
            raw = f"CONNECT {host}:{places.port} HTTP/1.1\r\n\r\n".encode()
            assert status_of(await answer_to(folder / "p", raw)) == 403
    assert not places.asked


def test_names_of_a_lying_name_server_are_judged_by_the_addresses_that_are_connected_to() -> None:
    """The machine's own resolver, a real name server, and network namespaces of our own."""
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--mount", sys.executable, "-m", "tests.net.dns_rebinding"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        timeout=100,
    )
    if "unshare failed" in done.stderr:
        pytest.skip("no user namespaces here")
    found = json.loads(done.stdout or "{}")
    assert found, done.stderr
    assert (found["good"], found["flip"], found["lookups"]) == ([200, 200], [200, 403, 403], 3)
    assert len(found["bad"]) >= 16
    assert set(found["bad"].values()) == {403}, found["bad"]
    assert (found["absent"], found["unlisted"], found["heard of"]) == (502, 403, 0)
    assert found["breaches"] == []
    assert {"127.0.0.66", "127.0.0.1"} <= set(found["control"])  # without the check the same names do lead inside
