"""Stands between an agent and the model server: counts tokens for every agent alike, and writes down what was said.

Tokens of the prompt count in full, whether the server had them cached or not. Of a request that the agent gave up
on, the prompt counts, and of the reply what had been streamed.
"""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

GONE = (OSError, http.client.HTTPException, ValueError)
"""What reading from or writing to a connection raises that is closed at either end."""


@dataclass(slots=True)
class Spent:
    prompt: int = 0
    completion: int = 0
    requests: int = 0
    cut: int = 0
    """Requests that ended without a count of the server's own."""


@dataclass(slots=True)
class _Watch:
    """One task while it runs."""

    transcript: Path
    spent: Spent = field(default_factory=Spent)
    lock: threading.Lock = field(default_factory=threading.Lock)
    upstreams: dict[http.client.HTTPConnection, socket.socket | None] = field(
        default_factory=dict[http.client.HTTPConnection, socket.socket | None]
    )
    """With the socket of each: a connection itself forgets it where the server is to close it."""
    over: bool = False

    def note(self, **entry: object) -> None:
        with self.lock, self.transcript.open("a", encoding="utf-8") as out:
            out.write(json.dumps(entry) + "\n")


class Meter:
    """A proxy on loopback. Requests count for the task that is being watched; at any other time they are refused."""

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self.host, self.port = parts.hostname or "127.0.0.1", parts.port or 80
        self.watch: _Watch | None = None
        meter = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                meter.pass_on(self, b"")

            def do_POST(self) -> None:
                meter.pass_on(self, self.rfile.read(int(self.headers.get("Content-Length") or 0)))

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002
                """The transcript says more."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = False
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._http.server_port}/v1"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    @contextmanager
    def watching(self, transcript: Path) -> Generator[Spent]:
        """What is spent until the end of the block; requests still open then are cut."""
        transcript.parent.mkdir(parents=True, exist_ok=True)
        transcript.unlink(missing_ok=True)
        watch = self.watch = _Watch(transcript)
        try:
            yield watch.spent
        finally:
            self.watch = None
            with watch.lock:
                watch.over = True
                for connected in watch.upstreams.values():
                    _hang_up(connected)
            self._settle(watch)

    def _settle(self, watch: _Watch) -> None:
        """Wait until the handlers of the cut requests have counted them."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with watch.lock:
                if not watch.upstreams:
                    return
            time.sleep(0.02)

    def pass_on(self, client: BaseHTTPRequestHandler, body: bytes) -> None:
        watch = self.watch
        if watch is None:
            client.send_error(503, "no task is running")
            return
        asked, wanted_usage = None, True
        if client.path.endswith("/completions") and body:
            asked, wanted_usage = _prepared(json.loads(body))
            body = json.dumps(asked).encode()
        upstream = http.client.HTTPConnection(self.host, self.port)
        with watch.lock:
            watch.upstreams[upstream] = None
        began = time.monotonic()
        heard = _Heard()
        status = 0
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            upstream.request(client.command, client.path, body or None, headers)
            with watch.lock:
                watch.upstreams[upstream] = upstream.sock
                if watch.over:
                    _hang_up(upstream.sock)
            answer = upstream.getresponse()
            status = answer.status
            client.send_response(status)
            client.send_header("Content-Type", answer.headers.get("Content-Type") or "application/json")
            client.end_headers()
            if asked and asked.get("stream") and status == 200:
                _relay(answer, client, heard, wanted_usage=wanted_usage)
            else:
                heard.whole = answer.read()
                client.wfile.write(heard.whole)
        except GONE:
            pass  # cut short: counted below
        finally:
            upstream.close()
            if asked is not None:
                self._count(watch, asked, heard, status, time.monotonic() - began)
            with watch.lock:
                del watch.upstreams[upstream]

    def _count(self, watch: _Watch, asked: dict[str, Any], heard: _Heard, status: int, seconds: float) -> None:
        usage, cut = heard.usage(), False
        if usage is None and status in {0, 200}:
            cut = True
            usage = {"prompt_tokens": self._prompt_tokens(asked), "completion_tokens": self._tokens(heard.said())}
        with watch.lock:
            watch.spent.requests += 1
            watch.spent.cut += cut
            watch.spent.prompt += int((usage or {}).get("prompt_tokens") or 0)
            watch.spent.completion += int((usage or {}).get("completion_tokens") or 0)
        watch.note(seconds=round(seconds, 2), status=status, cut=cut, usage=usage, request=asked, reply=heard.reply())

    def _prompt_tokens(self, asked: dict[str, Any]) -> int:
        if "messages" not in asked:
            return self._tokens(str(asked.get("prompt", "")))
        shown = self._ask("/apply-template", {"messages": asked["messages"]})
        return self._tokens(str(shown.get("prompt", "")))

    def _tokens(self, text: str) -> int:
        return len(self._ask("/tokenize", {"content": text}).get("tokens", ())) if text else 0

    def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        upstream = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            upstream.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            return json.loads(upstream.getresponse().read())
        except GONE:
            return {}
        finally:
            upstream.close()


def _hang_up(connected: socket.socket | None) -> None:
    if connected is not None:
        with suppress(OSError):
            connected.shutdown(socket.SHUT_RDWR)


def _prepared(asked: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Temperature 0 where the agent leaves it open, and usage also where it did not ask for it."""
    asked.setdefault("temperature", 0)
    if not asked.get("stream"):
        return asked, True
    options = dict(asked.get("stream_options") or {})
    wanted = bool(options.get("include_usage"))
    return {**asked, "stream_options": {**options, "include_usage": True}}, wanted


@dataclass(slots=True)
class _Heard:
    """What the server has answered so far, streamed or whole."""

    whole: bytes = b""
    chunks: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def usage(self) -> dict[str, Any] | None:
        found = [chunk["usage"] for chunk in self.chunks if chunk.get("usage")]
        return found[-1] if found else self._parsed().get("usage")

    def said(self) -> str:
        return "".join(str(delta.get("content") or "") for delta in self._deltas())

    def reply(self) -> object:
        """Chunks that carry more than text, such as calls, are kept as they came."""
        if not self.chunks:
            return self._parsed() or self.whole.decode(errors="replace")
        more = [delta for delta in self._deltas() if set(delta) - {"content", "role"}]
        ends = [str(choice["finish_reason"]) for choice in self._choices() if choice.get("finish_reason")]
        return {"text": self.said(), "more": more, "finish_reason": ends[-1] if ends else None}

    def _choices(self) -> list[dict[str, Any]]:
        return [choice for chunk in self.chunks for choice in chunk.get("choices") or ()]

    def _deltas(self) -> list[dict[str, Any]]:
        return [choice["delta"] for choice in self._choices() if choice.get("delta")]

    def _parsed(self) -> dict[str, Any]:
        try:
            return cast("dict[str, Any]", json.loads(self.whole or b"{}"))
        except ValueError:
            return {}


def _relay(
    answer: http.client.HTTPResponse, client: BaseHTTPRequestHandler, heard: _Heard, *, wanted_usage: bool
) -> None:
    """Events one by one; the one with the count goes on only to a client that asked for it."""
    skipped = False
    for line in answer:
        if line.startswith(b"data: {"):
            chunk: dict[str, Any] = json.loads(line[6:])
            heard.chunks.append(chunk)
            skipped = not wanted_usage and not chunk.get("choices") and bool(chunk.get("usage"))
            if skipped:
                continue
        elif skipped and line == b"\n":
            skipped = False
            continue
        client.wfile.write(line)
        client.wfile.flush()
