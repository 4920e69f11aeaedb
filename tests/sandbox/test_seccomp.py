"""The system call filter, judged by running its instructions: both machines' filters can be tried on either."""

from __future__ import annotations

import itertools
import platform
import re
import shutil
import struct
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from bench.escape_suite.calls import NUMBERS

from pinfold.sandbox import SandboxUnavailable
from pinfold.sandbox.kernel.seccomp import ABSENT, ALLOWED, METADATA, SIGNALS, compile_filter, compile_read_only_filter
from pinfold.sandbox.providers.namespaces import CARRIES_ONLY

pytestmark = pytest.mark.safety

NATIVE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
OTHERS = {"i386": 0x40000003, "arm": 0x40000028, "aarch64, big-endian": 0x800000B7, "riscv64": 0xC00000F3}
ALLOW, KILL, ASK, REFUSE, NO_CALL = 0x7FFF0000, 0x80000000, 0x7FC00000, 0x50001, 0x50026
NEW = 424
"""From here on every machine gives a call the same number."""
BY_ARGUMENTS = (
    "chmod", "fchmod", "fchmodat", "fchmodat2", "creat", "mkdir", "mkdirat", "mknod", "mknodat", "open", "openat",
    "clone", "kill", "ioctl", "fcntl", "personality", "prctl", "socket", "socketpair",
)  # fmt: skip
"""Allowed with some."""
BUILDS: dict[str, Callable[[str], bytes]] = {
    "namespaces": compile_filter,
    "landlock": lambda machine: compile_filter(machine, shared=True, asked=METADATA | SIGNALS),
    "egress": lambda machine: compile_filter(machine, refused=CARRIES_ONLY),
}
ARGUMENTS = [
    (0,) * 6,
    *(
        tuple(value if place == at else 0 for place in range(6))
        for at in range(4)
        for value in (1, 2, 6, 8, 10, 17, 0x10000000, 0x5412, 0x541C, 0x5423, 0x8901, 1024, 0o4755, 0o2755, 0xFFFFFFFF)
    ),
    *((*first, 0, 0, 0) for first in itertools.product((1, 2, 10, 16, 17, 40), (1, 2, 3, 5), (0, 6, 17, 132))),
    *((0xFFFFFF9C, 0, flags, mode, 0, 0) for flags in (0, 0o100, 0o20000000, 0o1000) for mode in (0o644, 0o4755)),
    *((0, mode, mode, 0, 0, 0) for mode in (0o010644, 0o014644, 0o020666, 0o060666)),
]  # fmt: skip


Filter: TypeAlias = "list[tuple[int, int, int, int]]"


def built(build: str, machine: str) -> Filter:
    return list(struct.iter_unpack("<HBBI", BUILDS[build](machine)))


def judged(steps: Filter, arch: int, number: int, arguments: Sequence[int] = (0,) * 6) -> int:
    """What the kernel would be told to do with a call."""
    data = struct.pack("<iIQ6Q", number, arch, 0, *arguments)
    at = held = 0
    while True:
        what, if_true, if_false, value = steps[at]
        at += 1
        match what:
            case 0x06:
                return value
            case 0x20:
                [held] = struct.unpack_from("<I", data, value)
            case 0x54:
                held &= value
            case 0x05:
                at += value
            case 0x15:
                at += if_true if held == value else if_false
            case 0x35:
                at += if_true if held >= value else if_false
            case 0x45:
                at += if_true if held & value else if_false
            case _:
                raise AssertionError(f"no such instruction: {what:#x}")


@pytest.mark.parametrize("build", BUILDS)
def test_a_call_is_judged_the_same_on_both_machines(build: str) -> None:
    x86, arm = built(build, "x86_64"), built(build, "aarch64")
    names = NUMBERS["x86_64"].keys() & NUMBERS["aarch64"].keys()
    assert len(names) > 250
    answers: set[int] = set()
    for name, arguments in itertools.product(names, ARGUMENTS):
        here = judged(arm, NATIVE["aarch64"], NUMBERS["aarch64"][name], arguments)
        there = judged(x86, NATIVE["x86_64"], NUMBERS["x86_64"][name], arguments)
        assert here == there, (name, arguments)
        answers.add(here)
    assert {ALLOW, REFUSE, NO_CALL} <= answers


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("machine", NATIVE)
def test_what_is_not_named_is_not_allowed(build: str, machine: str) -> None:
    steps, numbers = built(build, machine), NUMBERS[machine]
    answers = {number: judged(steps, NATIVE[machine], number) for number in range(1000)}
    may_be = {numbers.get(name) for name in (*ALLOWED, *BY_ARGUMENTS)}
    assert {number for number, answer in answers.items() if answer == ALLOW} <= may_be
    asked = {number for number, answer in answers.items() if answer == ASK}
    assert asked <= {numbers.get(name) for name in METADATA | SIGNALS}
    assert {answers[numbers[name]] for name in ABSENT} <= {NO_CALL, REFUSE}


@pytest.mark.parametrize("machine", NATIVE)
@pytest.mark.parametrize("build", BUILDS)
def test_calls_of_another_machine_end_the_program(build: str, machine: str) -> None:
    others = {name: arch for name, arch in {**OTHERS, **NATIVE}.items() if name != machine}
    steps = built(build, machine)
    assert {name: judged(steps, arch, 1) for name, arch in others.items()} == dict.fromkeys(others, KILL)


