"""The zygote: imports the libraries once, then forks a session from itself for each request. Never runs a cell."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket

from ..cells.randomness import reseed
from ..kernel.syscalls import (
    CLONE_NEWIPC,
    CLONE_NEWNET,
    CLONE_NEWNS,
    CLONE_NEWPID,
    CLONE_NEWUSER,
    CLONE_NEWUTS,
    PR_SET_DUMPABLE,
    clone,
    prctl,
    trim,
)
from .immortal import immortalise
from .requests import MESSAGE_BYTES, Request, read_request
from .root import find_existing
from .session import become_session
from .warm import warm
from .zygote_handle import LONE_SESSIONS

LEISURE_S = 0.5
FLAGS = CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS


def main(arguments: list[str]) -> None:
    settings = read_request(int(arguments[0]))
    os.close(int(arguments[0]))
    launcher = socket.socket(fileno=os.dup(0))
    os.set_inheritable(launcher.fileno(), False)
    _stand_in_for_stdin()
    _prepare(settings)
    launcher.send(json.dumps(fitness()).encode())
    had_leisure = settings["warm"] == "now"
    sessions, is_warm = 0, settings["warm"] != "later"
    while True:
        if not had_leisure and not select.select([launcher], [], [], LEISURE_S)[0]:
            had_leisure = True
            if not is_warm:
                is_warm = True
                import_libraries()
            _settle()
        message, fds, _, _ = socket.recv_fds(launcher, MESSAGE_BYTES, 8)
        if not message:
            return
        sessions += 1
        if sessions > LONE_SESSIONS and not is_warm:
            is_warm = True
            import_libraries()
        try:
            unfit = fitness()
            pid = -1 if unfit else clone(FLAGS | signal.SIGCHLD)
        except OSError as error:
            unfit, pid = {"error": f"{error.filename}: {error.strerror}"}, -1
        if pid == 0:
            launcher.detach()
            become_session(settings, fds)
        if unfit:
            launcher.send(json.dumps(unfit).encode())
        else:
            pidfd = os.pidfd_open(pid)
            socket.send_fds(launcher, [b"{}"], [pidfd])
            os.close(pidfd)
        for fd in fds:
            os.close(fd)
        reseed()  # for the next


def _stand_in_for_stdin() -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _prepare(settings: Request) -> None:
    # Sessions end by themselves; nobody waits for them here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    prctl(PR_SET_DUMPABLE, 1)  # or the launcher could not write a session's id maps
    if settings["warm"] == "now":
        import_libraries()
    os.environ.clear()
    os.environ.update(settings["session_environment"])
    settings["found"] = find_existing([*settings["read_only"], "/etc", "/dev"])
    gc.collect()
    gc.freeze()
    trim()
    if settings["warm"] == "now":
        _settle()  # before the sessions of the pool are made: every page written later is there twice
    reseed()


def _settle() -> None:
    """Takes a fifth of a second, which nobody should wait for."""
    immortalise()
    trim()


def import_libraries() -> None:
    warm()
    gc.collect()
    gc.freeze()
    trim()


def fitness() -> Request:
    threads = len(os.listdir("/proc/self/task"))
    return {} if threads == 1 else {"error": f"the zygote has {threads} threads and cannot be forked safely"}
