"""Tokens are counted alike for every agent, whether it streams, asks for usage, or goes away."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from bench.task_suite.meter import Meter

pytestmark = pytest.mark.integration
TEXT = {"choices": [{"delta": {"content": "hi"}}]}
USAGE: dict[str, Any] = {"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 3}}


class Model(BaseHTTPRequestHandler):
    """Speaks as llama.cpp does. A request for `forever` is not answered to the end."""

    seen: list[dict[str, Any]]
    leave: threading.Event

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.send_response(200)
        self.end_headers()
        if self.path == "/tokenize":
            self.wfile.write(json.dumps({"tokens": asked["content"].split()}).encode())
        elif self.path == "/apply-template":
            self.wfile.write(json.dumps({"prompt": "four words of prompt"}).encode())
        else:
            self.seen.append(asked)
            self.answer(asked)

    def answer(self, asked: dict[str, Any]) -> None:
        if not asked.get("stream"):
            self.wfile.write(json.dumps({"usage": USAGE["usage"], "choices": []}).encode())
            return
        self.send(TEXT)
        if asked.get("forever"):
            self.leave.wait(20)
            return
        if asked.get("stream_options", {}).get("include_usage"):
            self.send(USAGE)
        self.wfile.write(b"data: [DONE]\n\n")

    def send(self, chunk: dict[str, Any]) -> None:
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Quiet."""


@pytest.fixture
def model() -> Generator[type[Model]]:
    class Own(Model):
        seen: list[dict[str, Any]] = []  # noqa: RUF012
        leave = threading.Event()

    yield Own
    Own.leave.set()


@pytest.fixture
def meter(model: type[Model]) -> Generator[Meter]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), model)
    threading.Thread(target=server.serve_forever).start()
    meter = Meter(f"http://127.0.0.1:{server.server_port}")
    yield meter
    model.leave.set()
    meter.close()
    server.shutdown()
    server.server_close()


def say(meter: Meter, **body: object) -> str:
    request = urllib.request.Request(
        f"{meter.url}/chat/completions",
        json.dumps({"messages": [], **body}).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=20) as answer:
        return answer.read().decode()


def test_whole_and_streamed_replies_count_the_same(meter: Meter, tmp_path: Path) -> None:
    with meter.watching(tmp_path / "a.jsonl") as whole:
        say(meter)
    with meter.watching(tmp_path / "b.jsonl") as streamed:
        say(meter, stream=True)
    assert (whole.prompt, whole.completion, whole.requests, whole.cut) == (20, 3, 1, 0)
    assert streamed == whole


def test_an_agent_sees_a_count_in_the_stream_only_if_it_asked(meter: Meter, tmp_path: Path) -> None:
    with meter.watching(tmp_path / "a.jsonl"):
        assert "usage" not in say(meter, stream=True)
        assert "usage" in say(meter, stream=True, stream_options={"include_usage": True})


def test_temperature_is_zero_unless_the_agent_says_otherwise(meter: Meter, model: type[Model], tmp_path: Path) -> None:
    with meter.watching(tmp_path / "a.jsonl"):
        say(meter)
        say(meter, temperature=0.7)
    assert [asked["temperature"] for asked in model.seen] == [0, 0.7]


def test_a_request_that_is_cut_counts_with_what_was_heard(meter: Meter, tmp_path: Path) -> None:
    with meter.watching(tmp_path / "a.jsonl") as spent:
        request = urllib.request.Request(
            f"{meter.url}/chat/completions", json.dumps({"messages": [], "stream": True, "forever": True}).encode()
        )
        stream = urllib.request.urlopen(request, timeout=20)
        assert b"hi" in stream.readline()
    stream.close()
    assert (spent.prompt, spent.completion, spent.requests, spent.cut) == (4, 1, 1, 1)


def test_the_transcript_holds_request_and_reply(meter: Meter, tmp_path: Path) -> None:
    with meter.watching(tmp_path / "a.jsonl"):
        say(meter, stream=True, messages=[{"role": "user", "content": "hello"}])
    (line,) = [json.loads(text) for text in (tmp_path / "a.jsonl").read_text(encoding="utf-8").splitlines()]
    assert line["request"]["messages"][0]["content"] == "hello"
    assert line["reply"]["text"] == "hi"


def test_nothing_is_passed_on_between_tasks(meter: Meter, model: type[Model]) -> None:
    with pytest.raises(urllib.error.HTTPError, match="503"):
        say(meter)
    assert model.seen == []
