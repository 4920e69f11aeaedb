"""Processes that run `loop.py` over pipes: a plain one, one in bubblewrap, one in gVisor's runsc.

They bound nothing, count nothing, and their interpreter imports pandas anew each time.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

from bench.sandbox_suite.contenders import FOREVER, Answer

LOOP = Path(__file__).with_name("loop.py")
CHUNK_BYTES = 1 << 17


class Pipes:
    """One way to start the loop."""

    def __init__(self, name: str, prefix: list[str], python: Path) -> None:
        self.name = name
        self._argv = [*prefix, str(python), "-I", str(LOOP)]

    async def open(self) -> Process:
        return Process(self._argv)


def plain(python: Path) -> Pipes:
    return Pipes("subprocess", [], python)


def bubblewrap(python: Path) -> Pipes | None:
    """With everything it can shut off and a read-only view of the machine; None where it is not installed."""
    found = shutil.which("bwrap")
    if found is None:
        return None
    shut = ["--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    seen = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/tmp"]
    seen += _shown_again(python)
    return Pipes("bubblewrap", [found, *shut, *seen], python)


def runsc(python: Path) -> Pipes | None:
    """gVisor without a container image; None where it is not installed or may not run."""
    found = shutil.which("runsc")
    if found is None or os.geteuid() != 0:
        return None
    return Pipes("runsc", [found, "--network=none", "--platform=ptrace", "do"], python)


def _shown_again(python: Path) -> list[str]:
    """What an empty /tmp would hide of the checkout and the environment."""
    needed = {LOOP.parents[1], python.parents[1], python.resolve().parents[1]}
    hidden = [str(path) for path in needed if path.is_relative_to("/tmp")]
    return [word for path in hidden for word in ("--ro-bind", path, path)]


class Process:
    def __init__(self, argv: list[str]) -> None:
        self._process = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        self._stdin = self._process.stdin.fileno()
        self._stdout = self._process.stdout.fileno()
        self._replies = self._process.stderr.fileno()
        os.set_blocking(self._stdout, False)
        fcntl.fcntl(self._stdout, fcntl.F_SETPIPE_SZ, 1 << 20)
        self._said = b""

    async def run(self, code: str) -> Answer:
        self._ask(code)
        texts: list[str] = []
        reply = self._reply(texts)
        if reply["status"] != "ok":
            raise RuntimeError(f"{self._process.args}: {reply}")
        return Answer(reply["value"], len("".join(texts)))

    async def interrupted_s(self) -> float:
        self._ask(FOREVER)
        select.select([self._stdout], [], [])
        begun = time.perf_counter()
        self._signal_program()
        self._reply([])
        return time.perf_counter() - begun

    async def close(self) -> None:
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.communicate()

    def _ask(self, code: str) -> None:
        os.write(self._stdin, json.dumps(code).encode() + b"\n")

    def _reply(self, texts: list[str]) -> dict[str, str]:
        while not self._said.endswith(b"\n"):
            ready, _, _ = select.select([self._stdout, self._replies], [], [])
            if self._stdout in ready:
                texts.append(os.read(self._stdout, CHUNK_BYTES).decode())
            elif not (said := os.read(self._replies, CHUNK_BYTES)):
                raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}: {self._said!r}")
            else:
                self._said += said
        self._drain(texts)
        line, self._said = self._said, b""
        try:
            return json.loads(line)
        except ValueError as error:
            raise RuntimeError(f"{self._process.args} said {line.decode()!r}") from error

    def _drain(self, texts: list[str]) -> None:
        while True:
            try:
                data = os.read(self._stdout, CHUNK_BYTES)
            except BlockingIOError:
                return
            if not data:
                return
            texts.append(data.decode())

    def _signal_program(self) -> None:
        """SIGINT to the loop itself, not to what holds it."""
        pid = self._process.pid
        while children := _children(pid):
            pid = children[0]
        os.kill(pid, signal.SIGINT)


def _children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii")
    return [int(word) for word in text.split()]
