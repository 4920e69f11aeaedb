"""Who gets in: every route is walked with every wrong request, and the same requests without the gate."""

from __future__ import annotations

import re
from collections.abc import Iterator

import anyio.lowlevel
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp, Message

from pinfold.app.clients import OpenTerms, ServedSessions
from pinfold.front.server.gate import CODE_S, Credentials, Gate
from pinfold.front.server.server import AccessLog, make_app

pytestmark = pytest.mark.safety
HOST = "127.0.0.1:8000"
TOKEN = "t" * 32
GOOD = {"host": HOST, "authorization": f"Bearer {TOKEN}", "content-type": "application/json"}
PUBLIC = {
    ("GET", "/"),
    ("GET", "/assets/{name}"),
    ("GET", "/health"),
    ("GET", "/openapi.json"),
    ("GET", "/docs"),
    ("POST", "/api/login"),
}
"""A route that is to be reached without a token is listed here as well as in the gate."""
REFUSED = {401, 403, 415, 421}


@pytest.fixture
def gate() -> Gate:
    return make_app(ServedSessions(OpenTerms()), Credentials(TOKEN), {HOST, "localhost:8000"})


def routes(gate: Gate) -> Iterator[tuple[str, str]]:
    for route in bare(gate).routes:
        assert isinstance(route, Route), f"{route} is no plain route: the walk does not know it"
        for method in sorted((route.methods or set()) - {"HEAD"}):
            yield method, route.path


def bare(gate: Gate) -> Starlette:
    """What is behind the gate."""
    assert isinstance(gate.app, AccessLog)
    assert isinstance(gate.app.app, Starlette)
    return gate.app.app


def wrong_requests() -> Iterator[tuple[str, dict[str, str]]]:
    def less(*names: str, **more: str) -> dict[str, str]:
        return {name: value for name, value in {**GOOD, **more}.items() if name not in names}

    yield "no token", less("authorization")
    yield "wrong token", less(authorization="Bearer " + "x" * 32)
    yield "empty token", less(authorization="Bearer ")
    yield "token as a password", less(authorization=f"Basic {TOKEN}")
    for host in (
        "evil.example",
        "evil.example:8000",
        f"{HOST}.evil.example",
        "127.0.0.1",
        f"{HOST}@evil",
        "[::1]:8000",
    ):
        yield f"host {host}", less(host=host)
    for origin in ("https://evil.example", "null", "http://127.0.0.1:8001", "http://127.0.0.1", f"https://{HOST}"):
        yield f"origin {origin}", less(origin=origin)
    yield "another site's page", less(**{"sec-fetch-site": "cross-site"})
    yield "another site's form", less("authorization", **{"content-type": "text/plain"}, origin="https://evil.example")


async def status(app: ASGIApp, method: str, path: str, headers: dict[str, str], body: bytes = b"{}") -> int:
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        sent = body if method not in ("GET", "DELETE") else None
        response = await client.request(method, path, headers=headers, content=sent)
        assert "access-control-allow-origin" not in response.headers
        assert "set-cookie" not in response.headers
        return response.status_code


def example(path: str) -> str:
    return re.sub(r"\{(\w+)(:path)?\}", "s_000000000000", path)


async def test_no_route_answers_a_wrong_request_and_without_the_gate_all_would(gate: Gate) -> None:
    accepted: list[str] = []
    without: set[tuple[str, str]] = set()
    for method, path in routes(gate):
        for what, headers in wrong_requests():
            is_open = (method, path) in PUBLIC and not what.startswith(("host", "origin", "another"))
            got = await status(gate, method, example(path), headers)
            if not is_open and got not in REFUSED and not (path == "/" and what == "another site's page"):
                accepted.append(f"{method} {path} with {what}: {got}")
        if await status(bare(gate), method, example(path), {"host": "evil.example"}) not in REFUSED:
            without.add((method, path))
        assert await status(gate, method, example(path), GOOD) not in REFUSED - {403}, (method, path)
    assert accepted == []
    assert without == set(routes(gate)), "the control does not answer everywhere"


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]
)
async def test_what_a_form_of_another_site_can_send_is_no_json(gate: Gate, kind: str) -> None:
    form_is_offered = {"/api/sessions/{session}/files", "/v1/files"}
    for method, path in routes(gate):
        if method in ("POST", "PUT", "PATCH") and not (kind.startswith("multipart") and path in form_is_offered):
            assert await status(gate, method, example(path), {**GOOD, "content-type": kind}) == 415, (method, path)


