"""Provider `namespaces`: sessions forked from a zygote, each in its own namespaces.

The host talks to a launcher, and the launcher to the zygote. `guest/startup/launcher.py` describes their rights.
"""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import (
    SERVERS,
    SKILLS,
    Capabilities,
    Limits,
    SandboxUnavailable,
    Session,
    Spec,
    data_places,
)
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.guards.file_guard import FileGuard
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, Listings, find_guarded_paths, why_not_mountable
from pinfold.sandbox.guards.ports import FileGuards, WorkspaceGuard
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.kernel.seccomp import SIGNALS, compile_filter, names
from pinfold.sandbox.providers.canaries import prove
from pinfold.sandbox.providers.launcher import GUEST, Launcher, process_limits, socket_in, start_guest
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess, LauncherGone
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.session.state_restore import FrozenCopies
from pinfold.sandbox.views.view_folder import ViewFolder, ViewGuard

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
"""Most sessions of one zygote, because they share its address layout and hash seed."""
REPLACE_S = 1.0
"""Pause before a lost launcher is replaced."""
NO_VIEWS = "this kernel refuses overlayfs in user namespaces: no session can have a private view of the workspace here"
NO_FILES = "Undo restores variables only, not files: this session has a private view of the workspace."
EGRESS_SOCKET, EGRESS_PORT = "/.pinfold-egress", 820
"""Inside: the path of the proxy's socket, and the port that leads to it, which is too low for programs to bind."""
CARRIES_ONLY = SIGNALS | names("""
open openat openat2 creat memfd_create execve execveat fork vfork clone clone3 ptrace prlimit64 setrlimit setsid setpgid
bind listen socketpair chdir fchdir shmget shmat mq_open unlink unlinkat rename renameat renameat2 mkdir mkdirat
link linkat symlink symlinkat
""")
"""Calls refused to the process that relays bytes between port and socket, besides those refused to programs."""
PROXIES = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{EGRESS_PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
MOUNTS = 32
TRIES = 3
"""Attempts to open a session; a warm launcher may end with its owner while it is asked."""
Probe: TypeAlias = Callable[[], Awaitable[None]]


class MountPoint:
    """A host path that is mounted at a path of the session."""

    def __init__(
        self,
        source: Path,
        path: str = "",
        *,
        writable: bool = False,
        steers: bool = False,
        has_secrets: bool = True,
        on_listed: Callable[[Listings], None] | None = None,
    ) -> None:
        """`path`: default is the real path of `source`. `steers`: instructions in it would be followed.

        `on_listed` receives the entries of each folder.
        """
        try:
            self.source = source.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise SandboxUnavailable(f"{source} cannot be mounted: {error}") from error
        self.path = path or str(self.source)
        self.writable = writable
        self.guards = GuardedPaths()
        if has_secrets:
            self.guards = find_guarded_paths(self.source, self.path, steers=steers, on_listed=on_listed)

    def to_request(self) -> dict[str, object]:
        folder = self.source.is_dir()
        return {"path": self.path, "source": str(self.source), "writable": self.writable, "folder": folder}


def check_mounts(spec: Spec) -> None:
    """Raise SandboxUnavailable if there are too many mounts, or one is not allowed."""
    if (count := len(spec.data) + len(spec.mounts)) > MOUNTS:
        raise SandboxUnavailable(f"{count} mounts are too many; {MOUNTS} is the most")
    for mount in spec.mounts:
        if why := why_not_mountable(mount):
            raise SandboxUnavailable(f"{mount.path} cannot be mounted: {why}")


def mounts_of(spec: Spec, on_listed: Callable[[Listings], None] | None = None) -> list[MountPoint]:
    """Return all mounts, the workspace first. Raises SandboxUnavailable.

    `on_listed` receives the entries of each folder of the workspace.
    """
    check_mounts(spec)
    if spec.egress and not spec.egress.is_socket():
        raise SandboxUnavailable(f"{spec.egress} is not a socket; start the egress proxy first")
    ours = {SERVERS: spec.servers, SKILLS: spec.skills, str(spec.site): spec.site, EGRESS_SOCKET: spec.egress}
    return [
        MountPoint(spec.workspace, str(spec.workspace), writable=spec.writable, steers=True, on_listed=on_listed),
        *(MountPoint(it.path, str(it.path), writable=it.writable, steers=it.writable) for it in spec.mounts),
        *(MountPoint(path, place) for place, path in data_places(spec.data).items()),
        *(MountPoint(path, place, has_secrets=False) for place, path in ours.items() if path),
    ]


def request(spec: Spec, mounts: list[MountPoint], view: ViewFolder | None) -> dict[str, object]:
    limits = spec.limits
    guards = [mount.guards for mount in mounts]
    if view is not None:
        guards[0] = view.guards(guards[0], mounts[0].path)
    return {
        "workspace": mounts[0].path,
        "mounts": [mount.to_request() for mount in mounts],
        "view": [view.to_request()] if view else [],
        "masked": [file for guard in guards for file in guard.masked],
        "pinned": [path for guard in guards for path in guard.pinned],
        "hidden": [path for guard in guards for path in guard.hidden],
        "protected": sorted({path for guard in guards for path in guard.protected}),
        "memory": limits.memory_bytes,
        "limits": process_limits(limits),
        "environment": {**({"PINFOLD_SITE": str(spec.site)} if spec.site else {}), **(PROXIES if spec.egress else {})},
        "egress": _egress_settings() if spec.egress else None,
    }


@functools.cache
def _egress_settings() -> dict[str, object]:
    program = compile_filter(refused=CARRIES_ONLY)
    return {"socket": EGRESS_SOCKET, "port": EGRESS_PORT, "filter": program.hex()}


class Guests:
    """Launches the guests of one session."""

    def __init__(self, launcher: Launcher, spec: Spec, probe: Probe | None = None) -> None:
        """`probe` proves the launcher; None if this session is itself the proof."""
        self._launcher = launcher
        self._probe = probe
        self._spec = spec
        self._walk: asyncio.Future[list[MountPoint]] | None = None
        self._early_history: asyncio.Future[FileHistory | str] | None = None
        self._view: ViewFolder | None = None

    @property
    def is_proof(self) -> bool:
        return self._probe is None

    def prepare(self) -> None:
        """Begin to scan the workspace, for guarded paths and then for undo, while the launcher starts."""
        spec = self._spec
        if not spec.workspace.is_dir():
            return
        keeps_history = spec.writable and spec.view is None
        loop = asyncio.get_running_loop()
        listings: asyncio.Future[Listings] = loop.create_future()

        def take_listings(found: Listings) -> None:
            loop.call_soon_threadsafe(listings.set_result, found)

        wanted = take_listings if keeps_history else None
        self._walk = walk = asyncio.ensure_future(anyio.to_thread.run_sync(mounts_of, spec, wanted))

        async def begin_history() -> FileHistory | str:
            await asyncio.wait([walk, listings], return_when=asyncio.FIRST_COMPLETED)
            found = listings.result() if listings.done() else None
            return await anyio.to_thread.run_sync(FileHistory.create_if_possible, spec, found)

        if keeps_history:
            self._early_history = asyncio.ensure_future(begin_history())

    async def take_history(self) -> FileHistory | str | None:
        """Return the history of the workspace's files if `prepare` began it. The caller then owns it."""
        early, self._early_history = self._early_history, None
        return await early if early else None

    async def launch(self) -> Guest:
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first")
        spec = self._spec
        walk, self._walk = self._walk, None
        mounts = await (walk or anyio.to_thread.run_sync(mounts_of, spec))
        if spec.view is not None and self._view is None:
            self._view = await anyio.to_thread.run_sync(ViewFolder, spec.workspace, spec.view)
        ask = functools.partial(request, spec, mounts, self._view)
        guest, body = await self._open(await anyio.to_thread.run_sync(ask) if self._view else ask())

        async def keep() -> WorkspaceGuard:
            return await anyio.to_thread.run_sync(self._make_guard, mounts, body)

        return await start_guest(guest, spec.limits, keep if spec.writable else None)

    def _make_guard(self, mounts: list[MountPoint], body: JailedProcess) -> WorkspaceGuard:
        """Make the guard of the workspace and of every other writable folder."""
        workspace = mounts[0]
        if self._view is not None:
            return ViewGuard(str(workspace.source), workspace.guards, shown=workspace.path, remount=body.guard)
        guards = {
            it.path: FileGuard(
                str(it.source), it.guards, shown=it.path, remount=body.guard, leftovers=body.has_leftovers
            )
            for it in mounts
            if it is workspace or (it.writable and it.source.is_dir())
        }
        return FileGuards(guards) if len(guards) > 1 else guards[workspace.path]

    async def _open(self, asked: dict[str, object]) -> tuple[Guest, JailedProcess]:
        for tries_left in reversed(range(TRIES)):
            if self._probe:
                await self._probe()
            try:
                return await self._launcher.open(asked, JailedProcess, self._spec.limits.output_bytes)
            except LauncherGone:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def sweep(self) -> None:
        """Do nothing: no process outlives a session's init."""

    async def release(self) -> None:
        """Release what `prepare` began. The mounts are gone with the session."""
        with anyio.CancelScope(shield=True):
            if self._walk:
                await asyncio.gather(self._walk, return_exceptions=True)
            history = await self.take_history()
            if isinstance(history, FileHistory):
                await history.close()
        if self._view is not None:
            self._view.close()


class Namespaces:
    """Full isolation, as root or not."""

    name = "namespaces"
    notice = None

    def __init__(
        self, python: Path | None = None, *, pool: int | None = None, program: bytes | None = None, guest: Path = GUEST
    ) -> None:
        """`python` runs the cells; the default is this one. `pool`: sessions kept ready; None: some, after the second.

        `program` and `guest`: another system call filter and guest code than Pinfold's.
        """
        self._python = resolve_python(python or Path(sys.executable))
        self._pool = pool
        self._program = program or compile_filter()
        self._guest = guest
        self._prepared: dict[int, Guests] = {}
        """By the id of their spec, between `probe` and `open`."""

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
        """Make sure that sessions can be started and are isolated. Raises SandboxUnavailable.

        `spec`: that of the session to be opened next; its workspace is scanned meanwhile.
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
        """Serve sessions from this process's launcher to other processes of this user, until cancelled."""
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
        """Prove the isolation and fill the pool before the first session is needed. Raises SandboxUnavailable."""
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
            return await anyio.to_thread.run_sync(FileHistory.create_if_possible, spec)

        begin_files = history if spec.writable and not guests.is_proof else None
        return await GuestSession.open(guests, self.capabilities, spec, FrozenCopies, begin_files)

    async def prove(self, launcher: Launcher) -> None:
        """Prove the isolation of a launcher's sessions by trying to break out of one. Done once for each launcher."""
        with folder("proof") as place:
            spec = Spec(workspace=place)
            await prove(await self._open(Guests(launcher, spec), spec))
        launcher.proven = True

    def _settings(self) -> dict[str, object]:
        environment = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": "/tmp"}
        return {
            "python": str(self._python),
            "read_only": [*SYSTEM, *homes(self._python, self._guest)],
            "etc": ETC,
            "files": FILES,
            "environment": environment,
            "session_environment": {
                "PATH": f"{self._python.parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                "HOME": "/tmp/home",
                "TMPDIR": "/tmp",
            },
            "tmp_bytes": TMP_BYTES,
            "filter": self._program.hex(),
            "pool": self._pool,
            "memory": Limits().memory_bytes,
            "recycle_after": RECYCLE_AFTER,
            "warm": "now" if self._pool else "later",
        }


_launchers: dict[tuple[type, Path, int | None, bytes, Path], Launcher] = {}
"""All launchers of this process."""


def resolve_python(python: Path) -> Path:
    """Return the real path of a Python, except in a virtual environment, which works only under its own path."""
    return python if (python.parent.parent / "pyvenv.cfg").exists() else python.resolve()


def homes(python: Path, guest: Path) -> list[str]:
    """Return the folders of the cells' Python and of the guest program that are not system folders."""
    found = {python.parent.parent, python.resolve().parent.parent, guest} - {Path("/usr")}
    for home in found:
        if Path.home().is_relative_to(home):
            raise SandboxUnavailable(f"{python} cannot run cells: all of {home} would be seen inside")
    return sorted(map(str, found))
