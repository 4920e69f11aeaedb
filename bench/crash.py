"""Kills Pinfold hundreds of times and looks for anything lost or done twice.

    ./.venv/bin/python bench/crash.py [--kills 500] [--first-launch 200] [--queue 100] [--seed N]
    ./.venv/bin/python bench/crash.py --control     the same against builds that are broken on purpose

Every process killed is a `pinfold run --json` or `pinfold resume ID --json`. Most are forks of a process
that has Pinfold imported already, a share is the installed command. Three in ten kills fall anywhere in
the run; the others uniformly between the moment the session's folder is made, before which nothing can be
committed, and the end. Exits 0 only if every law was examined and none was broken.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.crash_suite.kills import LAUNCH_LAWS, LAWS, crew, first_launches, storm
from bench.crash_suite.launch import Forkserver
from bench.crash_suite.oracle import Tally
from bench.crash_suite.queue_kills import QUEUE_LAWS, TASKS, kill_queues
from bench.crash_suite.weak_builds import WEAK_QUEUES, WEAKENED

BY_EXECUTABLE = 10
"""One kill in so many is of the installed command."""


def show(title: str, found: Tally, laws: Iterable[str], began: float) -> None:
    print(f"\n{title} ({time.monotonic() - began:.0f} s)\n{found.report(laws)}")
    for what, times in sorted(found.seen.items()):
        print(f"  {times:>8,}          {what}")


def measure(servers: list[Forkserver], kills: int, launches: int, queues: int, seed: int) -> bool:
    began = time.monotonic()
    worked = storm(servers, kills, seed, by_executable=kills // BY_EXECUTABLE)
    show(f"{worked.seen['kills']} kills of working sessions", worked, LAWS, began)
    began = time.monotonic()
    launched = first_launches(servers, launches, seed, by_executable=launches // BY_EXECUTABLE)
    show(f"{launched.seen['kills']} kills during a first launch", launched, LAUNCH_LAWS, began)
    began = time.monotonic()
    queued = kill_queues(servers, queues, seed)
    show(f"{queued.seen['kills']} kills of queues of {TASKS} tasks", queued, QUEUE_LAWS, began)
    parts = ((worked, kills, LAWS), (launched, launches, LAUNCH_LAWS), (queued, queues, QUEUE_LAWS))
    return all(found.seen["kills"] >= wanted and (not wanted or found.holds(laws)) for found, wanted, laws in parts)


def control(servers: list[Forkserver], kills: int, seed: int) -> bool:
    """Whether the oracle finds each broken build out."""
    caught: list[bool] = []
    for name in WEAKENED:
        began = time.monotonic()
        found = storm(servers, kills, seed, weakened=name)
        show(f"a build that {name}: {found.seen['kills']} kills", found, LAWS, began)
        caught.append(bool(found.broken))
    for name in WEAK_QUEUES:
        began = time.monotonic()
        found = kill_queues(servers, kills, seed, weakened=name)
        show(f"a queue that {name}: {found.seen['kills']} kills", found, QUEUE_LAWS, began)
        caught.append(bool(found.broken))
    return all(caught)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--first-launch", type=int, default=200)
    parser.add_argument("--queue", type=int, default=100, help="kills of `pinfold queue run`")
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--control", action="store_true", help="kill builds that are broken on purpose")
    given = parser.parse_args()
    with crew() as servers:
        if given.control:
            caught = control(servers, min(given.kills, 50), given.seed)
            print(f"\n{'every broken build was found out' if caught else 'A BROKEN BUILD PASSED'}")
            return 0 if caught else 1
        held = measure(servers, given.kills, given.first_launch, given.queue, given.seed)
    print(f"\n{'all laws hold' if held else 'NOT ALL LAWS HOLD'}, seed {given.seed}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
