"""Which processes descend from this one, where no process namespace says so. Looks at the whole of /proc."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
from contextlib import suppress

from .memory import memory_of


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
    fields = _fields(pid)
    return int(fields[1]) if fields else 0


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
    return {int(fields[2]) for fields in map(_fields, pids) if fields}


def threads_of_user(uid: int) -> int:
    """As the kernel counts them against RLIMIT_NPROC."""
    return sum(_threads(pid) for pid in _pids() if _owner(pid) == uid)


def memory_of_tree(enough: int) -> tuple[int, int]:
    """Bytes, as `memory_of` has them, and the number of processes."""
    pids = descendants()
    return memory_of([str(pid) for pid in pids], enough), len(pids)


def _by_parent() -> defaultdict[int, list[int]]:
    found: defaultdict[int, list[int]] = defaultdict(list)
    for pid in _pids():
        fields = _fields(pid)
        if fields:
            found[int(fields[1])].append(pid)
    return found


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _fields(pid: int) -> list[bytes]:
    """Of its status line, from the state on; nothing if it is gone."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY)
    except OSError:
        return []
    try:
        return os.read(fd, 1024).rpartition(b")")[2].split()
    except OSError:
        return []
    finally:
        os.close(fd)


def _threads(pid: int) -> int:
    fields = _fields(pid)
    return int(fields[17]) if fields else 0


def _owner(pid: int) -> int:
    try:
        return os.stat(f"/proc/{pid}").st_uid
    except OSError:
        return -1
