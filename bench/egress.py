"""What the way out costs: sessions that have one against sessions that have none, and bytes through it.

    ./.venv/bin/python bench/egress.py [-n 100] [--json FILE]

A server on this machine's loopback plays the internet. Sessions of both kinds take turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
from bench.sandbox_suite.figures import Figure, table

from pinfold.net import AllowList, Egress, Proxy
from pinfold.sandbox import Session, Spec
from pinfold.sandbox.providers.namespaces import Namespaces

BODY = bytes(64_000_000)
REQUESTS = 50
FETCH = """
import time, urllib.request
def fetch(path):
    begun = time.perf_counter()
    size = len(urllib.request.urlopen("http://speed.example.org:{port}/" + path, timeout=60).read())
    return time.perf_counter() - begun, size
"""


@asynccontextmanager
async def server() -> AsyncGenerator[int]:
    """/large is 64 MB, anything else one byte."""

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        body = BODY if b"/large" in head else b"x"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
        writer.write(body)
        await writer.drain()
        writer.close()

    listening = await asyncio.start_server(attend, "127.0.0.1", 0)
    async with listening:
        yield listening.sockets[0].getsockname()[1]


async def opened(provider: Namespaces, workspace: Path, egress: Path | None) -> tuple[float, Session]:
    """From the call to the received result of the first cell."""
    begun = time.perf_counter()
    session = await provider.open(Spec(workspace=workspace, egress=egress))
    outcome = await session.run("x = 1")
    assert outcome.status == "ok", outcome
    return time.perf_counter() - begun, session


async def value(session: Session, code: str) -> list[float]:
    outcome = await session.run(code, timeout_s=120)
    assert outcome.value is not None, outcome
    return json.loads(outcome.value)


async def measure(count: int, folder: Path) -> dict[str, Figure]:
    times: dict[str, list[float]] = {}
    workspace = folder / "workspace"
    workspace.mkdir()

    async def loopback(_host: str) -> list[str]:
        return ["127.0.0.1"]

    provider = Namespaces(pool=0)
    async with server() as port:
        egress = Egress(AllowList([f"speed.example.org:{port}", f"127.0.0.1:{port}"]), resolver=loopback)
        async with Proxy(egress).listening(folder / "p"):
            for number in range(count):
                # Whoever goes first finds the machine as the other left it.
                turns = [("start, no way out", None), ("start, with one", folder / "p")]
                for name, path in turns if number % 2 else reversed(turns):
                    took, session = await opened(provider, workspace, path)
                    times.setdefault(name, []).append(took)
                    if path is not None and number < max(1, count // 5):
                        await session.run(FETCH.format(port=port))
                        times.setdefault("first request", []).extend(await value(session, "[fetch('')[0]]"))
                        small = await value(session, f"[fetch('')[0] for _ in range({REQUESTS})]")
                        times.setdefault("next requests", []).extend(small)
                        if number < 5:
                            large = await value(session, "[fetch('large')[0]]")
                            times.setdefault("64 MB", []).extend(large)
                    await session.close()
    return {name: Figure.of(taken) for name, taken in times.items()}


def main() -> int:
    arguments = argparse.ArgumentParser(description="What the way out costs")
    arguments.add_argument("-n", type=int, default=100, help="sessions of each kind")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    given = arguments.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = anyio.run(measure, given.n, Path(folder))
    print(table(["", "median (p95)", "n"], ([name, str(one), str(one.n)] for name, one in figures.items())))
    plain, with_one = figures["start, no way out"], figures["start, with one"]
    print(f"\nstart: {with_one.median / plain.median:.3f} times as long")
    print(f"through relay and proxy: {len(BODY) / figures['64 MB'].median / 1e6:.0f} MB/s")
    if given.json:
        given.json.write_text(json.dumps({name: one.median for name, one in figures.items()}), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
