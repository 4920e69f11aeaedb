"""Processes as /proc shows them: descendants, threads, memory; how to stop them all.

Also hides child processes of the guest from the program's signal handlers.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` for it would take a quarter of the start time
if TYPE_CHECKING:
    from typing import Any, Self

FOLDERS = ("/tmp", "/dev/shm")
"""The session's tmpfs folders: their files take memory."""
STOP_S = 5.0
"""Time limit for all processes to stop; a system call that writes much must end first."""
FREEZE_AGAIN_S = 0.001
STANDS = (b"T", b"t")
ENDED = (b"Z", b"X")
OF_ALL = 64
OF_ONE = 16
"""Most inotify instances of all sessions, and of one. They also count for the user outside, who may have 128."""
_core = __import__("_signal")  # unlike `signal` it returns plain numbers, not enums: the default handler is 0
# Bound now: a program may replace these names in their modules.
_getsignal, _signal = _core.getsignal, _core.signal
_SIGNALS = {*range(1, signal.NSIG)} - {signal.SIGINT}
_waitpid, _sigmask, _sigtimedwait = os.waitpid, signal.pthread_sigmask, signal.sigtimedwait


def put(path: str, text: str) -> None:
    """Write a small, existing file of the kernel in one call."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def send_signal(pid: int, number: int) -> None:
    """Send a signal to a process, or to a group if `pid` is negative. Does nothing if it is gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def pid_of(pidfd: int) -> int:
    """Return the pid; -1 if the process is gone."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("Pid:"))


def bound_watches(most: int) -> None:
    """Limit inotify instances in this user namespace and below. Needs privileges in it and a writable /proc/sys."""
    with suppress(FileNotFoundError):  # a kernel without inotify
        put("/proc/sys/user/max_inotify_instances", str(most))


def children() -> list[int]:
    return _by_parent()[os.getpid()]


def descendants() -> list[int]:
    """Return all descendants. Includes those whose parent has ended only if this process is their subreaper."""
    by_parent = _by_parent()
    found = list(by_parent[os.getpid()])
    for pid in found:
        found += by_parent[pid]
    return found


def parent_of(pid: int) -> int:
    """Return the pid of the parent; 0 if the process is gone."""
    return int(next(iter(stat_fields(pid)[1:]), 0))


def is_quiet(pid: int) -> bool:
    """Return True if a waiting process does nothing by itself: one thread, no timer, no handler but for Ctrl-C."""
    try:
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
    except OSError:
        return False
    with suppress(OSError), open(f"/proc/{pid}/timers", encoding="ascii") as file:
        if file.read(1):
            return False
    return int(fields["Threads"]) == 1 and not int(fields["SigCgt"], 16) & ~(1 << (signal.SIGINT - 1))


def groups_of(pids: list[int]) -> set[int]:
    """Return the process groups of these processes."""
    return {int(fields[2]) for fields in map(stat_fields, pids) if fields}


def threads_of_user(uid: int) -> int:
    """Return the number of threads that the kernel counts against RLIMIT_NPROC."""
    return sum(int(fields[17]) for pid in _pids() if _owner(pid) == uid and (fields := stat_fields(pid)))


def memory_of_tree(enough: int) -> tuple[int, int]:
    """Return the bytes of all descendants, as `memory_of`, and their number."""
    pids = descendants()
    return memory_of([str(pid) for pid in pids], enough), len(pids)


def _by_parent() -> defaultdict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for pid in _pids():
        found[parent_of(pid)].append(pid)
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def stat_fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; empty if the process is gone."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return file.read(1024).rpartition(b")")[2].split()
    return []


def _owner(pid: int) -> int:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return -1


def memory_of_all(enough: int) -> int:
    """Return the bytes used in this process namespace. Exact only above `enough`; below it a cheap upper bound."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return memory_of(pids, enough, _tmpfs_bytes() + _memfd_bytes(pids))


def memory_of(pids: list[str], enough: int, files: int = 0) -> int:
    """Return the bytes of these processes, and of `files` bytes held in memory.

    Mapped files are not counted twice. With both shared memory and unmapped files, up to half may be missed.
    """
    held = files + sum(sum(_resident_bytes(pid)) for pid in pids)
    if held <= enough:
        return held
    own, shared = (sum(part) for part in zip(*map(_proportional_bytes, pids), strict=True))
    return own + max(shared, files)


def data_of_self() -> int:
    """Return the bytes that RLIMIT_DATA counts: libraries reserve more than they use."""
    (data,) = _read_sizes("/proc/self/status", (b"VmData:",))
    return data


def _tmpfs_bytes() -> int:
    states = map(os.statvfs, FOLDERS)
    return sum((state.f_blocks - state.f_bfree) * state.f_frsize for state in states)


