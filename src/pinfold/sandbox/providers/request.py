"""What a session asks its launcher for: mounts, what is guarded in them, limits, a way out."""

from __future__ import annotations

import functools
from pathlib import Path

from pinfold.sandbox.contract import SERVERS, Limits, Mount, SandboxUnavailable, Spec, data_places
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, find_guarded_paths, why_not_mountable
from pinfold.sandbox.kernel.seccomp import SIGNALS, compile_filter
from pinfold.sandbox.views.view_folder import ViewFolder

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
