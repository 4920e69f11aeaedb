"""A session coming to life: confined step by step, from a fork of the zygote to a program that can do no harm.

Two processes: the init, which reaps, passes on interrupts and reports the end; and the runner, which serves cells.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import socket
import sys
from contextlib import suppress

from .kernel import (
    MS_BIND,
    MS_REC,
    PR_SET_DUMPABLE,
    PR_SET_NO_NEW_PRIVS,
    close_all_but,
    drop_capabilities,
    landlock,
    landlock_abi,
    loopback_up,
    mount,
    prctl,
    seccomp,
    set_hostname,
)
from .requests import Request
from .root import HOME, Root, make_folder, read_only

INNER_ID = 1000
EMPTY = "/etc/empty"
FS_BITS = {1: 13, 2: 14, 3: 15, 4: 15}
READ = 0b1101
"""Execute, read file, read folder."""
FILE = 0b111 | 1 << 14 | 1 << 15
"""What makes sense for a device: execute, write, read, truncate, ioctl."""


def become_session(request: Request, fds: list[int]) -> None:
    """Never returns."""
    channel = fds[1]
    try:
        _live(request, fds)
    except BaseException as error:
        text = f"{getattr(error, 'filename', None) or type(error).__name__}: {getattr(error, 'strerror', None) or error}"
        os.write(2, f"the session could not be confined: {text}\n".encode())
        os.close(channel)
    finally:
        os._exit(1)


def _live(request: Request, fds: list[int]) -> None:
    gate, channel, stdout, stderr, control, *trees = fds
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    close_all_but(gate, channel, control, *trees)
    os.read(gate, 1)
    os.close(gate)
    with suppress(PermissionError):  # without root the kernel forbids it, and the groups stay the caller's
        os.setgroups([])
    os.setresgid(INNER_ID, INNER_ID, INNER_ID)
    os.setresuid(INNER_ID, INNER_ID, INNER_ID)
    writable = _enter_root(request, trees)
    set_hostname(b"pinfold")
    loopback_up()
    program = bytes.fromhex(request["filter"])
    runner = os.fork()
    if runner:
        os.close(channel)
        _be_init(runner, control, program)
    os.close(control)
    _be_runner(request, channel, program, writable)


def _enter_root(request: Request, trees: list[int]) -> list[str]:
    """Builds the session's own root and returns what is writable in it."""
    root = Root()
    for path in request["read_only"]:
        root.take(path)
    for path in ("/etc", "/dev"):
        root.take(path)
    root.begin(request["tmp_bytes"])
    root.scratch("/dev/shm", request["tmp_bytes"])
    root.processes("hidepid=ptraceable")
    root.lock_processes()
    writable = ["/tmp", "/dev/shm"]
    for item, tree in zip(request["mounts"], trees, strict=True):
        root.put(item["path"], tree, is_folder=item["folder"])
        if item["writable"]:
            writable.append(item["path"])
    root.finish()
    for path, device, inode in request["masked"]:
        seen = os.lstat(path)
        if (seen.st_dev, seen.st_ino) != (device, inode):
            raise OSError(0, "it changed while the session began", path)
        mount(EMPTY, path, None, MS_BIND)
    for path in request["protected"]:
        mount(path, path, None, MS_BIND | MS_REC)
        read_only(path)
    make_folder(HOME)
    return writable


def _be_init(runner: int, control: int, program: bytes) -> None:
    """Powerless, and the last to go: when it ends, the kernel ends everything in the session."""
    host = socket.socket(fileno=control)
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    signal.set_wakeup_fd(woken, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, _only_wake)
    prctl(PR_SET_DUMPABLE, 0)
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    drop_capabilities()
    seccomp(program)
    poll = select.poll()
    poll.register(host, select.POLLIN)
    poll.register(wake, select.POLLIN)
    while True:
        for fd, _ in poll.poll():
            if fd == wake:
                os.read(wake, 64)
                _reap(runner, host)
            elif host.recv(16) == b"interrupt":
                with suppress(ProcessLookupError):
                    os.killpg(runner, signal.SIGINT)
            else:
                os._exit(0)  # the host is gone


def _only_wake(_number: int, _frame: object) -> None:
    """A handler there must be, or the wake-up descriptor is not written to."""


def _reap(runner: int, host: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if pid == runner:
            host.send(json.dumps({"code": os.waitstatus_to_exitcode(status)}).encode())
            os._exit(0)


def _be_runner(request: Request, channel: int, program: bytes, writable: list[str]) -> None:
    os.setsid()
    null = os.open("/dev/null", os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    for name, limit in request["limits"].items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    os.chdir(request["workspace"])
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    _restrict_files(writable)
    drop_capabilities()
    seccomp(program)
    _fresh_process(request)
    from .serve import serve

    serve(channel)
    os._exit(0)


def _restrict_files(writable: list[str]) -> None:
    abi = landlock_abi()
    if not abi:
        return  # the mounts hold without it; it is the second lock
    everything = (1 << FS_BITS.get(abi, 16)) - 1
    devices = [f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom")]
    landlock(
        [(READ, ["/"]), (everything, writable), (FILE & everything, devices)],
        handled=everything,
        scoped=1 if abi >= 6 else 0,
        network=0,
    )


def _fresh_process(request: Request) -> None:
    """Nothing of the zygote's that two sessions should not share."""
    for number in (signal.SIGCHLD, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(request["environment"])
    random.seed()
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()
