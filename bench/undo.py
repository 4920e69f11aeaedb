"""Going back and branching with a gigabyte of live data: pauses, memory, and what a running cell pays, in one run.

    ./.venv/bin/python bench/undo.py

The state is an array of 800 MB, a frame of two million rows (about 100 MB) and a dictionary of 400,000 strings. Every time
runs from the call to the received result. Pickling the same state inside the same session is the baseline.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandboxing import environment
from bench.sandboxing.figures import shown, table
from bench.sandboxing.processes import Memory, descendants

from pinfold.sandbox import Limits, Session, open_session
from pinfold.sandbox.namespaces import Namespaces

STATE = """
import numpy, pandas
array = numpy.arange(100_000_000, dtype='f8')
frame = pandas.DataFrame({'key': numpy.arange(2_000_000) % 997, 'value': numpy.random.rand(2_000_000), 'word': numpy.arange(2_000_000)})
words = {number: str(number) for number in range(400_000)}
"""
CHECK = "import hashlib; hashlib.sha256(array[::997].tobytes() + frame.value.values[::97].tobytes()).hexdigest()[:16] + str(len(words))"
PICKLE = "import io, pickle, time\nbegun = time.perf_counter()\nsize = len(pickle.dumps((array, frame, words), 5))\ntime.perf_counter() - begun"
CHANGE = "array[:] = 0; frame.drop(columns='value', inplace=True); words.clear()"
TOUCH = "import time\nbegun = time.perf_counter()\narray += 1\ntime.perf_counter() - begun"
STATE_BYTES = 10**9
N = 9


async def measured(call: Callable[[], Awaitable[object]]) -> float:
    begun = time.perf_counter()
    await call()
    return time.perf_counter() - begun


async def value(session: Session, code: str) -> str:
    outcome = await session.run(code, timeout_s=300)
    if outcome.status != "ok" or outcome.value is None:
        raise RuntimeError(f"{outcome}")
    return outcome.value


def used() -> int:
    return Memory.of(descendants(os.getpid())).pss


async def pauses(session: Session) -> list[float]:
    """How much longer a cell takes that comes while the state after the last one is being kept."""
    found: list[float] = []
    for number in range(N):
        await session.run("x = 1")
        plain = await measured(lambda: session.run("x = 2"))
        await session.run(f"words[{number}] = 'kept'")
        found.append(await measured(lambda: session.run("x = 3")) - plain)
    return found


async def compare() -> int:
    rows: list[list[str]] = []
    bad = 0

    def row(what: str, got: str, wanted: str, met: bool) -> None:
        nonlocal bad
        bad += not met
        rows.append([what, got, wanted, "met" if met else "MISSED"])

    limits = Limits(memory_bytes=12 << 30)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        async with open_session(folder, Namespaces(environment.PYTHON, pool=0), limits=limits) as session:
            await session.run(STATE, timeout_s=300)
            before = await value(session, CHECK)
            pickled = float(await value(session, PICKLE))
            pause = statistics.median(await pauses(session))
            row("pause for keeping a state", shown(pause), "40 ms", pause <= 0.04)
            row(
                "against pickling it",
                f"{pickled / pause:.0f}x of {shown(pickled)}",
                "50x",
                pickled / pause >= 50,
            )
            shared = statistics.median([float(await value(session, TOUCH)) for _ in range(3)])
            again = float(await value(session, TOUCH.replace("array += 1", "array += 1; array -= 1")))
            rows.append(["800 MB added to, just after a state was kept", shown(shared), "-", "-"])
            rows.append(["the same twice in one cell: once copied, once not", shown(again), "-", "-"])
            await session.undo(to=3 + 3 * N - 2)
            undone: list[float] = []
            for _ in range(5):
                await session.run(CHANGE)
                undone.append(await measured(session.undo))
                if await value(session, CHECK) != before:
                    raise RuntimeError("what came back is not what was there")
            row("undo", shown(statistics.median(undone)), "250 ms", statistics.median(undone) <= 0.25)
            base = used()
            branches: list[Session] = []
            forks = [0.0] * 4
            for at in range(4):
                begun = time.perf_counter()
                branches.append(await session.fork())
                forks[at] = time.perf_counter() - begun
                await branches[-1].run("y = float(array[0])")
            grown = (used() - base) / STATE_BYTES
            row("branch", shown(statistics.median(forks)), "60 ms", statistics.median(forks) <= 0.06)
            row("memory of 4 branches", f"{grown:.1%} of the state", "15 %", grown < 0.15)
    print(table(["with 1 GB of live data", "got", "wanted", ""], rows))
    return bad


def main() -> int:
    environment.make()
    return anyio.run(compare)


if __name__ == "__main__":
    sys.exit(main())