def _memfd_bytes(pids: list[str]) -> int:
    """Return the bytes of files made with `memfd_create`."""
    example = os.memfd_create("example")
    device = os.fstat(example).st_dev
    os.close(example)
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):  # the process is gone
            for name in os.listdir(f"/proc/{pid}/fd"):
                state = os.stat(f"/proc/{pid}/fd/{name}")
                if state.st_dev == device:
                    found[state.st_ino] = state.st_blocks * 512
    return sum(found.values())


def _resident_bytes(pid: str) -> list[int]:
    """Return private and shared bytes, where a shared page counts once for each process."""
    return _read_sizes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def _proportional_bytes(pid: str) -> list[int]:
    """Return private and shared bytes, with shared pages divided among their users if that can be read."""
    found = _read_sizes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    return found if any(found) else _resident_bytes(pid)


def _read_sizes(path: str, names: tuple[bytes, ...]) -> list[int]:
    found = dict.fromkeys(names, 0)
    with suppress(OSError), open(path, "rb") as file:  # the process may be gone
        for line in file:
            if line.startswith(names):
                name, count, _ = line.split()
                found[name] = int(count) << 10
    return list(found.values())


class Freezer:
    """Stops a session. `living` returns its processes; `stop` sends SIGSTOP to all of them."""

    def __init__(self, living: Callable[[], set[int]], stop: Callable[[], None]) -> None:
        self._living = living
        self._stop = stop
        self._stood: set[int] = set()
        """Processes that were stopped before; `thaw` leaves them stopped."""

    def freeze(self) -> bool:
        """Stop all processes. True if none of them can run until `thaw`.

        Two equal scans prove it: a process that was stopped in both and not scheduled in between was stopped at the
        moment between them, when there was no other process. One scan is not enough, because a process that still runs
        may wake one that was already scanned.
        """
        self._stood = {pid for pid in self._living() if _schedule_counts({pid})}  # unreadable ones do not count
        give_up_at = time.monotonic() + STOP_S
        while time.monotonic() < give_up_at:
            self._stop()
            runs = _schedule_counts(self._living())
            if runs is not None and _schedule_counts(self._living()) == runs:
                return True
            time.sleep(FREEZE_AGAIN_S)
        self.thaw()
        return False

    @contextmanager
    def hold_still(self, place: str) -> Generator[None]:
        """Keep all processes stopped for the duration. Raises OSError if one does not stop."""
        if not self.freeze():
            raise OSError(errno.EBUSY, "a process there cannot be stopped", place)
        try:
            yield
        finally:
            self.thaw()

    def thaw(self) -> None:
        for pid in self._living() - self._stood:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGCONT)


def _schedule_counts(pids: set[int]) -> dict[str, list[bytes]] | None:
    """Return how often each thread has been scheduled so far; None if one of them is not stopped."""
    runs: dict[str, list[bytes]] = {}
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:  # the process has ended
            continue
        for thread in threads:
            try:
                with open(f"/proc/{pid}/task/{thread}/status", "rb") as file:
                    lines = file.read().splitlines()
            except OSError:
                continue
            state = next(line.split()[1] for line in lines if line.startswith(b"State:"))
            if state in ENDED:
                continue
            if state not in STANDS:
                return None
            runs[thread] = [line for line in lines if b"_ctxt_switches:" in line]
    return runs


@contextmanager
def discard_sigchld() -> Generator[None]:
    """Discard the SIGCHLD of a child that starts and ends within the block."""
    before = _sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        yield
    finally:
        _sigtimedwait((signal.SIGCHLD,), 0)
        _sigmask(signal.SIG_SETMASK, before)


class SignalHandlers:
    """Suspends the program's signal handlers while the guest runs a child process. Works in the main thread only.

    A handler for SIGCHLD could take the child's exit code, and one that raises could leave the child half started. The
    handler of SIGINT stays; `Interrupts` manages it.
    """

    def __init__(self) -> None:
        self._aside: dict[int, Any] = {}
        self._came: list[tuple[int, object]] = []
        self._note = self._on_signal

    def __enter__(self) -> Self:
        try:
            for number in _SIGNALS:
                handler = _getsignal(number)
                if callable(handler) or (number == signal.SIGCHLD and handler):
                    self._aside[number] = handler
                    _signal(number, 0 if number == signal.SIGCHLD else self._note)
        except ValueError:  # not the main thread
            self._aside.clear()
        except BaseException:  # raised by a handler that is not suspended yet
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._aside.items():
            now = _getsignal(number)
            if now is self._note or (type(now) is int and now == 0):  # otherwise a called handler has set another
                _signal(number, handler)

    def call(self) -> None:
        """Call the handlers of signals that came meanwhile. Raises what they raise."""
        while self._came:
            number, frame = self._came.pop(0)
            self._aside[number](number, frame)

    def _on_signal(self, number: int, frame: object) -> None:
        self._came.append((number, frame))


def reap(pid: int) -> None:
    with suppress(OSError):  # a thread of the program may wait for any child
        _waitpid(pid, 0)
