"""How much memory processes hold, where no control group says so."""

from __future__ import annotations

import os


def memory_of_all(enough: int) -> int:
    """Of this process namespace, in bytes. Exact only above `enough`: below it a cheap count, never too low, will do."""
    return memory_of([name for name in os.listdir("/proc") if name.isdigit()], enough)


def memory_of(pids: list[str], enough: int) -> int:
    held = sum(_held(pid) for pid in pids)
    return held if held <= enough else sum(_proportional(pid) for pid in pids)


def _held(pid: str) -> int:
    """Counts a page as often as it is shared."""
    try:
        return _bytes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))
    except OSError:  # it is gone
        return 0


def _proportional(pid: str) -> int:
    try:
        return _bytes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    except OSError:  # it is gone, or it lets nobody look: then what it shares counts against it
        return _held(pid)


def _bytes(path: str, names: tuple[bytes, bytes]) -> int:
    with open(path, "rb") as file:
        return sum(int(line.split()[1]) for line in file if line.startswith(names)) << 10
