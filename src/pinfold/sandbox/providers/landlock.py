"""Provider `landlock`, called lite: Landlock and a system call filter, for systems that refuse user namespaces.

It has no mounts, so sessions see the host's own paths and nothing can be masked. It has no process or network
namespace, so calls that those would contain are refused. `guest/startup/lite.py` describes the rights of each process.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
import tempfile
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import anyio.to_thread

from pinfold.sandbox.contract import Capabilities, SandboxUnavailable, Session, Spec
from pinfold.sandbox.guards.file_guard import FileGuard
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, find_guarded_paths, ours_within
from pinfold.sandbox.guards.ports import FileGuards, WorkspaceGuard
from pinfold.sandbox.guests import open_saved_state_session, refuse_extras
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.kernel.safe_files import SET_ID
from pinfold.sandbox.kernel.seccomp import METADATA, SIGNALS, compile_filter
from pinfold.sandbox.providers.canaries import prove
from pinfold.sandbox.providers.launcher import GUEST, Launcher, process_limits, start_guest
from pinfold.sandbox.providers.namespaces import ETC, SYSTEM, MountPoint, check_mounts, homes, resolve_python
from pinfold.sandbox.session.guest import Guest
from pinfold.sandbox.session.guest_process import JailedProcess, LauncherGone, WatchedProcess
from pinfold.text import join_names

USERS = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")
NEWEST_ABI = 99
SCOPED_ABI = 6
"""The first version of Landlock that restricts signals and abstract sockets; before, the init judges each signal."""
TRUNCATE_ABI = 3
IDLE = 2
"""Number of zygotes kept for workspaces without a session."""
FIX = "does this machine have Landlock? (Linux 5.13, and `landlock` in the kernel's list: lsm=landlock,...)"
NOTICE = (
    "landlock is the lite sandbox: files outside the workspace are closed and there is no network at all, not even inside; "
    "but paths are the host's own, secrets in the workspace cannot be masked, and names, sizes and running processes of "
    "this machine can be made out."
)
NO_SITE = " Packages cannot be installed for this session: {} is closed to the workspace's owner."
AS_ROOT = " The workspace belongs to root, so code runs as root, without any of root's powers."


class Landlock:
    """Isolation without namespaces, by Landlock and seccomp."""

    name = "landlock"
    capabilities = Capabilities(isolated=True, site=True, commands=True, read_only_commands=True, durable=True)

    def __init__(
        self, python: Path | None = None, *, allow_unmasked: bool = False, abi: int = NEWEST_ABI, guest: Path = GUEST
    ) -> None:
        """`allow_unmasked`: accept a workspace with secrets, which code can read. `abi`: newest Landlock to use."""
        self._python = resolve_python(python or Path(sys.executable))
        self._allow_unmasked = allow_unmasked
        self._abi = min(abi, landlock_abi())
        self._guest = guest
        self._also = ""

    @property
    def notice(self) -> str | None:
        return NOTICE + self._also

    async def open(self, spec: Spec) -> Session:
        refuse_extras(spec, self.name)
        place = await anyio.to_thread.run_sync(self._place, spec)
        await self._prove(place.owner)
        session = await self._open(place, spec)
        self._also = (AS_ROOT if os.geteuid() == place.owner[0] == 0 else "") + (
            NO_SITE.format(spec.site) if spec.site and not place.site else ""
        )
        return session

    async def probe(self, spec: Spec | None = None) -> None:  # noqa: ARG002 - nothing is prepared
        await self._prove((os.geteuid(), os.getegid()))

    async def _open(self, place: _Confinement, spec: Spec) -> Session:
        guests = _Guests(_borrow_launcher(place), spec, place)
        return await open_saved_state_session(guests, self.capabilities, spec)

    async def _prove(self, owner: tuple[int, int]) -> None:
        """Prove the isolation by trying to break out. Done once for each user that sessions run as."""
        claim = (self._python, self._abi, self._guest, owner)
        if claim in _proven:
            return
        if not self._abi:
            raise SandboxUnavailable(f"this kernel has no Landlock; {FIX}")
        with folder("proof") as workspace:
            if os.geteuid() == 0:
                os.chown(workspace, *owner)
            spec = Spec(workspace=workspace)
            place = replace(self._place(spec), warm="never")
            await prove(await self._open(place, spec))
        _proven.add(claim)

    def _place(self, spec: Spec) -> _Confinement:
        """Decide what the session may see and change, after scanning it. Raises SandboxUnavailable."""
        if not spec.workspace.is_dir():
            raise SandboxUnavailable(f"the workspace {str(spec.workspace)!r} is not a folder; create it first")
        workspace = spec.workspace.resolve()
        shown = _visible_paths(spec)
        if not self._allow_unmasked:
            _refuse_secrets([each.guards for each in shown])
        owner = workspace.stat()
        site = spec.site.resolve() if spec.site and _is_open_to(spec.site.resolve(), owner) else None
        return _Confinement(
            python=self._python,
            guest=self._guest,
            abi=self._abi,
            workspace=str(workspace),
            writable=tuple(each.path for each in shown if each.writable),
            readable=tuple(each.path for each in shown if not each.writable),
            site=str(site) if site else None,
            owner=(owner.st_uid, owner.st_gid),
        )


def _visible_paths(spec: Spec) -> list[MountPoint]:
    """Return what a session sees, each at its own path, the workspace first. Raises SandboxUnavailable."""
    check_mounts(spec)
    shown = [
        MountPoint(spec.workspace, writable=spec.writable, steers=True),
        *(MountPoint(mount.path, writable=mount.writable, steers=mount.writable) for mount in spec.mounts),
        *(MountPoint(path) for path in spec.data.values()),
    ]
    for each in shown:
        if each.writable:
            _refuse_unguarded(each)
    return shown


def _refuse_unguarded(mount: MountPoint) -> None:
    if ours := ours_within(mount.path):
        raise SandboxUnavailable(
            f"{ours[0]} is Pinfold's own, and landlock cannot keep it unchanged inside {mount.path}; "
            "choose another folder, or the mode read-only"
        )
    # A write through a shared mapping changes a file without clearing its set-id bits.
    for path in mount.guards.protected:
        mode = os.lstat(path).st_mode
        if stat.S_ISREG(mode) and mode & SET_ID:
            raise SandboxUnavailable(
                f"{path} runs as its owner, and landlock cannot keep it unchanged; take that away with "
                f"`chmod ug-s`, or choose the mode read-only"
            )


def _is_open_to(path: Path, owner: os.stat_result) -> bool:
    """Return True if the workspace's owner, as which code runs, can reach the path: the host may be root."""
    for part in (path, *path.parents):
        status = part.stat()
        who = 6 if status.st_uid == owner.st_uid else 3 if status.st_gid == owner.st_gid else 0
        if os.geteuid() == 0 and owner.st_uid and not status.st_mode >> who & 1:
            return False
    return True


