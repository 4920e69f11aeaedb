"""Every way a server fails: the error that comes of it, and that the same model works again right after."""

from __future__ import annotations

import gzip
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import anyio
import pytest
from httpx2 import URL
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.model.model_requests import HELLO, asking, compatible, pieces, reply, user
from tests.model.servers import DONE, Says, Server, chunk, event, failing, said, serving

from pinfold.events import ContextTooLong, Reply, RequestFailed
from pinfold.model.wire.http import Patience, is_same_server
from pinfold.model.wire.openai import OpenAIModel

pytestmark = pytest.mark.integration

WAIT_S = 60
KEY = "k-0123456789"


async def failure(model: OpenAIModel) -> RequestFailed:
    with pytest.raises(RequestFailed) as caught:
        await reply(model)
    return caught.value


def fields(failure: RequestFailed) -> tuple[int | None, bool, float | None, str]:
    return failure.status, failure.retryable, failure.retry_after_s, failure.request_id


PAGE = b"<!DOCTYPE html><html><title>Welcome to nginx!</title></html>"


@pytest.mark.parametrize(
    ("fault", "message", "expected"),
    [
        (
            failing(429, {"error": {"message": "Slow\n down"}}, retry_after="7", x_request_id="r-1"),
            "429 Too Many Requests: Slow down",
            (429, True, 7.0, "r-1"),
        ),
        (
            failing(429, {"error": "busy"}, retry_after_ms="250", retry_after="1", request_id="r-2"),
            "429 Too Many Requests: busy",
            (429, True, 0.25, "r-2"),
        ),
        (failing(429, b"", retry_after="-3"), "429 Too Many Requests", (429, True, 0.0, "")),
        (failing(429, b"", retry_after="inf"), "429 Too Many Requests", (429, True, None, "")),
        (failing(429, b"", retry_after="soon"), "429 Too Many Requests", (429, True, None, "")),
        (failing(500, b"oops"), "500 Internal Server Error: oops", (500, True, None, "")),
        (failing(502, PAGE), "502 Bad Gateway: Welcome to nginx!", (502, True, None, "")),
        (
            failing(503, {"error": {"message": "Loading model", "type": "unavailable_error", "code": 503}}),
            "503 Service Unavailable: Loading model",
            (503, True, None, ""),
        ),
        (
            failing(529, {"type": "error", "error": {"message": "Overloaded"}, "request_id": "r-3"}),
            "529: Overloaded",
            (529, True, None, "r-3"),
        ),
        (
            failing(401, {"error": {"message": f"Incorrect API key: {KEY}"}}),
            "401 Unauthorized: Incorrect API key: [redacted]; check the key",
            (401, False, None, ""),
        ),
        (
            failing(404, {"error": {"message": "The model `tiny` does not exist"}}),
            "404 Not Found: The model `tiny` does not exist; is the name right? `pinfold model list` shows what is here",
            (404, False, None, ""),
        ),
        (
            failing(400, [{"error": {"message": "API key not valid", "code": 400}}]),
            "400 Bad Request: API key not valid",
            (400, False, None, ""),
        ),
        (
            failing(404, PAGE),
            "404 Not Found: Welcome to nginx!; is the URL right? {url}/v1/chat/completions",
            (404, False, None, ""),
        ),
        (
            failing(307, b"", location="https://elsewhere/"),
            "307 Temporary Redirect; the server has moved from {url}/v1/chat/completions",
            (307, False, None, ""),
        ),
        (
            Says(steps=(PAGE,), kind="text/html; charset=utf-8"),
            "{url}/v1/chat/completions did not answer with a chat reply (a web page); is the URL right?",
            (404, False, None, ""),
        ),
        (
            Says(steps=(b"Ollama is running",), kind="text/plain"),
            ("{url}/v1/chat/completions did not answer with a chat reply (Ollama is running); is the URL right?"),
            (404, False, None, ""),
        ),
        (
            Says(steps=(b'{"status": "ok"}',), kind="application/json"),
            (
                "{url}/v1/chat/completions did not answer with a chat reply (there are no choices in it); "
                "is the URL right?"
            ),
            (404, False, None, ""),
        ),
        (Says(), "the reply broke off", (None, True, None, "")),
        (Says(steps=(DONE,)), "the server sent an empty reply", (None, True, None, "")),
        (
            Says(steps=(chunk({"content": "Hel"}),), headers={"x-request-id": "r-4"}),
            "the reply broke off",
            (None, True, None, "r-4"),
        ),
        (Says(steps=(chunk({"content": "Hel"}),), end="cut"), "the reply broke off", (None, True, None, "chatcmpl-1")),
        (Says(steps=(chunk({"content": "Hel"})[:20],), end="cut"), "the reply broke off", (None, True, None, "")),
        (
            Says(steps=(chunk({"content": "Hel"}), b"data: {oops\n\n" * 4, DONE)),
            "the server sent pieces that are not JSON: '{oops'",
            (None, True, None, "chatcmpl-1"),
        ),
        (
            Says(steps=(event({"error": {"message": "Provider down", "code": 502}}),)),
            "502 Bad Gateway: Provider down",
            (502, True, None, ""),
        ),
        (
            Says(steps=(b'error: {"message": "no slot", "type": "server_error"}\n\n',)),
            "no slot",
            (None, True, None, ""),
        ),
        (
            Says(steps=(event({"object": "error", "message": "bad", "type": "invalid_request_error"}),)),
            "400 Bad Request: bad",
            (400, False, None, ""),
        ),
        (
            Says(steps=(chunk(finish="error"),)),
            "the server gave up in the middle of the reply (error)",
            (None, True, None, "chatcmpl-1"),
        ),
        (
            Says(steps=(b"not gzip at all",), headers={"Content-Encoding": "gzip"}),
            "the reply broke off",
            (None, True, None, ""),
        ),
        (
            Says(raw=True),
            "{url}/v1 did not answer: Server disconnected without sending a response.",
            (None, True, None, ""),
        ),
        (
            Says(steps=(b"SSH-2.0-OpenSSH_9.2\r\n\r\n",), raw=True),
            "{url}/v1 did not answer: illegal status line: bytearray(b'SSH-2.0-OpenSSH_9.2')",
            (None, True, None, ""),
        ),
    ],
)
async def test_each_fault_is_told_and_the_next_request_works(
    fault: Says, message: str, expected: tuple[int | None, bool, float | None, str]
) -> None:
    with serving(fault, said("fine")) as server:
        model = compatible(server.url, key=KEY)
        failed = await failure(model)
        assert str(failed) == message.replace("{url}", server.url)
        assert fields(failed) == expected
        assert (await reply(model)).text == "fine"


