"""Processes as /proc shows them: who descends from this one, what they do and hold; how to stop them all.

And children of ours, which are not the program's to hear of.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any, Self

FOLDERS = ("/tmp", "/dev/shm")
"""Whose files are memory."""
STOP_S = 5.0
"""For all of them to stand still; a call into the kernel that writes much ends first."""
FREEZE_AGAIN_S = 0.001
STANDS = (b"T", b"t")
ENDED = (b"Z", b"X")
OF_ALL = 64
OF_ONE = 16
"""Inotify instances: the kernel counts them for the user outside too, who may have 128."""
_core = __import__("_signal")  # without the enums of `signal`: the default is 0
# Bound now: a program may replace these names in their modules.
_getsignal, _signal = _core.getsignal, _core.signal
_SIGNALS = {*range(1, signal.NSIG)} - {signal.SIGINT}
_waitpid, _sigmask, _sigtimedwait = os.waitpid, signal.pthread_sigmask, signal.sigtimedwait


def put(path: str, text: str) -> None:
    """Write a small file of the kernel's, which must be there, in one call."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def send_signal(pid: int, number: int) -> None:
    """To a process, or a group where it is below zero, that may be gone."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def pid_of(pidfd: int) -> int:
    """Of a process that may be gone: then -1."""
    with open(f"/proc/self/fdinfo/{pidfd}", encoding="ascii") as info:
        return next(int(line.split()[1]) for line in info if line.startswith("Pid:"))


def bound_watches(most: int) -> None:
    """In this user namespace and those below it. Needs power over it, and a /proc/sys that may be written."""
    with suppress(FileNotFoundError):  # a kernel without them
        put("/proc/sys/user/max_inotify_instances", str(most))


def children() -> list[int]:
    return _by_parent()[os.getpid()]


def descendants() -> list[int]:
    """Those whose parent went are among them only if this process is their subreaper."""
    by_parent = _by_parent()
    found = list(by_parent[os.getpid()])
    for pid in found:
        found += by_parent[pid]
    return found


def parent_of(pid: int) -> int:
    """0 of one that is gone."""
    return int(next(iter(stat_fields(pid)[1:]), 0))


def is_quiet(pid: int) -> bool:
    """Whether a process that waits does nothing by itself: it has one thread, no timer, and handles Ctrl-C only."""
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
    """The process groups they are in."""
    return {int(fields[2]) for fields in map(stat_fields, pids) if fields}


def threads_of_user(uid: int) -> int:
    """As the kernel counts them against RLIMIT_NPROC."""
    return sum(int(fields[17]) for pid in _pids() if _owner(pid) == uid and (fields := stat_fields(pid)))


def memory_of_tree(enough: int) -> tuple[int, int]:
    """Bytes, as `memory_of` has them, and the number of processes."""
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
    """Of its status line, from the state on; nothing if it is gone."""
    with suppress(OSError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
        return file.read(1024).rpartition(b")")[2].split()
    return []


def _owner(pid: int) -> int:
    with suppress(OSError):
        return os.stat(f"/proc/{pid}").st_uid
    return -1


def memory_of_all(enough: int) -> int:
    """Of this process namespace, in bytes. Exact only above `enough`: below it a cheap count, never too low, will do."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
    return memory_of(pids, enough, _tmpfs_bytes() + _memfd_bytes(pids))


def memory_of(pids: list[str], enough: int, files: int = 0) -> int:
    """With `files` held in memory besides.

    Those that are mapped too are not counted twice; of memory that is both, half may be missed.
    """
    held = files + sum(sum(_resident_bytes(pid)) for pid in pids)
    if held <= enough:
        return held
    own, shared = (sum(part) for part in zip(*map(_proportional_bytes, pids), strict=True))
    return own + max(shared, files)


def data_of_self() -> int:
    """What RLIMIT_DATA counts: libraries set more aside than they use."""
    (data,) = _read_sizes("/proc/self/status", (b"VmData:",))
    return data


def _tmpfs_bytes() -> int:
    states = map(os.statvfs, FOLDERS)
    return sum((state.f_blocks - state.f_bfree) * state.f_frsize for state in states)


def _memfd_bytes(pids: list[str]) -> int:
    """Files of `memfd_create`."""
    example = os.memfd_create("example")
    device = os.fstat(example).st_dev
    os.close(example)
    found: dict[int, int] = {}
    for pid in pids:
        with suppress(OSError):  # it is gone
            for name in os.listdir(f"/proc/{pid}/fd"):
                state = os.stat(f"/proc/{pid}/fd/{name}")
                if state.st_dev == device:
                    found[state.st_ino] = state.st_blocks * 512
    return sum(found.values())


def _resident_bytes(pid: str) -> list[int]:
    """Its own and its shared memory; counts a page as often as it is shared."""
    return _read_sizes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def _proportional_bytes(pid: str) -> list[int]:
    """Where it cannot be read, what it shares counts as its own."""
    found = _read_sizes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    return found if any(found) else _resident_bytes(pid)


def _read_sizes(path: str, names: tuple[bytes, ...]) -> list[int]:
    found = dict.fromkeys(names, 0)
    with suppress(OSError), open(path, "rb") as file:  # it may be gone
        for line in file:
            if line.startswith(names):
                name, count, _ = line.split()
                found[name] = int(count) << 10
    return list(found.values())


class Freezer:
    """`living` names every process of the session; `stop` sends SIGSTOP to all of them."""

    def __init__(self, living: Callable[[], set[int]], stop: Callable[[], None]) -> None:
        self._living = living
        self._stop = stop
        self._stood: set[int] = set()
        """Stood still before: they are left so."""

    def freeze(self) -> bool:
        """Whether none of them can run until `thaw`.

        Two looks that agree prove it: who stood at both and was not scheduled in between stood at the moment between
        them, when there was no other process. One look would not do, for a process that is still running may wake one that
        was looked at already.
        """
        self._stood = {pid for pid in self._living() if _schedule_counts({pid})}  # not one that cannot be looked at
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
        """Raises OSError where a process does not stop."""
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
    """How often each thread has been scheduled so far; None if one of them does not stand still."""
    runs: dict[str, list[bytes]] = {}
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:  # it has ended
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
    """A child that begins and ends meanwhile leaves no SIGCHLD."""
    before = _sigmask(signal.SIG_BLOCK, (signal.SIGCHLD,))
    try:
        yield
    finally:
        _sigtimedwait((signal.SIGCHLD,), 0)
        _sigmask(signal.SIG_SETMASK, before)


class SignalHandlers:
    """The program's handlers of signals, put aside while a child of ours runs, where this thread may.

    One for SIGCHLD could take the child's exit code, and one that raises could leave the child half started. That of
    SIGINT stays, which `Interrupts` looks after.
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
        except BaseException:  # raised by one that is not put aside yet
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._aside.items():
            now = _getsignal(number)
            if now is self._note or (type(now) is int and now == 0):  # else one that was called has set another
                _signal(number, handler)

    def call(self) -> None:
        """Those whose signals have come. May raise whatever they do."""
        while self._came:
            number, frame = self._came.pop(0)
            self._aside[number](number, frame)

    def _on_signal(self, number: int, frame: object) -> None:
        self._came.append((number, frame))


def reap(pid: int) -> None:
    with suppress(OSError):  # a thread of the program's waits for any child
        _waitpid(pid, 0)
