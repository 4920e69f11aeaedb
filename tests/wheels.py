"""Packages made on the spot, and a package index that serves them over HTTP and remembers who asked for what."""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pinfold.sandbox.environment.uv import find_uv

PATIENCE_S = 30.0
# What Pinfold needs comes behind what that Python has.
_DRIVER = """
import sys
sys.path += sys.argv.pop(1).split(":")
from pinfold.__main__ import main
main()
"""
_WITH_LOCK = """
import sys
from pathlib import Path
from pinfold.sandbox.environment import store
store.LOCK = Path(sys.argv.pop(1))
from pinfold.__main__ import main
main()
"""


def uv(*args: str | Path) -> None:
    done = subprocess.run([find_uv(), *args], check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr


def pinfold_in(python: Path) -> list[str]:
    """The real command, run by the Python of another installation."""
    return [str(python), "-c", _DRIVER, ":".join(path for path in sys.path if path)]


def pinfold_with(lock: Path) -> list[str]:
    """The real command, but that the usual packages are those of this lock."""
    return [sys.executable, "-c", _WITH_LOCK, str(lock)]


def wheel(name: str, version: str, files: Mapping[str, str | bytes], requires: tuple[str, ...] = ()) -> bytes:
    """The bytes of a wheel for any Python; `files` by their path in site-packages."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {need}\n" for need in requires)
    content: dict[str, bytes] = {
        **{path: text.encode() if isinstance(text, str) else text for path, text in files.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[console_scripts]\n{name} = {name}:main\n".encode(),
    }
    record = "".join(f"{path},sha256={_digest(data)},{len(data)}\n" for path, data in content.items())
    content[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for path, data in content.items():
            archive.writestr(path, data)
    return file.getvalue()


def source(name: str, version: str, backend: str) -> bytes:
    """The bytes of a source distribution whose build runs `backend`, and needs nothing else."""
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for path, text in (("pyproject.toml", project), ("backend.py", backend), ("PKG-INFO", metadata)):
            entry = tarfile.TarInfo(f"{name}-{version}/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return file.getvalue()


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def started(answer: Callable[[BaseHTTPRequestHandler], None]) -> ThreadingHTTPServer:
    """A server on loopback that has every GET answered so, and says nothing of it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def do_HEAD(self) -> None:
            self.send_error(405)  # then uv asks for the whole

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Quietly."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server


class Index:
    """A package index on this machine's loopback."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        """Paths, in order."""
        self.held = threading.Event()
        """Set once somebody waits for a file under `hold`."""
        self._go = threading.Event()
        self._go.set()
        self._files: dict[str, bytes] = {}
        self._server = started(self._answer)

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self._server.server_address[1]}"

    @property
    def url(self) -> str:
        return f"http://{self.host}/simple"

    def add(
        self,
        name: str,
        version: str = "1.0",
        files: Mapping[str, str | bytes] | None = None,
        requires: tuple[str, ...] = (),
    ) -> str:
        """Offers a wheel, and returns the line a lock has for it."""
        content = files or {f"{name}.py": f"version = {version!r}\ndef main(): print({name!r}, version)\n"}
        data = wheel(name, version, content, requires)
        self._files[f"{name}-{version}-py3-none-any.whl"] = data
        return f"{name}=={version} --hash=sha256:{hashlib.sha256(data).hexdigest()}\n"

    def add_source(self, name: str, version: str, backend: str) -> None:
        self._files[f"{name}-{version}.tar.gz"] = source(name, version, backend)

    def hold(self) -> None:
        """Let whoever asks for a file wait until `release`."""
        self.held.clear()
        self._go.clear()

    def release(self) -> None:
        self._go.set()

    def close(self) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        self.asked.append(request.path)
        part = request.path.strip("/").split("/")
        if part[0] == "files" and part[-1] in self._files:
            self.held.set()
            self._go.wait(PATIENCE_S)
            self._send(request, 200, "application/octet-stream", self._files[part[-1]])
            return
        names = [name for name in self._files if name.partition("-")[0] == part[-1]]
        links = "".join(f'<a href="/files/{name}">{name}</a>\n' for name in names)
        self._send(request, 200 if names else 404, "text/html", f"<html><body>{links}</body></html>".encode())

    def _send(self, request: BaseHTTPRequestHandler, status: int, kind: str, data: bytes) -> None:
        try:
            request.send_response(status)
            request.send_header("Content-Type", kind)
            request.send_header("Content-Length", str(len(data)))
            request.end_headers()
            request.wfile.write(data)
        except OSError:
            pass  # whoever asked is gone
