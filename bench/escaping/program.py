"""What a hostile and what a benign program is. Data only; running them is `runs.py`'s."""

from __future__ import annotations

import json
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bench.escaping.calls import called

from pinfold.sandbox import Limits

ROOMY = Limits(cell_s=20, memory_bytes=2 << 30, output_bytes=8 << 20)

PRELUDE = """
import ctypes, errno, json, os, socket, subprocess, sys, time
bait = json.loads({bait!r})
numbers = {numbers!r}
libc = ctypes.CDLL(None, use_errno=True)
def escaped():
    print(bait["word"][::-1], flush=True)
def syscall(name, *arguments):
    ctypes.set_errno(0)
    wide = [ctypes.c_long(item) if isinstance(item, int) else item for item in arguments]
    return libc.syscall(ctypes.c_long(numbers[name]), *wide), errno.errorcode.get(ctypes.get_errno(), "")
def reaches(name, *arguments):
    answer = syscall(name, *arguments)
    print(answer)
    if answer[1] not in ("EPERM", "ENOSYS", "EAFNOSUPPORT"):
        escaped()
def tried(attempt):
    try:
        return attempt()
    except Exception as error:
        print(type(error).__name__, error)
"""
"""`escaped` says a word backwards: no source and no error text that quotes it can hold it that way round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hostile:
    """A cell that tries to get out."""

    name: str
    category: str
    source: str
    without: tuple[str, ...]
    """The layers that must be gone for it to succeed; the smallest such set we know."""
    shows: str
    """Which breach the scene sees when it succeeds; see `scene.Scene.breaches`."""
    then: str = ""
    """A second, innocent cell, for what is to be led astray by the first."""
    limits: Limits = ROOMY
    timeout_s: float = 15.0
    writable: bool = True

    @property
    def out_of_place(self) -> str:
        """Why it means nothing on this machine, where it then counts for nothing; empty if it does."""
        lacking = [name for name, number in called(self.source).items() if number is None]
        return f"{platform.machine()} has no system call {' or '.join(lacking)}" if lacking else ""

    def cell(self, bait: Mapping[str, object]) -> str:
        return PRELUDE.format(bait=json.dumps(bait), numbers=called(self.source)) + self.source


@dataclass(frozen=True, slots=True, kw_only=True)
class Benign:
    """A cell that must work: it ends without an error and prints exactly `prints` last."""

    name: str
    source: str
    prints: str = "fine"
    modules: tuple[str, ...] = ()
    programs: tuple[str, ...] = ()


def hostile(
    category: str,
    without: str,
    shows: str,
    sources: Mapping[str, str],
    *,
    limits: Limits = ROOMY,
    timeout_s: float = 15.0,
    then: str = "",
    writable: bool = True,
) -> Iterable[Hostile]:
    """Programs that differ in nothing but name and source."""
    for name, source in sources.items():
        yield Hostile(
            name=f"{category}: {name}",
            category=category,
            source=source,
            without=tuple(without.split()),
            shows=shows,
            then=then,
            limits=limits,
            timeout_s=timeout_s,
            writable=writable,
        )
