"""Asks a launcher or a session's init for something: one message out, one answer in, on a socket of its own."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from pinfold.sandbox.contract import SandboxUnavailable

MESSAGE_BYTES = 1 << 16


@contextmanager
def open_request_file(request: Mapping[str, Any]) -> Generator[int]:
    fd = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        os.write(fd, json.dumps(request).encode())
        yield fd
    finally:
        os.close(fd)


LAUNCHER = "the launcher of sessions"


class LauncherGone(SandboxUnavailable):
    """It ended before it gave a session; another can be had."""


async def send_request(
    peer: socket.socket,
    message: bytes,
    request: Mapping[str, Any],
    limit_s: float,
    fds: Sequence[int] = (),
    *,
    who: str = LAUNCHER,
) -> tuple[bytes, list[int]]:
    """Send a request, and `fds`, with a socket of its own for the answer. Returns that and its descriptors.

    Raises SandboxUnavailable.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, open_request_file(request) as fd:
        try:
            socket.send_fds(peer, [message], [fd, theirs.fileno(), *fds])
            theirs.close()
            await _readable(ours, limit_s)
            words, given, _, _ = socket.recv_fds(ours, MESSAGE_BYTES, 8)
        except (BrokenPipeError, ConnectionError) as error:
            raise LauncherGone(f"{who} is gone: {error}") from error
        except OSError as error:  # a timeout is one
            raise SandboxUnavailable(f"{who} does not answer: {error}") from error
    return words, given


async def _readable(peer: socket.socket, limit_s: float) -> None:
    loop = asyncio.get_running_loop()
    came: asyncio.Future[None] = loop.create_future()

    def on_readable() -> None:
        if not came.done():
            came.set_result(None)

    loop.add_reader(peer.fileno(), on_readable)
    try:
        await asyncio.wait_for(came, limit_s)
    finally:
        loop.remove_reader(peer.fileno())
