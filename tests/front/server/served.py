"""The real `pinfold serve`, as a process on loopback."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import httpx2

TOKEN = "t" * 32


@dataclass
class Served:
    url: str
    code: str
    token: str
    process: subprocess.Popen[str]
    rest: threading.Thread
    said: list[str] = field(default_factory=list[str])

    def client(self, token: str | None = None) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=60, trust_env=False)


def begin(workspace: Path, *args: str, token_file: Path | None = None) -> Served:
    """Ends with `end`."""
    file = token_file or workspace.parent / "serve.token"
    if not file.exists():
        file.touch(0o600)
        file.write_text(TOKEN)
    process = subprocess.Popen(
        [sys.executable, "-m", "pinfold", "serve", "--port", "0", "--no-open", "--token-file", str(file), *args],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=workspace,
        text=True,
        env=dict(os.environ),
    )
    assert process.stderr is not None
    said: list[str] = []
    for line in process.stderr:
        said.append(line)
        if "serving at http://" in line:
            break
    else:
        raise AssertionError("".join(said))
    url, _, code = said[-1].partition("serving at ")[2].strip().partition("/#code=")
    rest = threading.Thread(target=lambda: said.extend(process.stderr or ()), daemon=True)
    rest.start()
    return Served(url, code, file.read_text().strip(), process, rest, said)


def end(served: Served) -> int:
    served.process.terminate()
    try:
        return served.process.wait(30)
    finally:
        if served.process.poll() is None:
            served.process.kill()
        served.rest.join(10)
        if served.process.stderr:
            served.process.stderr.close()


@contextmanager
def follow(
    client: httpx2.Client, session: str, after: int = 0, *, last: str = ""
) -> Generator[Iterator[dict[str, Any]]]:
    """Events of a session, with their number as `seq`; deltas have none."""
    headers = {"Last-Event-ID": last} if last else {}
    with client.stream("GET", f"/api/sessions/{session}/events", params={"after": after}, headers=headers) as response:
        assert response.status_code == 200, response.read()

        def events() -> Iterator[dict[str, Any]]:
            for line in response.iter_lines():
                if line.startswith("data:"):
                    yield cast("dict[str, Any]", json.loads(line[5:]))

        yield events()


def until(events: Iterator[dict[str, Any]], *kinds: str) -> list[dict[str, Any]]:
    """All of them, up to the first of these kinds."""
    seen: list[dict[str, Any]] = []
    for event in events:
        seen.append(event)
        if event["kind"] in kinds:
            return seen
    raise AssertionError(f"the stream ended before {kinds}: {[one['kind'] for one in seen]}")


def say(client: httpx2.Client, session: str, text: str = "go") -> list[dict[str, Any]]:
    """One turn; its events."""
    accepted = client.post(f"/api/sessions/{session}/commands", json={"kind": "Say", "text": text}).json()
    with follow(client, session, accepted["seq"]) as events:
        return until(events, "TurnEnded", "TurnFailed", "TurnInterrupted")


def create(client: httpx2.Client, **given: Any) -> str:
    response = client.post("/api/sessions", json=given)
    assert response.status_code == 201, response.text
    return response.json()["id"]