def test_the_second_numbers_of_x86_are_refused() -> None:
    steps = built("namespaces", "x86_64")
    assert {judged(steps, NATIVE["x86_64"], 0x40000000 | number) for number in range(600)} == {REFUSE}


@pytest.mark.parametrize("machine", NATIVE)
def test_where_processes_are_shared_a_call_reaches_the_caller_alone(machine: str) -> None:
    steps, numbers = built("landlock", machine), NUMBERS[machine]
    kinds = {"setpriority": {"process": 0, "group": 1, "user": 2}, "ioprio_set": {"process": 1, "group": 2, "user": 3}}
    asked = itertools.product(kinds, ("process", "group", "user"), (0, 1, 4321, 0xFFFFFFFF))
    allowed = {
        (name, kind, who)
        for name, kind, who in asked
        if judged(steps, NATIVE[machine], numbers[name], (kinds[name][kind], who, 5, 0, 0, 0)) == ALLOW
    }
    assert allowed == {("setpriority", "process", 0), ("ioprio_set", "process", 0)}
    by_pid = ("prlimit64", "sched_setaffinity", "sched_setparam", "sched_setscheduler", "sched_setattr")
    for name in by_pid:
        answers = [judged(steps, NATIVE[machine], numbers[name], (pid, *(0,) * 5)) for pid in (0, 1, 4321)]
        assert answers == [ALLOW, REFUSE, REFUSE], name
    of_others = (
        "process_madvise", "migrate_pages", "move_pages", "process_vm_readv", "process_vm_writev", "ptrace", "kcmp",
        "pidfd_send_signal", "pidfd_getfd", "process_mrelease", "perf_event_open",
    )  # fmt: skip
    known = [name for name in of_others if name in numbers]
    assert len(known) > 8
    assert {judged(steps, NATIVE[machine], numbers[name]) for name in known} == {REFUSE}


def test_there_is_a_filter_for_both_machines_and_no_other() -> None:
    assert compile_filter() == compile_filter(platform.machine())
    with pytest.raises(SandboxUnavailable, match="no system call filter for riscv64"):
        compile_filter("riscv64")


def test_the_numbers_are_those_of_the_kernels_headers() -> None:
    numbers = NUMBERS.get(platform.machine(), {})
    source = "#include <asm/unistd.h>\n" + "".join(f"IS {name} __NR_{name}\n" for name in numbers)
    compiler = shutil.which("cc")
    if compiler is None or not Path("/usr/include/linux").exists():
        pytest.skip("no compiler or no headers of the kernel: apt install gcc linux-libc-dev")
    said = subprocess.run(
        [compiler, "-E", "-P", "-x", "c", "-"], input=source, capture_output=True, text=True, check=True
    )
    found = {name: int(number) for name, number in re.findall(r"^IS (\w+) (\d+)$", said.stdout, re.MULTILINE)}
    assert {name: numbers[name] for name in found} == found
    # The others, left as names, are newer than the headers.
    assert min((numbers[name] for name in numbers.keys() - found.keys()), default=NEW) >= NEW


@pytest.mark.parametrize("machine", NATIVE)
def test_a_program_that_may_only_read_is_refused_what_landlock_does_not_judge(machine: str) -> None:
    steps = list(struct.iter_unpack("<HBBI", compile_read_only_filter(machine)))
    numbers = NUMBERS[machine]

    def answer(name: str, *arguments: int) -> int:
        given = (*arguments, *(0,) * (6 - len(arguments)))
        return judged(steps, NATIVE[machine], numbers[name], given)

    attributes = ("setxattr", "lsetxattr", "fsetxattr", "removexattr", "lremovexattr", "fremovexattr")
    changes = {*METADATA, *attributes, "truncate"} & numbers.keys()
    assert {answer(name) for name in changes} == {REFUSE}
    # setxattrat, removexattrat, file_setattr: newer than the list of names.
    assert {judged(steps, NATIVE[machine], number) for number in (463, 466, 469)} == {REFUSE}
    assert {answer(name) for name in ("openat2", "io_uring_setup", "io_uring_enter")} == {NO_CALL}
    for_reading = (0, 0o100, 0o101, 0o2000)
    assert {answer("openat", 0, 0, flags) for flags in for_reading} == {ALLOW}, "Landlock judges these"
    assert answer("openat", 0, 0, 0o1000) == REFUSE, "emptied though opened for reading"
    changed_by_ioctl = (0x40086602, 0x401C5820, 0x40806685, 0x5000940F, 0x40049409)
    assert {answer("ioctl", 0, request) for request in changed_by_ioctl} == {0x50019}
    lite = built("landlock", machine)
    for request in changed_by_ioctl:
        given = (0, request, 0, 0, 0, 0)
        assert judged(lite, NATIVE[machine], numbers["ioctl"], given) == 0x50019, "there no mount is in the way"
    assert {answer("ioctl", 0, request) for request in (0x5401, 0x541B, 0x8905, 0x80086601)} == {ALLOW}
    assert answer("socket", 1, 1) == 0x50061
    assert answer("socket", 2, 1) == ALLOW
    others = ("read", "write", "mmap", "execve", "clone", "unlinkat", "renameat", "mkdirat", "ftruncate")
    assert {answer(name) for name in others} == {ALLOW}
    assert {judged(steps, arch, 1) for arch in OTHERS.values()} == {KILL}
