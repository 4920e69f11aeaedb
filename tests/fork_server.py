"""Commands run as forks of a process that has everything loaded: to import the command line or the MCP SDK takes a second.

Each still is a process, with an environment, a folder, streams and an end of its own. What only a start from nothing
shows (which modules are loaded, and when) is for the tests marked `smoke`, and those that start one.

`python fork_server.py PLACE PROGRAM...` is such a fork to whoever starts it: its streams and its end are the fork's. Where
nobody listens at the place, it runs the program itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from runpy import run_module, run_path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path
    from subprocess import CompletedProcess, Popen

# Only here have sockets names that need no file.
POSSIBLE = sys.platform == "linux"


def forked(*program: str) -> list[str]:
    """Arguments for `sys.executable`: of a script, or of `-m` and a module."""
    return [__file__, _loaded()[0] if POSSIBLE else "", *program]


def run_forked(program: Sequence[str], given: bytes, cwd: Path, timeout_s: float) -> CompletedProcess[bytes] | None:
    """None where only a start from nothing will do, as when Python itself is told something."""
    import subprocess
    from concurrent.futures import ThreadPoolExecutor

    if not POSSIBLE or _loaded()[1] != _interpreters_own():
        return None
    (stdin, into), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
    # Closed first, which ends the fork, and with it what the threads wait for.
    with ThreadPoolExecutor(3) as pool, _asked(_loaded()[0], program, cwd, (stdin, stdout, stderr)) as asking:
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        outputs = pool.submit(_all_of, out), pool.submit(_all_of, err)
        pool.submit(_give, into, given)
        asking.settimeout(timeout_s)
        try:
            status = _status(asking)
        except TimeoutError:
            raise subprocess.TimeoutExpired(program, timeout_s) from None
    return subprocess.CompletedProcess(program, status, *(output.result() for output in outputs))


@cache
def _loaded() -> tuple[str, dict[str, str], socket.socket, Popen[bytes]]:
    """Where the process listens, and what Python was told as it started; it ends with this one."""
    import secrets
    import subprocess

    place = secrets.token_hex(16)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0{place}")
        listener.listen(100)
        ours, theirs = socket.socketpair()
        argv = [sys.executable, __file__, "--listen", str(listener.fileno())]
        process = subprocess.Popen(argv, pass_fds=[listener.fileno()], stdin=theirs.fileno())
        theirs.close()
    return place, _interpreters_own(), ours, process


def _interpreters_own() -> dict[str, str]:
    """What Python reads only while it starts."""
    return {
        name: value
        for name, value in os.environ.items()
        if name.startswith("PYTHON") and name != "PYTHON_KEYRING_BACKEND"
    }


def _all_of(descriptor: int) -> bytes:
    with open(descriptor, "rb") as stream:
        return stream.read()


def _give(descriptor: int, data: bytes) -> None:
    with suppress(BrokenPipeError), open(descriptor, "wb") as stream:  # it may end without reading all of it
        stream.write(data)


def _asked(place: str, program: Sequence[str], cwd: Path | str, streams: Sequence[int]) -> socket.socket:
    """The line to the process that is to fork; when it is closed, the fork ends."""
    asking = socket.socket(socket.AF_UNIX)
    try:
        asking.connect(f"\0{place}")
    except OSError:
        asking.close()
        raise
    asked = json.dumps([program, str(cwd), dict(os.environ)]).encode()
    socket.send_fds(asking, [len(asked).to_bytes(4)], streams)
    asking.sendall(asked)
    return asking


def _status(asking: socket.socket) -> int:
    said = asking.recv(4, socket.MSG_WAITALL)
    assert len(said) == 4, "the process that forks has ended"
    return int.from_bytes(said, signed=True)


# What follows is run by the program that is started.


def _be(place: str, program: list[str]) -> None:
    """Comes back only if nobody is there."""
    try:
        asking = _asked(place, program, os.getcwd(), range(3))  # noqa: PTH109
    except OSError:
        return
    for number in range(3):
        os.close(number)  # the fork's alone: whoever listens is to hear when it closes them
    status = _status(asking)
    if status < 0:
        os.kill(os.getpid(), -status)
    os._exit(status)


def _run(program: list[str]) -> None:
    match program:
        case ["-m", module, *_]:
            sys.argv = program[1:]
            run_module(module, run_name="__main__", alter_sys=True)
        case [script, *_]:
            sys.argv = program
            run_path(script, run_name="__main__")
        case _:
            sys.exit("no program")


# What follows is run by the loaded process.


def _load() -> None:
    import gc
    from importlib import import_module

    from pinfold.front.cli.main import _COMMANDS  # pyright: ignore[reportPrivateUsage]

    for module in (
        *(f"pinfold.front.cli.commands.{name}" for name, _ in _COMMANDS.values()),
        "pinfold.tools.mcp.connection",
        "pinfold.front.mcp_server",
        "mcp.server.mcpserver",
    ):
        import_module(module)
    gc.freeze()  # so that a fork need not copy it all to count


def _listen(listener: socket.socket) -> list[str]:
    """Returns in a fork, which is to run what it returns."""
    import select
    import struct

    running: dict[int, tuple[int, socket.socket]] = {}
    while True:
        waited = [0, listener, *running, *(asking for _, asking in running.values())]
        ready = select.select(waited, [], [])[0]
        for end, (pid, asking) in list(running.items()):
            if end in ready:
                _, status = os.waitpid(pid, 0)
                with suppress(OSError):  # whoever asked may be gone
                    asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
                asking.close()
                os.close(end)
                del running[end]
            elif asking in ready or 0 in ready:
                os.kill(pid, signal.SIGKILL)
        if 0 in ready:
            sys.exit(0)
        if listener not in ready:
            continue
        asking, _ = listener.accept()
        _, uid, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        head, descriptors, _, _ = socket.recv_fds(asking, 4, 3)
        asked = asking.recv(int.from_bytes(head), socket.MSG_WAITALL)
        if uid != os.getuid() or len(head) < 4 or len(asked) < int.from_bytes(head):
            asking.close()  # somebody else, or ended already
        elif pid := os.fork():
            running[os.pidfd_open(pid)] = pid, asking
        else:
            for end, (_, other) in running.items():
                os.close(end)
                other.close()
            listener.close()
            asking.close()
            return _become(descriptors, *json.loads(asked))
        for descriptor in descriptors:
            os.close(descriptor)


def _become(streams: list[int], program: list[str], folder: str, environ: dict[str, str]) -> list[str]:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    return program


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are not the program's
    if sys.argv[1] == "--listen":
        _load()
        _run(_listen(socket.socket(fileno=int(sys.argv[2]))))
    else:
        _be(sys.argv[1], sys.argv[2:])
        _run(sys.argv[2:])
