"""Compiles the system call filter of a session, an allow-list as classic BPF, without installing it.

`syscalls.txt` lists the calls, their numbers and which of them are allowed.
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
"""Calls allowed unconditionally. Calls that are neither here nor in `_rules` are refused."""
ABSENT: Final = frozenset(name for name, *_, answer in _ROWS if answer == "absent")
"""Calls answered with ENOSYS, so that libraries fall back to calls that the filter can judge."""


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
"""Numbers from here on are newer than `syscalls.txt`; a library that tries one expects ENOSYS."""

_MINUS_ONE = 0xFFFFFFFF
_NAMESPACES = 0x7E020080
"""Every CLONE_NEW* flag."""
_SET_ID = 0o6000
_CREATES = 0o100 | 0o20000000
"""O_CREAT and O_TMPFILE: only then does `open` read its mode."""
_UNIX, _INET, _INET6 = 1, 2, 10
_UNIX_KINDS, _INET_KINDS = (1, 2, 5), (1, 2)
"""Stream, datagram and seqpacket sockets; no raw ones."""
_PROTOCOLS = (0, 6, 17)
"""The default protocol of the socket type, TCP, UDP."""
_SET_LEASE = 1024
"""A lease on a file blocks any process outside that opens it, for most of a minute."""
_FILE_TYPE, _NAMED_PIPE = 0o170000, 0o010000
_TERMINAL_TRICKS = (0x5412, 0x541C, 0x5423)
"""TIOCSTI, TIOCLINUX, TIOCSETD: ways to type into a terminal, or to take it over."""
_SOCKET_OWNERS = (0x8901, 0x8902)
"""FIOSETOWN, SIOCSPGRP: ways to have the kernel send a signal, like `_FILE_OWNERS`."""
_FILE_OWNERS = (8, 10, 15)
"""F_SETOWN, F_SETSIG, F_SETOWN_EX."""
_PRIO_PROCESS, _IOPRIO_PROCESS = 0, 1
_TRUNCATES, _ACCESS_MODE = 0o1000, 0o3

METADATA = names("chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat")
"""Calls on files that Landlock does not check."""
SIGNALS = names("kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo")
_ATTRIBUTES = ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr")
_TERMINAL, _SOCKET, _LISTENER = 0x5400, 0x8900, 0x2100
"""Groups of `ioctl` requests that change no file; the last is for seccomp listeners."""
_LOOKS = (0x80086601, 0x801C581F, 0xC020660B, 0x2)
"""FS_IOC_GETFLAGS, FS_IOC_FSGETXATTR, FS_IOC_FIEMAP, FIGETBSZ."""
_OF_THE_WHOLE_MACHINE = names("""
shmget shmat shmctl shmdt semget semop semctl semtimedop msgget msgsnd msgrcv msgctl
mq_open mq_unlink mq_timedsend mq_timedreceive mq_notify mq_getsetattr
""")
_NEEDS_A_SOCKET = ("socket", "connect", "bind", "listen")


@dataclass(frozen=True, slots=True)
class _Jump:
    """A jump to a later label; `_assemble` fills in the distance."""

    code: int
    value: int
    if_true: str
    if_false: str


_Step: TypeAlias = "tuple[int, int] | _Jump | str"
"""An instruction, a jump, or the label of the next instruction."""


def compile_filter(
    machine: str = "",
    *,
    shared: bool = False,
    asked: frozenset[str] = frozenset(),
    refused: frozenset[str] = frozenset(),
    also: frozenset[str] = frozenset(),
) -> bytes:
    """Compile the filter for this machine.

    `shared`: the session has no namespaces of its own, so it gets no sockets, no System V or POSIX IPC, and no calls on
    other processes by number. Calls in `asked` wait for the answer of a listener, those in `refused` are refused, and
    those in `also` are allowed, whatever the rules say.
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
    """Compile the filter for a program that may only read. It refuses calls that change files and that some version of
    Landlock does not check, and allows all others. It also refuses unix sockets: the process that listens may write.
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
    """Compile a filter. `other`: the answer to calls without a target."""
    arch = _ARCHES[machine][0]
    steps: list[_Step] = [(_LOAD, _ARCH), _Jump(_EQUAL, arch, "ours", "foreign"), "foreign", (_RETURN, _KILL)]
    steps += ["ours", (_LOAD, _NUMBER)]
    if machine == "x86_64":
        # x32 calls have their own numbers, and are used only to get around filters.
        steps += [_Jump(_AT_LEAST, _X32_BIT, "x32", "native"), "x32", _ANSWERS["deny"], "native"]
    steps += _search(_ranges(targets, other), "search")
    for name, rule in rules.items():
        steps += _block(name, rule)
    return _assemble(steps)


def _rules() -> dict[str, list[_Step]]:
    """Return the rules of calls whose arguments decide. Every path through a rule ends in one of `_ANSWERS`."""
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
    """Return the rules that stand in for namespaces. As a process number only 0, the caller itself, is allowed."""
    caller_only = ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
    return {
        **{name: [_ANSWERS["deny"]] for name in _NEEDS_A_SOCKET},
        **{name: [_ANSWERS["absent"]] for name in _OF_THE_WHOLE_MACHINE},
        **{name: [_ANSWERS["no_attributes"]] for name in _ATTRIBUTES},
        **{name: _only(0, 0, "allow") for name in caller_only},
        # For a user or a group, 0 would mean every process of the caller's user or group.
        "setpriority": [*_only(0, _PRIO_PROCESS, "who"), "who", *_only(1, 0, "allow")],
        "ioprio_set": [*_only(0, _IOPRIO_PROCESS, "who"), "who", *_only(1, 0, "allow")],
        # Stream and seqpacket only: a datagram socket of a pair can still send to any socket of the host.
        "socketpair": [*_only(0, _UNIX, "kind"), "kind", _argument(1), (_AND, 0xF), *_one_of((1, 5), "allow", "deny")],
        "inotify_add_watch": [_ANSWERS["deny"]],
        "fcntl": [_argument(1), *_one_of((*_FILE_OWNERS, _SET_LEASE), "deny", "allow")],
        # Landlock does not check the flags of a file, which its owner may set on a descriptor opened for reading.
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
    """Allow `ioctl` requests that are not for files, and those that only read a file's metadata."""
    groups = _one_of((_TERMINAL, _SOCKET, _LISTENER), "allow", "file")
    looks = _one_of(_LOOKS, "allow", "no_control")
    return [_argument(1), (_AND, 0xFF00), *groups, "file", _argument(1), *looks]


