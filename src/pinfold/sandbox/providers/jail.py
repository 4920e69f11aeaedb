"""Sessions in namespaces, seen from the host: where they come from, and how each of their guests begins."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import SERVERS, Limits, Mount, SandboxUnavailable, Spec, data_places
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.guards.file_guard import FileGuard
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, find_guarded_paths, why_not_mountable
from pinfold.sandbox.guards.ports import FileGuards, WorkspaceGuard
from pinfold.sandbox.kernel.seccomp import SIGNALS, compile_filter, names
from pinfold.sandbox.providers.launcher import Ends, Launcher, start_guest
from pinfold.sandbox.providers.launcher_requests import LauncherGone
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess
from pinfold.sandbox.session.output import Output
from pinfold.sandbox.views.view_folder import ViewFolder, ViewGuard

EGRESS_SOCKET, EGRESS_PORT = "/.pinfold-egress", 820
"""Inside: where the proxy's socket is, and the port that leads to it, lower than any program could take."""
CARRIES_ONLY = SIGNALS | names("""
open openat openat2 creat memfd_create execve execveat fork vfork clone clone3 ptrace prlimit64 setrlimit setsid setpgid
bind listen socketpair chdir fchdir shmget shmat mq_open unlink unlinkat rename renameat renameat2 mkdir mkdirat
link linkat symlink symlinkat
""")
"""Refused to the process that carries bytes between the two, on top of what is refused to programs."""
PROXIES = {
    **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"), f"http://127.0.0.1:{EGRESS_PORT}"),
    **dict.fromkeys(("NO_PROXY", "no_proxy"), "localhost,127.0.0.1,::1"),
}
MOUNTS = 32
OPEN_FILES = 1024


class MountPoint:
    """Something of the host's at a path of the session's."""

    def __init__(
        self, path: str, source: Path, *, writable: bool = False, steers: bool = False, has_secrets: bool = True
    ) -> None:
        """`steers`: its instructions would be obeyed."""
        try:
            self.source = source.resolve(strict=True)
        except (OSError, RuntimeError) as error:
            raise SandboxUnavailable(f"{source} cannot be mounted: {error}") from error
        self.path = path
        self.writable = writable
        self.guards = find_guarded_paths(self.source, path, steers=steers) if has_secrets else GuardedPaths()

    def to_request(self) -> dict[str, object]:
        folder = self.source.is_dir()
        return {"path": self.path, "source": str(self.source), "writable": self.writable, "folder": folder}


def mounts_of(spec: Spec) -> list[MountPoint]:
    """The workspace, then all else. Raises SandboxUnavailable."""
    if (count := len(spec.data) + len(spec.mounts)) > MOUNTS:
        raise SandboxUnavailable(f"{count} mounts are too many; {MOUNTS} is the most")
    mounts = [MountPoint(str(spec.workspace), spec.workspace, writable=spec.writable, steers=True)]
    mounts += map(_own_place, spec.mounts)
    mounts += (MountPoint(place, path) for place, path in data_places(spec.data).items())
    if spec.servers:
        mounts.append(MountPoint(SERVERS, spec.servers, has_secrets=False))
    if spec.site:
        mounts.append(MountPoint(str(spec.site), spec.site, has_secrets=False))
    if spec.egress:
        if not spec.egress.is_socket():
            raise SandboxUnavailable(f"{spec.egress} is no socket: start the proxy that is the way out first")
        mounts.append(MountPoint(EGRESS_SOCKET, spec.egress, has_secrets=False))
    return mounts


def _own_place(mount: Mount) -> MountPoint:
    if why := why_not_mountable(mount):
        raise SandboxUnavailable(f"{mount.path} cannot be mounted: {why}")
    return MountPoint(str(mount.path), mount.path, writable=mount.writable, steers=mount.writable)


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


