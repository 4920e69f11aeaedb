"""Landlock's rules: what of the host's files a lite session may use, and a program that can change none.

Landlock and system call filters bind one thread and what it starts. So a thread of its own is bound, starts a program that
is to change no file but in its scratch folder, and ends: this process is as free as before.
"""

from __future__ import annotations

import os
import re
from _thread import allocate_lock, start_new_thread
from collections.abc import Callable
from subprocess import Popen
from typing import Any

from . import syscalls
from .syscalls import FILE, READ, Landlock

Request = dict[str, Any]

DEVICES = ("null", "zero", "full", "random", "urandom")
"""Harmless ones."""
MACHINE = (
    "/proc/cpuinfo",
    "/proc/filesystems",
    "/proc/loadavg",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/vm/overcommit_memory",
    "/proc/uptime",
    "/proc/version",
    "/sys/devices/system/cpu",
    "/sys/devices/system/node",
    "/sys/kernel/mm/transparent_hugepage",
)
"""What libraries ask of the machine; nothing of any process."""
BOUNDS = {
    "": ("memory.max", "cpu.max"),
    "memory": ("memory.limit_in_bytes",),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
}
# Rights: write a file; remove, make (ABI 1); move between folders (2); empty (3).
WRITE_FILE, REMOVE_AND_MAKE = 1 << 1, 0b1_1111_1111 << 4
MOVE, EMPTY = 1 << 13, 1 << 14
OUTPUT_BYTES = 1 << 16
"""Of each stream, in which a refusal is looked for: what went wrong is told last."""
_REFUSED = re.compile(
    rb"(permission denied|read-only file system|\bEACCES\b|\bEROFS\b|errno 13\b)|(operation not permitted|\bEPERM\b|errno 1\b)",
    re.IGNORECASE,
)
_QUOTED = re.compile(rb"(?:['\"`]|\xe2\x80\x98)([^'\"`\xe2]+)")


def _abi_of(settings: Request) -> int:
    return min(syscalls.landlock_abi(), settings["abi"])


def restrict_zygote(settings: Request) -> None:
    """The outer layer, for the zygote and all it will start. Of other processes only what anyone may list."""
    rules = _rules(settings)
    rules.allow(rules.everything, [settings["folder"]])
    rules.allow(READ, ["/proc", "/sys/fs/cgroup"])
    rules.restrict()


def restrict_init(settings: Request) -> bool:
    """Bounds whom a session's processes may signal to the session; False where the kernel cannot."""
    if _abi_of(settings) < 6:
        return False
    # Every layer refuses to move files between folders unless it allows just that.
    rules = Landlock(_abi_of(settings), MOVE, scoped=syscalls.SIGNALS)
    rules.allow(MOVE, ["/"])
    rules.restrict()
    return True


def restrict_runner(settings: Request, folder: str) -> None:
    """The inner layer: of the private folders its own, of the processes itself."""
    rules = _rules(settings)
    rules.allow(rules.everything, [folder])
    rules.allow(READ, [f"/proc/{os.getpid()}", *_cgroup_limit_files()])
    rules.restrict()


def _cgroup_limit_files() -> list[str]:
    """Where libraries look for the limits of their control group and those above it; some end the process if they may not."""
    found: list[str] = []
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            parts = path.strip("/").split("/")
            above = ["/".join(parts[:count]) for count in range(len(parts) + 1)]
            for controller in controllers.split(","):
                found += [
                    os.path.join("/sys/fs/cgroup", controller, group, name)
                    for group in above
                    for name in BOUNDS.get(controller, ())
                ]
    return found


def _rules(settings: Request) -> Landlock:
    rules = Landlock(_abi_of(settings), scoped=syscalls.ABSTRACT_SOCKETS | syscalls.SIGNALS, network=syscalls.TCP)
    rules.allow(READ, [*settings["read"], *MACHINE])
    rules.allow(FILE, (f"/dev/{name}" for name in DEVICES))
    rules.allow(rules.everything, settings["writable"])
    return rules


class NotBound(Exception):
    """This system cannot hold a program to reading; nothing was started."""


def start_read_only(start: Callable[[], Popen[bytes]], program: bytes, scratch: str) -> Popen[bytes]:
    """`program` is the system call filter for what Landlock does not judge. Raises NotBound, or what `start` raises."""
    ended = allocate_lock()
    ended.acquire()
    results: list[Popen[bytes]] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            _restrict_thread(program, scratch)
            results.append(start())
        except BaseException as failure:  # the caller's to raise
            failures.append(failure)
        finally:
            ended.release()

    start_new_thread(run, ())
    ended.acquire()
    if failures:
        raise failures[0]
    return results[0]


def _restrict_thread(program: bytes, scratch: str) -> None:
    """This thread, for good."""
    abi = syscalls.landlock_abi()
    if not abi:
        raise NotBound("this kernel has no Landlock")
    try:
        syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
        rules = Landlock(
            abi, WRITE_FILE | REMOVE_AND_MAKE | MOVE | EMPTY, scoped=syscalls.ABSTRACT_SOCKETS | syscalls.SIGNALS
        )
        rules.allow(WRITE_FILE | EMPTY, (f"/dev/{name}" for name in (*DEVICES, "tty", "ptmx")))
        rules.allow(rules.everything, [scratch])
        rules.restrict()
        syscalls.add_filter(program)
    except OSError as error:
        raise NotBound(f"{error.filename}: {error.strerror}") from error


def scratch_in(folder: str, workspace: str) -> str:
    """Where the program may write: `folder`, unless files from elsewhere lie beneath it or could be linked into it."""
    if _is_apart(folder) and os.stat(folder).st_dev != os.stat(workspace).st_dev:
        return folder
    place = os.path.join(folder, f"read-only-{os.urandom(4).hex()}")
    os.mkdir(place, 0o700)
    return place


def _is_apart(folder: str) -> bool:
    """It is a file system of its own, with no other mounted in it."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [line.split(" ", 5)[4] for line in file]
    return folder in points and not any(point.startswith(f"{folder}/") for point in points)


def was_refused(code: int | None, out: bytes, err: bytes, folder: str) -> bool:
    """Whether it failed because it could not change a file, as far as its words tell.

    A file that this process cannot read either is no sign of that.
    """
    if code in (None, 0, 126):  # 126: what it would run is no program
        return False
    lines = [line for text in (err, out) for line in text[-OUTPUT_BYTES:].splitlines()]
    return any(
        (found := _REFUSED.search(line)) is not None
        and _tells_of_writing(line, folder, must_exist=found[2] is not None)
        for line in lines
    )


def _tells_of_writing(line: bytes, folder: str, *, must_exist: bool) -> bool:
    """`must_exist`: many things are "not permitted"; of files only what is done to one that is there."""
    program, *parts = [part.strip() for part in line.split(b": ")]
    named = [os.path.join(os.fsencode(folder), name) for name in (*_QUOTED.findall(line), *parts) if name]
    if any(map(_cannot_be_read, [*named, program])):
        return False
    return not must_exist or any(map(os.path.lexists, named))


def _cannot_be_read(path: bytes) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except (OSError, ValueError) as error:  # others: it is not there, or no path at all
        return isinstance(error, PermissionError)
    return False
