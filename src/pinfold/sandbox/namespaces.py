"""Provider `namespaces`: sessions forked from a zygote into namespaces of their own.

The host talks to a launcher, the launcher to the zygote; see `guest/launcher.py` for who may do what.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.to_thread

from pinfold.sandbox._ahead import Ahead, Begun
from pinfold.sandbox._asking import LauncherGone
from pinfold.sandbox._body import Jailed
from pinfold.sandbox._guest import Guest
from pinfold.sandbox._history import FileHistory
from pinfold.sandbox._keeping import Keeper, Keeping
from pinfold.sandbox._launcher import GUEST, Ends, Launcher, begun
from pinfold.sandbox._output import Output
from pinfold.sandbox._saved import Saved
from pinfold.sandbox._undo import UndoableSession
from pinfold.sandbox._workspace import Guards, guarded, why_not_mountable
from pinfold.sandbox.canaries import holes
from pinfold.sandbox.contract import Capabilities, Limits, Mount, SandboxUnavailable, Session, Spec
from pinfold.sandbox.folders import Folder, folder
from pinfold.sandbox.seccomp import SIGNALS, compile_filter
from pinfold.sandbox.views.keeping import ViewKeeper
from pinfold.sandbox.views.place import Place
from pinfold.sandbox.warm import socket_in

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
EGRESS_SOCKET, EGRESS_PORT = "/.pinfold-egress", 820
"""Inside: where the proxy's socket is, and the port that leads to it, lower than any program could take."""
CARRIES_ONLY = SIGNALS | {
    *("open", "openat", "openat2", "creat", "memfd_create", "execve", "execveat"),
    *("fork", "vfork", "clone", "clone3", "ptrace", "prlimit64", "setrlimit", "setsid", "setpgid"),
    *("bind", "listen", "socketpair", "chdir", "fchdir", "shmget", "shmat", "mq_open"),
    *("unlink", "unlinkat", "rename", "renameat", "renameat2", "mkdir", "mkdirat"),
    *("link", "linkat", "symlink", "symlinkat"),
}
"""Refused to the process that carries bytes between the two, on top of what is refused to programs."""
TMP_BYTES = 1 << 30
PROXIES = {
    **dict.fromkeys(
        ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{EGRESS_PORT}"
    ),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
MOUNTS = 32
SMALL = 100
RECYCLE_AFTER = 1_000
"""Sessions of one zygote: they share its address layout and hash seed."""
OPEN_FILES = 1024
AHEAD = 1
"""Scratch sessions begun before they are asked for, once two were."""


TRIES = 3
"""A warm launcher may end with its owner, just as we ask it."""
REPLACE_S = 1.0
"""Before a launcher that was lost is replaced."""
NO_VIEWS = "this kernel refuses overlayfs in user namespaces: no session can have a private view of the workspace here"
NO_FILES = "Undo brings back variables only, no files: this session has a private view of the workspace."
Probe: TypeAlias = Callable[[], Awaitable[None]]


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
            egress=True,
        )

    @property
    def notice(self) -> str | None:
        return None

    async def open(self, spec: Spec) -> Session:
        await self.probe()
        if spec.view is not None and not self._launcher().views:
            raise SandboxUnavailable(NO_VIEWS)
        return await self._opened(_Guests(self._launcher(), spec, self.probe), spec)

    async def open_scratch(self, limits: Limits) -> tuple[Session, Folder]:
        """A session in a new empty folder, which the caller removes. One begun ahead, where sessions come and go."""
        await self.probe()
        source = self._source()
        begun = source.ahead.take(limits)
        made = begun.folder if begun else Folder("workspace")
        spec = Spec(workspace=made.path, limits=limits)
        try:
            guests = _Guests(source.launcher, spec, self.probe, begun, is_scratch=True)
            session = await self._opened(guests, spec)
        except BaseException:
            made.remove()
            raise
        if self._pool is None and not source.asked:
            source.asked = True  # whoever asks once may never ask again
        else:
            source.ahead.refill_soon(limits)
        return session, made

    async def probe(self) -> None:
        """Make sure that sessions can be had and are shut in. Raises SandboxUnavailable."""
        launcher = self._launcher()
        await launcher.ready()
        if not launcher.proven:
            await self.prove(launcher)

    async def keep_warm(self, folder: Path, pool: int, on_ready: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled, other processes of this user get their sessions from a launcher of ours."""
        settings = {**self._settings(), "pool": pool}
        path = socket_in(folder, settings, self._guest)
        while True:
            launcher = Launcher(settings, self._guest, joins=False)
            try:
                await launcher.ready()
                await self.prove(launcher)
                launcher.listen(path)
                await on_ready()
                await launcher.gone()
            finally:
                path.unlink(missing_ok=True)
                launcher.end()
            await anyio.sleep(REPLACE_S)

    async def warm(self) -> None:
        """Prove it and fill the pool, before anyone asks for a session. Raises SandboxUnavailable."""
        await self.probe()
        await self._launcher().warm()
        if self._pool:
            await anyio.to_thread.run_sync(self._source().ahead.fill)
            await self._launcher().warm()

    def _launcher(self) -> Launcher:
        return self._source().launcher

    def _source(self) -> _Source:
        key = (type(self), self._python, self._pool, self._program, self._guest)
        if key not in _sources:
            _sources[key] = _Source(
                Launcher(self._settings(), self._guest), AHEAD if self._pool is None else self._pool
            )
        return _sources[key]

    async def _opened(self, guests: _Guests, spec: Spec) -> Session:
        async def history() -> FileHistory | str:
            if there := guests.history_taken():
                return there
            if spec.view is not None:
                return NO_FILES
            kept = spec.state / "files" if spec.state else None
            return await anyio.to_thread.run_sync(FileHistory.where_possible, spec.workspace, kept)

        given = history if spec.writable and not guests.is_proof else None
        saved = Saved(spec.state)
        session = await UndoableSession.opened(
            guests, self.capabilities, spec.limits, history=given, saved=saved
        )
        return await session.gone_on()

    async def prove(self, launcher: Launcher) -> None:
        """Once for each launcher: what is claimed is tried, not assumed."""
        with folder("proof") as place:
            spec = Spec(workspace=place)
            session = await self._opened(_Guests(launcher, spec), spec)
            try:
                found = await holes(session)
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
            "warm": True,
        }


class _Source:
    """Where sessions of one kind come from, for all of this process."""

    def __init__(self, launcher: Launcher, ahead: int) -> None:
        self.launcher = launcher
        self.ahead = Ahead(self._begin, ahead)
        self.asked = False
        """For a scratch session."""

    def _begin(self, limits: Limits) -> Begun:
        """In a thread. Raises SandboxUnavailable."""
        made = Folder("workspace")
        try:
            spec = Spec(workspace=made.path, limits=limits)
            mounts = _mounts(spec)
            ends = self.launcher.open_now(_request(spec, mounts, None))
        except BaseException:
            made.remove()
            raise
        body = Jailed(ends.control, ends.pidfd)
        keeper, history = _keeper(mounts[0], body), FileHistory.where_possible(made.path)
        begun = Begun(ends=ends, keeper=keeper, history=history, folder=made, limits=limits)
        if not begun.says_hello(limits.start_s):
            begun.close()
            raise SandboxUnavailable("a session begun ahead did not start")
        return begun


_sources: dict[tuple[type, Path, int | None, bytes, Path], _Source] = {}


@atexit.register
def _end_sources() -> None:
    for source in _sources.values():
        source.ahead.close()
        source.launcher.end()


class _Guests:
    """Launches the guests of one session."""

    def __init__(
        self,
        launcher: Launcher,
        spec: Spec,
        probe: Probe | None = None,
        begun: Begun | None = None,
        *,
        is_scratch: bool = False,
    ) -> None:
        """`probe` proves the launcher, if it is not the one whose proof this session is. `begun`: the first is there.

        `is_scratch`: the workspace is new and empty.
        """
        self._launcher = launcher
        self._probe = probe
        self._spec = spec
        self._begun = begun
        self._history = begun.history if begun else None
        self._begins_history = is_scratch and not begun
        self._view: Place | None = None

    @property
    def is_proof(self) -> bool:
        return self._probe is None

    def history_taken(self) -> FileHistory | str | None:
        """That of the workspace's files, if it has begun; from now on the caller's."""
        history, self._history = self._history, None
        return history

    async def launch(self) -> Guest:
        if self._begun:
            first, self._begun = self._begun, None
            guest = self._guest(first.ends)
            guest.keeper = first.keeper
            return await begun(guest, self._spec.limits)
        if not self._spec.workspace.is_dir():
            raise SandboxUnavailable(
                f"the workspace {str(self._spec.workspace)!r} is not a folder; create it first"
            )
        # Most workspaces are looked through faster than a thread is reached.
        spec = self._spec
        is_small = _is_small(spec.workspace) and not spec.data and not spec.mounts and not spec.view
        mounts = _mounts(spec) if is_small else await anyio.to_thread.run_sync(_mounts, spec)
        if spec.view is not None and self._view is None:
            self._view = await anyio.to_thread.run_sync(Place, spec.workspace, spec.view)
        ask = functools.partial(_request, spec, mounts, self._view)
        ends = await self._ends(await anyio.to_thread.run_sync(ask) if self._view else ask())
        guest = self._guest(ends)

        async def keep() -> Keeping:
            made_by = _view_keeper if spec.view else _keeper
            make = functools.partial(made_by, mounts[0], Jailed(ends.control, ends.pidfd))
            keeper = make() if is_small else await anyio.to_thread.run_sync(make)
            if self._begins_history:
                # That of an empty folder has begun before a thread would be reached; the session is not there yet.
                self._begins_history = False
                self._history = FileHistory.where_possible(spec.workspace)
            return keeper

        return await begun(guest, spec.limits, keep if spec.writable else None)

    def _guest(self, ends: Ends) -> Guest:
        cap = self._spec.limits.output_bytes
        outputs = Output("stdout", ends.stdout, cap), Output("stderr", ends.stderr, cap)
        return Guest(Jailed(ends.control, ends.pidfd), ends.channel, *outputs)

    async def _ends(self, request: dict[str, object]) -> Ends:
        for tries_left in reversed(range(TRIES)):
            if self._probe:
                await self._probe()
            try:
                return await self._launcher.open(request)
            except LauncherGone:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def sweep(self) -> None:
        """Nothing outlives a session's init."""

    async def release(self) -> None:
        """Its mounts went with it."""
        history = self.history_taken()
        if isinstance(history, FileHistory):
            await history.close()
        if self._view is not None:
            self._view.close()


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


def _mounts(spec: Spec) -> list[_Mount]:
    """The workspace, then all else. Raises SandboxUnavailable."""
    if (count := len(spec.data) + len(spec.mounts)) > MOUNTS:
        raise SandboxUnavailable(f"{count} mounts are too many; {MOUNTS} is the most")
    mounts = [_Mount(str(spec.workspace), spec.workspace, writable=spec.writable, steers=True)]
    mounts += map(_own_place, spec.mounts)
    mounts += (_Mount(f"/mnt/datasets/{name}", path) for name, path in spec.data.items())
    if spec.site:
        mounts.append(_Mount(str(spec.site), spec.site, has_secrets=False))
    if spec.egress:
        if not spec.egress.is_socket():
            raise SandboxUnavailable(f"{spec.egress} is no socket: start the proxy that is the way out first")
        mounts.append(_Mount(EGRESS_SOCKET, spec.egress, has_secrets=False))
    return mounts


def _request(spec: Spec, mounts: list[_Mount], view: Place | None) -> dict[str, object]:
    limits = spec.limits
    guards = [mount.guards for mount in mounts]
    if view is not None:
        guards[0] = view.guards(guards[0], mounts[0].path)
    return {
        "workspace": mounts[0].path,
        "mounts": [mount.asked() for mount in mounts],
        "view": [view.asked()] if view else [],
        "masked": [file for guard in guards for file in guard.masked],
        "pinned": [path for guard in guards for path in guard.pinned],
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
            **({"PINFOLD_SITE": str(spec.site)} if spec.site else {}),
            **(PROXIES if spec.egress else {}),
        },
        "egress": _way_out() if spec.egress else None,
    }