def process_limits(limits: Limits) -> dict[str, int]:
    """By the names the kernel has for them, without RLIMIT_."""
    return {"CORE": 0, "DATA": limits.memory_bytes, "MEMLOCK": 0, "NOFILE": OPEN_FILES, "NPROC": limits.processes}


@functools.cache
def _egress_settings() -> dict[str, object]:
    program = compile_filter(refused=CARRIES_ONLY)
    return {"socket": EGRESS_SOCKET, "port": EGRESS_PORT, "filter": program.hex()}


TRIES = 3
"""A warm launcher may end with its owner, just as we ask it."""
Probe: TypeAlias = Callable[[], Awaitable[None]]


class Guests:
    """Launches the guests of one session."""

    def __init__(self, launcher: Launcher, spec: Spec, probe: Probe | None = None) -> None:
        """`probe` proves the launcher, if it is not the one whose proof this session is."""
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
        """Begin to look through the workspace, for what is guarded and then for undo, while the launcher starts."""
        spec = self._spec
        if not spec.workspace.is_dir():
            return
        self._walk = walk = asyncio.ensure_future(anyio.to_thread.run_sync(mounts_of, spec))

        async def begin_history() -> FileHistory | str:
            await asyncio.wait([walk])
            return await anyio.to_thread.run_sync(history_of, spec)

        if spec.writable and spec.view is None:
            self._early_history = asyncio.ensure_future(begin_history())

    async def take_history(self) -> FileHistory | str | None:
        """That of the workspace's files, if it has begun; from now on the caller's."""
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
        ends = await self._ends(await anyio.to_thread.run_sync(ask) if self._view else ask())
        guest = self._guest(ends)

        async def keep() -> WorkspaceGuard:
            made_by = _make_view_guard if spec.view else make_guard
            return await anyio.to_thread.run_sync(made_by, mounts, JailedProcess(ends.control, ends.pidfd))

        return await start_guest(guest, spec.limits, keep if spec.writable else None)

    def _guest(self, ends: Ends) -> Guest:
        cap = self._spec.limits.stream_bytes
        outputs = Output("stdout", ends.stdout, cap), Output("stderr", ends.stderr, cap)
        return Guest(JailedProcess(ends.control, ends.pidfd), ends.channel, *outputs)

    async def _ends(self, asked: dict[str, object]) -> Ends:
        for tries_left in reversed(range(TRIES)):
            if self._probe:
                await self._probe()
            try:
                return await self._launcher.open(asked)
            except LauncherGone:
                if not tries_left:
                    raise
        raise AssertionError("unreachable")

    async def sweep(self) -> None:
        """Nothing outlives a session's init."""

    async def release(self) -> None:
        """Its mounts went with it."""
        with anyio.CancelScope(shield=True):
            if self._walk:
                await asyncio.gather(self._walk, return_exceptions=True)
            history = await self.take_history()
            if isinstance(history, FileHistory):
                await history.close()
        if self._view is not None:
            self._view.close()


def history_of(spec: Spec) -> FileHistory | str:
    """In a thread. Or why there is none."""
    return FileHistory.create_if_possible(spec.workspace, spec.state / "files" if spec.state else None)


def make_guard(mounts: list[MountPoint], body: JailedProcess) -> WorkspaceGuard:
    """Of the workspace, and of every other folder that the session may change."""
    others = [mount for mount in mounts[1:] if mount.writable and mount.source.is_dir()]
    guards = {mount.path: _make_file_guard(mount, body) for mount in (mounts[0], *others)}
    return FileGuards(guards) if others else guards[mounts[0].path]


def _make_file_guard(mount: MountPoint, body: JailedProcess) -> FileGuard:
    return FileGuard(
        str(mount.source), mount.guards, shown=mount.path, remount=body.guard, leftovers=body.has_leftovers
    )


def _make_view_guard(mounts: list[MountPoint], body: JailedProcess) -> ViewGuard:
    workspace = mounts[0]
    return ViewGuard(str(workspace.source), workspace.guards, shown=workspace.path, remount=body.guard)
