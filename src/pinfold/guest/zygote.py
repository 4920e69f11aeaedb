"""The zygote: imports the libraries once, then forks a session from itself for each request. Never runs a cell."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket

from .kernel import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_DUMPABLE,
    clone,
    prctl,
)
from .requests import read_request
from .session import become_session

FLAGS = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS
MESSAGE_BYTES = 1 << 16


def main(arguments: list[str]) -> None:
    launcher = socket.socket(fileno=int(arguments[0]))
    os.set_inheritable(launcher.fileno(), False)
    launcher.send(json.dumps(_prepare()).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(launcher, MESSAGE_BYTES, 64)
        if not message:
            return
        pid = clone(FLAGS | signal.SIGCHLD)
        if pid == 0:
            launcher.detach()
            become_session(read_request(fds[0]), fds[1:])
        pidfd = os.pidfd_open(pid)
        socket.send_fds(launcher, [b"{}"], [pidfd])
        for fd in (*fds, pidfd):
            os.close(fd)


def _prepare() -> dict[str, object]:
    # Sessions end by themselves; nobody waits for them here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 1)  # or the launcher could not write a session's id maps
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    return {} if threads == 1 else {"error": f"it has {threads} threads and cannot be forked safely"}
