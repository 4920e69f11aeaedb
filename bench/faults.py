"""Breaks the disk under Pinfold at every point and looks for anything lost without a word.

    ./.venv/bin/python bench/faults.py [--seed N] [--every N]
    ./.venv/bin/python bench/faults.py --control     the same against builds that are broken on purpose

The process dies before, within and after every durable write; the disk refuses every single write, once
or for good; store files lose their tails at every byte of the last 4 KiB; 200 bits flip; a 16 MiB disk is
full at every 4 KiB. `--every` thins all of that out. Exits 0 only if every law was examined and none broken.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.crash_suite import full_disk, wounds, writes
from bench.crash_suite.kills import crew
from bench.crash_suite.launch import Forkserver
from bench.crash_suite.oracle import ACKNOWLEDGED, Tally
from bench.crash_suite.shim import Strike, reachable
from bench.crash_suite.weak_builds import Credulous

FLIPS = 200
SPOKEN_OF = 40
"""Damaged stores that are also resumed through the command line."""
STRIKES: tuple[Strike, ...] = (*writes.DEADLY, "full", "failing")
RESTS: tuple[wounds.Rest, ...] = ("killed", "closed")


def show(title: str, found: Tally, laws: Iterable[str], began: float) -> bool:
    laws = tuple(laws)
    print(f"\n{title} ({time.monotonic() - began:.0f} s)\n{found.report(laws)}")
    for what, times in sorted(found.seen.items()):
        print(f"  {times:>8,}          {what}")
    return found.holds(laws)


def strike(servers: list[Forkserver], every: int) -> bool:
    if not reachable():
        print("\nstrikes at single writes: skipped, this Python's SQLite is not a shared library of its own")
        return True
    held = True
    for scene in writes.SCENES:
        for how in STRIKES:
            began = time.monotonic()
            found = writes.strike_everywhere(servers, scene, how, every=every)
            held &= show(f"{scene}, {how}", found, writes.laws_of(scene, how), began)
    return held


def wound(servers: list[Forkserver], every: int, seed: int) -> bool:
    held = True
    with tempfile.TemporaryDirectory(prefix="crash-faults-") as temporary:
        for rest in RESTS:
            folder = wounds.whole_store(servers[0], Path(temporary) / rest, rest)
            cuts = wounds.tail_cuts(folder, every)
            flips = wounds.bit_flips(folder, FLIPS // every, seed)
            for title, chosen in (("tails cut", cuts), ("bits flipped", flips)):
                began = time.monotonic()
                found = wounds.examine_all(folder, chosen)
                held &= show(f"a {rest} store, {len(chosen)} {title}", found, wounds.LAWS, began)
                told = wounds.speak_of(servers[0], folder, chosen[:: max(1, len(chosen) // SPOKEN_OF)])
                held &= show("  and resumed", told, [wounds.SPOKEN], began)
    return held


def fill(every: int) -> bool:
    began = time.monotonic()
    try:
        found = full_disk.fill_at_every(4 * every)
    except full_disk.NotPermitted as reason:
        print(f"\na full disk: skipped, {reason}")
        return True
    held = show("a 16 MiB disk, full at every point", found, full_disk.LAWS, began)
    return held and bool(found.seen["exit 75"]) and bool(found.seen["exit 0"])


def control(servers: list[Forkserver], seed: int) -> bool:
    began = time.monotonic()
    early = writes.strike_everywhere(servers, "a first run", "after", every=10, weakened="acknowledges early")
    show("a build that acknowledges early", early, [ACKNOWLEDGED], began)
    with tempfile.TemporaryDirectory(prefix="crash-faults-") as temporary:
        folder = wounds.whole_store(servers[0], Path(temporary), "closed")
        flips = wounds.bit_flips(folder, FLIPS, seed)
        believed = wounds.examine_all(folder, flips, Credulous)
        show("a reader that believes every row", believed, wounds.LAWS, began)
    return bool(early.broken[ACKNOWLEDGED]) and bool(believed.broken[wounds.SAME])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--every", type=int, default=1, help="take one point in so many")
    parser.add_argument("--control", action="store_true", help="examine builds that are broken on purpose")
    given = parser.parse_args()
    with crew() as servers:
        if given.control:
            caught = control(servers, given.seed)
            print(f"\n{'every broken build was found out' if caught else 'A BROKEN BUILD PASSED'}")
            return 0 if caught else 1
        held = [strike(servers, given.every), wound(servers, given.every, given.seed), fill(given.every)]
    print(f"\n{'all laws hold' if all(held) else 'NOT ALL LAWS HOLD'}, seed {given.seed}")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
