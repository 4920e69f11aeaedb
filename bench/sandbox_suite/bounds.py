"""A bound around everything a benchmark starts, so that the machine survives a sandbox that does not hold.

As root a memory and a pids cgroup (v1 or v2) of our own; otherwise, and besides, resource limits that children inherit.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
FILES = {"memory": ("memory.limit_in_bytes", "memory.max"), "pids": ("pids.max", "pids.max")}
NAME = "bench-bound"


@contextmanager
def bounded(memory_bytes: int, processes: int) -> Generator[str]:
    """This process and what it starts, until the end. Yields in words what holds."""
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    made: list[tuple[Path, Path]] = []
    words = [f"RLIMIT_DATA {memory_bytes >> 20} MiB a process"]
    try:
        for controller, number in (("memory", memory_bytes), ("pids", processes)):
            with suppress(OSError):
                made.append(_enter(controller, number))
                words.append(f"cgroup {controller} {number}")
        yield ", ".join(words)
    finally:
        for group, home in made:
            # The zygote lives until this process ends.
            for pid in (group / "cgroup.procs").read_text(encoding="ascii").split():
                with suppress(OSError):
                    (home / "cgroup.procs").write_text(pid, encoding="ascii")
            with suppress(OSError):
                group.rmdir()


def _enter(controller: str, number: int) -> tuple[Path, Path]:
    """A group below the one we are in, with this limit, entered. Raises OSError where we may not."""
    home, version = _home(controller)
    group = home / f"{NAME}-{os.getpid()}"
    group.mkdir()
    try:
        (group / FILES[controller][version]).write_text(str(number), encoding="ascii")
        (group / "cgroup.procs").write_text(str(os.getpid()), encoding="ascii")
    except OSError:
        group.rmdir()
        raise
    return group, home


def _home(controller: str) -> tuple[Path, int]:
    """The group we are in, and 0 for cgroup v1, 1 for v2."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return CGROUPS / controller / path.lstrip("/"), 0
        if controllers == "" and (CGROUPS / "cgroup.controllers").exists():
            return CGROUPS / path.lstrip("/"), 1
    raise OSError(f"no {controller} controller")
