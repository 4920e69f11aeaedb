"""The host's handle on a launcher of sessions (`guest/launcher.py`, `guest/lite.py`): started when first needed, asked from any event loop."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pinfold.sandbox._guest import Death, Guest
from pinfold.sandbox.contract import Limits, SandboxUnavailable

GUEST = Path(__file__).parent.parent / "guest"
MESSAGE_BYTES = 1 << 16
START_S = 60.0
ANSWER_S = 30.0
FIX = "does this machine allow user namespaces? (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The host's ends of a session that has its mounts and is about to say hello."""

    channel: socket.socket
    control: socket.socket
    stdout: int
    stderr: int
    pidfd: int


class Launcher:
    """One launcher process with its zygote. Belongs to the process, not to an event loop."""

    def __init__(
        self, settings: Mapping[str, Any], guest: Path = GUEST, *, program: str = "launcher", fix: str = FIX
    ) -> None:
        self.proven = False
        self._settings = settings
        self._guest = guest
        self._program = program
        self._fix = fix
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def open(self, request: Mapping[str, Any]) -> Ends:
        """Raises SandboxUnavailable."""
        if not self._is_alive():
            await anyio.to_thread.run_sync(self._start)
        assert self._socket is not None
        answer, fds = await asked(self._socket, b'{"op": "open"}', request, ANSWER_S)
        if not fds:
            raise SandboxUnavailable(f"no session could be made: {reason(answer)}; {self._fix}")
        channel, control, stdout, stderr, pidfd = fds
        return Ends(
            channel=socket.socket(fileno=channel),
            control=socket.socket(fileno=control),
            stdout=stdout,
            stderr=stderr,
            pidfd=pidfd,
        )

    def end(self) -> None:
        """With it end all its sessions; the next one starts another."""
        self.proven = False
        if self._socket:
            self._socket.close()
        if self._process:
            # It ends by itself, taking its control groups with it; longer than this and it is stuck.
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(2)
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None

    def _is_alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _start(self) -> None:
        with self._lock:
            if self._is_alive():
                return
            self.end()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            program = [sys.executable, "-I", str(self._guest / "__main__.py"), self._program]
            self._process = subprocess.Popen(
                [*program, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env={},
                cwd="/",
                start_new_session=True,
            )
            theirs.close()
            self._socket = ours
            ours.settimeout(START_S)
            try:
                ours.send(json.dumps({**self._settings, "host": os.getpid()}).encode())
                hello = ours.recv(MESSAGE_BYTES)
            except OSError as error:
                self.end()
                raise SandboxUnavailable(f"the zygote did not start: {error}") from error
            if reason(hello):
                self.end()
                raise SandboxUnavailable(f"the zygote did not start: {reason(hello)}; {self._fix}")


async def greeted(guest: Guest, limits: Limits) -> Guest:
    """The guest, once it has said hello. Raises SandboxUnavailable."""
    try:
        with anyio.fail_after(limits.start_s):
            end = await guest.end()
    except BaseException as error:
        with anyio.CancelScope(shield=True):
            await guest.ended("it was given up")
        if isinstance(error, TimeoutError):
            words = f"the session did not answer within {limits.start_s:g} s"
            raise SandboxUnavailable(words) from error
        raise
    if isinstance(end, Death):
        said = guest.stderr.take()[0].strip()[-2000:]
        raise SandboxUnavailable(f"the session did not start: {end.how}; it said: {said!r}")
    return guest


async def asked(
    peer: socket.socket, message: bytes, request: Mapping[str, Any], limit_s: float
) -> tuple[bytes, list[int]]:
    """Send a request with a socket of its own for the answer, which is then nobody else's. Raises SandboxUnavailable."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    # In a file of its own: a list of masked files may be longer than any message can be.
    paper = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(paper, json.dumps(request).encode())
        socket.send_fds(peer, [message], [paper, theirs.fileno()])
        theirs.close()
        await _readable(ours, limit_s)
        answer, fds, _, _ = socket.recv_fds(ours, MESSAGE_BYTES, 8)
    except OSError as error:  # a timeout is one
        raise SandboxUnavailable(f"the launcher of sessions does not answer: {error}") from error
    finally:
        ours.close()
        theirs.close()
        os.close(paper)
    return answer, fds


async def _readable(peer: socket.socket, limit_s: float) -> None:
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not came.done():
            came.set_result(None)

    loop.add_reader(peer.fileno(), on_readable)
    try:
        await asyncio.wait_for(came, limit_s)
    finally:
        loop.remove_reader(peer.fileno())


def reason(answer: bytes) -> str:
    """Why not; empty if there is no reason."""
    try:
        return str(json.loads(answer).get("error", ""))
    except (ValueError, AttributeError):
        return "it gave no answer"
