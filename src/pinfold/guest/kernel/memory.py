"""How much memory processes hold, where no control group says so."""

from __future__ import annotations

import os

FOLDERS = ("/tmp", "/dev/shm")
"""Whose files are memory."""


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
    used = 0
    for folder in FOLDERS:
        state = os.statvfs(folder)
        used += (state.f_blocks - state.f_bfree) * state.f_frsize
    return used


def _memfd_bytes(pids: list[str]) -> int:
    """Files of `memfd_create`."""
    example = os.memfd_create("example")
    device = os.fstat(example).st_dev
    os.close(example)
    found: dict[int, int] = {}
    for pid in pids:
        try:
            for name in os.listdir(f"/proc/{pid}/fd"):
                state = os.stat(f"/proc/{pid}/fd/{name}")
                if state.st_dev == device:
                    found[state.st_ino] = state.st_blocks * 512
        except OSError:  # it is gone
            continue
    return sum(found.values())


def _resident_bytes(pid: str) -> list[int]:
    """Its own and its shared memory; counts a page as often as it is shared."""
    return _read_sizes(f"/proc/{pid}/status", (b"RssAnon:", b"RssShmem:"))


def _proportional_bytes(pid: str) -> list[int]:
    """Where it lets nobody look, what it shares counts against it."""
    found = _read_sizes(f"/proc/{pid}/smaps_rollup", (b"Pss_Anon:", b"Pss_Shmem:"))
    return found if any(found) else _resident_bytes(pid)


def _read_sizes(path: str, names: tuple[bytes, ...]) -> list[int]:
    found = dict.fromkeys(names, 0)
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(names):
                    name, count, _ = line.split()
                    found[name] = int(count) << 10
    except OSError:  # it is gone
        pass
    return list(found.values())
