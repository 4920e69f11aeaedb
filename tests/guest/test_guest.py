"""The guest alone, spoken to over a bare socket: what it is to a host of any kind."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from struct import pack, unpack

import pytest

import pinfold

pytestmark = pytest.mark.integration

MAIN = Path(pinfold.__file__).parent / "guest" / "__main__.py"


class Wire:
    """The smallest host there can be."""

    def __init__(self, process: subprocess.Popen[bytes], channel: socket.socket) -> None:
        self.process = process
        self.channel = channel
        self._id = 0

    def send(self, header: dict[str, object], body: bytes = b"") -> None:
        encoded = json.dumps(header).encode()
        self.channel.sendall(pack("<II", len(encoded), len(body)) + encoded + body)

    def receive(self) -> tuple[dict[str, object], bytes]:
        header_size, body_size = unpack("<II", self._exactly(8))
        return json.loads(self._exactly(header_size)), self._exactly(body_size)

    def run(self, code: str) -> tuple[dict[str, object], bytes]:
        self._id += 1
        self.send({"id": self._id, "op": "run"}, code.encode())
        header, body = self.receive()
        assert header["id"] == self._id
        return header, body

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.channel.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return data


@contextmanager
def guest(folder: Path, python: str = sys.executable, parent: int | None = None) -> Generator[Wire]:
    ours, theirs = socket.socketpair()
    ours.settimeout(20)
    with theirs:
        process = subprocess.Popen(
            [python, "-I", str(MAIN), "serve", str(theirs.fileno()), str(parent or os.getpid())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            cwd=folder,
        )
    with process, ours:
        try:
            yield Wire(process, ours)
        finally:
            ours.close()
            process.kill()


@pytest.mark.installed
def test_it_says_hello_answers_with_the_same_id_and_leaves_when_the_host_does(tmp_path: Path) -> None:
    with guest(tmp_path) as wire:
        assert wire.receive() == ({"id": 0, "status": "hello", "protocol": 1}, b"")
        wire.send({"id": 77, "op": "run"}, b"40 + 2")
        header, body = wire.receive()
        assert header == {"id": 77, "status": "ok", "value": 2, "error": None, "interrupted": False}
        assert body == b"42"
        wire.channel.shutdown(socket.SHUT_WR)
        assert wire.process.wait(20) == 0


def interpreter(version: str) -> str | None:
    """A real one: version managers put shims of this name on PATH for versions that are not chosen."""
    managed = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python"))
    for python in (shutil.which(f"python{version}"), *map(str, managed)):
        if python and subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0:
            return python
    return None


@pytest.mark.parametrize("version", ["3.11", "3.12", "3.13", "3.14"])
def test_it_runs_on_every_python_we_support(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"python{version} is not here")
    with guest(tmp_path, python) as wire:
        wire.receive()
        assert (
            wire.run("import sys\nprint('x')\nsys.version_info[:2]")[1]
            == str(tuple(map(int, version.split(".")))).encode()
        )
        assert wire.run("import asyncio\nawait asyncio.sleep(0, 5)")[1] == b"5"
        assert wire.run("asyncio.run(asyncio.sleep(0, 6))")[1] == b"6"
        header, error = wire.run("def f(n):\n    return [][n]\nf(1)")
        assert header["status"] == "error"
        assert b"IndexError" in error
        assert b"    n: int 1\n" in error
        assert b"guest" not in error
        header, shown = wire.run("x = !echo é\ndisplay(x)")
        assert (header["status"], header["displays"]) == ("ok", [[["text/plain", 6]]]), shown
        assert "frames in the standard library" in wire.run("import json\njson.loads('[')")[1].decode()
        wire.send({"id": 9, "op": "variables"})
        rows = {row["name"]: row["cell"] for row in json.loads(wire.receive()[1])}
        assert (rows["sys"], rows["x"], rows["json"]) == (1, 5, 6)


def test_it_starts_light_and_leaves_no_name_of_ours_importable(tmp_path: Path) -> None:
    with guest(tmp_path) as wire:
        wire.receive()
        heavy = "[m for m in ('asyncio', 'inspect', 'typing', 'dataclasses', 'pathlib', 'socket', 'subprocess') if m in sys.modules]"
        assert wire.run(f"import sys\n{heavy}")[1] == b"[]"
        assert (
            wire.run(f"any('pinfold' in p and 'guest' in p for p in sys.path), {str(MAIN.parent)!r} in sys.path")[1]
            == b"(False, False)"
        )
        assert wire.run("sys.argv, sys.modules['__main__'].__dict__ is globals()")[1] == b"([''], True)"


def test_it_does_not_outlive_a_parent_that_died_first(tmp_path: Path) -> None:
    with guest(tmp_path, parent=1) as wire:
        assert wire.process.wait(20) == 0
        with pytest.raises(EOFError):
            wire.receive()


def test_an_interrupt_for_a_cell_that_has_ended_means_nothing(tmp_path: Path) -> None:
    with guest(tmp_path) as wire:
        wire.receive()
        wire.run("x = 1")
        wire.send({"id": 1, "op": "interrupt"})
        assert wire.run("x")[1] == b"1"


def test_an_interrupt_that_comes_with_the_request_ends_the_cell(tmp_path: Path) -> None:
    with guest(tmp_path) as wire:
        wire.receive()
        code = b"while True: pass"
        request, interrupt = b'{"id": 5, "op": "run"}', b'{"id": 5, "op": "interrupt"}'
        wire.channel.sendall(
            pack("<II", len(request), len(code)) + request + code + pack("<II", len(interrupt), 0) + interrupt
        )
        header, _ = wire.receive()
        assert (header["id"], header["status"], header["interrupted"]) == (5, "interrupted", True)
        assert wire.run("1")[1] == b"1"


def test_a_request_it_does_not_know_is_refused(tmp_path: Path) -> None:
    with guest(tmp_path) as wire:
        wire.receive()
        wire.send({"id": 3, "op": "dance"})
        header, body = wire.receive()
        assert header == {"id": 3, "status": "refused"}
        assert b"dance" in body


def test_its_output_is_utf8_whatever_the_locale(tmp_path: Path) -> None:
    with guest(tmp_path) as wire:
        wire.receive()
        wire.run("print('é', '\\ud800')")
        assert wire.process.stdout is not None
        assert wire.process.stdout.readline() == "é \\ud800\n".encode()
