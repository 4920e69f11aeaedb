"""A real HTTP server on loopback that answers as it is told, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, TypeAlias

PATIENCE_S = 20.0
"""No test waits longer than this for anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    path: str
    headers: Mapping[str, str]
    """With names in lower case."""
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Whole:
    """An answer in one piece."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    mime: str = "application/json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Server-sent events."""

    events: tuple[str, ...]
    then: Literal["end", "cut", "wait"] = "end"
    """After the last of them: end as HTTP wants it, cut the connection, or wait until the other side leaves."""


Answer: TypeAlias = Whole | Stream


class Loopback:
    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self.left = threading.Event()
        """Set once somebody has closed the connection of an answer that waits."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, self))
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [asked.body for asked in self.asked]

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join(PATIENCE_S)
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, loopback: Loopback, *given: Any) -> None:
        self._loopback = loopback
        super().__init__(*given)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(path=self.path, headers=headers, body=json.loads(body))
        self._loopback.asked.append(asked)
        match self._loopback.answer(asked):
            case Whole() as whole:
                self._send_whole(whole)
            case Stream() as stream:
                self._send_stream(stream)

    def _send_whole(self, whole: Whole) -> None:
        data = whole.body.encode()
        length = {"content-length": str(len(data))}
        self._begin(whole.status, {"content-type": whole.mime, **whole.headers, **length})
        self.wfile.write(data)

    def _send_stream(self, stream: Stream) -> None:
        self._begin(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked"})
        for event in stream.events:
            data = event.encode()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
        match stream.then:
            case "end":
                self.wfile.write(b"0\r\n\r\n")
            case "cut":
                self.close_connection = True
            case "wait":
                self.connection.settimeout(PATIENCE_S)
                if not self.rfile.read(1):
                    self._loopback.left.set()
                self.close_connection = True

    def _begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@contextmanager
def loopback(answer: Callable[[Asked], Answer]) -> Generator[Loopback]:
    server = Loopback(answer)
    try:
        yield server
    finally:
        server.close()


def refusal(status: int, body: object, **headers: str) -> Whole:
    """An error as APIs send it; underscores in the names of headers are dashes."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Whole(status=status, body=json.dumps(body), headers=named)
