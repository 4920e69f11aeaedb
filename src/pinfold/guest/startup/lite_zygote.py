"""The zygote of one workspace's lite sessions: shut in before it began, forks, and imports libraries for those that come later. Never runs a cell."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket

from .lite_session import become_session
from .messages import MESSAGE_BYTES, read_request
from .zygote import LEISURE_S, fitness, import_libraries, report_session


def main(arguments: list[str]) -> None:
    channel, paper = (int(argument) for argument in arguments)
    settings = read_request(paper)
    os.close(paper)
    launcher = socket.socket(fileno=channel)
    for fd in (channel, settings["lifeline"]):
        os.set_inheritable(fd, False)
    # Sessions are not waited for here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    launcher.send(json.dumps(fitness()).encode())
    is_used, is_warm = False, settings["warm"] != "later"
    while True:
        if is_used and not is_warm:  # the first session does not wait for libraries it may not use
            is_warm = True
            select.select([launcher], [], [], LEISURE_S)
            import_libraries()
        message, fds, _, _ = socket.recv_fds(launcher, MESSAGE_BYTES, 8)
        if not message:
            return
        unfit = fitness()
        pid = -1 if unfit else os.fork()
        if pid == 0:
            launcher.detach()
            become_session(settings, fds)
        report_session(launcher, unfit, pid, fds)
        is_used = True
