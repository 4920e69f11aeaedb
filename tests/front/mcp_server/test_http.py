"""`pinfold mcp-server --http`: clients beside each other, and that only those with the token get in."""

from __future__ import annotations

import http.client
import json
import os
import stat
import sys
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import aclosing, asynccontextmanager
from itertools import product
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest
from mcp.client import ClientRequestContext
from mcp.types import ElicitRequestParams, ElicitResult
from tests.front.mcp_server.sdk_clients import ERAS, Served, begin_http, end, structure, text_of

from pinfold.app import SessionStore
from pinfold.app.clients.client_sessions import server_token
from pinfold.front.mcp_server import parse_address
from pinfold.front.mcp_server.server import Guard

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]
Headers = tuple[tuple[str, str], ...]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    """One for all tests: its clients have nothing to do with each other, which is what they are about."""
    folder = tmp_path_factory.mktemp("served")
    with pytest.MonkeyPatch.context() as environment:
        for name in ("config", "data", "state", "cache"):
            environment.setenv(f"XDG_{name.upper()}_HOME", str(folder / name))
        (folder / "workspace").mkdir()
        served = begin_http(folder / "workspace")
    yield served
    end(served)


async def test_two_clients_do_not_see_each_others_session(served: Served) -> None:
    async with served.client() as one, served.client() as other:
        mine = structure(await one.call_tool("run_python", {"code": "x = 'mine'\nx"}))
        theirs = structure(await other.call_tool("run_python", {"code": "'x' in globals()"}))
        assert (mine["value"], theirs["value"]) == ("'mine'", "False")
        assert mine["session"] != theirs["session"]
        listed = structure(await other.call_tool("sessions", {}))["sessions"]
        assert [item["session"] for item in listed] == [theirs["session"]]
        for tool, given in (("run_python", {"code": "x"}), ("undo", {}), ("get_file", {"path": "a"})):
            refused = await other.call_tool(tool, {**given, "session": mine["session"]})
            assert refused.is_error
            assert "no session" in text_of(refused)
        again = structure(await one.call_tool("run_python", {"code": "x"}))
        assert again["value"] == "'mine'"


async def test_a_named_session_is_for_every_client(served: Served) -> None:
    async with served.client() as one, served.client() as other:
        await one.call_tool("open_session", {"name": "shared"})
        await one.call_tool("run_python", {"code": "x = 5", "session": "shared"})
        assert structure(await other.call_tool("run_python", {"code": "x", "session": "shared"}))["value"] == "5"
        assert not (await one.call_tool("close_session", {"session": "shared"})).is_error


async def test_requests_that_stand_alone_go_on_by_the_id_of_the_session(served: Served) -> None:
    async with served.client(mode=ERAS[1]) as client:
        first = structure(await client.call_tool("run_python", {"code": "x = 1"}))
        second = structure(await client.call_tool("run_python", {"code": "'x' in globals()"}))
        assert second["value"] == "False"
        third = structure(await client.call_tool("run_python", {"code": "x", "session": first["session"]}))
        assert third["value"] == "1"
        assert structure(await client.call_tool("sessions", {}))["sessions"] == []


async def test_a_clients_session_ends_with_it_and_all_others_with_the_server(workspace: Path) -> None:
    served = begin_http(workspace)
    try:
        async with served.client() as client:
            session = structure(await client.call_tool("run_python", {"code": "x = 1"}))["session"]
        with anyio.fail_after(60):
            while any(item.owner for item in SessionStore().sessions()):
                await anyio.sleep(0.05)
        async with served.client(mode=ERAS[1]) as client:
            other = structure(await client.call_tool("run_python", {"code": "y = 1"}))["session"]
        assert [item.id for item in SessionStore().sessions() if item.owner] == [other]
    finally:
        code = await anyio.to_thread.run_sync(end, served)
    assert code == 0
    assert {item.id for item in SessionStore().sessions()} == {session, other}
    assert all(item.owner is None for item in SessionStore().sessions())


# --- whose questions, answers and events


@pytest.fixture(scope="module")
def asking(tmp_path_factory: pytest.TempPathFactory) -> Generator[tuple[Served, Path]]:
    folder = tmp_path_factory.mktemp("asking")
    with pytest.MonkeyPatch.context() as environment:
        for name in ("config", "data", "state", "cache"):
            environment.setenv(f"XDG_{name.upper()}_HOME", str(folder / name))
        (folder / "workspace").mkdir()
        served = begin_http(folder / "workspace", "--mode", "ask")
    yield served, folder / "workspace"
    end(served)


