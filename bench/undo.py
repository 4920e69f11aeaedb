"""Undo, branches and durability: what they take, and whether everything comes back. Each goal is checked.

    ./.venv/bin/python bench/undo.py [--only SECTION ...] [--kills 100] [--seed N] [--examples 200]

live     a gigabyte of live data: pause, undo, branches, memory, copy on write
ruins    cells that ruin everything: rolled back by itself, or undone
kinds    kinds of value that come back in another process, or are named
kills    `kill -9` at random moments: what resumes is true, and nothing happens twice
laws     any order of cells, undo, redo, branches, crashes and reopening against plain Python
files    10,000 files of 2 GB: what a cell pays for their history, and what for the states of its variables
saving   a gigabyte saved beside the session, and brought back

Exits 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sandbox_suite import environment
from bench.undo_suite import files, going_back, kills, kinds, laws, ruins, saved_state
from bench.undo_suite.report import Asked, Report

SECTIONS = {
    "live": going_back.measure,
    "ruins": ruins.measure,
    "kinds": kinds.measure,
    "kills": kills.measure,
    "laws": laws.measure,
    "files": files.measure,
    "saving": saved_state.measure,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=20261115)
    parser.add_argument("--examples", type=int, default=200)
    given = parser.parse_args()
    asked = Asked(kills=given.kills, seed=given.seed, examples=given.examples)
    environment.make()
    missed = 0
    for name in given.only:
        report = Report(name)
        SECTIONS[name](report, asked)
        print(f"\n{report}", flush=True)
        missed += report.missed
    print(f"\n{'all goals met' if not missed else f'{missed} GOALS MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
