"""Starts a session: confines a fork of the zygote step by step until it can safely run cells.

There are two processes: the init (`init.py`), which keeps the capability to mount within the session, and the runner,
which has no capabilities and serves cells. The workspace and limits come last, with `begin`.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
from contextlib import suppress

from ..kernel import syscalls
from ..kernel.processes import OF_ONE, bound_watches, data_of_self, put
from ..serve import Server
from ..snapshots.copies import Snapshots
from .init import Init
from .messages import Request
from .mounts import BRANCHES, HOME, MOST_BRANCHES, Root

INNER_ID = 1000
READY = b"ready"
OOM_SCORE = "500"
"""Makes the kernel kill the program before its init when memory runs out."""


def run_session(settings: Request, fds: list[int]) -> None:
    """Become the session in this process. Never returns."""
    gate, channel, stdout, stderr, control = fds
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    syscalls.close_all_but(gate, channel, control)
    word, begin = os.pipe()
    line, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _pass_gate(gate)  # the launcher may put it into a control group first, and forks then start in that group
    runner = syscalls.fork()
    if runner:
        init.close()
        os.close(gate)
        os.close(channel)
        os.close(word)
        bound_watches(OF_ONE)
        _enter_root(settings)
        os.write(begin, READY)
        syscalls.leave_old_root()  # slow, so the runner continues meanwhile; it runs no cell before this is done
        Init(runner, control, begin, line).run()
    line.close()
    os.close(control)
    os.close(begin)
    _run_runner(settings, gate, channel, word, copies=Snapshots(init))


def _pass_gate(gate: int) -> None:
    """Wait until the launcher has mapped the session's ids, then take these ids."""
    if not os.read(gate, 1):
        os._exit(0)  # the launcher has dropped this seed, or is gone
    with suppress(PermissionError):  # without root the kernel forbids this, and the groups stay the caller's
        os.setgroups([])
    os.setresgid(INNER_ID, INNER_ID, INNER_ID)
    os.setresuid(INNER_ID, INNER_ID, INNER_ID)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _enter_root(settings: Request) -> None:
    """Build and enter the session's root, still without a workspace."""
    root = Root()
    for path, link, is_folder in settings["found"]:
        root.take(path, link, is_folder)
    root.begin(settings["tmp_bytes"])
    root.scratch("/dev/shm", settings["tmp_bytes"])
    for number in range(MOST_BRANCHES):
        root.folder(f"{BRANCHES}/{number + 1}")
    root.processes("hidepid=ptraceable")
    root.lock_processes()
    root.enter()
    os.mkdir(HOME, 0o755)


def _run_runner(settings: Request, gate: int, channel: int, word: int, *, copies: Snapshots) -> None:
    os.setsid()
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # otherwise the program would not own its /proc/self
    syscalls.set_hostname(b"pinfold")
    syscalls.loopback_up()
    syscalls.drop_capabilities()
    default_signals()
    guest = Server(channel, copies)
    if os.read(word, len(READY)) != READY:  # the init is building the root for both processes
        os._exit(0)
    os.chdir("/")
    put("/proc/self/oom_score_adj", OOM_SCORE)
    files = _file_rules()
    syscalls.seccomp(bytes.fromhex(settings["filter"]))
    os.close(gate)
    request = _wait_for_request(word)
    os.environ.update(request["environment"])
    for name, limit in request["limits"].items():
        limit_self(name, limit + data_of_self() if name == "DATA" else limit)
    os.chdir(request["workspace"])
    if files is not None:
        files.allow(files.everything, request["writable"])
        files.restrict()
    guest.serve()
    os._exit(0)


def _wait_for_request(word: int) -> Request:
    """Return the session's workspace, limits and environment, once the init has attached the mounts."""
    with open(word, "rb") as init:
        words = init.read()
    if not words:
        os._exit(0)  # the session is not needed, or the init has reported an error
    return json.loads(words)


def _file_rules() -> syscalls.Landlock | None:
    """Return a second barrier: Landlock rules for what the mounts allow. The workspace is added when it is known."""
    abi = syscalls.landlock_abi()
    if not abi:
        return None
    rules = syscalls.Landlock(abi, scoped=syscalls.ABSTRACT_SOCKETS)
    rules.allow(syscalls.READ, ["/"])
    # /dev holds only what a session may use, and the folder of branches only their own files.
    rules.allow(rules.everything, ["/tmp", "/dev", BRANCHES])
    return rules


def limit_self(name: str, most: int) -> None:
    """Set a resource limit to `most`, or to less if this process may not have that much."""
    kind = getattr(resource, f"RLIMIT_{name}")
    _, allowed = resource.getrlimit(kind)
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(kind, (most, most))


def default_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
