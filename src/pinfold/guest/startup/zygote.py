"""The zygote: imports the libraries once, then forks a session from itself for each request. Never runs a cell."""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket

from ..cells.runner import seed_generators
from ..kernel import syscalls
from .messages import MESSAGE_BYTES, Request, read_request
from .root import find_existing
from .session import become_session
from .warm import immortalise, warm
from .zygote_handle import LONE_SESSIONS

LEISURE_S = 0.5


def main(arguments: list[str]) -> None:
    settings = read_request(int(arguments[0]))
    os.close(int(arguments[0]))
    launcher = socket.socket(fileno=os.dup(0))
    os.set_inheritable(launcher.fileno(), False)
    _stand_in_for_stdin()
    _prepare(settings)
    launcher.send(json.dumps(fitness()).encode())
    had_leisure = settings["warm"] == "now"
    flags = syscalls.CLONE_NEWUSER | syscalls.NAMESPACES | signal.SIGCHLD
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
            pid = -1 if unfit else syscalls.clone(flags)
        except OSError as error:
            unfit, pid = {"error": f"{error.filename}: {error.strerror}"}, -1
        if pid == 0:
            launcher.detach()
            become_session(settings, fds)
        report_session(launcher, unfit, pid, fds)
        seed_generators()  # for the next


def report_session(launcher: socket.socket, unfit: Request, pid: int, fds: list[int]) -> None:
    """Tell the launcher of a session that was forked, or why none was; `fds` are the session's."""
    if unfit:
        launcher.send(json.dumps(unfit).encode())
    else:
        pidfd = os.pidfd_open(pid)
        socket.send_fds(launcher, [b"{}"], [pidfd])
        os.close(pidfd)
    for fd in fds:
        os.close(fd)


def _stand_in_for_stdin() -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)


def _prepare(settings: Request) -> None:
    # Sessions are not waited for here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # or the launcher could not write a session's id maps
    if settings["warm"] == "now":
        import_libraries()
    os.environ.clear()
    os.environ.update(settings["session_environment"])
    settings["found"] = find_existing([*settings["read_only"], "/etc", "/dev"])
    gc.collect()
    gc.freeze()
    syscalls.trim()
    if settings["warm"] == "now":
        _settle()  # before the sessions of the pool are made: every page written later is there twice
    seed_generators()


def _settle() -> None:
    """Takes a fifth of a second: only while no session is waited for."""
    immortalise()
    syscalls.trim()


def import_libraries() -> None:
    warm()
    gc.collect()
    gc.freeze()
    syscalls.trim()


def fitness() -> Request:
    threads = len(os.listdir("/proc/self/task"))
    return {} if threads == 1 else {"error": f"the zygote has {threads} threads and cannot be forked safely"}
