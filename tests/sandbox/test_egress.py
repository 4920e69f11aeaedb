"""The way out of a session: programs inside reach what the proxy on the host lets them reach, and nothing else."""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import anyio
import pytest
from tests.net.attacks import attacks
from tests.net.listeners import GOOD, World, why_not, world
from tests.net.naive_proxy import naive_proxy
from tests.sandbox.test_hostile_copies import LINE

from pinfold.guest.kernel.groups import descendants
from pinfold.guest.kernel.processes import pid_of
from pinfold.net import AllowList, Destination, Egress, How, Proxy, ProxyLimits
from pinfold.sandbox import NotSupported, SandboxUnavailable, Session, Spec, provider_named
from pinfold.sandbox.providers.namespaces import EGRESS_PORT, EGRESS_SOCKET, Namespaces
from pinfold.sandbox.session.session import GuestSession

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
JAILED = Namespaces()


@pytest.fixture
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
async def places() -> AsyncGenerator[World]:
    async with world() as made:
        yield made


@dataclass
class Out:
    """A session with a way out, and what was asked for and sent on it."""

    session: Session
    proxy: Proxy
    places: World
    asked: list[tuple[str, How]]
    sent: list[int]

    async def said(self, code: str) -> str:
        outcome = await self.session.run(code, timeout_s=60)
        return (outcome.stdout + (outcome.error or "")).strip()

    def fetching(self, host: str = "good.example.org") -> str:
        url = f"http://{host}:{self.places.port}/"
        return f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=30).read().decode())"


@asynccontextmanager
async def opened(places: World, folder: Path, workspace: Path) -> AsyncGenerator[Out]:
    asked: list[tuple[str, How]] = []
    sent: list[int] = []

    async def gate(destination: Destination, how: How) -> str | None:
        asked.append((str(destination), how))
        return None

    allow = AllowList([f"good.example.org:{places.port}", f"*.example.net:{places.port}"])
    egress = Egress(allow, gate, resolver=places.resolve, why_not=why_not)
    proxy = Proxy(egress, on_traffic=lambda _, out, __: sent.append(out), limits=ProxyLimits(handshake_s=5, idle_s=5))
    async with proxy.listening(folder / "p"):
        session = await JAILED.open(Spec(workspace=workspace, egress=folder / "p"))
        try:
            yield Out(session, proxy, places, asked, sent)
        finally:
            await session.close()


@pytest.fixture
async def out(places: World, folder: Path, workspace: Path) -> AsyncGenerator[Out]:
    async with opened(places, folder, workspace) as made:
        yield made


def processes(session: Session) -> list[int]:
    """Of the session, as the host sees them, its init first."""
    assert isinstance(session, GuestSession)
    guest = session.slot.guest
    assert guest is not None
    init = pid_of(cast("int", guest.body.fd))
    return [init, *descendants(init)]


async def test_programs_reach_a_listed_host_and_hear_why_not_for_another(out: Out) -> None:
    port = out.places.port
    assert await out.said(out.fetching()) == GOOD
    refused = await out.said(out.fetching("evil.org"))
    assert f"HTTP Error 403: Forbidden: evil.org:{port} is not on the list of allowed hosts" in refused
    tunnel = await out.said(f"urllib.request.urlopen('https://evil.org:{port}/', timeout=30)")
    assert f"Tunnel connection failed: 403 Forbidden: evil.org:{port} is not on the list" in tunnel
    curl = f"import subprocess\nprint(subprocess.run(['curl', '-s', 'http://good.example.org:{port}/'], capture_output=True).stdout.decode())"
    has_curl = await out.said("import shutil; print(bool(shutil.which('curl')))") == "True"
    assert not has_curl or await out.said(curl) == GOOD
    assert out.asked[0] == (f"good.example.org:{port}", "request")
    assert {name for name, _ in out.asked} == {f"good.example.org:{port}"}
    assert sum(out.sent) > 0
    assert await out.places.breaches() == []


async def test_requests_works_where_it_is_installed(out: Out) -> None:
    port = out.places.port
    code = f"""
try: import requests
except ImportError: print("not installed")
else:
    print(requests.get("http://good.example.org:{port}/", timeout=30).text)
    try: requests.get("https://evil.org:{port}/", timeout=30)
    except requests.exceptions.ProxyError as error: print("evil.org:{port} is not on the list" in str(error))
"""
    said = await out.said(code)
    if said == "not installed":
        pytest.skip("requests is not installed here")
    assert said == f"{GOOD}\nTrue"


async def test_there_is_no_other_way_out(out: Out) -> None:
    assert await out.said(out.fetching()) == GOOD
    code = f"""
import os, socket
for name in [name for name in os.environ if name.lower().endswith("_proxy")]: del os.environ[name]
for place in ("{GOOD}", "127.0.0.1", "127.0.0.66", "8.8.8.8", "169.254.169.254"):
    with socket.socket() as direct:
        direct.settimeout(5)
        try: direct.connect((place, {out.places.port})); print("reached", place)
        except OSError as error: print("not", place)
try: print(socket.getaddrinfo("good.example.org", 80))
except socket.gaierror: print("no names")
"""
    said = (await out.said(code)).splitlines()
    assert len(said) == 6
    assert not any(line.startswith("reached") for line in said)
    assert said[-1] == "no names"
    assert len(out.places.good.said) == 1
    assert await out.places.breaches() == []


