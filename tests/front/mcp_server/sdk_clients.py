"""The real server, reached by the SDK's own client: over the streams of a process, or over HTTP on loopback."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import httpx2
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import CallToolResult, TextContent
from tests.fork_server import forked

ERAS = ("legacy", "2026-07-28")
"""The handshake of old, and requests that stand alone."""


def arguments(workspace: Path, *args: str) -> list[str]:
    return ["-m", "pinfold", "mcp-server", "--workspace", str(workspace), *args]


@asynccontextmanager
async def over_stdio(workspace: Path, *args: str, mode: str = "legacy", **client: Any) -> AsyncGenerator[Client]:
    # The SDK's client hands on a few variables of ours only.
    server = StdioServerParameters(
        command=sys.executable, args=forked(*arguments(workspace, *args)), env=dict(os.environ), cwd=workspace
    )
    async with Client(stdio_client(server), mode=mode, **client) as reached:
        yield reached


@dataclass(frozen=True)
class Served:
    url: str
    token: str
    port: int
    process: subprocess.Popen[str]
    rest: threading.Thread
    """Reads what else it says."""

    @asynccontextmanager
    async def client(self, *, token: str | None = None, mode: str = "legacy", **client: Any) -> AsyncGenerator[Client]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=30, trust_env=False) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode, **client) as reached,
        ):
            yield reached


def begin_http(workspace: Path, *args: str, token: str = "t" * 32) -> Served:
    """Ends with `end`."""
    process = subprocess.Popen(
        [sys.executable, *arguments(workspace, "--http", "127.0.0.1:0", "--token-env", "TOKEN", *args)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=workspace,
        text=True,
        env={**os.environ, "TOKEN": token},
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "MCP at http://" in line, line + process.stderr.read()
    url = line.partition("MCP at ")[2].partition(";")[0]
    rest = threading.Thread(target=process.stderr.read, daemon=True)
    rest.start()
    port = int(url.rpartition(":")[2].partition("/")[0])
    return Served(url=url, token=token, port=port, process=process, rest=rest)


def end(served: Served) -> int:
    served.process.terminate()
    try:
        return served.process.wait(20)
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.rest.join(10)
        for stream in (served.process.stdout, served.process.stderr):
            assert stream is not None
            stream.close()


def text_of(result: CallToolResult) -> str:
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def structure(result: CallToolResult) -> dict[str, Any]:
    given: object = result.structured_content
    assert isinstance(given, dict), result
    return cast("dict[str, Any]", given)
