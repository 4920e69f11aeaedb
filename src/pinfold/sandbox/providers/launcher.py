"""The host's handle on a launcher of sessions (`guest/startup/launcher.py`, `guest/startup/lite.py`): started when first needed, asked from any event loop."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import Limits, SandboxUnavailable
from pinfold.sandbox.guards.ports import WorkspaceGuard
from pinfold.sandbox.kernel.processes import GUEST, stamp
from pinfold.sandbox.providers import warm_launchers
from pinfold.sandbox.providers.launcher_requests import MESSAGE_BYTES, LauncherGone, send_request
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import Death

START_S = 60.0
ANSWER_S = 30.0
ENDING_S = 0.05
"""From the end of the connection to the end of the process."""
FIX = "does this machine allow user namespaces (sysctl user.max_user_namespaces)? `pinfold doctor` names the fix"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """The host's ends of a session that has its mounts and is about to say hello."""

    channel: socket.socket
    control: socket.socket
    stdout: int
    stderr: int
    pidfd: int
    folder: str = ""
    """On this machine's disk, for it alone."""

    def close(self) -> None:
        self.channel.close()
        self.control.close()
        for fd in (self.stdout, self.stderr, self.pidfd):
            os.close(fd)


class Launcher:
    """One launcher process with its zygote. Belongs to the process, not to an event loop.

    It may be another process's, which keeps it warm; then only the connection is ours.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        guest: Path = GUEST,
        *,
        joins: bool = True,
        program: str = "launcher",
        fix: str = FIX,
    ) -> None:
        """`joins`: take a warm one where there is one. `fix`: said where none can be started."""
        self.proven = False
        self.views = True
        """Whether sessions can have private views; of one that was not started by us it is not known."""
        self._joins = joins
        self._settings = settings
        self._guest = guest
        self._program = program
        self._fix = fix
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    async def open(self, request: Mapping[str, Any]) -> Ends:
        """Raises SandboxUnavailable, as LauncherGone if it is worth another try."""
        await self.ready()
        assert self._socket is not None
        return self._ends(*await send_request(self._socket, b'{"op": "open"}', request, ANSWER_S))

    def _ends(self, answer: bytes, fds: list[int]) -> Ends:
        if not answer:
            raise LauncherGone("the launcher of sessions ended before it gave one")
        if not fds:
            raise SandboxUnavailable(f"no session could be made: {reason(answer)}; {self._fix}")
        channel, control, stdout, stderr, pidfd = fds
        return Ends(
            channel=socket.socket(fileno=channel),
            control=socket.socket(fileno=control),
            stdout=stdout,
            stderr=stderr,
            pidfd=pidfd,
            folder=json.loads(answer).get("folder", ""),
        )

    async def warm(self) -> None:
        """Until as many sessions are ready as it keeps. Raises SandboxUnavailable."""
        await self.ready()
        assert self._socket is not None
        answer, _ = await send_request(self._socket, b'{"op": "warm"}', {}, START_S)
        if reason(answer):
            raise SandboxUnavailable(f"no session could be made: {reason(answer)}; {self._fix}")

    async def ready(self) -> None:
        """Make sure there is one; a new one of our own is not proven. Raises SandboxUnavailable."""
        if not self._is_alive():
            await anyio.to_thread.run_sync(self._start)

    def listen(self, path: Path) -> None:
        """Let other processes of this user have sessions of it, through a socket at `path`."""
        assert self._socket is not None
        with warm_launchers.open_listener(path) as listener:
            words = json.dumps({"op": "listen", "proven": self.proven}).encode()
            socket.send_fds(self._socket, [words], [listener.fileno()])

    async def wait_until_ended(self) -> None:
        """Wait until it has ended, as it does when its zygote is lost."""
        assert self._socket is not None
        while self._is_alive():
            await anyio.wait_readable(self._socket)
            await anyio.sleep(ENDING_S)

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
        if self._process is None:
            return self._socket is not None and warm_launchers.is_open(self._socket)
        return self._process.poll() is None

    def _start(self) -> None:
        with self._lock:
            if self._is_alive():
                return
            self.end()
            if self._joins and (peer := warm_launchers.connect_warm(self._settings, self._guest)):
                peer.settimeout(ANSWER_S)
                self._socket, self.proven = peer, True
                return
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            program = [sys.executable, "-I", str(self._guest / "__main__.py"), self._program]
            self._process = subprocess.Popen(
                [*program, str(theirs.fileno()), stamp(os.getpid())],
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
            self.views = bool(json.loads(hello).get("views"))


async def start_guest(
    guest: Guest,
    limits: Limits,
    keep: Callable[[], Awaitable[WorkspaceGuard]] | None = None,
    *,
    name: str = "the session",
) -> Guest:
    """The guest, once it has said hello, and with the guard that `keep` makes. Raises SandboxUnavailable."""
    try:
        if keep:
            # No code runs before the first cell, so there is still time to remember what is there.
            guest.guard = await keep()
        await _greet(guest, limits.start_s, name)
    except BaseException:
        with anyio.CancelScope(shield=True):
            await guest.kill_and_wait("it was given up")
        if guest.guard:
            guest.guard.close()
        raise
    return guest


async def _greet(guest: Guest, limit_s: float, name: str) -> None:
    try:
        end = await asyncio.wait_for(guest.end(), limit_s)
    except TimeoutError as error:
        raise SandboxUnavailable(f"{name} did not answer within {limit_s:g} s; is the machine overloaded?") from error
    if isinstance(end, Death):
        said = guest.stderr.take()[0].strip()[-2000:]
        raise SandboxUnavailable(f"{name} did not start: {end.how}; it said: {said!r}")


def reason(answer: bytes) -> str:
    """Why not; empty if there is no reason."""
    try:
        return str(json.loads(answer).get("error", ""))
    except (ValueError, AttributeError):
        return "it gave no answer"
