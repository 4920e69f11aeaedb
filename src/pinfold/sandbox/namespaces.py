"""Provider `namespaces`: sessions forked from a zygote into namespaces of their own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import anyio
import anyio.to_thread

from pinfold.sandbox._body import Jailed
from pinfold.sandbox._guest import Death, Guest
from pinfold.sandbox._output import Output, widen
from pinfold.sandbox._session import GuestSession
from pinfold.sandbox.contract import Capabilities, SandboxUnavailable, Session, Spec
from pinfold.sandbox.seccomp import compile_filter

GUEST = Path(__file__).parent.parent / "guest"
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/localtime", "/etc/ssl/certs", "/etc/mime.types", "/etc/fonts")
FILES = {
    "/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\npinfold:x:1000:1000:pinfold:/tmp/home:/bin/bash\n",
    "/etc/group": "root:x:0:\npinfold:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost pinfold\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
}
TMP_BYTES = 1 << 30
MESSAGE_BYTES = 1 << 16
ZYGOTE_START_S = 60.0


class Zygote:
    """One launcher process with its zygote; serves all sessions of this process."""

    def __init__(self, python: Path, preload: tuple[str, ...]) -> None:
        self._python = python
        self._preload = preload
        self._lock = anyio.Lock()
        self._socket: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def read_only(self) -> list[str]:
        prefixes = {str(self._python.parent.parent), sys_prefix(self._python), str(GUEST)}
        return [*SYSTEM, *sorted(path for path in prefixes if not path.startswith("/usr/"))]

    async def spawn(self, request: dict[str, object], fds: list[int]) -> int:
        """The pidfd of a new session's init. Raises SandboxUnavailable."""
        async with self._lock:
            if self._socket is None or (self._process and self._process.poll() is not None):
                await self._start()
            return await anyio.to_thread.run_sync(self._ask, request, fds)

    def _ask(self, request: dict[str, object], fds: list[int]) -> int:
        assert self._socket is not None
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
            answer, received, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, 1)
        except OSError as error:
            raise SandboxUnavailable(f"the launcher does not answer: {error}") from error
        if not received:
            raise SandboxUnavailable(f"no session could be made: {_error(answer)}")
        return received[0]

    async def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        program = [sys.executable, "-I", str(GUEST / "__main__.py"), "launcher", str(theirs.fileno()), str(os.getpid())]
        # On the event loop's own thread: the kernel ends the launcher when the thread that made it ends.
        self._process = subprocess.Popen(
            program, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env={}, cwd="/", start_new_session=True
        )
        theirs.close()
        ours.settimeout(ZYGOTE_START_S)
        settings = {
            "python": str(self._python),
            "read_only": [*self.read_only, *ETC],
            "files": FILES,
            "environment": {
                "PATH": "/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": "/tmp",  # noqa: S108 - inside
                "OPENBLAS_NUM_THREADS": "1",
                "OMP_NUM_THREADS": "1",
                "JE_ARROW_MALLOC_CONF": "background_thread:false",
                "PINFOLD_PRELOAD": " ".join(self._preload),
            },
        }
        ours.send(json.dumps(settings).encode())
        hello = await anyio.to_thread.run_sync(ours.recv, MESSAGE_BYTES)
        if not hello or "error" in json.loads(hello):
            ours.close()
            raise SandboxUnavailable(f"the zygote did not start: {_error(hello)}")
        self._socket = ours


_zygotes: dict[str, Zygote] = {}


class Namespaces:
    def __init__(self, python: Path | None = None, preload: tuple[str, ...] = ()) -> None:
        self._python = python or Path(sys.executable)
        self._preload = preload

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
        zygote = _zygotes.setdefault(str(self._python), Zygote(self._python, self._preload))
        session = GuestSession(launcher=_Sessions(zygote, spec), capabilities=self.capabilities, limits=spec.limits)
        try:
            await session.start()
        except BaseException:
            await session.close()
            raise
        return session


class _Sessions:
    """Launches the guests of one session."""

    def __init__(self, zygote: Zygote, spec: Spec) -> None:
        self._zygote = zygote
        self._spec = spec

    async def launch(self) -> Guest:
        workspace = self._spec.workspace
        if not workspace.is_dir():
            raise SandboxUnavailable(f"the workspace {str(workspace)!r} is not a folder; create it first")
        channel, channel_in = socket.socketpair()
        control, control_in = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdout, stdout_in = os.pipe()
        stderr, stderr_in = os.pipe()
        widen(stdout)
        given = [channel_in.fileno(), stdout_in, stderr_in, control_in.fileno()]
        try:
            pidfd = await self._zygote.spawn(self._request(), given)
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
        guest = Guest(Jailed(control, pidfd), channel, Output("stdout", stdout, cap), Output("stderr", stderr, cap))
        await self._greeted(guest)
        return guest

    async def sweep(self) -> None:
        """Nothing outlives a session's init."""

    async def release(self) -> None:
        """Its mounts went with it."""

    async def _greeted(self, guest: Guest) -> None:
        with anyio.move_on_after(self._spec.limits.start_s):
            end = await guest.end()
            if isinstance(end, Death):
                said = guest.stderr.take()[0].strip()[-2000:]
                raise SandboxUnavailable(f"the session did not start: {end.how}; it said: {said!r}")
            return
        with anyio.CancelScope(shield=True):
            await guest.ended("it did not answer")
        raise SandboxUnavailable(f"the session did not answer within {self._spec.limits.start_s:g} s")

    def _request(self) -> dict[str, object]:
        workspace = str(self._spec.workspace)
        data = [{"path": f"/mnt/datasets/{name}", "source": str(path)} for name, path in self._spec.data.items()]
        del data
        return {
            "workspace": workspace,
            "mounts": [{"path": workspace, "writable": True}],
            "read_only": self._zygote.read_only,
            "tmp_bytes": TMP_BYTES,
            "limits": {"CORE": 0, "NOFILE": 1024, "NPROC": 256, "MEMLOCK": 0},
            "filter": compile_filter().hex(),
            "environment": {
                "PATH": f"{self._zygote.read_only and Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": "/tmp/home",  # noqa: S108 - inside
                "TMPDIR": "/tmp",  # noqa: S108 - inside
            },
        }


def sys_prefix(python: Path) -> str:
    """Where the interpreter behind a virtual environment lives."""
    return str(python.resolve().parent.parent)


def _error(answer: bytes) -> str:
    try:
        return str(json.loads(answer)["error"])
    except (ValueError, KeyError, TypeError):
        return "it gave no reason"
