"""Provider `namespaces`: sessions forked from a zygote into namespaces of their own.

The host talks to a launcher, the launcher to the zygote; see `guest/launcher.py` for who may do what.
"""

from __future__ import annotations

import atexit
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pinfold.sandbox._body import Jailed
from pinfold.sandbox._guest import Death, Guest
from pinfold.sandbox._output import Output, widen
from pinfold.sandbox._session import GuestSession
from pinfold.sandbox._workspace import guarded
from pinfold.sandbox.canaries import holes
from pinfold.sandbox.contract import Capabilities, SandboxUnavailable, Session, Spec
from pinfold.sandbox.seccomp import compile_filter

GUEST = Path(__file__).parent.parent / "guest"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = (
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
)
FILES = {
    "/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\npinfold:x:1000:1000:pinfold:/tmp/home:/bin/bash\n",
    "/etc/group": "root:x:0:\npinfold:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost pinfold\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
    "/etc/empty": "",
}
TMP_BYTES = 1 << 30
MOUNTS = 32
PROCESSES = 256
OPEN_FILES = 1024
MESSAGE_BYTES = 1 << 16
START_S = 60.0
FIX = "does this machine allow user namespaces? (sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone)"


class Namespaces:
    """Real isolation, root or not. Memory is bounded for each process, not yet for the session as a whole."""

    def __init__(self, python: Path | None = None, *, program: bytes | None = None) -> None:
        """`python` runs the cells, this one unless given; `program` is the system call filter, ours unless given."""
        self._python = python or Path(sys.executable)
        self._program = program or compile_filter()

    @property
    def name(self) -> str:
        return "namespaces"

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(isolated=True, sockets=True, mounts=True)

    @property
    def notice(self) -> str | None:
        return None

    async def open(self, spec: Spec) -> Session:
        zygote = _zygotes.setdefault(self._python, Zygote(self._python))
        if not zygote.proven:
            await self._prove(zygote, spec)
        return await self._opened(zygote, spec)

    async def _opened(self, zygote: Zygote, spec: Spec) -> Session:
        launcher = _Sessions(zygote, spec, self._program)
        return await GuestSession.opened(launcher, self.capabilities, spec.limits)

    async def _prove(self, zygote: Zygote, spec: Spec) -> None:
        """Once for each zygote: what is claimed is tried, not assumed."""
        session = await self._opened(zygote, spec)
        try:
            found = await holes(session)
        finally:
            await session.close()
        if found:
            raise SandboxUnavailable(f"a session here is not shut in: it {', it '.join(found)}")
        zygote.proven = True


