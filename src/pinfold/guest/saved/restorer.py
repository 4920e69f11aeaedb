"""Makes a new session what a saved one was, from what the host has kept of it."""

from __future__ import annotations

import os
import sys
from _socket import socket  # the whole of `socket` takes milliseconds to import
from struct import Struct

from .deserialization import restore
from .entries import Entry

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


SIZE = Struct("<Q")
MISSING = (1 << 64) - 1
"""The size of what the host does not have."""


def restore_session(namespace: dict[str, object], told: Mapping[str, Any], fd: int) -> list[dict[str, object]]:
    """What became of each variable. `fd` leads to the host, which has the bytes."""
    around = told["around"]
    sys.path += [it for it in around["path"] if type(it) is str and it not in sys.path]
    _change_folder(around["folder"])
    host = socket(fileno=fd)
    try:
        labels = restore(namespace, map(Entry.of_row, told["entries"]), _Reader(host).read)
    finally:
        host.close()
    return [label.row() for label in labels]


def _change_folder(folder: str) -> None:
    try:
        os.chdir(folder)
    except (OSError, ValueError):  # it is no longer there
        return


class _Reader:
    """Asks for bytes by digest."""

    def __init__(self, host: socket) -> None:
        self._host = host

    def read(self, digest: str) -> bytearray:
        self._host.sendall(digest.encode())
        (size,) = SIZE.unpack(self._read_exactly(SIZE.size))
        if size == MISSING:
            raise KeyError(digest)
        return self._read_exactly(size)

    def _read_exactly(self, size: int) -> bytearray:
        data = bytearray(size)
        view, at = memoryview(data), 0
        while at < size:
            came = self._host.recv_into(view[at:])
            if not came:
                raise OSError("the host has hung up")
            at += came
        return data