@pytest.mark.parametrize(
    ("fault", "message", "request_id"),
    [
        (Says(end="hang", raw=True), "no answer from {url}/v1/chat/completions within 0.2 s", ""),
        (Says(end="hang"), "no answer from {url}/v1/chat/completions within 0.2 s", ""),
        (
            Says(steps=(chunk({"content": "Hel"}),), end="hang"),
            "the reply stopped: nothing came for 0.2 s",
            "chatcmpl-1",
        ),
    ],
    ids=["before headers", "before a reply", "in a reply"],
)
async def test_a_server_that_falls_silent_is_not_waited_for(fault: Says, message: str, request_id: str) -> None:
    in_reply = bool(fault.steps)
    hurried = Patience(first_s=60, idle_s=0.2) if in_reply else Patience(first_s=0.2, idle_s=60)
    with serving(fault, said("fine")) as server:
        failed = await failure(compatible(server.url, patience=hurried))
        assert str(failed) == message.replace("{url}", server.url)
        assert fields(failed) == (None, True, None, request_id)
        assert (await reply(compatible(server.url))).text == "fine"


async def test_a_wait_may_be_told_as_a_date() -> None:
    in_ten_minutes = format_datetime(datetime.now(UTC) + timedelta(seconds=600), usegmt=True)
    with serving(failing(503, b"", retry_after=in_ten_minutes)) as server:
        failed = await failure(compatible(server.url))
    assert failed.retry_after_s is not None
    assert 100 < failed.retry_after_s <= 600


