"""The warm helper: a process with Pinfold loaded that forks for each `pinfold exec`. Not a command.

`relay.py` sends arguments, streams and folder through a socket that only this user can open. The fork runs the command
with the caller's variables, streams and folder; the helper itself reads no workspace and runs no cell.
It serves only processes with the same privileges as its own, and ends when a file it has loaded changes.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import io
import logging
import os
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import NoReturn, TypeAlias

import anyio

from pinfold.app import private_dir, warm_dir
from pinfold.app.ownership import PRELOADED, can_rehearse, keep_launcher, list_watched_files, rehearsal_folder
from pinfold.app.ownership.warm_helper import IDLE_S
from pinfold.app.storage import Claim, claim
from pinfold.front.cli.main import run_command_line
from pinfold.front.cli.relay import EXIT, GO, SOCKET, TAKEN

QUIET_S = 1.0
"""Idle time before the standby process rehearses a command."""
OUT_OF_DATE = b"0"
_LARGEST = 8 << 20
"""Most bytes of arguments and variables; more than the kernel allows a command."""
_ASK_S = 2.0
_FDS = 4
_ALIKE = ("Uid", "Gid", "Groups", "CapInh", "CapPrm", "CapEff", "CapBnd", "NoNewPrivs", "Seccomp")
_VIEWS = ("mnt", "user", "pid", "net", "ipc", "uts", "time")
_READ_ONCE = (b"PYTHON", b"LC_", b"LANG", b"LD_", b"MALLOC_", b"GLIBC_")
"""Variables that Python and its libraries read only at start."""
_F_SETSIG, _PR_SET_PDEATHSIG = 10, 1


Stamps: TypeAlias = dict[str, tuple[int, int, int]]


def main() -> None:
    idle_s, quiet_s = map(float, (*sys.argv[1:], *(IDLE_S, QUIET_S)[len(sys.argv) - 1 :]))
    folder = private_dir(warm_dir())
    claimed = claim(folder)
    if claimed is None:
        return
    try:
        _remove_sockets(folder)
        for name in PRELOADED:
            import_module(name)
        gc.collect()
        gc.freeze()
        Helper(folder, claimed, idle_s, quiet_s).serve()
    finally:
        _remove_sockets(folder)
        claimed.release()


def _remove_sockets(folder: Path) -> None:
    for path in folder.glob("*.sock"):
        path.unlink(missing_ok=True)


class Helper:
    """Forks the standby process for the next command and the keeper of the launcher, and waits for both."""

    def __init__(self, folder: Path, claimed: Claim, idle_s: float, quiet_s: float) -> None:
        self._folder = folder
        self._claimed = claimed
        self._idle_s = idle_s
        self._quiet_s = quiet_s
        self._loaded = _stamps()
        self._poll = select.poll()
        self._commands: dict[int, int] = {}
        """pidfd -> pid of each process that runs a command."""
        self._next = -1
        """Pipe on which the standby process reports that it has a command."""
        self._next_pid = 0

    def serve(self) -> None:
        """Serve until idle for long, or until loaded files are out of date."""
        signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
        keeper = self._fork_keeper()
        if not os.read(keeper, 1):
            return
        self._poll.register(keeper, select.POLLIN)
        with _open_listener(self._folder) as listener:
            self._stand_by(listener)
            print("ready", flush=True)
            while True:
                events = self._poll.poll(None if self._commands else self._idle_s * 1000)
                if not events:
                    return
                for fd in [fd for fd, _ in events if fd in self._commands]:
                    self._poll.unregister(fd)
                    os.close(fd)
                    os.waitpid(self._commands.pop(fd), 0)
                said = {fd: os.read(fd, 1) for fd, _ in events if fd in (keeper, self._next)}
                if said.get(keeper) == b"" or said.get(self._next) in (b"", OUT_OF_DATE):
                    return
                if self._next in said:
                    self._poll.unregister(self._next)
                    os.close(self._next)
                    pidfd = os.pidfd_open(self._next_pid)
                    self._commands[pidfd] = self._next_pid
                    self._poll.register(pidfd, select.POLLIN)
                    self._stand_by(listener)

    def _fork_keeper(self) -> int:
        """Fork the process that keeps the launcher; return a pipe that reports each launcher and closes with it."""
        ready, theirs = os.pipe()
        if os.fork() == 0:
            try:
                os.close(ready)
                self._claimed.release()  # drops only this process's copy: the helper holds the claim
                _end_with_parent()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)

                async def on_ready() -> None:
                    os.write(theirs, b"1")

                anyio.run(keep_launcher, on_ready)
                os.write(theirs, b"0")  # there is no launcher
                signal.pause()
            finally:
                os._exit(1)
        os.close(theirs)
        return ready

    def _stand_by(self, listener: socket.socket) -> None:
        self._next, theirs = os.pipe()
        self._next_pid = os.fork()
        if self._next_pid == 0:
            try:
                for fd in (self._next, *self._commands):
                    os.close(fd)
                self._claimed.release()
                _end_with_parent()
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                Standby(listener, theirs, self._loaded, self._quiet_s).serve()
            finally:
                os._exit(1)
        os.close(theirs)
        self._poll.register(self._next, select.POLLIN)


class Standby:
    """Rehearses a command, then waits for the one it will run."""

    def __init__(self, listener: socket.socket, helper: int, loaded: Stamps, quiet_s: float) -> None:
        self._listener = listener
        self._helper = helper
        if not select.select([listener], [], [], quiet_s)[0]:
            _rehearse()
        self._loaded = {**_stamps(), **loaded}
        self._own = _describe_process("self")
        self._started_with = _startup_variables(os.environb)

    def serve(self) -> NoReturn:
        while True:
            peer, _ = self._listener.accept()
            with peer, suppress(OSError, ValueError, KeyError):  # the peer is gone, or is not a relay
                self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        peer.settimeout(_ASK_S)
        pid, uid, _ = struct.unpack("3i", peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if uid != os.geteuid() or _describe_process(str(pid)) != self._own:
            return
        if _stamps() != self._loaded:
            os.write(self._helper, OUT_OF_DATE)
            signal.pause()
        head, fds, _, _ = socket.recv_fds(peer, 8, _FDS)
        try:
            executable, umask, count, *rest = _receive_exactly(peer, int.from_bytes(head, "big")).split(b"\0")
            args = [os.fsdecode(part) for part in rest[: int(count)]]
            variables = dict(part.split(b"=", 1) for part in rest[int(count) :])
            is_alike = _startup_variables(variables) == self._started_with and len(fds) == _FDS
            if is_alike and executable == os.fsencode(sys.executable):
                peer.sendall(TAKEN + str(os.getpid()).encode() + b"\n")
                if peer.recv(1) != GO:
                    return  # the caller timed out and runs the command itself
                ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, 0)
                self._listener.close()  # callers must not wait for this process
                os.write(self._helper, b"1")
                _run(peer, fds, args, variables, int(umask))
        finally:
            for fd in fds:
                os.close(fd)


def _run(peer: socket.socket, fds: list[int], args: list[str], variables: dict[bytes, bytes], umask: int) -> NoReturn:
    """Run the command as if the caller had started it."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for to, fd in enumerate(fds[:3]):
        os.dup2(fd, to)
    os.fchdir(fds[3])
    while fds:
        os.close(fds.pop())
    os.umask(umask)
    os.environb.clear()
    os.environb.update(variables)
    time.tzset()
    sys.stdin, sys.stdout, sys.stderr = (_stream(fd) for fd in range(3))
    sys.argv[:] = ["pinfold", *args]
    peer.settimeout(None)
    # The caller sends nothing more. When its end closes, SIGTERM ends this process, as a hang-up of the terminal would.
    fcntl.fcntl(peer, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(peer, _F_SETSIG, signal.SIGTERM)
    fcntl.fcntl(peer, fcntl.F_SETFL, fcntl.fcntl(peer, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([peer], [], [], 0)[0]:
        os._exit(1)  # the caller is gone already
    code: object = 1
    try:
        run_command_line(args)
    except SystemExit as end:
        code = end.code
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    fcntl.fcntl(peer, fcntl.F_SETFL, fcntl.fcntl(peer, fcntl.F_GETFL) & ~os.O_ASYNC)
    nothing = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):  # readers of the output wait until it is closed
        os.dup2(nothing, fd)
    with suppress(OSError):
        peer.sendall(EXIT + str(code if isinstance(code, int) else 1).encode() + b"\n")
    # Run exit handlers, as at the end of any command.
    atexit._run_exitfuncs()  # noqa: SLF001 # pyright: ignore[reportPrivateUsage]
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    os._exit(0)


def _stream(fd: int) -> io.TextIOWrapper:
    """Open the stream as Python does at start."""
    usual = (sys.__stdin__, sys.__stdout__, sys.__stderr__)[fd]
    encoding, errors = (usual.encoding, usual.errors) if usual else ("utf-8", "backslashreplace")
    buffering = 1 if fd == 2 or os.isatty(fd) else -1
    return open(fd, "r" if fd == 0 else "w", buffering, encoding=encoding, errors=errors, closefd=False)


def _rehearse() -> None:
    """Run one cell in an empty folder, so that what the next command needs is loaded and in memory.

    The user's settings are left out, so that none of their servers is started.
    """
    if not can_rehearse():
        return
    variables = dict(os.environb)
    with rehearsal_folder() as folder, suppress(SystemExit, Exception):
        os.chdir(folder)
        os.environ["XDG_CONFIG_HOME"] = str(folder)
        run_command_line(["exec", "-c", "1"])
    os.environb.clear()
    os.environb.update(variables)
    os.chdir("/")
    logging.getLogger("pinfold").handlers.clear()
    gc.collect()
    gc.freeze()


def _open_listener(folder: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    place = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    path = f"/proc/self/fd/{place}/{SOCKET}"
    listener.bind(path)
    os.chmod(path, 0o600)  # noqa: PTH101
    os.close(place)
    listener.listen(64)
    return listener


def _end_with_parent() -> None:
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def _receive_exactly(peer: socket.socket, length: int) -> bytes:
    if length > _LARGEST:
        raise ValueError("too long")
    with peer.makefile("rb") as stream:
        data = stream.read(length)
    if len(data) < length:
        raise ValueError("cut off")
    return data


def _describe_process(process: str) -> list[object]:
    """Privileges, namespaces and limits of a process: a fork must not have more than its caller."""
    place = Path("/proc") / process
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
    number = int(status["Pid"])
    return [
        *(status.get(name) for name in _ALIKE),
        *(os.readlink(place / "ns" / name) for name in _VIEWS if (place / "ns" / name).exists()),  # noqa: PTH115
        (place / "root").stat()[1:3],
        (place / "limits").read_text(),
        _label(place),
        os.sched_getaffinity(number),
        os.getpriority(os.PRIO_PROCESS, number),
    ]


def _label(place: Path) -> str:
    """The AppArmor or SELinux label, if there is one."""
    try:
        return (place / "attr" / "current").read_text()
    except OSError:
        return ""


def _startup_variables(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {name: value for name, value in variables.items() if name.startswith(_READ_ONCE)}


def _stamps() -> Stamps:
    """Return the stamps of all loaded files; they differ once a file has changed."""
    return {path: _stamp(path) for path in list_watched_files()}


def _stamp(path: str) -> tuple[int, int, int]:
    try:
        status = os.stat(path)  # noqa: PTH116
    except OSError:
        return (0, 0, 0)
    return status.st_ino, status.st_mtime_ns, status.st_size


if __name__ == "__main__":
    main()
