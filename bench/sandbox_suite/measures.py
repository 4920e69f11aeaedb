"""The things measured. Contenders take turns within each, so that what else the machine does hits all alike."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version

from bench.sandbox_suite.contenders import (
    ADD,
    ASSIGN,
    DAEMON_MARK,
    DAEMONS,
    GROUPBY,
    GROUPBY_VALUE,
    OUTPUT,
    OUTPUT_BYTES,
    Contender,
    Live,
)
from bench.sandbox_suite.figures import Figure
from bench.sandbox_suite.jupyter import Kernel
from bench.sandbox_suite.ours import Ours
from bench.sandbox_suite.processes import Memory, available, descendants, is_alive, marked

CELLS = {"groupby": GROUPBY, "x=1": ASSIGN}
BLOCK = 50
"""Round trips of one contender before the next one's turn."""
FIRST_S = 120.0
GONE_S = 1.0
"""After the end of `close`, for daemons to be gone."""
SHARE = 0.5
"""Of the memory that is free; a test that would need more is not run."""


async def to_result(contender: Contender, cell: str) -> float:
    """From the call that opens a session to the received result of its first cell."""
    begun = time.perf_counter()
    live = await contender.open()
    try:
        answer = await live.run(CELLS[cell])
        took = time.perf_counter() - begun
    finally:
        await live.close()
    if answer.value != (GROUPBY_VALUE if cell == "groupby" else None):
        raise RuntimeError(f"{contender.name} answered {answer.value!r}")
    return took


def first_of_process(contender: Contender, cell: str) -> float:
    """The same in a process that has opened none before; its imports do not count."""
    argv = [sys.executable, "-P", sys.argv[0], "--first", contender.name, "--cell", cell]
    done = subprocess.run(argv, stdout=subprocess.PIPE, check=True, timeout=FIRST_S)
    return float(done.stdout)


async def starts(contenders: Sequence[Contender], cell: str, n: int, *, first: bool) -> dict[str, Figure]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(n):
        for contender in contenders:
            if isinstance(contender, Ours):
                await contender.warm()
            took = first_of_process(contender, cell) if first else await to_result(contender, cell)
            times[contender.name].append(took)
    return {name: Figure.of(taken) for name, taken in times.items()}


async def bursts(contender: Ours, cell: str, n: int, size: int) -> Figure:
    """As many at once as are kept ready, one after the other, `n` times."""
    times: list[float] = []
    for _ in range(n):
        await contender.warm()
        lives: list[Live] = []
        try:
            for _ in range(size):
                begun = time.perf_counter()
                lives.append(await contender.open())
                await lives[-1].run(CELLS[cell])
                times.append(time.perf_counter() - begun)
        finally:
            for live in lives:
                await live.close()
    return Figure.of(times)


