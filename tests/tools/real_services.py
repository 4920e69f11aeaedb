"""What tools need of the world, for real: a session, a server on loopback, a way to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2

from pinfold.events import Sent
from pinfold.tools import BadCall
from pinfold.tools.ports import Fetched


@dataclass(frozen=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Server:
    url: str
    asked: list[Asked] = field(default_factory=list[Asked])
    answers: dict[str, tuple[int, str, bytes]] = field(default_factory=dict[str, tuple[int, str, bytes]])
    """By path without query: status, content type, body. Else it says back what it was asked."""


@contextmanager
def serving() -> Generator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            asked = Asked(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
            server.asked.append(asked)
            echo: dict[str, Any] = {
                "method": asked.method,
                "path": asked.path,
                "headers": dict(asked.headers),
                "body": body.decode("utf-8", "replace"),
            }
            default = (200, "application/json", json.dumps(echo).encode())
            status, mime, data = server.answers.get(self.path.partition("?")[0], default)
            self.send_response(status)
            self.send_header("Content-Type", mime)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(data)

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_HEAD = answer  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server = Server(f"http://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()


class PlainWeb:
    """Straight to the server, and nowhere it did not point to."""

    async def request(
        self, method: str, url: str, *, headers: Mapping[str, str], body: bytes | None, timeout_s: float, max_bytes: int
    ) -> Fetched:
        async with httpx2.AsyncClient(trust_env=False, timeout=timeout_s) as client:
            try:
                answer = await client.request(method, url, headers=headers, content=body)
            except httpx2.HTTPError as error:
                raise BadCall(f"no answer from {url}: {error}") from error
        to = f"{answer.url.host}:{answer.url.port or 443}"
        sent = Sent(to=to, out=len(body or b""), back=len(answer.content))
        mime = answer.headers.get("content-type", "")
        is_cut = len(answer.content) > max_bytes
        return Fetched(
            status=answer.status_code,
            url=str(answer.url),
            mime=mime,
            body=answer.content[:max_bytes],
            is_cut=is_cut,
            sent=(sent,),
        )


def one_secret(name: str, host: str, value: str) -> Callable[[str, str], str | None]:
    """Known for one host only."""
    return lambda asked, place: value if (asked, place) == (name, host) else None
