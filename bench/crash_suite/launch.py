"""Starts the product and kills it: through its executable, or forked from a process that has it imported already.

The forked way runs the very same command line, a hundred times a second instead of three times.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from bench.crash_suite.oracle import Event
from bench.crash_suite.places import Place

_ROOT = Path(__file__).parents[2]
_LONGEST_S = 60.0
"""For a process that nobody kills."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    acknowledged: tuple[Event, ...]
    """Every whole line that came out of the process."""
    first_s: float | None
    """When the first of them came."""
    took_s: float
    code: int
    """As `subprocess` has it: negative is the signal that ended it."""

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Launcher(Protocol):
    def start(self, place: Place, arguments: list[str], **orders: Any) -> Child: ...


class Child:
    """A running `pinfold`; the reader at the other end of its stdout."""

    def __init__(self, pid: int, stdout: int, reap: Callable[[], int]) -> None:
        self._pid, self._stdout, self._reap = pid, stdout, reap
        self._began = time.monotonic()

    def until(self, kill_after_s: float | None = None) -> Ended:
        """Read until it ends, or until it is killed. What it had written by then still counts."""
        limit_s = _LONGEST_S if kill_after_s is None else kill_after_s
        data = bytearray()
        first_s: float | None = None
        killed = False
        while True:
            left_s = None if killed else self._began + limit_s - time.monotonic()
            if left_s is not None and (left_s <= 0 or not select.select([self._stdout], [], [], left_s)[0]):
                os.kill(self._pid, signal.SIGKILL)
                killed = True
            piece = os.read(self._stdout, 1 << 16)
            if not piece:
                break
            first_s = first_s or time.monotonic() - self._began
            data += piece
        os.close(self._stdout)
        took_s = time.monotonic() - self._began
        code = self._reap()
        if kill_after_s is None and killed:
            raise TimeoutError(f"a process did not end within {_LONGEST_S:g} s")
        lines = [line for line in bytes(data).split(b"\n")[:-1] if line.startswith(b"{")]
        return Ended(acknowledged=tuple(json.loads(line) for line in lines), first_s=first_s, took_s=took_s, code=code)


class Executable:
    """The installed `pinfold` command, one interpreter start each."""

    def start(self, place: Place, arguments: list[str], **orders: Any) -> Child:
        if orders:
            raise ValueError("the executable takes no orders but its arguments")
        command = Path(sys.executable).parent / "pinfold"
        with place.complaints.open("wb") as stderr:
            process = subprocess.Popen(
                [command, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=place.workspace,
                env={**os.environ, **place.environment()},
            )
        assert process.stdout is not None
        descriptor = os.dup(process.stdout.fileno())
        process.stdout.close()
        return Child(process.pid, descriptor, process.wait)


class Forkserver:
    """See `forkserver.py`, which does the forking."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def start(self, place: Place, arguments: list[str], **orders: Any) -> Child:
        ours, theirs = os.pipe()
        order = {"arguments": arguments, "environment": place.environment(), "folder": str(place.workspace), **orders}
        with place.complaints.open("wb") as stderr:
            socket.send_fds(self._connection, [json.dumps(order).encode()], [theirs, stderr.fileno()])
        os.close(theirs)
        pid = int(self._connection.recv(64))
        return Child(pid, ours, lambda: self._reap(pid))

    def _reap(self, pid: int) -> int:
        self._connection.send(json.dumps({"reap": pid}).encode())
        return int(self._connection.recv(64))


@contextmanager
def forkserver() -> Generator[Forkserver]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours:
        with theirs:
            server = subprocess.Popen(
                [sys.executable, "-m", "bench.crash_suite.forkserver", str(theirs.fileno())],
                cwd=_ROOT,
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
            )
        yield Forkserver(ours)
    server.wait(timeout=_LONGEST_S)
