"""Sessions in namespaces, seen from the host: where they come from, and how each of their guests begins."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeAlias

import anyio
import anyio.to_thread

from pinfold.sandbox.contract import SandboxUnavailable, Spec
from pinfold.sandbox.file_history.session_history import FileHistory
from pinfold.sandbox.guards.file_guard import FileGuard
from pinfold.sandbox.guards.file_guards import FileGuards
from pinfold.sandbox.guards.ports import WorkspaceGuard
from pinfold.sandbox.providers.launcher import Ends, Launcher, start_guest
from pinfold.sandbox.providers.launcher_requests import LauncherGone
from pinfold.sandbox.providers.request import MountPoint, mounts_of, request
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess
from pinfold.sandbox.session.output import Output
from pinfold.sandbox.views.view_folder import ViewFolder
from pinfold.sandbox.views.view_guard import ViewGuard

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
        cap = self._spec.limits.output_bytes
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
    keepers = {mount.path: _make_file_guard(mount, body) for mount in (mounts[0], *others)}
    return FileGuards(keepers) if others else keepers[mounts[0].path]


def _make_file_guard(mount: MountPoint, body: JailedProcess) -> FileGuard:
    return FileGuard(
        str(mount.source), mount.guards, shown=mount.path, remount=body.guard, leftovers=body.has_leftovers
    )


def _make_view_guard(mounts: list[MountPoint], body: JailedProcess) -> ViewGuard:
    workspace = mounts[0]
    return ViewGuard(str(workspace.source), workspace.guards, shown=workspace.path, remount=body.guard)
