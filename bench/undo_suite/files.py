"""What every cell pays: for the history of 10,000 files of 2 GB, and for the states of its variables.

What is added is the difference between two sessions, or between two places to write to, whose cells take turns: a session
that may not write to the workspace has no history, /tmp is not covered, unsafe-local keeps no states.
"""

from __future__ import annotations

import threading
import time

import anyio
from bench.sandbox_suite import environment
from bench.sandbox_suite.figures import Figure, shown
from bench.undo_suite.live import BIG, measured, median, pauses, ran, temporary
from bench.undo_suite.report import Asked, Report
from bench.versions import make

from pinfold.sandbox import Limits, Session, Spec
from pinfold.sandbox.guests import UnsafeLocal
from pinfold.sandbox.providers.namespaces import Namespaces

ROUNDS = 100
LIMITS = Limits(memory_bytes=12 << 30)
KEPT_S = 0.04
NOTHING = "len('')"
WRITE = "import os\nwith open('{path}', 'wb') as file: size = file.write(b'%06d' % {n} * ({size} // 6))"
FILE = "part-03/data/005.bin"
SIZES = {"an empty session": "", "100 MB": "import numpy; array = numpy.arange(12_500_000.)", "1 GB": BIG}


def measure(report: Report, _asked: Asked) -> None:
    anyio.run(_measure, report)


async def _measure(report: Report) -> None:
    provider = Namespaces(environment.PYTHON, pool=0)
    with temporary() as workspace:
        make(workspace)
        spec = Spec(workspace=workspace, limits=LIMITS)
        covered = await provider.open(spec)
        bare = await provider.open(Spec(workspace=workspace, writable=False, limits=LIMITS))
        try:
            await _history(report, covered, bare)
        finally:
            await covered.close()
            await bare.close()
    with temporary() as workspace:
        spec = Spec(workspace=workspace, limits=LIMITS)
        await _trivial(report, provider, spec)
        for size, code in SIZES.items():
            await _keeping(report, provider, spec, size, code)


async def _history(report: Report, covered: Session, bare: Session) -> None:
    plain = await measured(lambda: ran(bare, NOTHING))
    begin = await measured(lambda: ran(covered, NOTHING)) - plain
    report.note("10,000 files, 2 GB: begin, before the first cell", shown(begin))
    started = time.perf_counter()
    beside: list[float] = []
    while any(thread.name == "pinfold-versions" for thread in threading.enumerate()):
        beside.append(await measured(lambda: ran(covered, NOTHING)))
        await anyio.sleep(0.05)
    report.note("fill: all contents read, beside the cells", shown(time.perf_counter() - started))
    if beside:
        report.note("a cell meanwhile, median (p95)", str(Figure.of(beside)))
    added = await _difference(covered, bare, [NOTHING] * ROUNDS, [NOTHING] * ROUNDS)
    report.goal("added to a cell that changes nothing", shown(added), "10 ms", met=added < 0.010)
    for size, path in ((40_000, FILE), (1_000_000, "part-03/data/095.bin")):
        inside = [WRITE.format(path=path, n=n, size=size) for n in range(ROUNDS // 2)]
        outside = [WRITE.format(path="/tmp/file", n=n, size=size) for n in range(ROUNDS // 2)]
        added = await _difference(covered, covered, inside, outside)
        report.goal(
            f"added to a cell that changes one file of {size // 1000} kB", shown(added), "30 ms", met=added < 0.030
        )


async def _difference(
    one: Session, other: Session, ones: list[str], others: list[str], pause_s: float = KEPT_S
) -> float:
    """Of the medians; the cells take turns, each when the state after the one before has been kept."""
    more: list[float] = []
    less: list[float] = []
    for first, second in zip(ones, others, strict=True):
        await anyio.sleep(pause_s)
        more.append(await measured(lambda code=first: ran(one, code)))
        await anyio.sleep(pause_s)
        less.append(await measured(lambda code=second: ran(other, code)))
    return median(more) - median(less)


async def _trivial(report: Report, provider: Namespaces, spec: Spec) -> None:
    ours = await provider.open(spec)
    plain = await UnsafeLocal(environment.PYTHON).open(spec)
    try:
        cells = [f"x = {n}" for n in range(ROUNDS * 10)]
        await ran(ours, "x = 0")
        added = await _difference(ours, plain, cells, cells, pause_s=0)
        alone = median([await measured(lambda code=code: ran(plain, code)) for code in cells[:ROUNDS]])
        report.goal(
            f"added to a cell that only binds names ({shown(alone)} without)", shown(added), "1 ms", met=added < 1e-3
        )
    finally:
        await ours.close()
        await plain.close()


async def _keeping(report: Report, provider: Namespaces, spec: Spec, size: str, code: str) -> None:
    session = await provider.open(spec)
    try:
        await ran(session, f"{code}\nwords = {{}}")
        found = await pauses(session, lambda number: f"words[{number}] = 'kept'", 15)
        report.note(f"{size}: a cell that comes while a state is kept waits", str(Figure.of(found)))
        waited: list[float] = []
        for number in range(15):
            await ran(session, f"words[{number}] = 'again'")
            await anyio.sleep(0.1)  # a person, or a model, takes longer
            waited.append(await measured(lambda: ran(session, "x = 3")))
        report.note(f"{size}: a cell 0.1 s after one that left a state", str(Figure.of(waited)))
    finally:
        await session.close()
