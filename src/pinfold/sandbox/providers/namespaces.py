"""Provider `namespaces`: sessions forked from a zygote into namespaces of their own.

The host talks to a launcher, the launcher to the zygote; see `guest/startup/launcher.py` for who may do what.
"""

from __future__ import annotations

import atexit
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import Capabilities, Limits, SandboxUnavailable, Session, Spec
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.kernel.seccomp import compile_filter
from pinfold.sandbox.providers.canaries import find_holes
from pinfold.sandbox.providers.jail import Guests, history_of
from pinfold.sandbox.providers.launcher import GUEST, Launcher
from pinfold.sandbox.providers.warm_launchers import socket_in
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.session.state_restore import FrozenCopies

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
ETC = ("/etc/alternatives", "/etc/fonts", "/etc/ld.so.cache", "/etc/localtime", "/etc/mime.types", "/etc/ssl/certs")
FILES = {
    "/etc/passwd": "root:x:0:0:root:/:/usr/sbin/nologin\npinfold:x:1000:1000:pinfold:/tmp/home:/bin/bash\n",
    "/etc/group": "root:x:0:\npinfold:x:1000:\n",
    "/etc/hosts": "127.0.0.1 localhost pinfold\n::1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
    "/etc/resolv.conf": "",
    "/etc/empty": "",
}
TMP_BYTES = 1 << 30
RECYCLE_AFTER = 1_000
"""Sessions of one zygote: they share its address layout and hash seed."""
REPLACE_S = 1.0
"""Before a launcher that was lost is replaced."""
NO_VIEWS = "this kernel refuses overlayfs in user namespaces: no session can have a private view of the workspace here"
NO_FILES = "Undo brings back variables only, no files: this session has a private view of the workspace."


class Namespaces:
    """Real isolation, root or not."""

    name = "namespaces"
    notice = None

    def __init__(
        self, python: Path | None = None, *, pool: int | None = None, program: bytes | None = None, guest: Path = GUEST
    ) -> None:
        """`python` runs the cells, this one unless given. `pool`: sessions kept ready; None keeps some once two were asked for.

        `program` and `guest` are the system call filter and the code inside, ours unless given.
        """
        self._python = resolve_python(python or Path(sys.executable))
        self._pool = pool
        self._program = program or compile_filter()
        self._guest = guest
        self._prepared: dict[int, Guests] = {}
        """By the identity of their spec, between `probe` and `open`."""

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            isolated=True,
            fork=True,
            files_view=self._launcher().views,
            sockets=True,
            mounts=True,
            site=True,
            calls=True,
            durable=True,
            commands=True,
            read_only_commands=True,
            egress=True,
        )

    async def open(self, spec: Spec) -> Session:
        await self.probe(spec)
        guests = self._prepared.pop(id(spec), None) or Guests(self._launcher(), spec, self.probe)
        if spec.view is not None and not self._launcher().views:
            await guests.release()
            raise SandboxUnavailable(NO_VIEWS)
        return await self._open(guests, spec)

    async def probe(self, spec: Spec | None = None) -> None:
        """Make sure that sessions can be had and are shut in. Raises SandboxUnavailable.

        `spec`: of the session that `open` is asked for next; its workspace is looked through meanwhile.
        """
        launcher = self._launcher()
        if spec is not None and id(spec) not in self._prepared:
            self._prepared[id(spec)] = guests = Guests(launcher, spec, self.probe)
            guests.prepare()
        try:
            await launcher.ready()
            if not launcher.proven:
                await self.prove(launcher)
        except BaseException:
            if given_up := self._prepared.pop(id(spec), None):
                await given_up.release()
            raise

    async def keep_warm(self, folder: Path, pool: int, on_ready: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled, other processes of this user get their sessions from a launcher of ours."""
        settings = {**self._settings(), "pool": pool, "warm": "now"}
        path = socket_in(folder, settings, self._guest)
        while True:
            launcher = Launcher(settings, self._guest, joins=False)
            try:
                await launcher.ready()
                await self.prove(launcher)
                launcher.listen(path)
                await on_ready()
                await launcher.wait_until_ended()
            finally:
                path.unlink(missing_ok=True)
                launcher.end()
            await anyio.sleep(REPLACE_S)

    async def warm(self) -> None:
        """Prove it and fill the pool, before anyone asks for a session. Raises SandboxUnavailable."""
        await self.probe()
        await self._launcher().warm()

    def _launcher(self) -> Launcher:
        key = (type(self), self._python, self._pool, self._program, self._guest)
        if key not in _launchers:
            _launchers[key] = Launcher(self._settings(), self._guest)
        return _launchers[key]

    async def _open(self, guests: Guests, spec: Spec) -> Session:
        async def history() -> FileHistory | str:
            if there := await guests.take_history():
                return there
            if spec.view is not None:
                return NO_FILES
            return await anyio.to_thread.run_sync(history_of, spec)

        begin_files = history if spec.writable and not guests.is_proof else None
        return await GuestSession.open(guests, self.capabilities, spec, FrozenCopies, begin_files)

    async def prove(self, launcher: Launcher) -> None:
        """Once for each launcher: what is claimed is tried, not assumed."""
        with folder("proof") as place:
            spec = Spec(workspace=place)
            session = await self._open(Guests(launcher, spec), spec)
            try:
                found = await find_holes(session)
            finally:
                await session.close()
        if found:
            raise SandboxUnavailable(f"a session here is not shut in: it {', it '.join(found)}")
        launcher.proven = True

    def _settings(self) -> dict[str, Any]:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"}  # noqa: S108 - inside
        return {
            "python": str(self._python),
            "read_only": [*SYSTEM, *homes(self._python, self._guest)],
            "etc": ETC,
            "files": FILES,
            "environment": environment,
            "session_environment": {
                "PATH": f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": "/tmp/home",  # noqa: S108 - inside
                "TMPDIR": "/tmp",  # noqa: S108 - inside
            },
            "tmp_bytes": TMP_BYTES,
            "filter": self._program.hex(),
            "pool": self._pool,
            "memory": Limits().memory_bytes,
            "recycle_after": RECYCLE_AFTER,
            "warm": "later",
        }


_launchers: dict[tuple[type, Path, int | None, bytes, Path], Launcher] = {}
"""Of all of this process."""


@atexit.register
def _end_launchers() -> None:
    for launcher in _launchers.values():
        launcher.end()


def resolve_python(python: Path) -> Path:
    """A virtual environment is entered by its own name; anything else by where it really is."""
    return python if (python.parent.parent / "pyvenv.cfg").exists() else python.resolve()


def homes(python: Path, guest: Path) -> list[str]:
    """Where the Python of the cells and the guest's own code are, besides the system's folders."""
    found = {python.parent.parent, python.resolve().parent.parent, guest} - {Path("/usr")}
    for home in found:
        if Path.home().is_relative_to(home):
            raise SandboxUnavailable(f"{python} cannot run cells: all of {home} would be seen inside")
    return sorted(map(str, found))