@functools.cache
def _way_out() -> dict[str, object]:
    program = compile_filter(refused=CARRIES_ONLY)
    return {"socket": EGRESS_SOCKET, "port": EGRESS_PORT, "filter": program.hex()}


def _keeper(workspace: _Mount, body: Jailed) -> Keeper:
    return Keeper(str(workspace.source), workspace.guards, shown=workspace.path, remount=body.guard)


def _view_keeper(workspace: _Mount, body: Jailed) -> ViewKeeper:
    return ViewKeeper(str(workspace.source), workspace.guards, shown=workspace.path, remount=body.guard)


def _own_place(mount: Mount) -> _Mount:
    if why := why_not_mountable(mount):
        raise SandboxUnavailable(f"{mount.path} cannot be mounted: {why}")
    return _Mount(str(mount.path), mount.path, writable=mount.writable, steers=mount.writable)


class _Mount:
    """Something of the host's at a path of the session's."""

    def __init__(
        self,
        path: str,
        source: Path,
        *,
        writable: bool = False,
        steers: bool = False,
        has_secrets: bool = True,
    ) -> None:
        """`steers`: its instructions would be obeyed."""
        try:
            self.source = source.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise SandboxUnavailable(f"{source} cannot be mounted: {error}") from error
        self.path = path
        self.writable = writable
        self.guards = guarded(self.source, path, steers=steers) if has_secrets else Guards()

    def asked(self) -> dict[str, object]:
        folder = self.source.is_dir()
        return {"path": self.path, "source": str(self.source), "writable": self.writable, "folder": folder}