async def test_a_websocket_is_closed_wherever_it_knocks(gate: Gate) -> None:
    for path in ("/", "/api/sessions", "/v1/chat/completions", "/ws"):
        sent: list[Message] = []

        async def receive() -> Message:
            await anyio.lowlevel.checkpoint()
            return {"type": "websocket.connect"}

        async def send(message: Message, to: list[Message] = sent) -> None:
            await anyio.lowlevel.checkpoint()
            to.append(message)

        headers = [(name.encode(), value.encode()) for name, value in GOOD.items()]
        scope = {"type": "websocket", "path": path, "headers": headers, "query_string": b""}
        await gate(scope, receive, send)
        assert [message["type"] for message in sent] == ["websocket.close"]


def test_a_login_code_is_good_once_and_for_a_minute() -> None:
    now = 0.0
    credentials = Credentials(TOKEN, clock=lambda: now)
    code = credentials.codes.issue()
    token = credentials.log_in(code)
    assert token is not None
    assert credentials.name_of(token) != credentials.name_of(TOKEN)
    assert credentials.log_in(code) is None
    late = credentials.codes.issue()
    now = CODE_S + 1
    assert credentials.log_in(late) is None
    assert credentials.log_in("") is None
    assert credentials.name_of(token), "a page stays logged in"
    assert Credentials(TOKEN).name_of(token), "also when the server is started again"
    assert Credentials("u" * 32).name_of(token) == "", "but not with another token"
    for forged in (
        token[:-1],
        f"{token}0",
        token.replace(".", ""),
        f"{'0' * 32}.{token.partition('.')[2]}",
        "ü.x",
        ".",
    ):
        assert credentials.name_of(forged) == "", forged


async def test_a_ticket_opens_its_own_path_once(gate: Gate) -> None:
    credentials = bare(gate).state.credentials
    path = "/api/sessions/s_000000000000/export"
    plain = {"host": HOST}
    ticket = credentials.tickets.issue(path)
    assert await status(gate, "GET", f"/api/sessions/s_000000000000/sent?ticket={ticket}", plain) == 401
    ticket = credentials.tickets.issue(path)
    assert await status(gate, "POST", f"{path}?ticket={ticket}", plain) == 401
    ticket = credentials.tickets.issue(path)
    assert await status(gate, "GET", f"{path}?ticket={ticket}", plain) == 404, (
        "it is let in, and there is no such session"
    )
    assert await status(gate, "GET", f"{path}?ticket={ticket}", plain) == 401


async def test_a_refusal_repeats_nothing_and_an_answer_cannot_be_framed_or_sniffed(gate: Gate) -> None:
    transport = httpx2.ASGITransport(app=gate)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{HOST}") as client:
        refused = await client.get("/api/sessions/<script>", headers={"authorization": "Bearer <script>"})
        assert refused.status_code == 401
        assert "script" not in refused.text
        answered = await client.get("/", headers={"host": HOST})
        assert answered.status_code == 200
        assert "frame-ancestors 'none'" in answered.headers["content-security-policy"]
        assert "script-src" not in answered.headers["content-security-policy"], "scripts come from 'self' alone"
        assert answered.headers["x-content-type-options"] == "nosniff"
        assert answered.headers["cache-control"] == "no-store"