def landlock_abi() -> int:
    """Return the Landlock version of this kernel; 0 for none."""
    if sys.platform != "linux":
        return 0
    return max(0, ctypes.CDLL(None).syscall(ctypes.c_long(444), None, ctypes.c_size_t(0), ctypes.c_uint32(1)))


def _refuse_secrets(seen: list[GuardedPaths]) -> None:
    # Host sockets, which other providers mask, are left out: a session here cannot create a socket to reach them.
    files = [path for guards in seen for path, _, _ in guards.masked if not stat.S_ISSOCK(os.lstat(path).st_mode)]
    if files:
        raise SandboxUnavailable(
            f"{join_names(files, 1)} would be readable: landlock cannot mask secrets; move them out of the folder, "
            "or allow it with --allow-unmasked"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Confinement:
    """What one zygote and its sessions may reach."""

    python: Path
    guest: Path
    abi: int
    workspace: str
    writable: tuple[str, ...]
    readable: tuple[str, ...]
    site: str | None
    owner: tuple[int, int]
    warm: Literal["later", "never"] = "later"
    """When the zygote imports the libraries that sessions share."""

    def settings(self) -> dict[str, object]:
        refused = frozenset[str]() if self.abi >= TRUNCATE_ABI else frozenset({"truncate"})
        asked = METADATA if self.abi >= SCOPED_ABI else METADATA | SIGNALS
        init = METADATA | {"kill", "seccomp"}
        return {
            "python": str(self.python),
            "workspace": self.workspace,
            "writable": self.writable,
            "owner": self.owner,
            "temporary": tempfile.gettempdir(),
            "abi": self.abi,
            "read": [
                *SYSTEM,
                *ETC,
                *USERS,
                *homes(self.python, self.guest),
                *self.readable,
                *([self.site] if self.site else []),
            ],
            "filter": compile_filter(shared=True, asked=asked, refused=refused).hex(),
            "zygote_filter": compile_filter(shared=True, also=init, refused=refused).hex(),
            "environment": {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
            "warm": self.warm,
        }


_lock = threading.Lock()
_places: dict[_Confinement, Launcher] = {}
_proven: set[tuple[Path, int, Path, tuple[int, int]]] = set()


def _borrow_launcher(place: _Confinement) -> Launcher:
    """Return the launcher of a place, and count one more session."""
    with _lock:
        lent = _places.pop(place, None)
        _places[place] = lent = lent or Launcher(place.settings(), place.guest, program="lite", joins=False, fix=FIX)
        lent.users += 1
        return lent


def _return_launcher(lent: Launcher) -> list[Launcher]:
    """Count one session less. Returns unused launchers beyond the `IDLE` kept, for the caller to end."""
    with _lock:
        lent.users -= 1
        idle = [place for place, launcher in _places.items() if not launcher.users]
        return [_places.pop(place) for place in idle[:-IDLE]]


class _Guests:
    """Launches the guests of one session."""

    def __init__(self, lent: Launcher, spec: Spec, place: _Confinement) -> None:
        self._lent = lent
        self._spec = spec
        self._place = place

    async def launch(self) -> Guest:
        ask = partial(self._lent.open, self._request(), WatchedProcess, self._spec.limits.output_bytes)
        try:
            guest, body = await ask()
        except LauncherGone:  # a launcher ends when it loses its zygote; this starts another
            guest, body = await ask()

        async def keep() -> WorkspaceGuard:
            return await anyio.to_thread.run_sync(_make_guards, self._place, body)

        return await start_guest(guest, self._spec.limits, keep if self._place.writable else None)

    async def sweep(self) -> None:
        """Do nothing: a session's init reports its end only after ending everything."""

    async def release(self) -> None:
        for unused in _return_launcher(self._lent):
            await anyio.to_thread.run_sync(unused.end)

    def _request(self) -> dict[str, object]:
        limits, site = self._spec.limits, self._place.site
        return {
            "memory": limits.memory_bytes,
            "processes": limits.processes,
            "limits": process_limits(limits),
            "environment": {
                "PATH": f"{self._place.python.parent}:/usr/local/bin:/usr/bin:/bin",
                "LANG": "C.UTF-8",
                # The system's git configuration is out of reach, and git would stop with an error.
                "GIT_CONFIG_NOSYSTEM": "1",
                **({"PINFOLD_SITE": site} if site else {}),
            },
        }


def _make_guards(place: _Confinement, body: JailedProcess) -> FileGuards:
    """Guard each writable folder around cells, because no mounts protect its files here."""
    return FileGuards(
        {
            path: FileGuard(
                path, find_guarded_paths(Path(path), path, steers=True), mounted=False, leftovers=body.has_leftovers
            )
            for path in place.writable
            if Path(path).is_dir()
        }
    )