class Zygote:
    """One launcher process with its zygote; serves all sessions of this process that use one Python."""

    def __init__(self, python: Path) -> None:
        # A virtual environment is entered by its own name; anything else by where it really is.
        self.python = python if (python.parent.parent / "pyvenv.cfg").exists() else python.resolve()
        self.proven = False
        self._lock = anyio.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def read_only(self) -> list[str]:
        """What every session sees of the machine."""
        homes = {self.python.parent.parent, self.python.resolve().parent.parent, GUEST}
        for home in homes:
            if Path.home().is_relative_to(home) and str(home) != "/usr":
                raise SandboxUnavailable(
                    f"{self.python} cannot run cells: all of {home} would be seen inside"
                )
        return [*SYSTEM, *sorted(str(home) for home in homes if str(home) != "/usr")]

    async def spawn(self, request: dict[str, object], fds: list[int]) -> int:
        """The pidfd of a new session's init. Raises SandboxUnavailable."""
        async with self._lock:
            if self._process is None or self._process.poll() is not None:
                await self._start()
            return await anyio.to_thread.run_sync(self._ask, request, fds)

    def end(self) -> None:
        """With it end all its sessions; the next one starts another."""
        self.proven = False
        if self._socket:
            self._socket.close()
        if self._process:
            self._process.kill()
            self._process.wait()
        self._socket = self._process = None

    def _ask(self, request: dict[str, object], fds: list[int]) -> int:
        assert self._socket is not None
        # In a file of its own: a list of masked files may be longer than any message can be.
        paper = os.memfd_create("request", os.MFD_CLOEXEC)
        try:
            with os.fdopen(os.dup(paper), "wb") as file:
                file.write(json.dumps(request).encode())
            socket.send_fds(self._socket, [b"spawn"], [paper, *fds])
            answer, received, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, 1)
        except OSError as error:
            self.end()  # a late answer must not be taken for the next one's
            raise SandboxUnavailable(f"the launcher of sessions does not answer: {error}") from error
        finally:
            os.close(paper)
        if not received:
            raise SandboxUnavailable(f"no session could be made: {_reason(answer)}; {FIX}")
        return received[0]

    async def _start(self) -> None:
        self.end()
        settings = json.dumps(self._settings()).encode()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = [sys.executable, "-I", str(GUEST / "__main__.py"), "launcher"]
        # On the event loop's own thread: the kernel ends the launcher when the thread that made it ends.
        self._process = subprocess.Popen(  # noqa: ASYNC220 - it returns at once
            [*program, str(theirs.fileno()), str(os.getpid())],
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
            ours.send(settings)
            hello = await anyio.to_thread.run_sync(ours.recv, MESSAGE_BYTES)
        except OSError as error:
            self.end()
            raise SandboxUnavailable(f"the zygote did not start: {error}") from error
        if _reason(hello):
            self.end()
            raise SandboxUnavailable(f"the zygote did not start: {_reason(hello)}; {FIX}")

    def _settings(self) -> dict[str, Any]:
        environment = {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            "HOME": "/tmp",  # noqa: S108 - inside
        }
        return {
            "python": str(self.python),
            "read_only": [*self.read_only, *ETC],
            "files": FILES,
            "environment": environment,
        }


_zygotes: dict[Path, Zygote] = {}


@atexit.register
def _end_zygotes() -> None:
    for zygote in _zygotes.values():
        zygote.end()


class _Sessions:
    """Launches the guests of one session."""

    def __init__(self, zygote: Zygote, spec: Spec, program: bytes) -> None:
        self._zygote = zygote
        self._spec = spec
        self._program = program

    async def launch(self) -> Guest:
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(
                f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first"
            )
        channel, channel_in = socket.socketpair()
        control, control_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdout, stdout_in = os.pipe()
        stderr, stderr_in = os.pipe()
        widen(stdout)
        try:
            given = [channel_in.fileno(), stdout_in, stderr_in, control_in.fileno()]
            request = await anyio.to_thread.run_sync(self._request)
            pidfd = await self._zygote.spawn(request, given)
        except BaseException:
            channel.close()
            control.close()
            os.close(stdout)
            os.close(stderr)
            raise
        finally:
            channel_in.close()
            control_in.close()
            os.close(stdout_in)
            os.close(stderr_in)
        cap = self._spec.limits.output_bytes
        outputs = Output("stdout", stdout, cap), Output("stderr", stderr, cap)
        return await self._greeted(Guest(Jailed(control, pidfd), channel, *outputs))

    async def sweep(self) -> None:
        """Nothing outlives a session's init."""

    async def release(self) -> None:
        """Its mounts went with it."""

    async def _greeted(self, guest: Guest) -> Guest:
        try:
            with anyio.fail_after(self._spec.limits.start_s):
                end = await guest.end()
        except BaseException as error:
            with anyio.CancelScope(shield=True):
                await guest.ended("it was given up")
            if isinstance(error, TimeoutError):
                words = f"the session did not answer within {self._spec.limits.start_s:g} s"
                raise SandboxUnavailable(words) from error
            raise
        if isinstance(end, Death):
            said = guest.stderr.take()[0].strip()[-2000:]
            raise SandboxUnavailable(f"the session did not start: {end.how}; it said: {said!r}")
        return guest

    def _request(self) -> dict[str, object]:
        spec = self._spec
        if len(spec.data) > MOUNTS:
            raise SandboxUnavailable(f"{len(spec.data)} data mounts are too many; {MOUNTS} is the most")
        mounts = [_Mount(str(spec.workspace), spec.workspace, writable=spec.writable)]
        mounts += [_Mount(f"/mnt/datasets/{name}", path, writable=False) for name, path in spec.data.items()]
        guards = [guarded(mount.source, mount.path, steers=mount is mounts[0]) for mount in mounts]
        return {
            "workspace": str(spec.workspace),
            "mounts": [mount.asked() for mount in mounts],
            "masked": [file for guard in guards for file in guard.masked],
            "protected": sorted({path for guard in guards for path in guard.protected}),
            "read_only": self._zygote.read_only,
            "tmp_bytes": TMP_BYTES,
            "limits": {
                "CORE": 0,
                "DATA": spec.limits.memory_bytes,
                "MEMLOCK": 0,
                "NOFILE": OPEN_FILES,
                "NPROC": PROCESSES,
            },
            "filter": self._program.hex(),
            "environment": {
                "PATH": f"{self._zygote.python.parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": "/tmp/home",  # noqa: S108 - inside
                "TMPDIR": "/tmp",  # noqa: S108 - inside
            },
        }


class _Mount:
    """Something of the host's at a path of the session's."""

    def __init__(self, path: str, source: Path, *, writable: bool) -> None:
        try:
            self.source = source.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise SandboxUnavailable(f"{source} cannot be mounted: {error}") from error
        self.path = path
        self.writable = writable

    def asked(self) -> dict[str, object]:
        folder = self.source.is_dir()
        return {"path": self.path, "source": str(self.source), "writable": self.writable, "folder": folder}


def _reason(answer: bytes) -> str:
    """Why not; empty if there is no reason."""
    try:
        return str(json.loads(answer).get("error", ""))
    except (ValueError, AttributeError):
        return "it gave no answer"
