"""A real HTTP server on loopback. The test writes down every answer beforehand, faults included."""

from __future__ import annotations

import json
import socket
import ssl
import subprocess
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

PATIENCE_S = 20.0

Step: TypeAlias = bytes | threading.Event
"""Bytes are sent; an event is waited for."""


@dataclass(frozen=True, kw_only=True)
class Says:
    """One answer."""

    steps: tuple[Step, ...] = ()
    status: int = 200
    kind: str = "text/event-stream"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    end: Literal["whole", "cut", "hang"] = "whole"
    """`cut` closes the connection before the answer is whole; `hang` says no more until the client goes."""
    raw: bool = False
    """The steps are all there is: no status line, no headers."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    method: str
    path: str
    headers: Mapping[str, str]
    body: Any
    connection: int
    """Requests with the same number came over one connection."""


class Server:
    """Answers in the order written down; whoever asks more gets the last answer again."""

    def __init__(self, *answers: Says, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[Asked] = []
        self.hanging = threading.Event()
        """Set once the server says no more."""
        self.left = threading.Event()
        """Set once a client has closed a connection on which the server hung."""
        self._routes = {"": list(answers)}
        self._tls = tls
        self._connections = 0
        self._open: set[socket.socket] = set()
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self._socket.getsockname()[1]}"

    def route(self, answers: Mapping[str, Sequence[Says]]) -> None:
        """Answers by path, in place of those in order."""
        self._routes = {path: list(each) for path, each in answers.items()}

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        for connection in list(self._open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join(PATIENCE_S)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections += 1
                self._open.add(connection)
                arguments = (connection, self._connections)
                threading.Thread(target=self._serve, args=arguments, daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with connection, suppress(OSError):
            connection.settimeout(PATIENCE_S)
            if self._tls:
                connection = self._tls.wrap_socket(connection, server_side=True)
            with connection.makefile("rb") as stream:
                while (asked := _request(stream, number)) is not None:
                    self.asked.append(asked)
                    answers = self._routes.get(asked.path) or self._routes[""]
                    answer = answers.pop(0) if len(answers) > 1 else answers[0]
                    if not self._answer(connection, answer):
                        break
        self._open.discard(connection)

    def _answer(self, connection: socket.socket, answer: Says) -> bool:
        """Whether the connection can be used again."""
        if not answer.raw:
            headers = {"Content-Type": answer.kind, "Transfer-Encoding": "chunked", **answer.headers}
            lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
            connection.sendall(f"HTTP/1.1 {answer.status} Said\r\n{lines}\r\n".encode("latin-1"))
        for step in answer.steps:
            if isinstance(step, threading.Event):
                step.wait(PATIENCE_S)
            elif step:
                connection.sendall(step if answer.raw else b"%x\r\n%b\r\n" % (len(step), step))
        match answer.end:
            case "whole" if not answer.raw:
                connection.sendall(b"0\r\n\r\n")
                return True
            case "whole" | "cut":
                return False
            case "hang":
                self.hanging.set()
                with suppress(OSError):
                    while connection.recv(4096):
                        pass
                self.left.set()
                return False


def _request(stream: Any, number: int) -> Asked | None:
    line = stream.readline().decode("latin-1").split()
    if len(line) < 2:
        return None
    headers: dict[str, str] = {}
    while header := stream.readline().decode("latin-1").strip():
        name, _, value = header.partition(":")
        headers[name.lower()] = value.strip()
    body = stream.read(int(headers.get("content-length", "0")))
    return Asked(
        method=line[0], path=line[1], headers=headers, body=json.loads(body) if body else None, connection=number
    )


@dataclass(frozen=True)
class Llama:
    """A real server with a real model, in a process of its own."""

    url: str
    context: int
    process: subprocess.Popen[str]


@contextmanager
def serving(*answers: Says, tls: ssl.SSLContext | None = None) -> Generator[Server]:
    server = Server(*answers, tls=tls)
    try:
        yield server
    finally:
        server.close()


def event(value: Any) -> bytes:
    return f"data: {json.dumps(value)}\n\n".encode()


DONE = b"data: [DONE]\n\n"


def chunk(delta: Mapping[str, Any] | None = None, finish: str | None = None, **more: Any) -> bytes:
    """One chunk of a streamed chat completion."""
    choice = {"index": 0, "delta": dict(delta or {}), "finish_reason": finish}
    return event({"id": "chatcmpl-1", "object": "chat.completion.chunk", "choices": [choice], **more})


def streamed(*chunks: bytes, **more: Any) -> Says:
    return Says(steps=(*chunks, DONE), **more)


def said(*texts: str, finish: str = "stop", **more: Any) -> Says:
    """A whole streamed reply of plain text."""
    return streamed(*(chunk({"content": text}) for text in texts), chunk(finish=finish), **more)


def failing(status: int, body: Any, **headers: str) -> Says:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Says(status=status, kind="application/json", steps=(data,), headers=named)


def lines(*objects: Any, **more: Any) -> Says:
    """A stream as Ollama has it."""
    steps = tuple(json.dumps(each).encode() + b"\n" for each in objects)
    return Says(kind="application/x-ndjson", steps=steps, **more)