@pytest.mark.slow
async def test_in_a_shared_session_each_client_is_asked_about_what_it_began_itself(asking: tuple[Served, Path]) -> None:
    served, workspace = asking
    asked: list[tuple[str, str]] = []
    is_second_there = anyio.Event()

    async def first(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(("first", params.message))
        await is_second_there.wait()
        return ElicitResult(action="accept", content={"decision": "allow"})

    async def second(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(("second", params.message))
        return ElicitResult(action="accept", content={"decision": "deny"})

    async with served.client(elicitation_callback=first) as one, served.client(elicitation_callback=second) as other:
        session = structure(await one.call_tool("open_session", {"name": "both"}))["session"]

        async def put(client: Any, name: str) -> None:
            await client.call_tool("put_file", {"session": session, "path": name, "content": "x"})

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(put, one, "a.txt")
            while not asked:
                await anyio.sleep(0.01)
            tasks.start_soon(put, other, "b.txt")
            for _ in range(3):
                await other.call_tool("sessions", {})
            is_second_there.set()
    assert [(who, "a.txt" in words, "b.txt" in words) for who, words in asked] == [
        ("first", True, False),
        ("second", False, True),
    ]
    assert ((workspace / "a.txt").exists(), (workspace / "b.txt").exists()) == (True, False)


class Wire:
    """A client that says what it likes."""

    def __init__(self, http: httpx2.AsyncClient, served: Served) -> None:
        self.http, self.url = http, served.url
        self.headers = {
            **dict((ACCEPT, JSON)),
            "Authorization": f"Bearer {served.token}",
            "MCP-Protocol-Version": "2025-11-25",
        }

    async def begin(self) -> None:
        params: dict[str, Any] = {**INITIALIZE["params"], "capabilities": {"elicitation": {}}}
        begun = await self.http.post(self.url, json={**INITIALIZE, "params": params}, headers=self.headers)
        self.headers["Mcp-Session-Id"] = begun.headers["mcp-session-id"]
        await self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def say(self, message: dict[str, Any], **headers: str) -> int:
        return (await self.http.post(self.url, json=message, headers={**self.headers, **headers})).status_code

    async def answer(self, id_: Any, decision: str, **headers: str) -> int:
        result = {"action": "accept", "content": {"decision": decision}}
        return await self.say({"jsonrpc": "2.0", "id": id_, "result": result}, **headers)

    @asynccontextmanager
    async def putting(self, name: str) -> AsyncGenerator[AsyncGenerator[tuple[str, dict[str, Any]]]]:
        """Events with their ids, while a file is put."""
        call = {"name": "put_file", "arguments": {"path": name, "content": f"secret {name}"}}
        message = {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call}
        async with self.http.stream("POST", self.url, json=message, headers=self.headers) as response:
            assert response.status_code == 200
            async with aclosing(_events(response)) as events:
                yield events

    async def resume(self, last: str) -> str:
        """What is sent again after the event `last`, within a moment."""
        heard = ""
        headers = {**self.headers, "Last-Event-ID": last}
        headers.pop("Content-Type")
        with anyio.move_on_after(1.5):
            async with self.http.stream("GET", self.url, headers=headers) as response:
                async for line in response.aiter_lines():
                    heard += line
        return heard


async def _events(response: httpx2.Response) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
    id_ = ""
    async for line in response.aiter_lines():
        if line.startswith("id:"):
            id_ = line[3:].strip()
        elif line.startswith("data:") and line[5:].strip():
            yield id_, json.loads(line[5:])


async def test_no_answer_of_another_client_no_second_one_and_no_events_of_another_count(
    asking: tuple[Served, Path],
) -> None:
    served, workspace = asking
    async with httpx2.AsyncClient(timeout=20, trust_env=False) as http, anyio.create_task_group() as tasks:
        mine, theirs = Wire(http, served), Wire(http, served)
        await mine.begin()
        await theirs.begin()
        for name, decision in (("no.txt", "deny"), ("yes.txt", "allow")):
            async with mine.putting(name) as events:
                seen = [await anext(events)]
                while seen[-1][1].get("method") != "elicitation/create":
                    seen.append(await anext(events))
                asked = seen[-1][1]["id"]
                against = "allow" if decision == "deny" else "deny"
                for forged in ({}, {"Mcp-Session-Id": "f" * 32}, {"Mcp-Session-Id": ""}):
                    for id_ in (asked, str(asked), 0, 1, 2):
                        await theirs.answer(id_, against, **forged)
                await mine.answer("another", against)
                tasks.start_soon(mine.answer, asked, decision)
                seen += [event async for event in events]
                await mine.answer(asked, against)  # once more, and otherwise
            assert (workspace / name).exists() == (decision == "allow")
            assert seen[-1][1]["id"] == 7
        everything = await mine.resume(seen[0][0])
        assert "yes.txt" in everything
        assert await theirs.resume(seen[0][0]) == ""
        assert await theirs.resume("0" * 24) == ""
        assert (workspace / "no.txt").exists() is False


# --- who gets in

INITIALIZE: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}
ACCEPT = ("Accept", "application/json, text/event-stream")
JSON = ("Content-Type", "application/json")


def answered(
    served: Served, headers: Iterable[tuple[str, str]], *, method: str = "POST", body: bytes | None = None
) -> int:
    """The status, or 0 where the connection was just closed."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=20)
    try:
        connection.putrequest(method, "/mcp", skip_host=True, skip_accept_encoding=True)
        data = json.dumps(INITIALIZE).encode() if body is None else body
        for name, value in (*headers, ("Content-Length", str(len(data)))):
            connection.putheader(name, value)
        connection.endheaders(data)
        response = connection.getresponse()
        assert "access-control-allow-origin" not in {name.lower() for name, _ in response.getheaders()}
        return response.status
    except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
        return 0
    finally:
        connection.close()


def hosts(port: int) -> list[Headers]:
    wrong = [
        "evil.example",
        f"evil.example:{port}",
        f"127.0.0.1.evil.example:{port}",
        f"localhost.evil.example:{port}",
        f"evil.example#127.0.0.1:{port}",
        f"127.0.0.1:{port}@evil.example",
        f"127.0.0.1:{port + 1}",
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{port}0",
        f"0.0.0.0:{port}",
        f"[::ffff:127.0.0.1]:{port}",
        f"2130706433:{port}",
        f"127.1:{port}",
        f"localhost.:{port}",
        "",
    ]
    right = f"127.0.0.1:{port}"
    return [
        *((("Host", host),) for host in wrong),
        (("Host", right), ("Host", "evil.example")),
        (("Host", "evil.example"), ("Host", right)),
        (("Host", right), ("Host", right)),
        (),
        (("X-Forwarded-Host", right), ("Host", "evil.example")),
    ]


def origins(port: int) -> list[Headers]:
    wrong = [
        "https://evil.example",
        "null",
        f"http://evil.example:{port}",
        f"http://127.0.0.1:{port}.evil.example",
        f"http://localhost:{port}@evil.example",
        f"https://127.0.0.1:{port}",
        "http://127.0.0.1",
        f"http://127.0.0.1:{port + 1}",
        "http://localhost",
        f"file://127.0.0.1:{port}",
        f"chrome-extension://127.0.0.1:{port}",
        f"http://127.0.0.1:{port}/",
        f"http://127.0.0.1:{port} https://evil.example",
        "*",
    ]
    right = f"http://127.0.0.1:{port}"
    return [
        *((("Origin", origin),) for origin in wrong),
        (("Origin", right), ("Origin", "https://evil.example")),
        (("Origin", "https://evil.example"), ("Origin", right)),
    ]


def tokens(token: str) -> list[Headers]:
    wrong = [
        "",
        "Bearer",
        "Bearer ",
        f"Bearer {token[:-1]}",
        f"Bearer {token}x",
        f"Bearer {token.upper()}",
        f"Bearer  {token}",
        f"Basic {token}",
        f"{token}",
        "Bearer null",
        "Bearer undefined",
        f"Bearer {'t' * 31}\xe9",
        f"Token {token}",
        f"Bearer {token},{token}",
    ]
    return [
        (),
        *((("Authorization", value),) for value in wrong),
        (("Authorization", f"Bearer {token}"), ("Authorization", "Bearer x")),
        (("Authorization", "Bearer x"), ("Authorization", f"Bearer {token}")),
        (("X-Authorization", f"Bearer {token}"),),
        (("Cookie", f"token={token}"),),
    ]


def attacks(served: Served) -> list[tuple[str, Headers]]:
    port = served.port
    host: Headers = (("Host", f"127.0.0.1:{port}"),)
    pass_: Headers = (("Authorization", f"Bearer {served.token}"),)
    found = [("POST", (*wrong, *pass_, ACCEPT, JSON)) for wrong in hosts(port)]
    found += [("POST", (*host, *wrong, *pass_, ACCEPT, JSON)) for wrong in origins(port)]
    found += [("POST", (*host, *wrong, ACCEPT, JSON)) for wrong in tokens(served.token)]
    kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "application/jsonp", "")
    found += [("POST", (*host, *pass_, ACCEPT, ("Content-Type", kind))) for kind in kinds]
    found += [(method, (*host, ACCEPT, JSON)) for method in ("GET", "DELETE", "OPTIONS", "HEAD", "PUT")]
    upgrade = (("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Version", "13"))
    found += [
        ("GET", (*host, *more, ("Sec-WebSocket-Key", "AAAAAAAAAAAAAAAAAAAAAA=="), *upgrade)) for more in ((), pass_)
    ]
    return found


def test_of_60_and_more_forged_requests_none_is_let_in_and_the_right_one_is(served: Served) -> None:
    port = served.port
    right = (("Host", f"127.0.0.1:{port}"), ("Authorization", f"Bearer {served.token}"), ACCEPT, JSON)
    forged = attacks(served)
    assert len(forged) >= 60
    let_in = [case for case in forged if answered(served, case[1], method=case[0]) // 100 in (1, 2, 3)]
    assert let_in == []
    more = [(("Origin", f"http://127.0.0.1:{port}"),), (("Origin", f"http://localhost:{port}"),), ()]
    assert [answered(served, (*right, *also)) for also in more] == [200, 200, 200]
    named = (("Host", f"LocalHost:{port}"), ("Authorization", f"bearer {served.token}"), ACCEPT, JSON)
    assert answered(served, named) == 200


async def test_a_guard_that_looks_at_less_lets_forged_requests_in() -> None:
    """The negative control: each check is what keeps its kind of request out."""

    async def status(guard: Guard, headers: Headers) -> int:
        seen: list[int] = []

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                seen.append(message["status"])

        async def receive() -> Any:
            return {"type": "http.request", "body": b""}

        raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in headers]
        await guard({"type": "http", "method": "POST", "headers": raw}, receive, send)
        return seen[0]

    async def app(_: Any, __: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def gone(_: str) -> None:
        pass

    class NoOne(frozenset[str]):
        def __contains__(self, _: object) -> bool:
            return True

    token, port = "t" * 32, 8484
    host, json_ = (("Host", f"127.0.0.1:{port}"),), (JSON,)
    pass_ = (("Authorization", f"Bearer {token}"),)
    cases = {
        "_hosts": (("Host", "evil.example"), *pass_, *json_),
        "_origins": (*host, ("Origin", "https://evil.example"), *pass_, *json_),
    }
    for field, headers in cases.items():
        guard = Guard(app, token=token, hosts=[f"127.0.0.1:{port}"], origins=[], on_gone=gone)
        assert await status(guard, headers) in (403, 421)
        setattr(guard, field, NoOne())
        assert await status(guard, headers) == 200
    guard = Guard(app, token="", hosts=[f"127.0.0.1:{port}"], origins=[], on_gone=gone)
    assert await status(guard, (*host, ("Authorization", "Bearer "), *json_)) == 200


def test_a_request_that_is_too_large_is_refused_and_the_server_goes_on(served: Served) -> None:
    right = (("Host", f"127.0.0.1:{served.port}"), ("Authorization", f"Bearer {served.token}"), ACCEPT, JSON)
    assert answered(served, right, body=b" " * (17 << 20)) in (0, 413)
    assert answered(served, right) == 200


def test_the_token_is_kept_for_its_user_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, place = server_token(None, "mcp-server")
    assert len(token) >= 32
    assert stat.S_IMODE(Path(place).stat().st_mode) == 0o600
    assert server_token(None, "mcp-server") == (token, place)
    Path(place).chmod(0o644)
    with pytest.raises(Exception, match="chmod"):
        server_token(None, "mcp-server")
    monkeypatch.setenv("SHORT", "secret")
    with pytest.raises(Exception, match="SHORT holds no token"):
        server_token("SHORT", "mcp-server")
    assert os.environ["SHORT"] == "secret"


@pytest.mark.parametrize(
    ("given", "host", "port"),
    [
        ("127.0.0.1:80", "127.0.0.1", 80),
        ("9000", "127.0.0.1", 9000),
        ("localhost", "127.0.0.1", 8484),
        ("[::1]:81", "::1", 81),
        (":82", "127.0.0.1", 82),
    ],
)
def test_where_to_listen_is_read_from_one_word(given: str, host: str, port: int) -> None:
    place = parse_address(given, (), ())
    assert (place.host, place.port) == (host, port)
    assert f"localhost:{port}" in place.hosts(port)


def test_an_address_others_can_reach_needs_a_name(pinfold: Pinfold) -> None:
    done = pinfold("mcp-server", "--http", "0.0.0.0:0")
    assert done.code == 2
    assert done.err.count("\n") == 1
    assert "--host-name" in done.err


@pytest.mark.parametrize(("more", "host"), list(product([("--token-env", "X"), ("--host-name", "a")], ["--http"])))
def test_options_of_http_are_refused_without_it(pinfold: Pinfold, more: tuple[str, str], host: str) -> None:
    done = pinfold("mcp-server", *more)
    assert done.code == 2
    assert host in done.err