@pytest.mark.parametrize(
    ("status", "body", "size", "needed"),
    [
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 5000,
                    "n_ctx": 4096,
                }
            },
            4096,
            5000,
        ),
        (400, {"error": {"message": "Please reduce your prompt.", "code": "context_length_exceeded"}}, None, None),
        (
            400,
            {
                "object": "error",
                "message": "This model's maximum context length is 16384 tokens. However, you requested 122946 tokens "
                "(112946 in the messages, 10000 in the completion). Please reduce the length of the messages.",
            },
            16384,
            122946,
        ),
        (
            400,
            {
                "error": "Trying to keep the first 10136 tokens when context the overflows. However, the model is "
                "loaded with context length of only 7866 tokens, which is not enough."
            },
            7866,
            10136,
        ),
        (
            400,
            {
                "error": "The number of tokens to keep from the initial prompt is greater than the context length "
                "(n_keep: 13055>= n_ctx: 4096). Try to load the model with a larger context length"
            },
            4096,
            13055,
        ),
        (400, {"error": "the input length exceeds the context length"}, None, None),
        (413, {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}, 200000, 210000),
    ],
)
async def test_a_conversation_that_does_not_fit_is_told_as_such(
    status: int, body: Any, size: int | None, needed: int | None
) -> None:
    with serving(failing(status, body, x_request_id="r-5")) as server:
        model = compatible(server.url)
        failed = await failure(model)
    assert isinstance(failed, ContextTooLong)
    assert (failed.size, failed.needed) == (size, needed)
    assert fields(failed) == (status, False, None, "r-5")
    assert model.context == size
    assert str(failed).startswith("the conversation ")


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (429, "Request too large: maximum context length per minute exceeded"),
        (400, "messages: field required"),
        (
            400,
            "'max_tokens' or 'max_completion_tokens' is too large: 9000. This model's maximum context length is 4096",
        ),
    ],
)
async def test_other_refusals_are_not_taken_for_it(status: int, words: str) -> None:
    with serving(failing(status, {"error": {"message": words}})) as server:
        assert not isinstance(await failure(compatible(server.url)), ContextTooLong)


async def test_what_breaks_after_the_last_word_breaks_nothing() -> None:
    whole = (chunk({"content": "fine"}), chunk(finish="stop"))
    faults = [
        Says(steps=whole, end="cut"),
        Says(steps=(*whole, b"data: {oops\n\n")),
        Says(steps=(*whole, event({"error": "late"}))),
        Says(steps=(*whole, DONE), end="hang"),
    ]
    with serving(*faults) as server:
        for _ in faults:
            assert (await reply(compatible(server.url))).text == "fine"


async def test_one_bad_piece_is_passed_over_and_said() -> None:
    parts = (chunk({"content": "Hel"}), b"data: {oops\n\n", chunk({"content": "lo"}), chunk(finish="stop"), DONE)
    with serving(Says(steps=parts)) as server:
        said = await reply(compatible(server.url))
    assert said.text == "Hello"
    assert said.notices[0].startswith("1 of the pieces that the server sent could not be read")


@pytest.mark.parametrize("end", [b"\r", b"\r\n"])
async def test_lines_may_end_in_any_way_and_be_cut_anywhere(end: bytes) -> None:
    whole = b"".join((chunk({"content": "Hel"}), chunk({"content": "lo"}), chunk(finish="stop"), DONE))
    body = whole.replace(b"\n", end)
    with serving(*(Says(steps=(body[:at], body[at:])) for at in range(1, 400, 7))) as server:
        for _ in range(1, 400, 7):
            assert (await reply(compatible(server.url))).text == "Hello"


async def test_a_server_that_has_moved_is_followed_within_its_own_address_only() -> None:
    good = Says(steps=(chunk({"content": "here"}), chunk(finish="stop"), DONE))
    with serving(good) as another_port:
        near = Says(status=307, headers={"location": "/elsewhere/chat/completions"})
        far = [
            Says(status=307, headers={"location": f"{place}/chat/completions"})
            for place in ("http://host.invalid/v1", another_port.url)
        ]
        with serving(near, good, *far) as server:
            assert (await reply(compatible(server.url))).text == "here"
            for _ in far:
                assert "the server has moved" in str(await failure(compatible(server.url)))


