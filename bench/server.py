"""How `pinfold serve` holds up: many clients, readers and sessions, idle and for long, on loopback with a scripted model.

    ./.venv/bin/python bench/server.py [--quick] [--only PART ...] [--soak MINUTES] [--openapi]

Prints a table; exits with 1 if a goal is missed. Run it on a quiet machine: the clients share its processors with the server.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import signal
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.server_suite.loads import measure_chat, measure_idle, measure_readers, measure_sessions, measure_streams
from bench.server_suite.overhead import measure_overhead
from bench.server_suite.soak import measure_soak
from bench.server_suite.stage import Report, Stage, staged

PARTS = ("streams", "chat", "readers", "sessions", "overhead", "idle", "soak", "openapi")
USUAL = tuple(part for part in PARTS if part != "openapi")


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--quick", action="store_true", help="less of everything: a few minutes")
    arguments.add_argument("--only", nargs="+", choices=PARTS, default=(), metavar="PART", help=", ".join(PARTS))
    arguments.add_argument("--soak", type=float, metavar="MINUTES", help="length of the soak (30, or 2 with --quick)")
    arguments.add_argument(
        "--openapi", action="store_true", help="also schemathesis over /openapi.json; needs the network"
    )
    given = arguments.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    parts: set[str] = {*(given.only or USUAL), *(("openapi",) if given.openapi else ())}
    minutes = given.soak or (2.0 if given.quick else 30.0)
    signal.signal(signal.SIGTERM, end_early)
    report = Report()
    try:
        for part in PARTS:
            if part in parts:
                print(f"... {part}", file=sys.stderr, flush=True)
                began = time.monotonic()
                with staged() as stage:  # a server for each: what one part leaves does not disturb the next
                    asyncio.run(measure(part, stage, report, minutes, quick=given.quick))
                print(f"... {part}: {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
    finally:
        print(report.to_table())
        print(f"load of the machine: {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors; missed: {report.missed}")
    return 1 if report.missed else 0


def end_early(number: int, _: object) -> None:
    """Not at once: the server is ended too."""
    sys.exit(128 + number)


async def measure(part: str, stage: Stage, report: Report, minutes: float, *, quick: bool) -> None:
    match part:
        case "streams":
            await measure_streams(stage, report, 50, 2 if quick else 8)
        case "chat":
            await measure_chat(stage, report, 50, 1 if quick else 4)
        case "readers":
            await measure_readers(stage, report, 1000, 20)
        case "sessions":
            await measure_sessions(stage, report, 200 if quick else 1000)
        case "overhead":
            await measure_overhead(stage, report, 30 if quick else 200)
        case "idle":
            await measure_idle(stage, report, 100, 5 if quick else 20)
        case "soak":
            await measure_soak(stage, report, minutes)
        case "openapi":
            from bench.server_suite.openapi import measure_openapi

            measure_openapi(stage, report, quick=quick)
        case _:
            raise AssertionError(part)


if __name__ == "__main__":
    sys.exit(main())