ATTACKING = f"""
import json, socket
def said(kind, place, raw):
    with socket.socket(kind) as it:
        it.settimeout(20); it.connect(place)
        heard = b""
        try:
            it.sendall(raw)
            while piece := it.recv(1 << 16): heard += piece
        except ConnectionError: pass
        return heard
count = cut = 0
for raw in map(bytes.fromhex, json.load(open("attacks.json"))):
    for kind, place in ((socket.AF_INET, ("127.0.0.1", {EGRESS_PORT})), (socket.AF_UNIX, {EGRESS_SOCKET!r})):
        count += 1
        cut += not said(kind, place, raw).startswith(b"HTTP/1.1 ")
print(count, cut)
"""
"""Over the port, and straight over the proxy's socket."""


def write_attacks(places: World, workspace: Path) -> int:
    table = [raw.hex() for _, raw in attacks(places.port, places.other_port)]
    (workspace / "attacks.json").write_text(json.dumps(table), encoding="ascii")
    return len(table)


async def test_no_attack_from_inside_reaches_a_forbidden_place(out: Out, workspace: Path) -> None:
    attempts = write_attacks(out.places, workspace)
    count, cut = map(int, (await out.said(ATTACKING)).split())
    assert count == 2 * attempts >= 400
    assert cut < 40
    assert await out.places.breaches() == []
    assert await out.said(out.fetching()) == GOOD


async def test_with_a_naive_proxy_behind_it_attacks_from_inside_do_get_through(
    places: World, folder: Path, workspace: Path
) -> None:
    attempts = write_attacks(places, workspace)
    async with naive_proxy(places, folder / "p"):
        session = await JAILED.open(Spec(workspace=workspace, egress=folder / "p"))
        outcome = await session.run(ATTACKING, timeout_s=60)
        await session.close()
    assert outcome.stdout.split()[0] == str(2 * attempts), outcome
    assert len(await places.breaches()) >= 100


