"""What a guest lives in, as far as the host must reach it: to interrupt it, to end it, to learn how it ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from contextlib import suppress
from dataclasses import asdict
from typing import Protocol

from pinfold.sandbox._keeping import Mounts
from pinfold.sandbox._paper import MESSAGE_BYTES, paper

GUARD_S = 1.0
"""A mount takes microseconds; an init that takes longer is being held up."""


class Body(Protocol):
    out_of_memory: bool
    """Known once it was reaped: it was ended because the session took too much."""

    @property
    def fd(self) -> int | None:
        """Readable when it has ended; None where the kernel cannot say."""
        ...

    def interrupt(self) -> None: ...

    def kill(self) -> None:
        """End it and everything it started."""
        ...

    def poll(self) -> int | None:
        """As `reap`, but None while it lives."""
        ...

    def reap(self) -> int:
        """Once it has ended: its exit code, or a signal's number, negative. Ends what it left behind."""
        ...

    def release(self) -> None:
        """Let go of the descriptors."""
        ...


class Subprocess:
    """A plain process that leads a group of its own."""

    out_of_memory = False

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pidfd = _pidfd(process.pid)

    @property
    def fd(self) -> int | None:
        return self._pidfd

    def interrupt(self) -> None:
        self._signal(signal.SIGINT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)

    def poll(self) -> int | None:
        return self._process.poll()

    def reap(self) -> int:
        # Before the process is reaped, so that the group's number is still its own.
        self.kill()
        return self._process.wait()

    def release(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)

    def _signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


class Jailed:
    """A session in namespaces of its own. Its init hears us, and with its init everything in it ends."""

    def __init__(self, control: socket.socket, pidfd: int) -> None:
        self.out_of_memory = False
        control.setblocking(False)
        self._control = control
        self._pidfd = pidfd

    @property
    def fd(self) -> int:
        # Not the report: the init is gone only when every process of the session is.
        return self._pidfd

    def interrupt(self) -> None:
        with suppress(OSError):
            self._control.send(b"interrupt")

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def guard(self, mounts: Mounts) -> None:
        """Have the init mount these now, in the live session. What it cannot mount, the keeper looks after at cell ends."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ours, theirs, paper(asdict(mounts)) as request, suppress(OSError):
            socket.send_fds(self._control, [b"guard"], [request, theirs.fileno()])
            theirs.close()
            ours.settimeout(GUARD_S)
            ours.recv(MESSAGE_BYTES)

    def poll(self) -> int | None:
        return None

    def reap(self) -> int:
        code = -signal.SIGKILL
        with suppress(OSError, ValueError, KeyError, TypeError):
            report = json.loads(self._control.recv(256))
            code = int(report["code"])
            self.out_of_memory = bool(report["out_of_memory"])
        self.kill()
        return code

    def release(self) -> None:
        self._control.close()
        os.close(self._pidfd)


def _pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):  # not Linux, or one older than 5.3
        return None