@pytest.mark.parametrize(
    ("url", "moved", "is_same"),
    [
        ("https://a.example/v1", "https://a.example/v2", True),
        ("http://a.example/v1", "https://a.example/v1", True),
        ("https://a.example/v1", "http://a.example/v1", False),
        ("https://a.example/v1", "https://a.example:8443/v1", False),
        ("http://a.example:8000/v1", "https://a.example/v1", False),
        ("https://a.example/v1", "https://b.example/v1", False),
    ],
)
def test_a_key_stays_with_its_server_and_is_never_sent_in_clear_after_tls(
    url: str, moved: str, *, is_same: bool
) -> None:
    assert is_same_server(URL(url), URL(moved)) is is_same


async def test_an_account_without_credit_is_not_asked_again() -> None:
    body = {"error": {"message": "You exceeded your current quota", "code": "insufficient_quota"}}
    with serving(failing(429, body), failing(429, {"error": {"message": "slow down"}})) as server:
        assert not (await failure(compatible(server.url))).retryable
        assert (await failure(compatible(server.url))).retryable


async def listen(model: OpenAIModel, shown: list[Any]) -> None:
    async for piece in model.stream(HELLO):
        shown.append(piece)  # noqa: PERF401 - what came before an error counts too


async def test_a_reply_that_came_in_part_is_shown_in_part() -> None:
    with serving(Says(steps=(chunk({"content": "Hel"}),), end="cut")) as server:
        model = compatible(server.url)
        shown: list[Any] = []
        with pytest.raises(RequestFailed, match="the reply broke off"):
            await listen(model, shown)
        await model.aclose()
    assert shown == ["Hel"]


@pytest.mark.parametrize(
    ("url", "message", "retryable"),
    [
        ("http://127.0.0.1:{port}/v1", "nothing answers at http://127.0.0.1:{port}/v1; is the server running?", True),
        ("http://user:pw@127.0.0.1:{port}", "nothing answers at http://127.0.0.1:{port}; is the server running?", True),
        ("ftp://x/v1", "'ftp://x/v1' is not the URL of a server: ", False),
        ("localhost:8080/v1", "is not the URL of a server: ", False),
        ("http://[::1", "is not the URL of a server: ", False),
        ("", "is not the URL of a server: ", False),
        (
            "http://no-such-host.invalid/v1",
            "nothing answers at http://no-such-host.invalid/v1: Host name not found. ",
            True,
        ),
    ],
)
async def test_a_server_that_is_not_there_is_told(url: str, message: str, retryable: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    model = OpenAIModel(name="m", base_url=url.replace("{port}", str(port)), model="m")
    failed = await failure(model)
    assert message.replace("{port}", str(port)) in str(failed)
    assert "pw" not in str(failed)
    assert (failed.status, failed.retryable) == (None, retryable)


async def test_a_server_that_takes_no_connection_is_not_waited_for() -> None:
    with ExitStack() as stack:
        full = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        model = compatible(url, patience=Patience(connect_s=0.2, first_s=30, idle_s=30))
        failed = await failure(model)
    assert str(failed) == f"{url}/v1 did not accept the connection within 0.2 s; is the server running?"
    assert failed.retryable


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_a_server_without_tls_is_told(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        url = f"https://127.0.0.1:{listening.getsockname()[1]}"
        failed = await failure(compatible(url))
    assert str(failed) == f"{url}/v1 does not speak TLS; should the URL begin with http:?"


@pytest.fixture
def own_certificate(tmp_path: Path) -> ssl.SSLContext:
    if shutil.which("openssl") is None:
        pytest.skip("there is no openssl to make a certificate with")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


async def test_a_certificate_that_nobody_vouches_for_is_told(own_certificate: ssl.SSLContext) -> None:
    with serving(said("fine"), tls=own_certificate) as server:
        failed = await failure(compatible(server.url))
        assert f"the certificate of {server.url}/v1 is not trusted: " in str(failed)
    assert not failed.retryable


@pytest.mark.parametrize("key", ["sk-\u00e9", "sk-a\nb"])
async def test_a_key_that_no_header_can_hold_is_told_without_asking(key: str) -> None:
    with serving(said("fine")) as server:
        failed = await failure(compatible(server.url, key=key))
    assert str(failed) == "the key has characters that a header cannot hold"
    assert (failed.retryable, server.asked) == (False, [])


async def test_a_request_that_is_no_json_is_told_without_asking() -> None:
    with serving(said("fine")) as server:
        model = compatible(server.url)
        with pytest.raises(RequestFailed, match="cannot be written as JSON") as caught:
            await reply(model, asking(user("x"), settings={"temperature": float("nan")}))
    assert (caught.value.retryable, server.asked) == (False, [])


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ((b"data: " + b"x" * 2**20,) + (b"x" * 2**20,) * 16, "the server sent a line of over 16 MB"),
        pytest.param((b": comment\n" * 100_000,) * 68, "the server sent a reply of over 64 MB", marks=pytest.mark.slow),
    ],
)
async def test_what_is_too_much_is_not_read_to_the_end(steps: tuple[bytes, ...], message: str) -> None:
    with serving(Says(steps=steps), said("fine")) as server:
        model = compatible(server.url)
        assert str(await failure(model)) == message
        assert (await reply(model)).text == "fine"


