"""Who is examined: the SDK's everything-server alone, the same behind Pinfold, and Pinfold itself."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO

import anyio.to_thread
from bench.conformance_suite.door import door

ROOT = Path(__file__).resolve().parents[2]
SDK = "https://github.com/modelcontextprotocol/python-sdk"
EVERYTHING = "examples/servers/everything-server"
TOKEN = "conformance-" + "t" * 32
START_S = 60.0


def everything_had(scratch: Path, given: Path | None) -> Path:
    """The folder of the everything-server: the one that is given, else a clone of the SDK."""
    if given is not None:
        found = given / EVERYTHING if (given / EVERYTHING).is_dir() else given
    else:
        clone = scratch / "python-sdk"
        if not clone.exists():
            command = ["git", "clone", "-q", "--depth", "1", SDK, str(clone)]
            if subprocess.run(command, check=False).returncode:
                raise SystemExit(f"{SDK} cannot be reached; name a copy with --everything FOLDER")
        found = clone / EVERYTHING
    if not (found / "mcp_everything_server").is_dir():
        raise SystemExit(f"{found} holds no mcp_everything_server")
    return found


@contextmanager
def everything(folder: Path) -> Generator[str]:
    port = _free()
    command = [sys.executable, "-m", "mcp_everything_server", "--port", str(port)]
    with _started(command, port, cwd=folder):
        yield f"http://localhost:{port}/mcp"


@asynccontextmanager
async def pinfold(*args: str, upstream: str | None = None) -> AsyncGenerator[str]:
    """`pinfold mcp-server` on loopback, behind a door that brings the token."""
    with tempfile.TemporaryDirectory() as made:
        home = Path(made)
        (home / "workspace").mkdir()
        for name in ("config", "data", "state", "cache"):
            (home / name).mkdir(mode=0o700)
        environment = {f"XDG_{name.upper()}_HOME": str(home / name) for name in ("config", "data", "state", "cache")}
        if upstream:
            _configured(home / "config" / "pinfold", upstream)
        port, front = _free(), _free()
        command = [
            *(sys.executable, "-m", "pinfold", "mcp-server", "--http", f"127.0.0.1:{port}", "--token-env", "TOKEN"),
            *("--host-name", f"localhost:{front}", "--allow-origin", f"http://localhost:{front}"),
            *("--host-name", f"127.0.0.1:{front}", "--allow-origin", f"http://127.0.0.1:{front}"),
            *("--workspace", str(home / "workspace"), "--ephemeral", *args),
        ]
        more = {**environment, "TOKEN": TOKEN, "PYTHONPATH": str(ROOT / "src")}
        started = _started(command, port, env={**os.environ, **more})
        await anyio.to_thread.run_sync(started.__enter__)
        try:
            async with door(port, TOKEN, front):
                yield f"http://localhost:{front}/mcp"
        finally:
            await anyio.to_thread.run_sync(started.__exit__, None, None, None)


def _configured(folder: Path, url: str) -> None:
    folder.mkdir(mode=0o700)
    file = folder / "mcp.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps({"mcpServers": {"everything": {"url": url}}}), encoding="utf-8")


@contextmanager
def _started(
    command: list[str], port: int, *, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Generator[None]:
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, stderr=said, stdin=subprocess.DEVNULL, cwd=cwd, env=env)
        try:
            _wait(process, port, said)
            yield
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _wait(process: subprocess.Popen[bytes], port: int, said: IO[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    said.seek(0)
    raise SystemExit(f"it did not start: {said.read().decode()[-2000:]}")


def _free() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
