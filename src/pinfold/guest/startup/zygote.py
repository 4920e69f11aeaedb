"""The zygote: imports the libraries once, then forks a session from itself for each request. Never runs a cell.

That of one workspace's lite sessions was shut in before it began. Libraries are imported and IPython's shell is made, so
that sessions share the memory of it, as far as the packages are there; one thread and no file is left behind.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType

from ..cells import import_hooks
from ..cells.runner import seed_generators
from ..kernel import syscalls
from ..saved import deserialization, saver
from . import lite_session, session
from .messages import MESSAGE_BYTES, Request, describe_error, read_request
from .mounts import find_existing
from .zygote_handle import LONE_SESSIONS

_ = deserialization, saver
"""Only to be there before any code of a program's is."""

LEISURE_S = 0.5
PACKAGES = ("numpy", "pandas", "IPython")
"""Imported for everybody; what most cells never touch is left to those that do."""
ALSO = ("numpy.random", "asyncio", "subprocess", "json", "difflib", "inspect", "IPython.core.completer")
"""`numpy.random` is seeded by each session while its root is being built: too late to be imported."""

QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Read while the libraries load: none of them may start a thread before the fork."""


def main(arguments: list[str]) -> None:
    """Arguments: the settings; for lite sessions also the channel to the launcher, which is stdin otherwise."""
    paper, *channel = (int(argument) for argument in arguments)
    settings = read_request(paper)
    os.close(paper)
    launcher = socket.socket(fileno=channel[0] if channel else os.dup(0))
    os.set_inheritable(launcher.fileno(), False)
    # Sessions are not waited for here.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if channel:
        os.set_inheritable(settings["lifeline"], False)
    else:
        _prepare(settings)
    _freeze()
    seed_generators()
    launcher.send(json.dumps(fitness()).encode())
    run_session = lite_session.run_session if channel else session.run_session
    namespaces = 0 if channel else syscalls.CLONE_NEWUSER | syscalls.NAMESPACES
    sessions, is_warm = 0, settings["warm"] != "later"
    while True:
        # The first sessions do not wait for libraries they may not use.
        if not is_warm and (sessions >= LONE_SESSIONS or not select.select([launcher], [], [], LEISURE_S)[0]):
            is_warm = True
            warm()
            _freeze()
        message, fds, _, _ = socket.recv_fds(launcher, MESSAGE_BYTES, 8)
        if not message:
            return
        sessions += 1
        try:
            unfit = fitness()
            pid = -1 if unfit else syscalls.clone(namespaces | signal.SIGCHLD)
        except OSError as error:
            unfit, pid = {"error": f"{error.filename}: {error.strerror}"}, -1
        if pid == 0:
            launcher.detach()
            _become_session(run_session, settings, fds)
        _report_session(launcher, unfit, pid, fds)
        seed_generators()  # for the next


def _become_session(run: Callable[[Request, list[int]], None], settings: Request, fds: list[int]) -> None:
    """Never returns."""
    try:
        run(settings, fds)
    except BaseException as error:
        os.write(2, f"the session could not be confined: {describe_error(error)}\n".encode())
    finally:
        os._exit(1)


def _report_session(launcher: socket.socket, unfit: Request, pid: int, fds: list[int]) -> None:
    """Tell the launcher of a session that was forked, or why none was; `fds` are the session's."""
    if unfit:
        launcher.send(json.dumps(unfit).encode())
    else:
        pidfd = os.pidfd_open(pid)
        socket.send_fds(launcher, [b"{}"], [pidfd])
        os.close(pidfd)
    for fd in fds:
        os.close(fd)


def _prepare(settings: Request) -> None:
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # or the launcher could not write a session's id maps
    if settings["warm"] == "now":
        warm()
    os.environ.clear()
    os.environ.update(settings["session_environment"])
    settings["found"] = find_existing([*settings["read_only"], "/etc", "/dev"])


def _freeze() -> None:
    """What is there is shared with every session: the collector is not to touch it."""
    gc.collect()
    gc.freeze()


def fitness() -> Request:
    threads = len(os.listdir("/proc/self/task"))
    return {} if threads == 1 else {"error": f"the zygote has {threads} threads and cannot be forked safely"}


def warm() -> None:
    before = dict(os.environ)
    os.environ.update(QUIET)
    try:
        import_hooks.install_hooks()
        for name in (*PACKAGES, *ALSO):
            with suppress(Exception):  # missing, or broken: then the cell that wants it is told
                __import__(name)
        with suppress(Exception):
            _use_ipython()
    finally:
        os.environ.clear()
        os.environ.update(before)


def _use_ipython() -> None:
    from ..cells import ipython

    main = ModuleType("__main__")
    keep = sys.modules["__main__"]
    try:
        shell = ipython.make_shell(main, main.__dict__)
        shell.input_transformer_manager.transform_cell("%time x = 1\n!true\n")
    finally:
        sys.modules["__main__"] = keep
