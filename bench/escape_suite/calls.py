"""The numbers of the system calls that programs make by name, on either machine."""

from __future__ import annotations

import platform
import re
from typing import Final

from pinfold.sandbox.kernel.seccomp import AARCH64, X86_64

_REFUSED: Final[dict[str, tuple[int, int | None]]] = {
    # x86_64's and aarch64's; None where a call is older than the machine.
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "ustat": (136, None),
    "sysfs": (139, None),
    "modify_ldt": (154, None),
    "pivot_root": (155, 41),
    "adjtimex": (159, 171),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "quotactl": (179, 60),
    "remap_file_pages": (216, 234),
    "clock_settime": (227, 112),
    "mbind": (237, 235),
    "kexec_load": (246, 104),
    "migrate_pages": (256, 238),
    "unshare": (272, 97),
    "move_pages": (279, 239),
    "perf_event_open": (298, 241),
    "fanotify_init": (300, 262),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "clock_adjtime": (305, 266),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
}
_SAME: Final = {
    "pidfd_send_signal": 424,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsmount": 432,
    "fspick": 433,
    "pidfd_getfd": 438,
    "process_madvise": 440,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "process_mrelease": 448,
    "statmount": 457,
    "listmount": 458,
    "lsm_list_modules": 461,
}
"""New calls have one number everywhere."""

NUMBERS: Final[dict[str, dict[str, int]]] = {
    "x86_64": {**X86_64, **{name: old for name, (old, _) in _REFUSED.items()}, **_SAME},
    "aarch64": {**AARCH64, **{name: new for name, (_, new) in _REFUSED.items() if new is not None}, **_SAME},
}
"""What a session may call is the product's to list; this adds what it refuses."""
HERE: Final = NUMBERS.get(platform.machine(), {})
_CALLED = re.compile(r"\b(?:syscall|reaches)\('(\w+)'")


def called(source: str) -> dict[str, int | None]:
    """The calls that a program makes by name, and their numbers here: None where this machine lacks one."""
    return {name: HERE.get(name) for name in _CALLED.findall(source)}
