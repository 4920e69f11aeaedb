"""A gigabyte of live data: what keeping a state, going back and branching take, and what a running cell pays.

Every time runs from the call to the received result. Pickling the same state inside the same session is the baseline.
"""

from __future__ import annotations

import time

import anyio
from bench.sandbox_suite import environment
from bench.sandbox_suite.figures import shown
from bench.undo_suite.live import BIG, SIZES, digests, measured, median, pauses, ran, temporary, used, value
from bench.undo_suite.report import Asked, Report

from pinfold.sandbox import Limits, Session, open_session
from pinfold.sandbox.guests import UnsafeLocal
from pinfold.sandbox.providers.namespaces import Namespaces

PICKLE = "import io, pickle, time\nbegun = time.perf_counter()\nsize = len(pickle.dumps((array, frame, words), 5))\ntime.perf_counter() - begun"
RUIN = "array[:] = 0; frame.drop(columns='value', inplace=True); words.clear()"
REWRITE = "import time\nbegun = time.perf_counter()\narray += 1\ntime.perf_counter() - begun"
LIMITS = Limits(memory_bytes=12 << 30)
BRANCHES = 4
SETTLED_S = 1.0
"""Just after a cell the memory of a session still grows, without any branch."""


def measure(report: Report, _asked: Asked) -> None:
    anyio.run(_measure, report)


async def _measure(report: Report) -> None:
    with temporary() as folder:
        async with open_session(folder, UnsafeLocal(environment.PYTHON), limits=LIMITS) as session:
            alone = await _rewriting(session)
        async with open_session(folder, Namespaces(environment.PYTHON, pool=0), limits=LIMITS) as session:
            await ran(session, BIG)
            sizes: list[int] = [int(size) for size in (await value(session, SIZES)).strip("[]").split(",")]
            report.note("array, frame, dictionary", " + ".join(f"{size / 1e6:.0f} MB" for size in sizes))
            await _pausing(session, report)
            await _going(session, report)
            await _branching(session, report, sum(sizes))
            beside = await _rewriting(session, made=True)
            report.note("array rewritten in place, no states kept", shown(alone))
            report.note(
                "the same just after a state was kept (copy on write)", f"{shown(beside)}, {beside / alone:.1f}x"
            )
            took_s, _ = await _branched(session)
            report.note("branch, after the array was rewritten", shown(took_s))


async def _pausing(session: Session, report: Report) -> None:
    pickled = float(await value(session, PICKLE))
    pause = median(await pauses(session, lambda number: f"words[{number}] = 'kept'"))
    report.goal("pause for keeping a state", shown(pause), "40 ms", met=pause <= 0.04)
    times = pickled / pause
    report.goal("against pickling it", f"{times:.0f}x of {shown(pickled)}", "50x", met=times >= 50)


async def _rewriting(session: Session, *, made: bool = False) -> float:
    if not made:
        await ran(session, BIG)
    times: list[float] = []
    for _ in range(5):
        await ran(session, "words[-1] = 'so that a state is kept'")
        await ran(session, "len(words)")  # one more, so that the last one is certainly there
        times.append(float(await value(session, REWRITE)))
    return median(times)


async def _going(session: Session, report: Report) -> None:
    before = await digests(session)
    times: list[float] = []
    for _ in range(5):
        await ran(session, RUIN)
        times.append(await measured(session.undo))
        if await digests(session) != before:
            raise RuntimeError("what came back is not what was there")
    report.goal("undo of a cell that changed all of it", shown(median(times)), "250 ms", met=median(times) <= 0.25)


async def _branching(session: Session, report: Report, state_bytes: int) -> None:
    await anyio.sleep(SETTLED_S)
    base = used()
    took_s, branches = await _branched(session)
    grown = (used() - base) / state_bytes
    for branch in branches:
        await branch.close()
    report.goal("branch", shown(took_s), "60 ms", met=took_s <= 0.06)
    report.goal(f"memory of {BRANCHES} branches", f"{grown:.1%} of the state", "15 %", met=grown < 0.15)


async def _branched(session: Session) -> tuple[float, list[Session]]:
    branches: list[Session] = []
    times: list[float] = []
    for _ in range(BRANCHES):
        begun = time.perf_counter()
        branches.append(await session.fork())
        times.append(time.perf_counter() - begun)
        await ran(branches[-1], "y = float(array[0])")
    return median(times), branches
