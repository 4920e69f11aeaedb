"""How much memory the processes of this process namespace hold, where no control group says so."""

from __future__ import annotations

import os

_PAGE = os.sysconf("SC_PAGE_SIZE")


def memory_of_all(enough: int) -> int:
    """Bytes. Exact only above `enough`: below it a cheap count, never too low, will do."""
    pids = [name for name in os.listdir("/proc") if name.isdigit()]
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
    except OSError:
        return 0
    return sum(held) << 10
