"""Compiles the system call filter of a session: an allow-list as classic BPF. Applies nothing itself.

The calls, their numbers and which of them are allowed are in `syscalls.txt`.
"""

from __future__ import annotations

import errno
import platform
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, TypeAlias

from pinfold.sandbox.contract import SandboxUnavailable

_ROWS = [
    line.split()
    for line in Path(__file__).with_name("syscalls.txt").read_text(encoding="ascii").splitlines()
    if not line.startswith("#")
]
X86_64: Final = {name: int(number) for name, number, _, _ in _ROWS if number != "-"}
AARCH64: Final = {name: int(number) for name, _, number, _ in _ROWS if number != "-"}
ALLOWED: Final = frozenset(name for name, *_, answer in _ROWS if answer == "allow")
"""Without conditions. What is neither here nor in the filter's own rules is refused."""
ABSENT: Final = frozenset(name for name, *_, answer in _ROWS if answer == "absent")
"""Answered as by a kernel that lacks them, so that libraries fall back to what the filter can judge."""


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Words of seccomp_data: number, architecture, instruction pointer, six arguments of 64 bits.
_NUMBER, _ARCH, _ARGS = 0, 4, 16
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _AND, _ALWAYS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x05, 0x06
_KILL = 0x80000000
_ERRNO = 0x00050000
_ANSWERS = {
    "allow": (_RETURN, 0x7FFF0000),
    "deny": (_RETURN, _ERRNO | errno.EPERM),
    "absent": (_RETURN, _ERRNO | errno.ENOSYS),
    "no_family": (_RETURN, _ERRNO | errno.EAFNOSUPPORT),
    "no_attributes": (_RETURN, _ERRNO | errno.EOPNOTSUPP),
    "no_control": (_RETURN, _ERRNO | errno.ENOTTY),
    "ask": (_RETURN, 0x7FC00000),
}
_ARCHES = {"x86_64": (0xC000003E, X86_64), "aarch64": (0xC00000B7, AARCH64)}
_X32_BIT = 0x40000000
_NEWEST = 470
"""Numbers from here on are newer than our list; a library that tries one expects ENOSYS."""

