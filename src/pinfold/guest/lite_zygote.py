"""The zygote of one workspace's lite sessions: shut in before it began, imports the libraries, forks. Never runs a cell."""

from __future__ import annotations

import gc
import json
import os
import signal
import socket

from .lite_session import become_session
from .requests import MESSAGE_BYTES, read_request
from .warm import warm
from .zygote import fitness


def main(arguments: list[str]) -> None:
    channel, paper = (int(argument) for argument in arguments)
    settings = read_request(paper)
    os.close(paper)
    launcher = socket.socket(fileno=channel)
    for fd in (channel, settings["lifeline"]):
        os.set_inheritable(fd, False)
    # Sessions end by themselves; nobody waits for them here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if settings["warm"]:
        warm()
    gc.collect()
    gc.freeze()
    launcher.send(json.dumps(fitness()).encode())
    while True:
        message, fds, _, _ = socket.recv_fds(launcher, MESSAGE_BYTES, 8)
        if not message:
            return
        unfit = fitness()
        if unfit:
            launcher.send(json.dumps(unfit).encode())
        else:
            pid = os.fork()
            if pid == 0:
                launcher.detach()
                become_session(settings, fds)
            pidfd = os.pidfd_open(pid)
            socket.send_fds(launcher, [b"{}"], [pidfd])
            os.close(pidfd)
        for fd in fds:
            os.close(fd)
