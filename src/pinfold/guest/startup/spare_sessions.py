"""A seed as its launcher holds it: a session nobody has asked for yet."""

from __future__ import annotations

import fcntl
import os
import socket
from contextlib import suppress

from ..kernel.groups import Group
from .zygote_handle import Zygote

PIPE_BYTES = 1 << 20


class SpareSession:
    """The host's ends of what it is held by, and its gate: let through when its ids are mapped, closed when it is ready."""

    def __init__(self, zygote: Zygote, outer: int) -> None:
        self.zygote = zygote
        self.outer = outer
        self.pidfd = -1
        self.group: Group | None = None
        self.memory = 0
        self.is_ahead = False
        """Of anyone who waits for it."""
        self.gate, self._gate = socket.socketpair()
        self.channel, self._channel = socket.socketpair()
        self.control, self._control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.stdout, self._stdout = os.pipe()
        self.stderr, self._stderr = os.pipe()
        with suppress(OSError):  # where the kernel refuses, the small pipe works too
            fcntl.fcntl(self.stdout, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    @property
    def is_ready(self) -> bool:
        return self.gate.fileno() == -1

    def start(self, *, ahead: bool) -> None:
        self.is_ahead = ahead
        inside = (self._gate, self._channel, self._control)
        gate, channel, control = (end.fileno() for end in inside)
        self.zygote.ask([gate, channel, self._stdout, self._stderr, control])
        for end in inside:
            end.close()
        os.close(self._stdout)
        os.close(self._stderr)

    def open_gate(self) -> None:
        self.gate.send(b"1")

    def ends(self) -> list[int]:
        return [self.channel.fileno(), self.control.fileno(), self.stdout, self.stderr, self.pidfd]

    def close(self) -> None:
        """Our copies only. Where no host has them, this ends the session."""
        self.gate.close()
        self.channel.close()
        self.control.close()
        os.close(self.stdout)
        os.close(self.stderr)
