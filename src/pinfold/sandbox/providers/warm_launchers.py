"""Finding a launcher that another process of the same user keeps warm, instead of starting one.

It counts only if it would give the very same sessions: same programs, same settings, same view of the machine.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from pinfold.sandbox.kernel.processes import is_same_user, short_path

JOIN_S = 2.0
HELLO = {"proven": True}
_MESSAGE_BYTES = 1 << 16
_NOT_PART = ("pool", "warm")
"""Settings that make no difference to a session."""


@runtime_checkable
class Warmable(Protocol):
    """A provider that can hand its sessions to other processes."""

    async def keep_warm(self, folder: Path, pool: int, on_ready: Callable[[], Awaitable[None]]) -> None:
        """Until cancelled, with a socket in `folder`. Raises SandboxUnavailable."""


class _Places:
    folders: tuple[Path, ...] = ()


def look_in(*folders: Path) -> None:
    """Where launchers that are kept warm have their sockets."""
    _Places.folders = folders


def socket_in(folder: Path, settings: Mapping[str, Any], guest: Path) -> Path:
    """Named after everything that matters for what comes out of it."""
    about = {
        "settings": {name: value for name, value in settings.items() if name not in _NOT_PART},
        "code": _code(guest),
        "launcher": sys.executable,
        "user": [os.geteuid(), os.getegid(), sorted(os.getgroups())],
        "views": [_link(f"/proc/self/ns/{name}") for name in ("mnt", "user", "pid")],
        "root": list(_identity("/")),
    }
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode()).hexdigest()
    return folder / f"launcher-{digest[:32]}.sock"


def connect_warm(settings: Mapping[str, Any], guest: Path) -> socket.socket | None:
    """A connection to a launcher that is warm and proven, if there is one."""
    name = ""
    for folder in filter(_is_private, _Places.folders):
        name = name or socket_in(folder, settings, guest).name
        if peer := _connect_socket(folder / name):
            return peer
    return None


def _connect_socket(path: Path) -> socket.socket | None:
    if not path.exists():
        return None
    peer = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    peer.settimeout(JOIN_S)
    try:
        with short_path(path) as short:
            peer.connect(short)
        if is_same_user(peer) and json.loads(peer.recv(_MESSAGE_BYTES)) == HELLO:
            return peer
    except (OSError, ValueError):  # stale, or on its way out
        pass
    peer.close()
    return None


def open_listener(path: Path) -> socket.socket:
    """For other processes of the same user, and for no one before it is theirs alone."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with short_path(path) as short:
            listener.bind(short)
            Path(short).chmod(0o600)
        listener.listen(128)
    except BaseException:
        listener.close()
        raise
    return listener


def is_open(peer: socket.socket) -> bool:
    """It says nothing unasked: what can be read is its end."""
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    return not poll.poll(0)


def _is_private(folder: Path) -> bool:
    try:
        status = folder.stat()
    except OSError:
        return False
    return status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _code(guest: Path) -> list[tuple[str, int, int]]:
    """Of the program inside: it is read once, so a file that was changed since makes another one of it."""
    with os.scandir(guest) as entries:
        files = [(entry.path, entry.stat()) for entry in entries if entry.name.endswith(".py")]
    return sorted((path, status.st_mtime_ns, status.st_size) for path, status in files)


def _link(path: str) -> str:
    try:
        return str(Path(path).readlink())
    except OSError:
        return ""


def _identity(path: str) -> tuple[int, int]:
    status = Path(path).stat()
    return status.st_dev, status.st_ino