_MINUS_ONE = 0xFFFFFFFF
_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag."""
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE: only then does `open` read its mode."""
_UNIX, _INET, _INET6 = 1, 2, 10
_UNIX_KINDS, _INET_KINDS = (1, 2, 5), (1, 2)
"""Stream, datagram, seqpacket: nothing raw."""
_PROTOCOLS = (0, 6, 17)
"""What fits the kind, TCP, UDP."""
_SET_LEASE = 1024
"""A lease on a file holds up any process that opens it outside, for most of a minute."""
_FILE_TYPE, _NAMED_PIPE = 0o170000, 0o010000
_TERMINAL_TRICKS = (0x5412, 0x541C, 0x5423)
"""TIOCSTI, TIOCLINUX, TIOCSETD: ways to type into a terminal, or to take it over."""
_SOCKET_OWNERS = (0x8901, 0x8902)
"""FIOSETOWN, SIOCSPGRP: ways to have the kernel send a signal for you, as are the next."""
_FILE_OWNERS = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX."""
_PRIO_PROCESS, _IOPRIO_PROCESS = 0, 1
_TRUNCATES, _ACCESS_MODE = 0o1000, 0o3

METADATA = names("chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat")
"""Calls on files that Landlock does not judge."""
SIGNALS = names("kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo")
_ATTRIBUTES = ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr")
_TERMINAL, _SOCKET, _LISTENER = 0x5400, 0x8900, 0x2100
"""Groups of `ioctl` that change no file; the last is for the listeners of such filters."""
_LOOKS = (0x80086601, 0x801C581F, 0xC020660B, 0x2)
"""FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP, FIGETBSZ."""
_OF_THE_WHOLE_MACHINE = names("""
shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
""")
_NEEDS_A_SOCKET = ("socket", "connect", "bind", "listen")


@dataclass(frozen=True, slots=True)
class _Jump:
    """Goes to a label further down; the assembler fills in the distance."""

    code: int
    value: int
    if_true: str
    if_false: str


_Step: TypeAlias = "tuple[int, int] | _Jump | str"
"""An instruction, a jump, or the label of what follows."""


def compile_filter(
    machine: str = "",
    *,
    shared: bool = False,
    asked: frozenset[str] = frozenset(),
    refused: frozenset[str] = frozenset(),
    also: frozenset[str] = frozenset(),
) -> bytes:
    """The filter for this machine.

    `shared`: the session has no namespaces of its own, so no socket, no memory or queue of the machine's, and nothing that
    works on a process by its number. Calls in `asked` wait for the answer of a listener, those in `refused` are refused,
    those in `also` allowed, whatever the rules say.
    """
    machine = _check_machine(machine)
    numbers = _ARCHES[machine][1]
    rules = _rules() | (_shared_rules() if shared else {})
    for answer, calls in (("ask", asked), ("deny", refused)):
        rules |= {name: [_ANSWERS[answer]] for name in calls}
    rules = {name: rule for name, rule in rules.items() if name in numbers and name not in also}
    targets = {numbers[name]: "allow" for name in ALLOWED | also if name in numbers}
    targets |= {numbers[name]: "absent" for name in ABSENT if name in numbers}
    targets |= {numbers[name]: name for name in rules}
    return _compile(machine, targets, rules, "deny")


@cache
def compile_read_only_filter(machine: str = "") -> bytes:
    """For a program that may only read: what changes files and Landlock, of some version, does not judge. All else is let through.

    No socket of a path's either: the process that listens there may write.
    """
    machine = _check_machine(machine)
    numbers = _ARCHES[machine][1]
    changes = METADATA | {*_ATTRIBUTES, "setxattrat", "removexattrat", "file_setattr", "truncate"}
    targets = {numbers[name]: "deny" for name in changes if name in numbers}
    hidden = ("openat2", "io_uring_setup", "io_uring_enter", "io_uring_register")
    targets |= {numbers[name]: "absent" for name in hidden}
    rules: dict[str, list[_Step]] = {
        "ioctl": _looks_only(),
        "socket": [_argument(0), _Jump(_EQUAL, _UNIX, "no_family", "allow")],
        "open": _empties(1, "allow"),
        "openat": _empties(2, "allow"),
    }
    rules = {name: rule for name, rule in rules.items() if name in numbers}
    targets |= {numbers[name]: name for name in rules}
    return _compile(machine, targets, rules, "allow")


def _check_machine(machine: str) -> str:
    machine = machine or platform.machine()
    if machine not in _ARCHES:
        raise SandboxUnavailable(f"there is no system call filter for {machine}; x86_64 and aarch64 have one")
    return machine


def _compile(machine: str, targets: dict[int, str], rules: dict[str, list[_Step]], other: str) -> bytes:
    """`other`: the answer to calls that have no target."""
    arch = _ARCHES[machine][0]
    steps: list[_Step] = [(_LOAD, _ARCH), _Jump(_EQUAL, arch, "ours", "foreign"), "foreign", (_RETURN, _KILL)]
    steps += ["ours", (_LOAD, _NUMBER)]
    if machine == "x86_64":
        # The x32 calls have numbers of their own, and are used only to get around filters.
        steps += [_Jump(_AT_LEAST, _X32_BIT, "x32", "native"), "x32", _ANSWERS["deny"], "native"]
    steps += _search(_ranges(targets, other), "search")
    for name, rule in rules.items():
        steps += _block(name, rule)
    return _assemble(steps)


def _rules() -> dict[str, list[_Step]]:
    """Calls whose arguments decide. Every way through a rule ends in one of _ANSWERS."""
    set_id = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mkdir": 1, "mkdirat": 2}
    return {
        "socket": _socket_rule(),
        "socketpair": [_argument(0), _Jump(_EQUAL, _UNIX, "allow", "no_family")],
        "clone": _refuse_bits(0, _NAMESPACES),
        "kill": [_argument(0), _Jump(_EQUAL, _MINUS_ONE, "deny", "allow")],
        "ioctl": [_argument(1), *_one_of(_TERMINAL_TRICKS, "deny", "allow")],
        "fcntl": [_argument(1), _Jump(_EQUAL, _SET_LEASE, "deny", "allow")],
        "mknod": _pipes_only(1),
        "mknodat": _pipes_only(2),
        "personality": [_argument(0), *_one_of((0, _MINUS_ONE), "allow", "deny")],
        "prctl": [_ANSWERS["allow"]],
        # A file with a set-id bit would be dangerous outside, where the workspace is not mounted nosuid.
        **{name: _refuse_bits(mode, _SET_ID) for name, mode in set_id.items()},
        "open": _open_rule(1),
        "openat": _open_rule(2),
    }


def _shared_rules() -> dict[str, list[_Step]]:
    """What a namespace would have bounded. Processes are reached by number: only 0, which is the caller, is let through."""
    caller_only = ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
    return {
        **{name: [_ANSWERS["deny"]] for name in _NEEDS_A_SOCKET},
        **{name: [_ANSWERS["absent"]] for name in _OF_THE_WHOLE_MACHINE},
        **{name: [_ANSWERS["no_attributes"]] for name in _ATTRIBUTES},
        **{name: _only(0, 0, "allow") for name in caller_only},
        # Of a user or a group, 0 means every process of the caller's user or group.
        "setpriority": [*_only(0, _PRIO_PROCESS, "who"), "who", *_only(1, 0, "allow")],
        "ioprio_set": [*_only(0, _IOPRIO_PROCESS, "who"), "who", *_only(1, 0, "allow")],
        # Stream and seqpacket: a datagram socket of a pair can still be pointed at any socket of the host's.
        "socketpair": [*_only(0, _UNIX, "kind"), "kind", _argument(1), (_AND, 0xF), *_one_of((1, 5), "allow", "deny")],
        "inotify_add_watch": [_ANSWERS["deny"]],
        "fcntl": [_argument(1), *_one_of((*_FILE_OWNERS, _SET_LEASE), "deny", "allow")],
        # Landlock does not judge the flags of a file, which its owner may set though it is open for reading.
        "ioctl": [
            _argument(1),
            *_one_of((*_TERMINAL_TRICKS, *_SOCKET_OWNERS), "deny", "harmless"),
            "harmless",
            *_looks_only(),
        ],
        "open": [*_empties(1, "other"), "other", *_open_rule(1)],
        "openat": [*_empties(2, "other"), "other", *_open_rule(2)],
    }


def _looks_only() -> list[_Step]:
    """`ioctl` on what is no file, and what only looks at one."""
    groups = _one_of((_TERMINAL, _SOCKET, _LISTENER), "allow", "file")
    looks = _one_of(_LOOKS, "allow", "no_control")
    return [_argument(1), (_AND, 0xFF00), *groups, "file", _argument(1), *looks]


def _empties(flags: int, if_not: str) -> list[_Step]:
    """Before its third version Landlock let a file be emptied that was opened for reading."""
    return [_argument(flags), (_AND, _TRUNCATES | _ACCESS_MODE), _Jump(_EQUAL, _TRUNCATES, "deny", if_not)]


def _socket_rule() -> list[_Step]:
    """Other protocols have kernel modules of their own, loaded for any process that asks."""
    return [
        _argument(0),
        _Jump(_EQUAL, _UNIX, "unix", "not unix"),
        "not unix",
        *_one_of((_INET, _INET6), "inet", "no_family"),
        "unix",
        _argument(1),
        (_AND, 0xF),
        *_one_of(_UNIX_KINDS, "allow", "deny"),
        "inet",
        _argument(1),
        (_AND, 0xF),
        *_one_of(_INET_KINDS, "protocol", "deny"),
        "protocol",
        _argument(2),
        *_one_of(_PROTOCOLS, "allow", "deny"),
    ]


def _pipes_only(mode: int) -> list[_Step]:
    """`mkfifo`, without set-id bits; no device, and sockets are made by `bind`."""
    return [_argument(mode), (_AND, _FILE_TYPE | _SET_ID), _Jump(_EQUAL, _NAMED_PIPE, "allow", "deny")]


def _open_rule(flags: int) -> list[_Step]:
    return [
        _argument(flags),
        _Jump(_ANY_BIT, _CREATES, "creates", "allow"),
        "creates",
        *_refuse_bits(flags + 1, _SET_ID),
    ]


def _only(argument: int, value: int, then: str) -> list[_Step]:
    return [_argument(argument), _Jump(_EQUAL, value, then, "deny")]


def _refuse_bits(argument: int, bits: int) -> list[_Step]:
    return [_argument(argument), _Jump(_ANY_BIT, bits, "deny", "allow")]


def _one_of(values: tuple[int, ...], if_one: str, if_none: str) -> list[_Step]:
    steps: list[_Step] = []
    for value in values[:-1]:
        label = f"not {value} for {if_one}"
        steps += [_Jump(_EQUAL, value, if_one, label), label]
    return [*steps, _Jump(_EQUAL, values[-1], if_one, if_none)]


def _argument(index: int) -> tuple[int, int]:
    # The low half: the kernel itself looks at no more of any argument that is judged here.
    return _LOAD, _ARGS + 8 * index


def _block(name: str, rule: list[_Step]) -> list[_Step]:
    """A rule with labels of its own and the answers it uses behind it: conditional jumps reach 255 steps at most."""
    used = {to for step in rule if isinstance(step, _Jump) for to in (step.if_true, step.if_false)}
    whole: list[_Step] = [name]
    for step in rule:
        match step:
            case str():
                whole.append(f"{name}: {step}")
            case _Jump():
                whole.append(_Jump(step.code, step.value, f"{name}: {step.if_true}", f"{name}: {step.if_false}"))
            case _:
                whole.append(step)
    for label, answer in _ANSWERS.items():
        if label in used:
            whole += [f"{name}: {label}", answer]
    return whole


def _ranges(targets: dict[int, str], other: str) -> list[tuple[int, str]]:
    """Where each run of equal answers begins; `other` fills the gaps, `absent` the future."""
    ranges: list[tuple[int, str]] = []
    for number in range(_NEWEST):
        target = targets.get(number, other)
        if not ranges or ranges[-1][1] != target:
            ranges.append((number, target))
    return [*ranges, (_NEWEST, "absent")]


def _search(ranges: list[tuple[int, str]], label: str) -> list[_Step]:
    """Binary search over the ranges: about seven comparisons for any call."""
    if len(ranges) == 1:
        target = ranges[0][1]
        return [_ANSWERS[target] if target in _ANSWERS else _Jump(_ALWAYS, 0, target, target)]
    middle = len(ranges) // 2
    low, high = f"{label}<", f"{label}>"
    upper = _Jump(_AT_LEAST, ranges[middle][0], high, low)
    return [upper, low, *_search(ranges[:middle], low), high, *_search(ranges[middle:], high)]


def _assemble(steps: list[_Step]) -> bytes:
    places: dict[str, int] = {}
    code: list[tuple[int, int] | _Jump] = []
    for step in steps:
        if isinstance(step, str):
            places[step] = len(code)
        else:
            code.append(step)
    encoded = b""
    for here, step in enumerate(code, start=1):
        if not isinstance(step, _Jump):
            encoded += struct.pack("<HBBI", step[0], 0, 0, step[1])
        elif step.code == _ALWAYS:
            encoded += struct.pack("<HBBI", step.code, 0, 0, places[step.if_true] - here)
        else:
            jumps = places[step.if_true] - here, places[step.if_false] - here
            encoded += struct.pack("<HBBI", step.code, *jumps, step.value)
    return encoded
