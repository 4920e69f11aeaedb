"""One llama.cpp server for all agents, in a process of its own."""

from __future__ import annotations

import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.task_suite import baseline

NAME = "qwen2.5-coder-1.5b-instruct"
READY_S = 180
TICKS = os.sysconf("SC_CLK_TCK")


class NoServer(Exception):
    """It did not start, or does not answer."""


@dataclass(frozen=True, slots=True)
class Server:
    url: str
    """Without a path."""
    pid: int | None = None
    """None: somebody else's."""
    threads: int = 1

    def worked_s(self) -> float:
        """How long it has had its processors: what else the machine does hardly counts here."""
        if self.pid is None:
            return time.monotonic()
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / TICKS / self.threads


@contextmanager
def serving(weights: Path, threads: int, log: Path) -> Generator[Server]:
    if not weights.is_file():
        raise NoServer(f"{weights} is not there: name the model's GGUF with --weights, or a server with --server")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [baseline.make(), Path(__file__).with_name("llama.py"), weights, str(port), NAME, str(threads)]
    # Spinning threads starve everything else on a busy machine, the agents included.
    quiet = {**os.environ, "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}
    with log.open("ab") as out:
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=out, env=quiet)
    try:
        url = f"http://127.0.0.1:{port}"
        until = time.monotonic() + READY_S
        while not healthy(url):
            if child.poll() is not None or time.monotonic() > until:
                raise NoServer(f"the model server did not start: see {log}")
            time.sleep(0.2)
        yield Server(url, child.pid, threads)
    finally:
        child.kill()
        child.wait()


def healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=10) as answer:
            return answer.status == 200
    except (urllib.error.URLError, OSError):
        return False
