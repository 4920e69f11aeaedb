"""A model server on loopback that calls its models what it is told to."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@contextmanager
def models_served(names: Sequence[str], at_once: int) -> Generator[tuple[str, int]]:
    """Its address, and how often it must be asked until every name was given; it goes round."""
    batches = [names[start : start + at_once] for start in range(0, len(names), at_once)]
    asked = itertools.cycle(batches)

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/api/tags":
                self._say({"models": [{"name": name, "model": name} for name in next(asked)]})
            else:
                self._say({"version": "0.9.0"})

        def do_POST(self) -> None:
            self._say({"capabilities": ["tools"], "model_info": {}})

        def _say(self, what: Any) -> None:
            body = json.dumps(what).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", len(batches)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