def _empties(flags: int, if_not: str) -> list[_Step]:
    """Refuse O_TRUNC on a file opened for reading, which Landlock before version 3 does not check."""
    return [_argument(flags), (_AND, _TRUNCATES | _ACCESS_MODE), _Jump(_EQUAL, _TRUNCATES, "deny", if_not)]


def _socket_rule() -> list[_Step]:
    """Allow unix, TCP and UDP sockets. Other protocols have kernel modules, which any process could have loaded."""
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
    """Allow `mkfifo` without set-id bits, but no devices. (`bind` creates sockets.)"""
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
    # The low 32 bits: the kernel itself uses no more of any argument that is checked here.
    return _LOAD, _ARGS + 8 * index


def _block(name: str, rule: list[_Step]) -> list[_Step]:
    """Return a rule with private labels, followed by its answers: conditional jumps reach at most 255 steps."""
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
    """Return where each run of equal answers begins. `other` fills the gaps; numbers from `_NEWEST` on are `absent`."""
    ranges: list[tuple[int, str]] = []
    for number in range(_NEWEST):
        target = targets.get(number, other)
        if not ranges or ranges[-1][1] != target:
            ranges.append((number, target))
    return [*ranges, (_NEWEST, "absent")]


def _search(ranges: list[tuple[int, str]], label: str) -> list[_Step]:
    """Generate a binary search over the ranges: about seven comparisons for any call."""
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
