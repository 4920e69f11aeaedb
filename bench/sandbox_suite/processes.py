"""What the kernel knows of processes: who descends from whom, what memory is whose, what is left of a mark."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of some processes together. `pss` counts a shared page once, `uss` only what nobody else has."""

    pss: int
    uss: int
    page_tables: int

    @classmethod
    def of(cls, pids: Iterable[int]) -> Memory:
        pss = uss = tables = 0
        for pid in pids:
            rollup, status = _fields(pid, "smaps_rollup"), _fields(pid, "status")
            pss += rollup.get("Pss", 0)
            uss += rollup.get("Private_Clean", 0) + rollup.get("Private_Dirty", 0)
            tables += status.get("VmPTE", 0)
        return cls(pss << 10, uss << 10, tables << 10)


def descendants(root: int) -> set[int]:
    """All processes below this one, not counting itself."""
    children: defaultdict[int, list[int]] = defaultdict(list)
    for pid in pids():
        try:
            stat = Path(f"/proc/{pid}/stat").read_bytes()
        except OSError:
            continue
        children[int(stat[stat.rindex(b")") + 2 :].split()[1])].append(pid)
    found: set[int] = set()
    waiting = [root]
    while waiting:
        below = children[waiting.pop()]
        found.update(below)
        waiting += below
    return found


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208 - names only, often


def marked(mark: str) -> list[int]:
    """Processes, dead ones not counted, whose command line holds this text."""
    found: list[int] = []
    for pid in pids():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            continue
        if mark.encode() in command:
            found.append(pid)
    return found


def is_alive(pid: int) -> bool:
    """Zombies are dead."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return stat[stat.rindex(b")") + 2 :][:1] not in (b"Z", b"X")


def threads(pid: int) -> int:
    return _fields(pid, "status").get("Threads", 0)


def available() -> int:
    """Memory of the machine that could still be used."""
    return _fields_of("/proc/meminfo")["MemAvailable"] << 10


def _fields(pid: int, file: str) -> dict[str, int]:
    return _fields_of(f"/proc/{pid}/{file}")


def _fields_of(path: str) -> dict[str, int]:
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return {}
    rows = (line.split() for line in text.splitlines())
    return {row[0][:-1]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit() and row[0][-1] == ":"}