async def round_trips(contenders: Sequence[Contender], n: int) -> dict[str, dict[str, Figure]]:
    """By cell, then by contender."""
    lives = [(contender.name, await contender.open()) for contender in contenders]
    found: dict[str, dict[str, Figure]] = {}
    try:
        for cell in (ASSIGN, ADD):
            times: defaultdict[str, list[float]] = defaultdict(list)
            for _ in range(-(-n // BLOCK)):
                for name, live in lives:
                    times[name] += [await _timed(live.run, cell) for _ in range(BLOCK)]
                    if isinstance(live, Kernel):
                        alone = [await live.reply_s(cell) for _ in range(BLOCK)]
                        times[f"{name}, reply alone"] += alone
            found[cell] = {name: Figure.of(taken) for name, taken in times.items()}
    finally:
        for _, live in lives:
            await live.close()
    return found


async def _timed(run: Callable[[str], Awaitable[object]], cell: str) -> float:
    begun = time.perf_counter()
    await run(cell)
    return time.perf_counter() - begun


async def outputs(contenders: Sequence[Contender], n: int) -> dict[str, Figure]:
    """100 MB printed by a cell, to all of it received as text."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(n):
        for contender in contenders:
            live = await contender.open()
            try:
                await live.run(ASSIGN)
                have_memory(4 * OUTPUT_BYTES)
                begun = time.perf_counter()
                answer = await live.run(OUTPUT)
                times[contender.name].append(time.perf_counter() - begun)
            finally:
                await live.close()
            if answer.stdout != OUTPUT_BYTES:
                raise RuntimeError(f"{contender.name}: {answer.stdout} of {OUTPUT_BYTES} received")
    return {name: Figure.of(taken) for name, taken in times.items()}


def have_memory(size: int) -> None:
    """At hand, for whoever asks next: the host of a virtual machine takes what is free, and it is slow to give it back."""
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as taken:
        taken.madvise(mmap.MADV_HUGEPAGE)
        for place in range(0, size, mmap.PAGESIZE):
            taken[place] = 1


async def interrupts(contenders: Sequence[Contender], n: int) -> dict[str, Figure]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for contender in contenders:
        if contender.name == "runsc":  # the program inside is no process of this machine
            continue
        live = await contender.open()
        try:
            times[contender.name] = [await live.interrupted_s() for _ in range(n)]
            await live.run(ASSIGN)
        finally:
            await live.close()
    return {name: Figure.of(taken) for name, taken in times.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Teardown:
    empty: Figure
    daemons: Figure
    """To the last of them gone, or to the end of `close` where they stay."""
    left: int
    """Daemons that lived on, of five for each time."""


async def teardowns(contenders: Sequence[Contender], n: int) -> dict[str, Teardown]:
    empty: defaultdict[str, list[float]] = defaultdict(list)
    full: defaultdict[str, list[float]] = defaultdict(list)
    left: defaultdict[str, int] = defaultdict(int)
    for _ in range(n):
        for contender in contenders:
            empty[contender.name].append(await _closed(contender, GROUPBY))
            took, strays = await _closed_with_daemons(contender)
            full[contender.name].append(took)
            left[contender.name] += len(strays)
            for pid in strays:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    return {
        name: Teardown(empty=Figure.of(empty[name]), daemons=Figure.of(full[name]), left=left[name]) for name in empty
    }


async def _closed(contender: Contender, cell: str) -> float:
    live = await contender.open()
    try:
        await live.run(cell)
    finally:
        begun = time.perf_counter()
        await live.close()
    return time.perf_counter() - begun


async def _closed_with_daemons(contender: Contender) -> tuple[float, list[int]]:
    """The time, and the daemons that are still there long after."""
    live = await contender.open()
    try:
        await live.run(DAEMONS)
        # A daemon that has just started may not have its command line yet; gVisor's are not this machine's processes.
        begun = time.perf_counter()
        while len(daemons := marked(f"sleep\0{DAEMON_MARK}")) < 5 and time.perf_counter() < begun + GONE_S:
            pass
    finally:
        begun = time.perf_counter()
        await live.close()
    closed = now = time.perf_counter()
    while (left := [pid for pid in daemons if is_alive(pid)]) and now < closed + GONE_S:
        now = time.perf_counter()
    return (closed if left else now) - begun, left


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Of so many sessions, each after one pandas cell; None where it did not fit this machine."""

    sessions: int
    total: int | None = None
    """PSS of everything together, the zygote and page tables too."""
    each: int | None = None
    """By how much one session more raises the PSS of everything: what no other session shares."""
    uss: int | None = None
    """Pages that only one process has, over all processes of a session; what its own processes share is missing."""
    needed: int = 0
    spawn_s: float = 0.0


async def footprints(contender: Contender, counts: Sequence[int]) -> list[Footprint]:
    await to_result(contender, "groupby")
    before = descendants(os.getpid())
    base = Memory.of(before)
    found: list[Footprint] = []
    lives: list[Live] = []
    private = 0
    try:
        for count in counts:
            needed = private * count
            if needed > available() * SHARE:
                found.append(Footprint(sessions=count, needed=needed))
                continue
            begun, fresh = time.perf_counter(), count - len(lives)
            while len(lives) < count:
                lives.append(await contender.open())
                await lives[-1].run(GROUPBY)
            spawn_s = (time.perf_counter() - begun) / fresh
            everyone = descendants(os.getpid())
            whole, theirs = Memory.of(everyone), Memory.of(everyone - before)
            private = (whole.pss - base.pss) // count
            found.append(
                Footprint(
                    sessions=count,
                    total=whole.pss + whole.page_tables,
                    each=private,
                    uss=theirs.uss // count,
                    spawn_s=spawn_s,
                )
            )
    finally:
        for live in lives:
            await live.close()
    return found


def command_times(n: int) -> dict[str, Figure]:
    """The whole command, as typed, against the same code given to plain Python."""
    pinfold = [sys.executable, "-P", "-m", "pinfold"]
    ways = {"pinfold exec": [*pinfold, "exec", "-c", GROUPBY], "python -c": [sys.executable, "-c", GROUPBY]}
    found = _commands(ways, n)
    if subprocess.run([*pinfold, "up", "--help"], capture_output=True, check=False).returncode == 0:
        up = subprocess.Popen([*pinfold, "up"], stdout=subprocess.PIPE)
        assert up.stdout is not None
        try:
            up.stdout.readline()  # it says when it is ready
            found["pinfold exec, after pinfold up"] = _commands({"": ways["pinfold exec"]}, n)[""]
        finally:
            up.terminate()
            up.communicate(timeout=FIRST_S)
    return found


def _commands(ways: dict[str, list[str]], n: int) -> dict[str, Figure]:
    times: defaultdict[str, list[float]] = defaultdict(list)
    for _ in range(n):
        for name, argv in ways.items():
            with tempfile.TemporaryDirectory(prefix="bench-") as folder:  # the workspace
                begun = time.perf_counter()
                subprocess.run(argv, capture_output=True, check=True, timeout=FIRST_S, cwd=folder)
            times[name].append(time.perf_counter() - begun)
    return {name: Figure.of(taken) for name, taken in times.items()}


def machine() -> str:
    """In words, for the head of the report."""
    memory = round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / (1 << 30))
    load = ", ".join(f"{number:.1f}" for number in os.getloadavg())
    names = ("pandas", "numpy", "ipykernel", "jupyter_client")
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return (
        f"{os.cpu_count()} cores, {memory} GiB, Linux {os.uname().release}, load {load}; "
        f"Python {sys.version.split()[0]}, {packages}; OPENBLAS_NUM_THREADS=1, bytecode made beforehand"
    )
