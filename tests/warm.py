"""The command line, loaded once: each command is a fork of it, so that a test does not wait a second for imports.

A command still is a process, with an environment, a folder, pipes and an exit status of its own. What only a start
from nothing shows (which modules are loaded, and when) is for the tests marked `smoke`, and those that start one.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path


class WarmCommand:
    """The process that has everything loaded, and waits for what to run."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ours, theirs = socket.socketpair()
        argv = [sys.executable, __file__, str(theirs.fileno())]
        self._process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        theirs.close()
        self._started_with = _interpreters_own()

    def run(
        self, args: tuple[str, ...], given: bytes, cwd: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes] | None:
        """None where only a start from nothing will do: another is under way, or Python itself is told something."""
        if _interpreters_own() != self._started_with or not self._lock.acquire(blocking=False):
            return None
        try:
            return self._run(args, given, cwd, timeout_s)
        finally:
            self._lock.release()

    def _run(
        self, args: tuple[str, ...], given: bytes, cwd: Path, timeout_s: float
    ) -> subprocess.CompletedProcess[bytes]:
        (stdin, into), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
        asked = json.dumps({"args": args, "cwd": str(cwd), "environ": dict(os.environ)}).encode()
        socket.send_fds(self._ours, [len(asked).to_bytes(4)], [stdin, stdout, stderr])
        self._ours.sendall(asked)
        for descriptor in (stdin, stdout, stderr):
            os.close(descriptor)
        pid = int.from_bytes(self._read(4))
        with ThreadPoolExecutor(3) as pool:
            outputs = pool.submit(_all_of, out), pool.submit(_all_of, err)
            pool.submit(_give, into, given)
            self._ours.settimeout(timeout_s)
            try:
                status = int.from_bytes(self._read(4), signed=True)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                self._ours.settimeout(None)
                self._read(4)
                raise subprocess.TimeoutExpired(args, timeout_s) from None
            finally:
                self._ours.settimeout(None)
        return subprocess.CompletedProcess(args, status, *(output.result() for output in outputs))

    def _read(self, size: int) -> bytes:
        data = self._ours.recv(size, socket.MSG_WAITALL)
        assert len(data) == size, "the loaded command line has ended"
        return data

    def close(self) -> None:
        self._ours.close()
        self._process.wait(10)


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
    try:
        with open(descriptor, "wb") as stream:
            stream.write(data)
    except BrokenPipeError:  # it has ended without reading all of it
        pass


# What follows is run by the process.


def _load() -> None:
    sys.path.pop(0)  # the folder of this file, whose modules are not the command line's
    from pinfold.front.cli.main import _COMMANDS  # pyright: ignore[reportPrivateUsage]

    for module in (
        *(f"pinfold.front.cli.{name}" for name, _ in _COMMANDS.values()),
        "pinfold.tools.mcp.connection",
    ):
        import_module(module)
    gc.freeze()  # so that a fork need not copy it all to count


def _wait_for_a_command(control: socket.socket) -> None:
    """Returns in the fork, which is to run it; the process itself never gets further than here."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(control, 4, 3)
        if not head:
            sys.exit(0)
        asked = json.loads(control.recv(int.from_bytes(head), socket.MSG_WAITALL))
        if pid := os.fork():
            for descriptor in descriptors:
                os.close(descriptor)
            control.sendall(pid.to_bytes(4))
            _, status = os.waitpid(pid, 0)
            control.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, signed=True))
            continue
        control.close()
        for number, descriptor in enumerate(descriptors):
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.environ.clear()
        os.environ.update(asked["environ"])
        os.chdir(asked["cwd"])
        sys.argv[1:] = asked["args"]
        return


if __name__ == "__main__":
    _load()
    _wait_for_a_command(socket.socket(fileno=int(sys.argv[1])))
    import_module("pinfold.__main__").main()
