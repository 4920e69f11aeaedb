"""What of the host's files a lite session may use: Landlock's rules, in layers, each within the one before."""

from __future__ import annotations

import os

from ..startup.messages import Request
from ..startup.root import DEVICES
from .read_only import MOVE
from .syscalls import FILE, READ, Landlock, all_file_rights, landlock_abi

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
"""What libraries ask of the machine; nothing of any process."""
BOUNDS = {
    "": ("memory.max", "cpu.max"),
    "memory": ("memory.limit_in_bytes",),
    "cpu": ("cpu.cfs_quota_us", "cpu.cfs_period_us"),
}
ABSTRACT_SOCKETS, SIGNALS = 1, 2
TCP = 0b11
"""Bind and connect."""


def abi_of(settings: Request) -> int:
    return min(landlock_abi(), settings["abi"])


def restrict_zygote(settings: Request) -> None:
    """The outer layer, for the zygote and all it will start. Of other processes only what anyone may list."""
    abi = abi_of(settings)
    rules = _rules(settings, abi)
    _allow(rules, rules.everything, [settings["folder"]])
    _allow(rules, READ, ["/proc", "/sys/fs/cgroup"])
    rules.restrict()


def restrict_init(settings: Request) -> bool:
    """Bounds whom a session's processes may signal to the session; False where the kernel cannot."""
    if abi_of(settings) < 6:
        return False
    # Every layer refuses to move files between folders unless it allows just that.
    rules = Landlock(MOVE, scoped=SIGNALS)
    rules.allow(MOVE, ["/"])
    rules.restrict()
    return True


def restrict_runner(settings: Request, folder: str) -> None:
    """The inner layer: of the private folders its own, of the processes itself."""
    rules = _rules(settings, abi_of(settings))
    _allow(rules, rules.everything, [folder])
    _allow(rules, READ, [f"/proc/{os.getpid()}", *_cgroup_limit_files()])
    rules.restrict()


def _cgroup_limit_files() -> list[str]:
    """Where libraries look for the limits of their control group and those above it; some end the process if they may not."""
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


def _rules(settings: Request, abi: int) -> Landlock:
    everything = all_file_rights(abi)
    scoped = ABSTRACT_SOCKETS | SIGNALS if abi >= 6 else 0
    rules = Landlock(everything, scoped=scoped, network=TCP if abi >= 4 else 0)
    _allow(rules, READ, [*settings["read"], *MACHINE])
    _allow(rules, FILE & everything, [f"/dev/{name}" for name in DEVICES])
    _allow(rules, everything, settings["writable"])
    return rules


def _allow(rules: Landlock, access: int, paths: list[str]) -> None:
    for path in paths:
        if os.path.isdir(path):
            rules.allow(access, [path])
        elif os.path.exists(path):
            rules.allow(access & FILE, [path])
