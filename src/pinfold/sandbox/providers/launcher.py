"""The host's handle on a launcher process (`guest/startup/launcher.py` or `lite.py`), usable from any event loop."""

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
"""Time from the end of the connection to the end of the process."""
JOIN_S = 2.0
HELLO = {"proven": True}
_NOT_PART = ("pool", "warm")
"""Settings that do not affect a session."""
OPEN_FILES = 1024
FIX = "does this machine allow user namespaces (sysctl user.max_user_namespaces)? `pinfold doctor` names the fix"


def process_limits(limits: Limits) -> dict[str, int]:
    """Return the resource limits of each process of a session, by their kernel names without RLIMIT_."""
    return {"CORE": 0, "DATA": limits.memory_bytes, "MEMLOCK": 0, "NOFILE": OPEN_FILES, "NPROC": limits.processes}


class Launcher:
    """One launcher process with its zygote, started when first needed. It belongs to no single event loop.

    Another process may own it and keep it warm; then only the connection belongs to this process.
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
        """`joins`: connect to a warm launcher if there is one. `fix`: advice for when none can be started."""
        self.proven = False
        self.users = 0
        """The number of its sessions, if they are counted."""
        self.views = True
        """False if sessions cannot have private views; unknown for a launcher that another process started."""
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
        """Start a session. Returns its guest, which is about to say hello, and its process. Raises SandboxUnavailable;
        LauncherGone if another attempt may succeed."""
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
        """Wait until the pool of sessions is full. Raises SandboxUnavailable."""
        await self.ready()
        assert self._socket is not None
        answer, _ = await send_request(self._socket, b'{"op": "warm"}', {}, START_S)
        if reason(answer):
            raise SandboxUnavailable(f"no session could be made: {reason(answer)}; {self._fix}")

    async def ready(self) -> None:
        """Make sure that a launcher runs; a newly started one is not proven. Raises SandboxUnavailable."""
        if not self._is_alive():
            await anyio.to_thread.run_sync(self._start)

    def listen(self, path: Path) -> None:
        """Let other processes of this user open sessions through a socket at `path`."""
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
        """End the launcher and all its sessions. The next session starts a new launcher."""
        atexit.unregister(self.end)
        self.proven = False
        if self._socket:
            self._socket.close()
        if self._process:
            # It ends by itself and removes its control groups, unless it is stuck.
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
    """Wait for the guest's hello and give it the guard that `keep` makes. Raises SandboxUnavailable."""
    try:
        if keep:
            # No user code runs before the first cell, so the guard can still record the files as they are.
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
    """Return the error in an answer; empty if there is none."""
    try:
        return str(json.loads(answer).get("error", ""))
    except (ValueError, AttributeError):
        return "it gave no answer"


# Warm launchers of other processes of the same user are used only if their sessions would be the same: same programs,
# same settings, same view of the machine.


@runtime_checkable
class Warmable(Protocol):
    """A provider that can serve sessions to other processes."""

    async def keep_warm(self, folder: Path, pool: int, on_ready: Callable[[], Awaitable[None]]) -> None:
        """Serve sessions through a socket in `folder`, until cancelled. Raises SandboxUnavailable."""


_warm_folders: list[Path] = []


def look_in(*folders: Path) -> None:
    """Set the folders in which to look for sockets of warm launchers."""
    _warm_folders[:] = folders


def socket_in(folder: Path, settings: Mapping[str, object], guest: Path) -> Path:
    """Return the path of the socket. Its name is a digest of all that determines the sessions."""
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
    """Return a connection to a warm, proven launcher, if there is one."""
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
    """Open a listening socket for this user alone. Its mode is set before it accepts connections."""
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
    """Return True if the peer has not closed. It sends nothing unasked, so being readable means the end."""
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
    """Return paths, times and sizes of the guest's code. A running launcher keeps the code it started with."""
    with os.scandir(guest) as entries:
        files = [(entry.path, entry.stat()) for entry in entries if entry.name.endswith(".py")]
    return sorted((path, status.st_mtime_ns, status.st_size) for path, status in files)
