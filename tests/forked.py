"""Programs that need the MCP SDK, run as forks of a process that has it loaded: to import it takes over a second.

`python forked.py PLACE PROGRAM...` is that program: its streams, environment and folder are the fork's, its end and the
fork's are one. Where nobody listens at the place, it runs the program itself.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from contextlib import suppress
from runpy import run_module, run_path


def forked(*program: str) -> list[str]:
    """Arguments for `sys.executable`: of a script, or of `-m` and a module."""
    return [__file__, _place(), *program]


_places: list[str] = []


def _place() -> str:
    """Where the loaded process listens. It is started when it is first needed, and ends with this one."""
    if not _places:
        import secrets
        import subprocess

        if sys.platform != "linux":  # only there have sockets names that need no file
            return ""
        _places.append(secrets.token_hex(16))
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(f"\0{_places[0]}")
            listener.listen(100)
            ours, theirs = socket.socketpair()
            number = listener.fileno()
            argv = [sys.executable, __file__, "--listen", str(number)]
            _kept.append((ours, subprocess.Popen(argv, pass_fds=[number], stdin=theirs.fileno())))
            theirs.close()
    return _places[0]


_kept: list[object] = []
"""Until this process ends."""


# What follows is run by the program that is started.


def _ask(place: str, program: list[str]) -> None:
    """Comes back only if nobody is there."""
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(f"\0{place}")
        except OSError:
            return
        asked = json.dumps([program, str(os.getcwd()), dict(os.environ)]).encode()  # noqa: PTH109
        socket.send_fds(asking, [len(asked).to_bytes(4)], [0, 1, 2])
        asking.sendall(asked)
        for number in range(3):
            os.close(number)  # the fork's alone: whoever listens is to hear when it closes them
        status = int.from_bytes(asking.recv(4, socket.MSG_WAITALL), signed=True)
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


def _listen(listener: socket.socket) -> list[str]:
    """Returns in a fork, which is to run what it returns."""
    import gc
    import select
    from importlib import import_module

    for module in ("mcp.server.mcpserver", "pinfold.front.cli.mcp_server", "pinfold.front.mcp_server"):
        import_module(module)
    gc.freeze()  # so that a fork need not copy it all to count
    while listener in select.select([listener, 0], [], [])[0]:
        asking, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            return _answered(asking)
        asking.close()
        with suppress(ChildProcessError):  # raised when there is none left
            while os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG):
                pass
    sys.exit(0)


def _answered(asking: socket.socket) -> list[str]:
    """Returns in the fork that is the program; the one that called minds it until either end is gone."""
    import threading

    _, uid, _ = _peer(asking)
    assert uid == os.getuid()
    head, descriptors, _, _ = socket.recv_fds(asking, 4, 3)
    program, folder, environ = json.loads(asking.recv(int.from_bytes(head), socket.MSG_WAITALL))
    if child := os.fork():
        for descriptor in descriptors:
            os.close(descriptor)

        def end_with_it() -> None:
            asking.recv(1)
            with suppress(ProcessLookupError):  # it was first
                os.kill(child, signal.SIGKILL)

        threading.Thread(target=end_with_it, daemon=True).start()
        _, status = os.waitpid(child, 0)
        with suppress(OSError):  # whoever asked may be gone
            asking.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
        os._exit(0)
    asking.close()
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    return program


def _peer(asking: socket.socket) -> tuple[int, int, int]:
    import struct

    return struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))


if __name__ == "__main__":
    sys.path.pop(0)  # the folder of this file, whose modules are not the program's
    if sys.argv[1] == "--listen":
        _run(_listen(socket.socket(fileno=int(sys.argv[2]))))
    else:
        _ask(sys.argv[1], sys.argv[2:])
        _run(sys.argv[2:])
