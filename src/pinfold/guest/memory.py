"""How much memory processes hold, where no control group says so."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_of_all(enough: int) -> int:
    """Of this process namespace, in bytes. Exact only above `enough`: below it a cheap count, never too low, will do."""
    return memory_of([name for name in os.listdir("/proc") if name.isdigit()], enough)


def memory_of(pids: list[str], enough: int) -> int:
    held = sum(_anonymous(pid) for pid in pids)
    return held if held <= enough else sum(_proportional(pid) for pid in pids)


def _anonymous(pid: str) -> int:
    """Counts a page as often as it is shared."""
    try:
        with open(f"/proc/{pid}/statm", "rb") as file:
            _, resident, shared, *_ = file.read().split()
    except OSError:  # it is gone
        return 0
    return (int(resident) - int(shared)) * _PAGE


def _proportional(pid: str) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            held = [int(line.split()[1]) for line in file if line.startswith((b"Pss_Anon:", b"Pss_Shmem:"))]
    except OSError:  # it is gone, or it lets nobody look: then what it shares counts against it
        return _anonymous(pid)
    return sum(held) << 10
