"""How fast and how small sessions are, against ipykernel, a plain subprocess, bubblewrap and runsc, in one run.

    ./.venv/bin/python bench/sandbox.py [--quick] [--json FILE] [--only PART ...]

Every time runs from the call to the received result. bubblewrap and runsc take part where they are installed
(Debian: `apt install bubblewrap runsc`; runsc as root). The first run makes bench/out/env with uv.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandbox_suite import environment

if TYPE_CHECKING:
    from bench.sandbox_suite.contenders import Contender

PARTS = ("first", "demand", "pooled", "trips", "output", "interrupt", "teardown", "memory", "commands")
POOL = 4


def main() -> int:
    arguments = argparse.ArgumentParser(description="Sessions, how fast and how small")
    arguments.add_argument("--quick", action="store_true", help="fewer of each and no other sandboxes: under a minute")
    arguments.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=PARTS, metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--first", help=argparse.SUPPRESS)
    arguments.add_argument("--cell", help=argparse.SUPPRESS)
    given = arguments.parse_args()
    environment.enter()
    import anyio

    if given.first is not None:
        anyio.run(one_first, given.first, given.cell)
        return 0
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return anyio.run(compare, given)


async def one_first(name: str, cell: str) -> None:
    """In a process of its own: the time of its first session, printed."""
    from bench.sandbox_suite.measures import to_result

    chosen = next(one for one in contenders() if one.name == name)
    print(await to_result(chosen, cell))


def contenders() -> list[Contender]:
    from bench.sandbox_suite.jupyter import Jupyter
    from bench.sandbox_suite.ours import Ours
    from bench.sandbox_suite.pipes import bubblewrap, plain, runsc

    python = environment.PYTHON
    all_of_them = [Ours(python), Jupyter(), plain(python), bubblewrap(python), runsc(python)]
    return [one for one in all_of_them if one is not None]


async def compare(given: argparse.Namespace) -> int:
    from bench.sandbox_suite import measures
    from bench.sandbox_suite.ours import Ours, Told
    from bench.sandbox_suite.report import Results, goals, report

    everyone = contenders()[:3] if given.quick else contenders()
    ours, kernel = everyone[:2]
    quick, only = given.quick, given.only
    results = Results(machine=measures.machine())
    names = {one.name for one in everyone}
    results.missing += [f"{name}: not installed, or --quick" for name in ("bubblewrap", "runsc") if name not in names]
    n = 2 if quick else 20
    for cell in measures.CELLS:
        if "first" in only:
            say(f"first session of a process, to {cell}")
            results.first[cell] = await measures.starts(everyone, cell, max(1, n // 4), first=True)
        if "demand" in only or "pooled" in only:
            say(f"next session, to {cell}")
            await measures.to_result(ours, cell)
            results.demand[cell] = await measures.starts(everyone, cell, n, first=False)
        if "pooled" in only:
            say(f"pooled session, to {cell}")
            pooled = Ours(environment.PYTHON, POOL)
            results.pooled[cell] = {pooled.name: await measures.bursts(pooled, cell, n, POOL)}
    if "trips" in only:
        say("round trips")
        results.trips = await measures.round_trips(everyone, 100 if quick else 2000)
    if "output" in only:
        say("100 MB of stdout")
        results.output = await measures.outputs([*everyone, Told(environment.PYTHON)], 1 if quick else 7)
    if "interrupt" in only:
        say("interrupts")
        results.interrupt = await measures.interrupts(everyone, 5 if quick else 30)
    if "teardown" in only:
        say("teardown")
        results.teardown = await measures.teardowns(everyone, 1 if quick else 10)
    if "memory" in only:
        say("memory")
        results.memory[kernel.name] = await measures.footprints(kernel, (1,) if quick else (1, 10))
        counts = (1, 10) if quick else (1, 10, 100, 500)
        results.memory[ours.name] = await measures.footprints(ours, counts)
    if "commands" in only:
        say("commands")
        results.commands = measures.command_times(1 if quick else 10)
        if "pinfold exec, after pinfold up" not in results.commands:
            results.missing.append("`pinfold exec` after `pinfold up`: there is no such command yet")
    print(report(results))
    if given.json is not None:
        figures = {**asdict(results), "goals": [asdict(goal) for goal in goals(results)]}
        given.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    return any(goal.met is False for goal in goals(results))


def say(what: str) -> None:
    print(f"... {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
