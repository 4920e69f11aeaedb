"""A gigabyte of variables saved beside a session: what is written, what it takes from a cell, and the way back."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import anyio
from bench.sandbox_suite import environment
from bench.sandbox_suite.figures import shown
from bench.undo_suite import there
from bench.undo_suite.kinds import in_a_process
from bench.undo_suite.live import BIG, DIGESTS, digests, median, ran, temporary, value
from bench.undo_suite.report import Asked, Report

from pinfold.sandbox.providers.namespaces import Namespaces

BUSY = """
import time
def work():
    begun, total = time.perf_counter(), 0
    for n in range(30_000_000): total += n
    return time.perf_counter() - begun
"""
CHANGE = "array += 1; words[0] = str(len(words))"
LONGEST_S = 300.0
PAUSE = 5.5
"""Times as long as saving took, until it is done again at once."""


class Kept:
    """What is in the folder of a session's saved variables."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "state" / "variables"

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in (self._folder / "bytes").iterdir())

    @property
    def states(self) -> set[str]:
        return {path.name for path in (self._folder / "states").glob("*.json")}

    async def grows(self, before: set[str]) -> float:
        """How long until a state is there that was not."""
        begun = time.perf_counter()
        with anyio.fail_after(LONGEST_S):
            while not self.states - before:
                await anyio.sleep(0.005)
        return time.perf_counter() - begun


def measure(report: Report, _asked: Asked) -> None:
    anyio.run(_measure, report)


async def _measure(report: Report) -> None:
    with temporary() as top:
        folder = top / "one"
        session = await there.opened(Namespaces(environment.PYTHON, pool=0), folder)
        kept = Kept(folder)
        try:
            await ran(session, BIG)
            took_s = await kept.grows(set())
            size = kept.size
            report.note("1 GB saved for the first time", f"{shown(took_s)}, {size / 1e6:,.0f} MB")
            before = kept.states
            await anyio.sleep(took_s * PAUSE)
            await ran(session, BUSY)
            took_s = await kept.grows(before)
            report.note(
                "again, after a cell that changed none of it", f"{shown(took_s)}, {(kept.size - size) / 1e3:,.0f} kB"
            )
            quiet, _ = await _computing(session, kept, "")
            beside, saved = await _computing(session, kept, CHANGE)
            report.note(
                f"a cell that computes for {shown(quiet)}, while a changed 1 GB is saved",
                f"{beside / quiet - 1:+.0%} time on {os.cpu_count()} cores; saved within {shown(saved)}",
            )
            last = await digests(session)
        finally:
            begun = time.perf_counter()
            await session.close()
            report.note("close, with everything saved", shown(time.perf_counter() - begun))
        back = in_a_process(top, [("one", DIGESTS)])["one"]
        report.note("open again in another process, until it can run a cell", shown(back["opened_s"]))
        restored = sum(status == "restored" for _, status, _ in back["labels"])
        same = back["status"] == "ok" and json.loads(back["stdout"]) == last
        report.goal(
            "every variable by content",
            f"{restored} of {len(last)} restored, {'equal' if same else 'NOT EQUAL'}",
            "equal",
            met=same,
        )


async def _computing(session: there.Resumable, kept: Kept, change: str) -> tuple[float, float]:
    """How long a busy cell takes just after this change, which is saved meanwhile; and how long that takes."""
    times: list[float] = []
    saved: list[float] = []
    for _ in range(2):
        before = kept.states
        begun = time.perf_counter()
        if change:
            await ran(session, change)
        times.append(float(await value(session, "work()")))
        await kept.grows(before)
        saved.append(time.perf_counter() - begun)
        await anyio.sleep(saved[-1] * PAUSE)
    return median(times), median(saved)
