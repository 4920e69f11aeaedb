"""Landlock rules for lite sessions, and for programs that must not change files.

Landlock and system call filters bind one thread and what it starts. To start a program that may change files only in
its scratch folder, a new thread binds itself, starts the program and ends; the rest of this process is not bound.
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
"""Harmless devices in /dev."""
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
"""What libraries read about the machine; none of it shows other processes."""
BOUNDS = {
    "": ("memory.max", "cpu.max"),
    "memory": ("memory.limit_in_bytes",),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
}
# Rights: write a file; remove, make (ABI 1); move between folders (2); empty (3).
WRITE_FILE, REMOVE_AND_MAKE = 1 << 1, 0b1_1111_1111 << 4
MOVE, EMPTY = 1 << 13, 1 << 14
OUTPUT_BYTES = 1 << 16
"""Bytes at the end of each stream to search for a refusal: programs report errors last."""
_REFUSED = re.compile(
    rb"(permission denied|read-only file system|\bEACCES\b|\bEROFS\b|errno 13\b)|(operation not permitted|\bEPERM\b|errno 1\b)",
    re.IGNORECASE,
)
_QUOTED = re.compile(rb"(?:['\"`]|\xe2\x80\x98)([^'\"`\xe2]+)")


def _abi_of(settings: Request) -> int:
    return min(syscalls.landlock_abi(), settings["abi"])


def restrict_zygote(settings: Request) -> None:
    """Apply the outer layer, for the zygote and all it starts. Shows of other processes only what any user may list."""
    rules = _rules(settings)
    rules.allow(rules.everything, [settings["folder"]])
    rules.allow(READ, ["/proc", "/sys/fs/cgroup"])
    rules.restrict()


def restrict_init(settings: Request) -> bool:
    """Prevent the session's processes from signalling others; False if the kernel cannot."""
    if _abi_of(settings) < 6:
        return False
    # Every Landlock layer refuses moves of files between folders unless it explicitly allows them.
    rules = Landlock(_abi_of(settings), MOVE, scoped=syscalls.SIGNALS)
    rules.allow(MOVE, ["/"])
    rules.restrict()
    return True


def restrict_runner(settings: Request, folder: str) -> None:
    """Apply the inner layer: of private folders and processes, the runner may use only its own."""
    rules = _rules(settings)
    rules.allow(rules.everything, [folder])
    rules.allow(READ, [f"/proc/{os.getpid()}", *_cgroup_limit_files()])
    rules.restrict()


def _cgroup_limit_files() -> list[str]:
    """Return the files with the limits of this control group and those above it: some libraries exit without them."""
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
    """This system cannot keep a program from writing; nothing was started."""


def start_read_only(start: Callable[[], Popen[bytes]], program: bytes, scratch: str) -> Popen[bytes]:
    """Call `start` in a thread that may not change files. `program`: the system call filter for what Landlock does not
    cover. Raises NotBound, or what `start` raises."""
    ended = allocate_lock()
    ended.acquire()
    results: list[Popen[bytes]] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            _restrict_thread(program, scratch)
            results.append(start())
        except BaseException as failure:  # raised in the caller's thread
            failures.append(failure)
        finally:
            ended.release()

    start_new_thread(run, ())
    ended.acquire()
    if failures:
        raise failures[0]
    return results[0]


def _restrict_thread(program: bytes, scratch: str) -> None:
    """Restrict this thread permanently."""
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
    """Return where the program may write: `folder`, or a new one in it if other files are or could be linked below."""
    if _is_apart(folder) and os.stat(folder).st_dev != os.stat(workspace).st_dev:
        return folder
    place = os.path.join(folder, f"read-only-{os.urandom(4).hex()}")
    os.mkdir(place, 0o700)
    return place


def _is_apart(folder: str) -> bool:
    """Return True if the folder is a mount with no other mount in it."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        points = [line.split(" ", 5)[4] for line in file]
    return folder in points and not any(point.startswith(f"{folder}/") for point in points)


def was_refused(code: int | None, out: bytes, err: bytes, folder: str) -> bool:
    """Return True if the program's output says that it failed because it could not change a file.

    A file that this process cannot even read does not count.
    """
    if code in (None, 0, 126):  # 126: the file to run is not executable
        return False
    lines = [line for text in (err, out) for line in text[-OUTPUT_BYTES:].splitlines()]
    return any(
        (found := _REFUSED.search(line)) is not None
        and _tells_of_writing(line, folder, must_exist=found[2] is not None)
        for line in lines
    )


def _tells_of_writing(line: bytes, folder: str, *, must_exist: bool) -> bool:
    """`must_exist`: the message was "not permitted", which means a file only if it names an existing one."""
    program, *parts = [part.strip() for part in line.split(b": ")]
    named = [os.path.join(os.fsencode(folder), name) for name in (*_QUOTED.findall(line), *parts) if name]
    if any(map(_cannot_be_read, [*named, program])):
        return False
    return not must_exist or any(map(os.path.lexists, named))


def _cannot_be_read(path: bytes) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC))
    except (OSError, ValueError) as error:  # other errors: it does not exist, or is not a path
        return isinstance(error, PermissionError)
    return False
