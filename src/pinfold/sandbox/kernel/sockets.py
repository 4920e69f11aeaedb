"""Unix sockets on disk: at paths of any length, for their user alone."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections.abc import Generator
from pathlib import Path

_LONGEST = 103
_CREDENTIALS = struct.Struct("3i")


@contextlib.contextmanager
def short_path(path: Path) -> Generator[str]:
    """The path itself; a long one through a descriptor, since the kernel takes 108 bytes at most."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def is_same_user(peer: socket.socket) -> bool:
    """Whether the other end belongs to us."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is 0700 and the socket 0600
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] == os.geteuid()