@pytest.mark.slow
async def test_packed_data_is_unpacked_within_the_same_bounds() -> None:
    plain = b"".join([chunk({"content": "fine"}), chunk(finish="stop"), DONE])
    bomb = gzip.compress(b": comment\n" * 7_000_000)
    packed = {"Content-Encoding": "gzip"}
    with serving(Says(steps=(gzip.compress(plain),), headers=packed), Says(steps=(bomb,), headers=packed)) as server:
        model = compatible(server.url)
        assert (await reply(model)).text == "fine"
        assert str(await failure(model)) == "the server sent a reply of over 64 MB"


async def left(server: Server) -> bool:
    return await anyio.to_thread.run_sync(server.left.wait, 5)


@pytest.mark.parametrize(
    "answer",
    [Says(steps=(chunk({"content": "x"}),), end="hang"), Says(end="hang"), Says(end="hang", raw=True)],
    ids=["in a reply", "before a reply", "before headers"],
)
async def test_cancelling_closes_the_connection_at_once(answer: Says) -> None:
    with serving(answer) as server:
        model = compatible(server.url)
        async with anyio.create_task_group() as tasks:

            async def ask() -> None:
                await pieces(model)

            tasks.start_soon(ask)
            assert await anyio.to_thread.run_sync(server.hanging.wait, 5)
            assert not server.left.is_set()
            tasks.cancel_scope.cancel()
        assert await left(server)


async def test_not_listening_to_the_end_closes_the_connection_at_once() -> None:
    with serving(Says(steps=(chunk({"content": "x"}),), end="hang"), said("fine")) as server:
        model = compatible(server.url)
        stream = model.stream(HELLO)
        assert await anext(stream) == "x"
        await stream.aclose()
        assert await left(server)
        assert (await reply(model)).text == "fine"


async def test_a_piece_is_there_as_soon_as_the_server_sent_it() -> None:
    go = threading.Event()
    steps = (chunk({"content": "first"}), go, chunk({"content": "second"}), chunk(finish="stop"), DONE)
    with serving(Says(steps=steps)) as server:
        model = compatible(server.url)
        stream = model.stream(HELLO)
        assert await anext(stream) == "first"
        go.set()
        assert await anext(stream) == "second"
        await stream.aclose()
        await model.aclose()