async def test_what_goes_through_arrives_whole_both_ways_and_side_by_side(out: Out) -> None:
    size = 5_000_000
    body = bytes(range(256)) * (size // 256)
    out.places.good.answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    port = out.places.port
    code = f"""
import hashlib, urllib.request
from concurrent.futures import ThreadPoolExecutor
def get(_): return hashlib.sha256(urllib.request.urlopen("http://good.example.org:{port}/", timeout=60).read()).hexdigest()
with ThreadPoolExecutor(8) as pool: print(set(pool.map(get, range(8))))
"""
    assert await out.said(code) == str({hashlib.sha256(body).hexdigest()})
    sent = f"""
request = urllib.request.Request("http://good.example.org:{port}/", data=bytes(range(256)) * {size // 256})
print(len(urllib.request.urlopen(request, timeout=60).read()))
"""
    out.places.good.answer = b""
    out.places.good.waits_for = len(body)
    assert await out.said(sent) == str(len(GOOD))
    assert bytes(out.places.good.said[-1]).endswith(body)


async def test_without_it_nothing_of_it_is_inside(workspace: Path) -> None:
    session = await JAILED.open(Spec(workspace=workspace))
    code = f"""
import os, socket
print([name for name in os.environ if "proxy" in name.lower()], os.path.exists({EGRESS_SOCKET!r}))
with socket.socket() as probe: print(probe.connect_ex(("127.0.0.1", {EGRESS_PORT})))
"""
    outcome = await session.run(code)
    await session.close()
    assert outcome.stdout == "[] False\n111\n"


async def test_inside_it_is_in_the_environment_and_its_port_cannot_be_taken(out: Out) -> None:
    code = f"""
import os, socket
print(sorted(name for name in os.environ if "proxy" in name.lower()), os.environ["NO_PROXY"])
for port in ({EGRESS_PORT}, {EGRESS_PORT} + 1):
    for kind, address in ((socket.AF_INET, "127.0.0.1"), (socket.AF_INET, "0.0.0.0"), (socket.AF_INET6, "::")):
        with socket.socket(kind) as taker:
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taker.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            try: taker.bind((address, port)); print("taken", address, port)
            except PermissionError: print("refused")
"""
    names, *binds = (await out.said(code)).splitlines()
    assert names == (
        "['HTTPS_PROXY', 'HTTP_PROXY', 'NO_PROXY', 'http_proxy', 'https_proxy', 'no_proxy'] localhost,127.0.0.1,::1"
    )
    assert binds == ["refused"] * 6


async def test_the_relay_begins_with_the_first_connection_and_ends_with_the_session(
    places: World, folder: Path, workspace: Path
) -> None:
    async with opened(places, folder, workspace) as out:
        before = set(processes(out.session))
        await out.said("x = 1")
        assert await out.said(out.fetching()) == GOOD
        relays = [pid for pid in set(processes(out.session)) - before if is_relay(pid)]
        assert len(relays) == 1
        state = status_of(relays[0])
        assert state["CapPrm"] == state["CapEff"] == state["CapInh"] == "0" * 16
        assert (state["Seccomp"], state["NoNewPrivs"]) == ("2", "1")
        assert await out.said(out.fetching()) == GOOD
        assert [pid for pid in processes(out.session) if is_relay(pid)] == relays
    assert not is_there(relays[0])


def status_of(pid: int) -> dict[str, str]:
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return {name: value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}


def is_there(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def is_relay(pid: int) -> bool:
    """It alone has so few descriptors."""
    limits = Path(f"/proc/{pid}/limits").read_text(encoding="utf-8")
    return any(line.startswith("Max open files") and line.split()[3] == "144" for line in limits.splitlines())


async def test_programs_can_neither_see_nor_wait_for_the_relay_and_one_that_is_killed_is_made_again(out: Out) -> None:
    assert await out.said(out.fetching()) == GOOD
    (relay,) = [pid for pid in processes(out.session) if is_relay(pid)]
    inner = status_of(relay)["NSpid"].split()[-1]
    look = f"""
import os
print({inner!r} in os.listdir("/proc"), os.path.exists("/proc/{inner}/maps"))
try: print(os.wait())
except ChildProcessError: print("nobody")
"""
    assert await out.said(look) == "False False\nnobody"
    assert await out.said(f"os.kill({inner}, 9)") == ""
    for _ in range(3):
        assert await out.said(out.fetching()) == GOOD
    assert [pid for pid in processes(out.session) if is_relay(pid)] != [relay]


async def test_the_relay_cannot_be_passed_off_as_a_state_to_go_back_to(out: Out) -> None:
    await out.said("items = []\nitems.append(1)")
    assert await out.said(out.fetching()) == GOOD
    (relay,) = [pid for pid in processes(out.session) if is_relay(pid)]
    inner = status_of(relay)["NSpid"].split()[-1]
    assert await out.said(f"{LINE}\nanswers = say(copy(50, {inner}))") == ""
    await out.said("items.append(2)")
    await out.session.undo(to=1)
    assert await out.said("print(items)") == "[1]"
    assert [pid for pid in processes(out.session) if is_relay(pid)] == [relay]


async def test_undo_and_branches_do_not_know_of_it(out: Out) -> None:
    await out.said("items = [1]")
    assert await out.said(out.fetching()) == GOOD
    (relay,) = [pid for pid in processes(out.session) if is_relay(pid)]
    await out.said("items.append(2)")
    await out.session.undo()
    assert await out.said("print(items)") == "[1]"
    assert await out.said(out.fetching()) == GOOD
    branch = await out.session.fork()
    outcome = await branch.run(out.fetching(), timeout_s=30)
    assert outcome.stdout.strip() == GOOD, outcome
    await branch.close()
    assert [pid for pid in processes(out.session) if is_relay(pid)] == [relay]
    killed = await out.session.run("import os; os._exit(3)")
    assert killed.rolled_back
    assert await out.said(out.fetching()) == GOOD


async def test_close_all_cuts_what_is_connected_inside(out: Out) -> None:
    code = f"""
import socket
tunnel = socket.create_connection(("127.0.0.1", {EGRESS_PORT}))
tunnel.sendall(b"CONNECT good.example.org:{out.places.port} HTTP/1.1\\r\\n\\r\\n")
print(tunnel.recv(1000))
"""
    assert "200 Connection established" in await out.said(code)
    out.proxy.close_all()
    assert await out.said("tunnel.settimeout(20); print(tunnel.recv(1000))") == "b''"


async def test_when_the_proxy_is_gone_it_is_said(places: World, folder: Path, workspace: Path) -> None:
    async with Proxy(Egress(AllowList())).listening(folder / "p"):
        session = await JAILED.open(Spec(workspace=workspace, egress=folder / "p"))
    with anyio.fail_after(60):
        outcome = await session.run("import urllib.request; urllib.request.urlopen('http://good.example.org/')")
    await session.close()
    assert "503: Unavailable: the way out of this sandbox is closed" in (outcome.error or "")


async def test_a_way_out_that_is_no_socket_is_refused(workspace: Path, folder: Path) -> None:
    await anyio.Path(folder / "file").touch()
    with pytest.raises(SandboxUnavailable, match="is not a socket"):
        await JAILED.open(Spec(workspace=workspace, egress=folder / "file"))


@pytest.mark.parametrize("name", ["landlock", "unsafe-local"])
async def test_where_there_is_no_way_out_asking_for_one_is_refused(name: str, workspace: Path, folder: Path) -> None:
    provider = provider_named(name)
    assert not provider.capabilities.egress
    assert JAILED.capabilities.egress
    with pytest.raises(NotSupported, match="cannot give a session access"):
        await provider.open(Spec(workspace=workspace, egress=folder / "p"))
