"""The launcher's handles of a zygote and of the sessions it has forked."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import socket
from collections import deque
from contextlib import suppress

from ..kernel import syscalls
from ..kernel.groups import Group
from ..kernel.processes import reap, send_signal
from .messages import MESSAGE_BYTES, Request
from .mounts import Root, begin_with_devices, find_existing, isolate_mounts

INNER_ID = 1000
FIRST_ID = 200_000
"""The zygote's uid if the host is root; sessions have the ids that follow."""
TMP_BYTES = 16 << 20
PIPE_BYTES = 1 << 20
LONE_SESSIONS = 2
"""The session that proves the isolation, and that of a command with one cell: neither waits for libraries to load."""


def exec_zygote(python: str, environment: dict[str, str], *arguments: int) -> None:
    """Replace this process, which is already confined, with the zygote."""
    program = os.path.join(os.path.dirname(os.path.dirname(__file__)), "__main__.py")
    os.execve(python, [python, "-I", program, "zygote", *map(str, arguments)], environment)


class Zygote:
    """A zygote in its own namespaces and root. The constructor starts it."""

    def __init__(self, settings: Request, *, drop_to: int | None) -> None:
        self.live = 0
        self.sessions = 0
        self.unborn_seeds: deque[SpareSession] = deque()
        self._settings = settings
        self._drop_to = drop_to
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._pid = syscalls.clone(syscalls.NAMESPACES | signal.SIGCHLD)
        if self._pid == 0:
            try:
                self._become_zygote(theirs)
            except BaseException as error:  # must not fall back into the launcher's loop
                theirs.send(json.dumps({"error": f"the zygote could not be confined: {error}"}).encode())
            os._exit(1)
        theirs.close()

    @property
    def unborn(self) -> int:
        return len(self.unborn_seeds)

    @property
    def is_idle(self) -> bool:
        return not self.live and not self.unborn_seeds

    def fileno(self) -> int:
        return self._socket.fileno()

    def hello(self) -> bytes:
        return self._socket.recv(MESSAGE_BYTES) or b'{"error": "the zygote did not start"}'

    def ask(self, fds: list[int]) -> None:
        """Request a session, which gets these descriptors."""
        socket.send_fds(self._socket, [b"session"], fds)
        self.sessions += 1

    def answer(self) -> tuple[bytes, list[int]]:
        """Return the zygote's next message and the new session's pidfd; both empty if the zygote is gone."""
        with suppress(OSError):
            return socket.recv_fds(self._socket, MESSAGE_BYTES, 1)[:2]
        return b"", []

    def close(self) -> None:
        self._socket.close()
        self.kill()

    def kill(self) -> None:
        """End the zygote, and with it every session it made."""
        if self._pid:
            send_signal(self._pid, signal.SIGKILL)
            reap(self._pid)
            self._pid = 0

    def _become_zygote(self, channel: socket.socket) -> None:
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        settings = self._settings
        isolate_mounts()
        root = Root()
        for path, link, is_folder in find_existing([*settings["read_only"], *settings["etc"]]):
            root.take(path, link, is_folder)
        begin_with_devices(root, TMP_BYTES)
        for path, text in settings["files"].items():
            root.write(path, text)
        root.processes()
        root.enter()
        syscalls.leave_old_root()
        os.dup2(channel.fileno(), 0)
        syscalls.close_all_but()
        if self._drop_to is not None:
            os.setgroups([])
            os.setresgid(self._drop_to, self._drop_to, self._drop_to)
            os.setresuid(self._drop_to, self._drop_to, self._drop_to)
        syscalls.drop_capabilities()
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        # Set again, because a change of user ids clears it.
        syscalls.prctl(syscalls.PR_SET_PDEATHSIG, signal.SIGKILL)
        paper = os.memfd_create("settings", 0)
        os.write(paper, json.dumps(settings).encode())
        exec_zygote(settings["python"], settings["environment"], paper)


class SpareSession:
    """A session that has no workspace yet: the sockets and pipes for the host, and its gate.

    The gate opens when the session's ids are mapped, and closes when it is ready.
    """

    def __init__(self, zygote: Zygote, outer: int) -> None:
        self.zygote = zygote
        self.outer = outer
        self.pidfd = -1
        self.group: Group | None = None
        self.is_ahead = False
        """True if it was made before any host asked for it."""
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

    def ends(self) -> list[int]:
        return [self.channel.fileno(), self.control.fileno(), self.stdout, self.stderr, self.pidfd]

    def close(self) -> None:
        """Close the launcher's copies of the descriptors. If no host has them, this ends the session."""
        self.gate.close()
        self.channel.close()
        self.control.close()
        os.close(self.stdout)
        os.close(self.stderr)
