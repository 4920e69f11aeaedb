"""The zygote: imports the libraries once, then forks a session from itself for each request. Never runs a cell.

A zygote for the lite sessions of one workspace is confined before it starts. Libraries that are installed are imported
and used a little, so that sessions share their memory. After that there is one thread and no open file.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import CoroutineType, FrameType, GeneratorType, ModuleType

from ..cells import import_hooks, mime_bundle
from ..cells.runner import seed_generators
from ..kernel import syscalls
from ..saved import deserialization, saver
from . import lite_session, session
from .messages import MESSAGE_BYTES, Request, describe_error, read_request
from .mounts import find_existing
from .zygote_handle import LONE_SESSIONS

_ = deserialization, saver
"""Imported here so that they are loaded before any code of a program runs."""

LEISURE_S = 0.5
PACKAGES = ("numpy", "pandas", "IPython")
"""Imported for all sessions; packages that most cells never use are imported by the cells that do."""
ALSO = ("numpy.random", "asyncio", "subprocess", "json", "difflib", "inspect", "IPython.core.completer")
"""`numpy.random` must be imported here: a session seeds it while its root is being built, too late for an import."""

QUIET = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""Environment variables for loading the libraries: none of them may start a thread before the fork."""


def main(arguments: list[str]) -> None:
    """Arguments: descriptors of the settings and, for lite sessions, of the channel to the launcher (else stdin)."""
    paper, *channel = (int(argument) for argument in arguments)
    settings = read_request(paper)
    os.close(paper)
    launcher = socket.socket(fileno=channel[0] if channel else os.dup(0))
    os.set_inheritable(launcher.fileno(), False)
    # The zygote does not wait for its sessions.
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
        seed_generators()  # for the next session


def _become_session(run: Callable[[Request, list[int]], None], settings: Request, fds: list[int]) -> None:
    """Run the session in this process. Never returns."""
    try:
        run(settings, fds)
    except BaseException as error:
        os.write(2, f"the session could not be confined: {describe_error(error)}\n".encode())
    finally:
        os._exit(1)


def _report_session(launcher: socket.socket, unfit: Request, pid: int, fds: list[int]) -> None:
    """Send the launcher the forked session's pidfd, or why there is none. Closes the session's `fds`."""
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
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # otherwise the launcher could not write a session's id maps
    if settings["warm"] == "now":
        warm()
    os.environ.clear()
    os.environ.update(settings["session_environment"])
    settings["found"] = find_existing([*settings["read_only"], "/etc", "/dev"])


def _freeze() -> None:
    """Exclude present objects from garbage collection, which would write to memory shared with the sessions."""
    gc.collect()
    gc.freeze()


def _make_immortal() -> None:
    """Exclude present objects from reference counting, where Python can (from 3.13), as counting writes to them too.

    An object with the count of None is immortal: Python never changes the count (PEP 683).
    """
    set_count = getattr(ctypes.pythonapi, "_Py_SetRefcnt", None)  # what the documented macro Py_SET_REFCNT calls
    if set_count is None:
        return
    set_count.argtypes, set_count.restype = (ctypes.py_object, ctypes.c_ssize_t), None
    gc.unfreeze()  # frozen objects are not listed
    found = {id(each): each for each in gc.get_objects()}
    found |= {id(each): each for each in gc.get_referents(*found.values())}
    for each in found.values():
        if not isinstance(each, FrameType | GeneratorType | CoroutineType):  # those end
            set_count(each, sys.getrefcount(None))


def fitness() -> Request:
    threads = len(os.listdir("/proc/self/task"))
    return {} if threads == 1 else {"error": f"the zygote has {threads} threads and cannot be forked safely"}


def warm() -> None:
    """Import and use the libraries, and let sessions share what is loaded: half the memory of a session with pandas."""
    before = dict(os.environ)
    os.environ.update(QUIET)
    try:
        import_hooks.install_hooks()
        for name in (*PACKAGES, *ALSO):
            with suppress(Exception):  # missing or broken: the cell that imports it gets the error
                __import__(name)
        with suppress(Exception):
            _use_ipython()
        with suppress(Exception):
            _use_pandas()
    finally:
        os.environ.clear()
        os.environ.update(before)
    _make_immortal()


def _use_pandas() -> None:
    """Do what many cells do first: what it imports and allocates would be each session's own, some 6 MB."""
    pandas = sys.modules["pandas"]
    frame = pandas.DataFrame({"key": ["a", "b", "a"], "value": [1.0, 2.0, 3.0], "count": [1, 2, 3]})
    for table in (frame, frame.groupby("key").agg({"value": "mean", "count": "sum"}), frame.describe()):
        mime_bundle.rich_forms(table)
        repr(table)
    repr(frame.groupby("key")["value"].mean().sort_values())
    repr(frame[frame["value"] > 1].merge(frame, on="key"))


def _use_ipython() -> None:
    from ..cells import ipython

    main = ModuleType("__main__")
    keep = sys.modules["__main__"]
    try:
        shell = ipython.make_shell(main, main.__dict__)
        shell.input_transformer_manager.transform_cell("%time x = 1\n!true\n")
    finally:
        sys.modules["__main__"] = keep