async def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with serving(failing(502, b"proxied")) as proxy, serving(said("fine")) as server:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        assert (await reply(compatible(server.url))).text == "fine"
        elsewhere = OpenAIModel(name="m", base_url="http://models.invalid/v1", model="m")
        assert str(await failure(elsewhere)) == "502 Bad Gateway: proxied"
        monkeypatch.setenv("HTTP_PROXY", "gopher://x")
        elsewhere = OpenAIModel(name="m", base_url="http://models.invalid/v1", model="m")
        failed = await failure(elsewhere)
        assert "proxy" in str(failed)
        assert not failed.retryable


FRAGMENTS = st.sampled_from(
    [
        b"data: ",
        b"data: [DONE]\n\n",
        b"\n\n",
        b"\r\n",
        b"{}",
        b"null",
        b"<html>",
        b"\xff\xfe",
        b'{"choices": [',
        b"]}",
        chunk({"content": "x"}),
        chunk({"content": "<think>\ud800"}),
        chunk({"content": [{"type": "text"}, 3]}),
        chunk({"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{"}}]}),
        chunk({"tool_calls": [{"function": {"arguments": {"a": [1]}}}, None, 4]}),
        chunk({"tool_calls": {}, "reasoning": 3, "refusal": []}),
        chunk(finish="stop"),
        chunk(finish="length", usage={"prompt_tokens": -1}),
        event({"error": {"message": {"detail": [[]]}}}),
        event({"choices": [{"message": {"content": "whole"}}]}),
        event({"choices": {"0": 1}, "id": 7, "usage": []}),
        event([1]),
        b"data: " + b"[" * 100_000 + b"\n\n",
        b'data: {"choices": [{"delta": {"content": "' + b"x" * 100_000 + b'"}}]}\n\n',
        b"data: 1" + b"0" * 5000 + b"\n\n",
    ]
)
BODIES = st.lists(FRAGMENTS | st.binary(max_size=30), max_size=8).map(b"".join)
HEADS = st.sampled_from(
    [
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 40\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: \xff\r\nSet-Cookie: \xff=;;=\r\nContent-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 429 x\r\nRetry-After: Mon, 99 Foo 99999 99:99:99 GMT\r\n\r\n",
        b"HTTP/1.1 999 x\r\nRetry-After: 1e999\r\nX-Request-Id: \xe9\r\n\r\n",
        b"HTTP/0.9 200\r\n\r\n",
        b"",
    ]
)


def chopped(data: bytes, places: list[int]) -> tuple[bytes, ...]:
    cuts = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return tuple(data[start:end] for start, end in pairwise(cuts))


async def ended(answer: Says) -> Reply | RequestFailed:
    with serving(answer) as server:
        try:
            return await reply(
                compatible(server.url, patience=Patience(connect_s=WAIT_S, first_s=WAIT_S, idle_s=WAIT_S))
            )
        except RequestFailed as failed:
            return failed


def check_the_end(answer: Says) -> None:
    """It comes soon, and it is a line for the user or a reply that can be kept."""
    began, worked = time.monotonic(), time.process_time()
    end = anyio.run(ended, answer)
    # Time of its own, for the machine may be busy; and no wait that ended only because patience did.
    assert time.process_time() - worked < 10
    assert time.monotonic() - began < WAIT_S
    if isinstance(end, RequestFailed):
        assert len(str(end).splitlines()) == 1
    else:
        assert json.dumps([end.text, end.reasoning, end.echo, [call.args for call in end.calls]])


@settings(max_examples=200)
@given(body=BODIES, places=st.lists(st.integers(0, 5000), max_size=5), cut=st.booleans())
def test_any_body_chopped_anywhere_ends_in_a_reply_or_a_failed_request(
    body: bytes, places: list[int], cut: bool
) -> None:
    answer = Says(steps=chopped(body, places), end="cut" if cut else "whole")
    check_the_end(answer)


@settings(max_examples=150)
@given(head=HEADS, body=BODIES, junk=st.binary(max_size=40), places=st.lists(st.integers(0, 500), max_size=3))
def test_any_bytes_at_all_end_in_a_reply_or_a_failed_request(
    head: bytes, body: bytes, junk: bytes, places: list[int]
) -> None:
    check_the_end(Says(steps=chopped(head + body + junk, places), raw=True))
