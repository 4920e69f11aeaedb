"""A session coming to life: shut in step by step, from a fork of the zygote to a program that can do no harm.

Two processes: the init (`init.py`), which keeps the power over the session's own mounts; and the runner, which has none
and serves cells. What the session is for comes last, with `begin`.
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
"""Out of memory, the program goes before its init."""


def run_session(settings: Request, fds: list[int]) -> None:
    """Never returns."""
    gate, channel, stdout, stderr, control = fds
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    syscalls.close_all_but(gate, channel, control)
    word, begin = os.pipe()
    line, init = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _pass_gate(gate)  # the launcher may put it into a control group first, and what it forks is born there
    runner = syscalls.fork()
    if runner:
        init.close()
        os.close(gate)
        os.close(channel)
        os.close(word)
        bound_watches(OF_ONE)
        _enter_root(settings)
        os.write(begin, READY)
        syscalls.leave_old_root()  # the kernel takes its time, and the runner goes on meanwhile; not to the program
        Init(runner, control, begin, line).run()
    line.close()
    os.close(control)
    os.close(begin)
    _run_runner(settings, gate, channel, word, copies=Snapshots(init))


def _pass_gate(gate: int) -> None:
    """Once its ids are mapped it takes them."""
    if not os.read(gate, 1):
        os._exit(0)  # the launcher has given it up, or is gone
    with suppress(PermissionError):  # without root the kernel forbids it, and the groups stay the caller's
        os.setgroups([])
    os.setresgid(INNER_ID, INNER_ID, INNER_ID)
    os.setresuid(INNER_ID, INNER_ID, INNER_ID)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)


def _enter_root(settings: Request) -> None:
    """The session's own, still without a workspace."""
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
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 1)  # or /proc/self would not be the program's own
    syscalls.set_hostname(b"pinfold")
    syscalls.loopback_up()
    syscalls.drop_capabilities()
    default_signals()
    guest = Server(channel, copies)
    if os.read(word, len(READY)) != READY:  # the init is building the root, for both
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
    """What the session is for, once the init has its mounts in place."""
    with open(word, "rb") as init:
        words = init.read()
    if not words:
        os._exit(0)  # it was not needed, or the init has said why not
    return json.loads(words)


def _file_rules() -> syscalls.Landlock | None:
    """The second lock: what the mounts allow, without the workspace, whose place is not known yet."""
    abi = syscalls.landlock_abi()
    if not abi:
        return None
    rules = syscalls.Landlock(abi, scoped=syscalls.ABSTRACT_SOCKETS)
    rules.allow(syscalls.READ, ["/"])
    # Nothing is in /dev but what a session may use, and in the folder of branches only files of theirs.
    rules.allow(rules.everything, ["/tmp", "/dev", BRANCHES])
    return rules


def limit_self(name: str, most: int) -> None:
    """Or less, where the host itself is allowed no more."""
    kind = getattr(resource, f"RLIMIT_{name}")
    _, allowed = resource.getrlimit(kind)
    most = most if allowed == resource.RLIM_INFINITY else min(most, allowed)
    resource.setrlimit(kind, (most, most))


def default_signals() -> None:
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
