"""Provider `namespaces`: sessions forked from a zygote into namespaces of their own.

The host talks to a launcher, the launcher to the zygote; see `guest/launcher.py` for who may do what.
"""

from __future__ import annotations

import atexit
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pinfold.sandbox._body import Jailed
from pinfold.sandbox._guest import Guest
from pinfold.sandbox._launcher import GUEST, Launcher, greeted
from pinfold.sandbox._output import Output
from pinfold.sandbox._session import GuestSession
from pinfold.sandbox._workspace import guarded
from pinfold.sandbox.canaries import holes
from pinfold.sandbox.contract import Capabilities, Limits, SandboxUnavailable, Session, Spec
from pinfold.sandbox.seccomp import compile_filter

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
SMALL = 100
RECYCLE_AFTER = 1_000
"""Sessions of one zygote: they share its address layout and hash seed."""
OPEN_FILES = 1024
ONE_THREAD = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "ARROW_DEFAULT_MEMORY_POOL": "system",
}
"""A zygote with a second thread cannot be forked."""


class Namespaces:
    """Real isolation, root or not."""

    def __init__(
        self,
        python: Path | None = None,
        *,
        pool: int | None = None,
        program: bytes | None = None,
        guest: Path = GUEST,
    ) -> None:
        """`python` runs the cells, this one unless given. `pool`: sessions kept ready; None keeps some once two were asked for.

        `program` and `guest` are the system call filter and the code inside, ours unless given.
        """
        self._python = entered(python or Path(sys.executable))
        self._pool = pool
        self._program = program or compile_filter()
        self._guest = guest

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
        await self.probe()
        return await self._opened(self._launcher(), spec)

    async def probe(self) -> None:
        launcher = self._launcher()
        if not launcher.proven:
            await self.prove(launcher)

    def _launcher(self) -> Launcher:
        key = (self._python, self._pool, self._program, self._guest)
        if key not in _launchers:
            _launchers[key] = Launcher(self._settings(), self._guest)
        return _launchers[key]

    async def _opened(self, launcher: Launcher, spec: Spec) -> Session:
        guests = _Guests(launcher, spec, self._python)
        return await GuestSession.opened(guests, self.capabilities, spec.limits)

    async def prove(self, launcher: Launcher) -> None:
        """Once for each launcher: what is claimed is tried, not assumed."""
        with tempfile.TemporaryDirectory(prefix="pinfold-proof-") as folder:
            session = await self._opened(launcher, Spec(workspace=Path(folder)))
            try:
                found = await holes(session)
            finally:
                await session.close()
        if found:
            raise SandboxUnavailable(f"a session here is not shut in: it {', it '.join(found)}")
        launcher.proven = True

    def _settings(self) -> dict[str, Any]:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp", **ONE_THREAD}  # noqa: S108 - inside
        return {
            "python": str(self._python),
            "read_only": [*SYSTEM, *homes(self._python, self._guest)],
            "etc": ETC,
            "files": FILES,
            "environment": environment,
            "tmp_bytes": TMP_BYTES,
            "filter": self._program.hex(),
            "pool": self._pool,
            "memory": Limits().memory_bytes,
            "recycle_after": RECYCLE_AFTER,
            "warm": True,
        }


_launchers: dict[tuple[Path, int | None, bytes, Path], Launcher] = {}


@atexit.register
def _end_launchers() -> None:
    for launcher in _launchers.values():
        launcher.end()


class _Guests:
    """Launches the guests of one session."""

    def __init__(self, launcher: Launcher, spec: Spec, python: Path) -> None:
        self._launcher = launcher
        self._spec = spec
        self._python = python

    async def launch(self) -> Guest:
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(
                f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first"
            )
        # Most workspaces are looked through faster than a thread is reached.
        small = _is_small(self._spec.workspace) and not self._spec.data
        request = self._request() if small else await anyio.to_thread.run_sync(self._request)
        ends = await self._launcher.open(request)
        cap = self._spec.limits.output_bytes
        outputs = Output("stdout", ends.stdout, cap), Output("stderr", ends.stderr, cap)
        return await greeted(
            Guest(Jailed(ends.control, ends.pidfd), ends.channel, *outputs), self._spec.limits
        )

    async def sweep(self) -> None:
        """Nothing outlives a session's init."""

    async def release(self) -> None:
        """Its mounts went with it."""

    def _request(self) -> dict[str, object]:
        spec, limits = self._spec, self._spec.limits
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
            "memory": limits.memory_bytes,
            "limits": {
                "CORE": 0,
                "DATA": limits.memory_bytes,
                "MEMLOCK": 0,
                "NOFILE": OPEN_FILES,
                "NPROC": limits.processes,
            },
            "environment": {
                "PATH": f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": "/tmp/home",  # noqa: S108 - inside
                "TMPDIR": "/tmp",  # noqa: S108 - inside
            },
        }


def entered(python: Path) -> Path:
    """A virtual environment is entered by its own name; anything else by where it really is."""
    return python if (python.parent.parent / "pyvenv.cfg").exists() else python.resolve()


def homes(python: Path, guest: Path) -> list[str]:
    """Where the Python of the cells and the guest's own code are, besides the system's folders."""
    found = {python.parent.parent, python.resolve().parent.parent, guest} - {Path("/usr")}
    for home in found:
        if Path.home().is_relative_to(home):
            raise SandboxUnavailable(f"{python} cannot run cells: all of {home} would be seen inside")
    return sorted(map(str, found))


def _is_small(folder: Path) -> bool:
    with os.scandir(folder) as entries:
        return all(
            count < SMALL and not entry.is_dir(follow_symlinks=False) for count, entry in enumerate(entries)
        )


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
