"""The process that runs command lines in forks of itself: `python -m bench.crash_suite.forkserver FD`.

One thread and no event loop of its own, so that a fork of it is as good as a fresh interpreter.
"""

from __future__ import annotations

import faulthandler
import json
import os
import socket
import sys
from importlib import import_module
from typing import Any

from bench.crash_suite.shim import trap
from bench.crash_suite.weak_builds import WEAK_QUEUES, WEAKENED

from pinfold.front.cli.main import run_command_line

_PRELOADED = (
    "anyio._backends._asyncio",
    "pinfold.app",
    "pinfold.front.cli.commands.run",
    "pinfold.front.cli.commands.sessions",
    "pinfold.log",
    "pinfold.sandbox.guests",
    "sqlite3",
)


def serve(connection: socket.socket) -> None:
    while True:
        data, descriptors, _, _ = socket.recv_fds(connection, 1 << 16, 2)
        if not data:
            return
        order = json.loads(data)
        if "reap" in order:
            _, status = os.waitpid(order["reap"], 0)
            connection.send(str(os.waitstatus_to_exitcode(status)).encode())
            continue
        pid = os.fork()
        if pid == 0:
            connection.close()
            _become(order, *descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        connection.send(str(pid).encode())


def _become(order: dict[str, Any], stdout: int, stderr: int) -> None:
    os.dup2(stdout, 1)
    os.dup2(stderr, 2)
    os.close(stdout)
    os.close(stderr)
    faulthandler.enable(2)
    os.environ.update(order["environment"])
    os.chdir(order["folder"])
    code = 99
    try:
        if name := order.get("weakened"):
            (WEAKENED | WEAK_QUEUES)[name]()
        if order.get("trap"):
            trap(**order["trap"])
        run_command_line(order["arguments"])
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    for module in _PRELOADED:
        import_module(module)
    serve(socket.socket(fileno=int(sys.argv[1])))
