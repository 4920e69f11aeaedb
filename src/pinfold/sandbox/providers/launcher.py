"""The host's handle on a launcher of sessions (`guest/startup/launcher.py`, `guest/startup/lite.py`): started when first needed, asked from any event loop."""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import Limits, SandboxUnavailable
from pinfold.sandbox.guards.ports import WorkspaceGuard
from pinfold.sandbox.kernel.processes import GUEST, is_same_user, short_path, stamp
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import MESSAGE_BYTES, Death, JailedProcess, LauncherGone, send_request
from pinfold.sandbox.session.output import Output

START_S = 60.0
ANSWER_S = 30.0
ENDING_S = 0.05
"""From the end of the connection to the end of the process."""
JOIN_S = 2.0
HELLO = {"proven": True}
_NOT_PART = ("pool", "warm")
"""Settings that make no difference to a session."""
OPEN_FILES = 1024
FIX = "does this machine allow user namespaces (sysctl user.max_user_namespaces)? `pinfold doctor` names the fix"


def process_limits(limits: Limits) -> dict[str, int]:
    """Of each process of a session, by the names the kernel has for them, without RLIMIT_."""
    return {"CORE": 0, "DATA": limits.memory_bytes, "MEMLOCK": 0, "NOFILE": OPEN_FILES, "NPROC": limits.processes}


class Launcher:
    """One launcher process with its zygote. Belongs to the process, not to an event loop.

    It may be another process's, which keeps it warm; then only the connection is ours.
    """

    def __init__(
        self,
        settings: Mapping[str, object],
        guest: Path = GUEST,
        *,
        joins: bool = True,
        program: str = "launcher",
        fix: str = FIX,
    ) -> None:
        """`joins`: take a warm one where there is one. `fix`: said where none can be started."""
        self.proven = False
        self.users = 0
        """Sessions, as far as they are counted."""
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

    async def open(
        self, request: Mapping[str, object], process: type[JailedProcess], output_bytes: int
    ) -> tuple[Guest, JailedProcess]:
        """A guest that is about to say hello, and what it lives in. Raises SandboxUnavailable, as LauncherGone if it is
        worth another try."""
        await self.ready()
        assert self._socket is not None
        answer, fds = await send_request(self._socket, b'{"op": "open"}', request, ANSWER_S)
        if not answer:
            raise LauncherGone("the launcher of sessions ended before it gave one")
        if not fds:
            raise SandboxUnavailable(f"no session could be made: {reason(answer)}; {self._fix}")
        channel, control, stdout, stderr, pidfd = fds
        body = process(socket.socket(fileno=control), pidfd)
        outputs = Output("stdout", stdout, output_bytes), Output("stderr", stderr, output_bytes)
        guest = Guest(body, socket.socket(fileno=channel), *outputs)
        guest.scratch = json.loads(answer).get("folder", "")
        return guest, body

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
        with open_listener(path) as listener:
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
        atexit.unregister(self.end)
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
            return self._socket is not None and is_open(self._socket)
        return self._process.poll() is None

    def _start(self) -> None:
        with self._lock:
            if self._is_alive():
                return
            self.end()
            atexit.register(self.end)
            if self._joins and (peer := connect_warm(self._settings, self._guest)):
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


# A launcher that another process of the same user keeps warm counts only if it would give the very same sessions: same
# programs, same settings, same view of the machine.


@runtime_checkable
class Warmable(Protocol):
    """A provider that can hand its sessions to other processes."""

    async def keep_warm(self, folder: Path, pool: int, on_ready: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled, with a socket in `folder`. Raises SandboxUnavailable."""


_warm_folders: list[Path] = []


def look_in(*folders: Path) -> None:
    """Where launchers that are kept warm have their sockets."""
    _warm_folders[:] = folders


def socket_in(folder: Path, settings: Mapping[str, object], guest: Path) -> Path:
    """Named after everything that matters for what comes out of it."""
    root = Path("/").stat()
    about = {
        "settings": {name: value for name, value in settings.items() if name not in _NOT_PART},
        "code": _code(guest),
        "launcher": sys.executable,
        "user": [os.geteuid(), os.getegid(), sorted(os.getgroups())],
        "views": [str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("mnt", "user", "pid")],
        "root": [root.st_dev, root.st_ino],
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return folder / f"launcher-{digest[:32]}.sock"


def connect_warm(settings: Mapping[str, object], guest: Path) -> socket.socket | None:
    """A connection to a launcher that is warm and proven, if there is one."""
    for folder in filter(_is_private, _warm_folders):
        if peer := _connect_socket(socket_in(folder, settings, guest)):
            return peer
    return None


def _connect_socket(path: Path) -> socket.socket | None:
    if not path.exists():
        return None
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(JOIN_S)
    try:
        with short_path(path) as short:
            peer.connect(short)
        if is_same_user(peer) and json.loads(peer.recv(MESSAGE_BYTES)) == HELLO:
            return peer
    except (OSError, ValueError):  # stale, or on its way out
        pass
    peer.close()
    return None


def open_listener(path: Path) -> socket.socket:
    """For other processes of the same user, and for no one before it is theirs alone."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ExitStack() as on_failure:
        on_failure.callback(listener.close)
        with short_path(path) as short:
            listener.bind(short)
            Path(short).chmod(0o600)
        listener.listen(128)
        on_failure.pop_all()
    return listener


def is_open(peer: socket.socket) -> bool:
    """It says nothing unasked: what can be read is its end."""
    poll = select.poll()  # select() refuses descriptors above 1,023, which a busy server has
    poll.register(peer, select.POLLIN)
    return not poll.poll(0)


def _is_private(folder: Path) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _code(guest: Path) -> list[tuple[str, int, int]]:
    """Of the program inside: it is read once, so a file that was changed since makes another one of it."""
    with os.scandir(guest) as entries:
        files = [(entry.path, entry.stat()) for entry in entries if entry.name.endswith(".py")]
    return sorted((path, status.st_mtime_ns, status.st_size) for path, status in files)
