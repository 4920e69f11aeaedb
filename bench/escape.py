"""Sends hostile programs into sessions and looks, from outside, whether any gets out.

    ./.venv/bin/python bench/escape.py [--python PATH] [--as-user [UID]] [--level LEVEL] [--only GLOB ...] [--json FILE]
    ./.venv/bin/python bench/escape.py --smallest     also: with any one layer put back, each program is held
    ./.venv/bin/python bench/escape.py --list

Level `landlock` has only the programs that plant something for the user's own tools: the others are about namespaces.
A hostile program counts only if it gets out of a build with layers removed; one about a system call that this machine
never had is counted out, and named. Benign programs must all work: a sandbox in which nothing runs has no escapes
either. Everything happens in a cage of namespaces of its own, weakened builds besides under user ids that mean nothing
outside. Exits 0 only if nothing got out of the product, every program got out of its weakened build, and every benign
program worked.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.escape_suite.catalogue import AWAITED, BENIGN, HOSTILE
from bench.escape_suite.program import Benign, Hostile, Level
from bench.escape_suite.suite import CageBroke, Report, Suite, kind_here

from pinfold.sandbox.environment import default_python


def listed(hostile: Sequence[Hostile], benign: Sequence[Benign]) -> None:
    for program in hostile:
        print(f"{program.name:<70} {program.out_of_place or ' + '.join(program.without)}")
    for program in benign:
        print(f"{program.name:<70} benign")


def table(hostile: Sequence[Hostile], product: dict[str, Report], proofs: dict[str, Report]) -> None:
    print("| category | programs | got out | proven by taking out |\n|---|---|---|---|")
    for category in dict.fromkeys(program.category for program in hostile):
        these = [program for program in hostile if program.category == category]
        out = sum(bool(product[program.name].breaches) for program in these)
        by = Counter(" + ".join(p.without) for p in these if proofs[p.name].proves(p))
        layers = ", ".join(f"{layer} {count}" for layer, count in by.most_common())
        print(f"| {category} | {len(these)} | **{out}** | {layers} |")
    out = sum(bool(product[program.name].breaches) for program in hostile)
    proven = sum(proofs[program.name].proves(program) for program in hostile)
    print(f"| all | {len(hostile)} | **{out}** | {proven} of {len(hostile)} proven |")


def counted_out(programs: Sequence[Hostile]) -> None:
    print(f"Counted out: {len(programs)}")
    for program in programs:
        print(f"  {program.name}: {program.out_of_place}")


def failures(
    hostile: Sequence[Hostile], benign: Sequence[Benign], product: dict[str, Report], proofs: dict[str, Report]
) -> list[str]:
    """What must not be, in words."""
    found: list[str] = []
    for program in hostile:
        seen, proof = product[program.name], proofs[program.name]
        if seen.breaches:
            found.append(f"GOT OUT: {program.name}: {', '.join(seen.breaches)}\n{program.source}")
        if "unavailable" in seen.status:
            found.append(f"NOT RUN: {program.name}: {seen.text}")
        if not proof.proves(program):
            found.append(f"UNPROVEN: {program.name}, without {program.without}: {proof.breaches} {proof.text[-400:]}")
    broken = [product[program.name] for program in benign if not product[program.name].fine]
    return found + [f"DOES NOT WORK: {report.name}\n{report.text}" for report in broken]


def too_much_removed(suite: Suite, hostile: Sequence[Hostile]) -> list[str]:
    by_name = {program.name: program for program in hostile}
    tried = suite.with_one_more_layer(hostile)
    found = [
        f"TOO MUCH REMOVED: {name} gets out with {layer!r} in place"
        for (name, layer), report in tried.items()
        if report.proves(by_name[name])
    ]
    print(f"\n{len(tried)} trials with one layer put back: {len(tried) - len(found)} held")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--python", type=Path, help="runs the cells")
    parser.add_argument("--as-user", type=int, nargs="?", const=1234, metavar="UID", help="not as root")
    parser.add_argument("--level", choices=("namespaces", "landlock"), default="namespaces")
    parser.add_argument("--only", action="append", metavar="GLOB", help="names of programs")
    parser.add_argument("--smallest", action="store_true", help="check that no fewer layers would do")
    parser.add_argument("--awaited", action="store_true", help="only what is known not to be held yet")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    given = parser.parse_args()
    patterns: list[str] = given.only or ["*"]
    level: Level = given.level
    # In landlock each workspace has a zygote of its own, which would import all of the data stack each time.
    usual = default_python() if level == "namespaces" else None
    python: Path = given.python or usual or Path(sys.executable)
    suite = Suite(python.absolute(), given.as_user or 1234, level)
    named = [p for p in HOSTILE if level in p.levels and any(fnmatch(p.name, each) for each in patterns)]
    hostile = [program for program in named if not program.out_of_place]
    wanted = [p for p in BENIGN if level in p.levels and any(fnmatch(p.name, each) for each in patterns)]
    if given.list:
        listed(named, wanted)
        return 0
    kind = kind_here(as_user=given.as_user is not None)
    if given.awaited:
        for name, report in suite.product(kind, AWAITED).items():
            print(f"{'gets out' if report.breaches else 'held':<10} {name:<60} {', '.join(report.breaches)}")
        return 0
    benign = [program for program in wanted if suite.can_run(program)]
    began = time.monotonic()
    try:
        product = suite.product(kind, [*benign, *hostile])
        proofs = suite.proofs(hostile)
        found = failures(hostile, benign, product, proofs)
        print(f"As {kind}, in {level}, {time.monotonic() - began:.0f} s.\n")
        table(hostile, product, proofs)
        worked = sum(product[program.name].fine for program in benign)
        print(f"\nBenign: {worked} of {len(benign)} work; {len(wanted) - len(benign)} need what is not installed.")
        counted_out([program for program in named if program.out_of_place])
        if given.smallest:
            found += too_much_removed(suite, hostile)
    except CageBroke as broke:
        print(broke, file=sys.stderr)
        return 1
    if given.json:
        rows = [
            {"name": p.name, "category": p.category, "without": p.without, "breaches": product[p.name].breaches,
             "proven": proofs[p.name].proves(p)}
            for p in hostile
        ]  # fmt: skip
        out = {program.name: program.out_of_place for program in named if program.out_of_place}
        whole = {"kind": kind, "hostile": rows, "counted_out": out, "benign": worked}
        given.json.write_text(json.dumps(whole, indent=1))
    print("\n".join(["", *found, "", "nothing got out" if not found else f"{len(found)} FAILURES"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
