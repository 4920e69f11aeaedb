"""Identifies processes even if their ids are reused, and finds and ends Pinfold's leftovers. Linux only."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from pinfold.sandbox.kernel.folders import find_abandoned, remove_folder

GUEST = Path(__file__).parents[2] / "guest"
_SWEEP_S = 30.0
_SWEEPS = 20
"""Passes over the process list; a program that forks faster than it is killed is left to the user."""
PROGRAM = "/pinfold/guest/__main__.py"
_STAMP = re.compile(r"(\d+)-(\d+)")
_HOSTED = ("launcher", "lite")
"""Guest programs whose last argument is the stamp of their host."""
_ZYGOTE = "zygote"
_ZYGOTE_IDS = range(200_000, 260_001)
"""User ids of zygotes and their sessions if the host is root."""
END_S = 2.0
"""Time for a process whose host is gone to end by itself."""


def stamp(pid: int) -> str:
    """Return process id and start time, which together identify a process even after its id is reused."""
    fields = _fields(pid)
    return f"{pid}-{fields[19] if fields else 0}"


def lives(named: str) -> bool:
    """Return True if the process of this stamp still exists."""
    match = _STAMP.fullmatch(named)
    return match is not None and stamp(int(match[1])) == named


class Stray(Struct, frozen=True, kw_only=True):
    """A Pinfold process whose host is gone."""

    pid: int
    stamp: str
    program: str

    def end(self, *, dry_run: bool = False) -> bool:
        """Kill it unless it ends by itself. Returns False if it did."""
        try:
            pidfd = os.pidfd_open(self.pid)
        except OSError:
            return False
        try:
            if stamp(self.pid) != self.stamp:
                return False
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            if poll.poll(END_S * 1000):
                return False
            if not dry_run:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
                poll.poll(END_S * 1000)
        except ProcessLookupError:
            return False
        finally:
            os.close(pidfd)
        return True


def strays() -> list[Stray]:
    """Find launchers whose host is gone and zygotes whose launcher is gone, of this user and pid namespace."""
    found: list[Stray] = []
    for pid in _pids():
        if arguments := _arguments(pid):
            program = arguments[3]
            if (program in _HOSTED and _is_unhosted(pid, arguments)) or (program == _ZYGOTE and _is_orphan(pid)):
                found.append(Stray(pid=pid, stamp=stamp(pid), program=program))
    return found


def pid_of(pidfd: int) -> int:
    """Return the process id of a pidfd; -1 if the process is gone."""
    found = re.search(r"^Pid:\s+(\d+)", _read(f"self/fdinfo/{pidfd}"), re.MULTILINE)
    return int(found[1]) if found else -1


def descendants(pid: int) -> list[int]:
    """Return the process itself and its descendants."""
    found = [pid]
    for one in found:
        with suppress(OSError):  # the process is gone
            for thread in Path(f"/proc/{one}/task").iterdir():
                with suppress(OSError):
                    found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def find_deleted_maps(pid: int) -> Iterator[tuple[int, int, int]]:
    """Yield device, inode and mapped bytes of each deleted file that the process has mapped."""
    for line in _read(f"{pid}/maps").split("\n"):
        if line.endswith(" (deleted)"):
            place, _, _, device, inode, *_ = line.split()
            begin, end = (int(part, 16) for part in place.split("-"))
            major, minor = (int(part, 16) for part in device.split(":"))
            yield os.makedev(major, minor), int(inode), end - begin


def _is_unhosted(pid: int, arguments: list[str]) -> bool:
    host = arguments[-1]
    return bool(_STAMP.fullmatch(host)) and _uid(pid) == os.geteuid() and _is_near(pid) and not lives(host)


def _is_orphan(pid: int) -> bool:
    fields, uid = _fields(pid), _uid(pid)
    if not fields or not (uid == os.geteuid() or (os.geteuid() == 0 and uid in _ZYGOTE_IDS)):
        return False
    # A zygote's sessions are forks of it and have the same command line, but a living Pinfold process as parent.
    return _arguments(int(fields[1])) is None


def _arguments(pid: int) -> list[str] | None:
    """Return the command line of a process that runs the guest program; None for other processes."""
    words = _read(f"{pid}/cmdline").split("\0")[:-1]
    return words if len(words) > 4 and words[1] == "-I" and words[2].endswith(PROGRAM) else None


def _is_near(pid: int) -> bool:
    """Return True if it is in this pid namespace; elsewhere the same process id means another process."""
    try:
        return Path(f"/proc/{pid}/ns/pid").readlink() == Path("/proc/self/ns/pid").readlink()
    except OSError:
        return False


def _uid(pid: int) -> int:
    found = re.search(r"^Uid:\s+(\d+)", _read(f"{pid}/status"), re.MULTILINE)
    return int(found[1]) if found else -1


def _fields(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat, from the state on."""
    return _read(f"{pid}/stat").rpartition(")")[2].split()


def _read(name: str) -> str:
    """Return a file of /proc as text; empty if it is gone or unreadable."""
    try:
        return os.fsdecode(Path(f"/proc/{name}").read_bytes())
    except OSError:
        return ""


def _pids() -> Iterator[int]:
    with suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())


def sweep_leftovers(*, dry_run: bool) -> Iterator[tuple[str, str]]:
    """End and remove the processes, control groups and temporary folders that a killed host left behind.

    Yields the kind and name of each. `dry_run`: only name them.
    """
    for stray in strays():
        if stray.end(dry_run=dry_run):
            yield "process", f"{stray.pid} ({stray.program})"
    folders = find_abandoned()
    for folder in folders:
        yield from (("process", str(pid)) for pid in end_marked(folder, dry_run=dry_run))
    for group in _groups("list" if dry_run else "remove"):
        yield "control group", group
    for folder in folders:
        if dry_run or _remove_abandoned(folder):
            yield "folder", str(folder)


def _groups(what: str) -> list[str]:
    if sys.platform != "linux":
        return []
    program = [sys.executable, "-I", str(GUEST / "__main__.py"), "probe", what]
    try:
        done = subprocess.run(program, capture_output=True, timeout=_SWEEP_S, check=True, cwd="/")
        return json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _remove_abandoned(folder: Path) -> bool:
    # Only a folder that had a lock is certain to be Pinfold's, with all that is in it.
    if "." in folder.name.lstrip("."):
        return remove_folder(folder)
    try:
        folder.rmdir()
    except OSError:
        return False
    return True


def end_marked(private: Path, *, dry_run: bool = False) -> list[int]:
    """End the processes that were started with this folder as TMPDIR. Returns their ids."""
    mark = f"\0TMPDIR={private}\0"
    ended: list[int] = []
    for _ in range(_SWEEPS):
        found = [pid for pid in _pids() if mark in f"\0{_read(f'{pid}/environ')}\0"]
        ended += [pid for pid in found if pid not in ended]
        if not found or dry_run:
            break
        for pid in found:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    return ended


_LONGEST = 103
_CREDENTIALS = struct.Struct("3i")


@contextlib.contextmanager
def short_path(path: Path) -> Generator[str]:
    """Yield the path, or a short path through /proc/self/fd: a socket address holds 108 bytes at most."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield str(path)
        return
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{path.name}"
    finally:
        os.close(descriptor)


def is_same_user(peer: socket.socket) -> bool:
    """Return True if the other end runs as this user."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the folder is 0700 and the socket 0600
    credentials = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return _CREDENTIALS.unpack(credentials)[1] == os.geteuid()
