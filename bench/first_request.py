"""CPU from the command to a model's first request, against `python -c pass`: what the import budget is about.

.venv/bin/python bench/first_request.py
"""

from __future__ import annotations

import http.server
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any, ClassVar

ROOT = Path(__file__).resolve().parents[1]
GOAL = 25.0
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
REPLY = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}]}


def cpu_s(pid: int) -> float:
    """Of the process and of what it has waited for, as the kernel's scheduler counts it."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    waited = (int(fields[13]) + int(fields[14])) * TICK_S
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return waited + sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def client_of(port: int) -> int:
    """The process at the other end of the only connection to `port`."""
    wanted = f":{port:04X}"
    for line in Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]:
        fields = line.split()
        if fields[2].endswith(wanted) and fields[3] == "01":
            inode = fields[9]
            for link in Path("/proc").glob("[0-9]*/fd/*"):
                try:
                    if str(link.readlink()) == f"socket:[{inode}]":
                        return int(link.parts[2])
                except OSError:
                    continue
    raise LookupError("nobody is connected")


class Server(http.server.BaseHTTPRequestHandler):
    seen: ClassVar[list[float]] = []

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def do_POST(self) -> None:
        Server.seen.append(cpu_s(client_of(self.server.server_address[1])))  # type: ignore[misc]
        self.rfile.read(int(self.headers["content-length"]))
        body = json.dumps(REPLY).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def run_once(port: int, home: str) -> None:
    command = [sys.executable, "-m", "pinfold", "run", "--workspace", home]
    model = f"http://127.0.0.1:{port}/v1#m"
    env = {**os.environ, "XDG_DATA_HOME": home + "-data", "XDG_STATE_HOME": home + "-state"}
    env["PINFOLD_SANDBOX_BUILD"] = "off"
    subprocess.run([*command, "--model", model, "hi"], check=True, capture_output=True, env=env)


def plain_once() -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def main() -> int:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every start compiles all it imports
    plain: list[float] = []
    with tempfile.TemporaryDirectory() as home:
        for _ in range(8):
            run_once(server.server_port, home)
            plain.append(min(plain_once() for _ in range(3)))
    ours, theirs = statistics.median(Server.seen[1:]), statistics.median(plain)
    print(f"to the first request {ours * 1000:.0f} ms of CPU, python -c pass {theirs * 1000:.1f} ms")
    print(f"{ours / theirs:.1f}x, the goal is at most {GOAL:g}x")
    return int(ours / theirs > GOAL)


if __name__ == "__main__":
    sys.exit(main())
