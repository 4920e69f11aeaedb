"""Small tasks with checkers, half of them held out: Pinfold against smolagents, same server, same weights.

./.venv/bin/python bench/tasks.py --self-test [--mbpp FILE]     do the checkers judge rightly?
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.tasking import dev, held_out, mbpp, self_test
from bench.tasking.task import Task

OUT = Path(__file__).resolve().parent / "out"


def self_tested(tasks: list[Task], python: Path) -> int:
    """Of the held-out half only ids are shown."""
    halves = [Counter(task.kind for task in tasks if task.half == half) for half in ("dev", "test")]
    print(
        f"{halves[0].total()} dev tasks, {halves[1].total()} test tasks; kinds alike: {halves[0] == halves[1]}"
    )
    everything = self_test.everything_said([task for task in tasks if task.kind != "mbpp"], python)
    bad = 0
    for task in tasks:
        for fault in self_test.faults(task, python, everything):
            print(f"{task.id}: {fault if task.half == 'dev' else 'its checker is wrong'}")
            bad += 1
    print(f"{bad} FAULTS" if bad else "every checker says yes to its oracle and no to everything else")
    return 1 if bad else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mbpp", type=Path, default=OUT / "sanitized-mbpp.json", metavar="FILE")
    parser.add_argument("--self-test", action="store_true", help="check the checkers; no model")
    given = parser.parse_args()
    tasks = [*dev.TASKS, *held_out.TASKS]
    try:
        tasks += mbpp.load(given.mbpp)
    except mbpp.NotMbpp as missing:
        print(missing, file=sys.stderr)
        return 2
    return self_tested(tasks, OUT / "smolagents-venv" / "bin" / "python")


if __name__ == "__main__":
    sys.exit(main())
