"""Saves the session's variables from a copy of its process: the copy sends them to the host and ends."""

from __future__ import annotations

import os
import sys
from _socket import socket  # the whole of `socket` takes milliseconds to import
from collections.abc import Sequence
from contextlib import suppress
from json import dumps, loads
from typing import TYPE_CHECKING, NamedTuple, Never
from warnings import catch_warnings, simplefilter

from ..kernel.processes import discard_sigchld, reap
from .serialization import save

if TYPE_CHECKING:
    from .serialization import Piece

NICENESS = 10
REQUEST_BYTES = 1 << 20

# Bound now: a program may replace these names in their modules.
_open, _dup2, _nice, _exit, _getcwd, _socket = os.open, os.dup2, os.nice, os._exit, os.getcwd, socket
_close, _setsid, _fork = os.close, os.setsid, os.fork
_dumps, _loads = dumps, loads


class State(NamedTuple):
    """What to save."""

    namespace: dict[str, object]
    cells: dict[str, int]
    """The cell that bound each name."""
    flags: int
    path: Sequence[str]
    """`sys.path` before the program changed it."""


def leave_saver(state: State, fd: int, channel: int) -> None:
    """Run `save_and_end` in a fork of this process that the program cannot wait for."""
    try:
        with discard_sigchld():
            child = _fork_quietly()
            if child == 0:
                try:
                    if _fork_quietly():
                        _exit(0)
                except OSError:  # too many processes; this one must never answer cells alongside the original
                    _exit(1)
                with suppress(OSError):  # the channel may have closed itself at the fork
                    _close(channel)
                _setsid()
                save_and_end(state, fd)
            reap(child)
    finally:
        _close(fd)


def _fork_quietly() -> int:
    with catch_warnings():  # the warning is about threads, which the fork does not need: it only reads
        simplefilter("ignore")
        return _fork()


def save_and_end(state: State, fd: int) -> Never:
    """Send everything to the host through `fd`, and exit."""
    try:
        _save(_socket(fileno=fd), state)
    except BaseException:  # the host notices that the last message is missing
        _exit(1)
    _exit(0)


def _save(host: socket, state: State) -> None:
    nowhere = _open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        _dup2(nowhere, number)
    _nice(NICENESS)
    request = _loads(_line(host))

    def tell(name: str) -> None:
        host.sendall(_dumps({"at": name}).encode() + b"\n")

    def write(digest: str, pieces: Sequence[Piece]) -> None:
        views = [memoryview(piece).cast("B") for piece in pieces]
        size = sum(map(len, views))
        host.sendall(_dumps({"bytes": digest, "size": size}).encode() + b"\n")
        for view in views:
            host.sendall(view)

    known: list[str] = request["known"]
    entries = save(
        state.namespace,
        frozenset(known),
        write,
        cap_bytes=request["cap"],
        each_bytes=request["each"],
        skip=request["skip"],
        tell=tell,
    )
    folder = ""
    with suppress(OSError):  # the folder was removed
        folder = _getcwd()
    around = {"flags": state.flags, "folder": folder, "path": [it for it in sys.path if it not in state.path]}
    told = {"entries": [entry.row() for entry in entries], "cells": state.cells, "around": around}
    host.sendall(_dumps(told).encode() + b"\n")


def _line(host: socket) -> bytes:
    parts = bytearray()
    while not parts.endswith(b"\n"):
        more = host.recv(REQUEST_BYTES)
        if not more:
            break
        parts += more
    return bytes(parts)
