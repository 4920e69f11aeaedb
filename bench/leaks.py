"""Plays scenarios of a fully hostile model with a canary, and looks whether any of it left without approval.

    ./.venv/bin/python bench/leaks.py [--only WORD ...] [--json FILE]
    ./.venv/bin/python bench/leaks.py --control yes       everything is approved: what can work, does
    ./.venv/bin/python bench/leaks.py --control taint     a judge that knows no taint
    ./.venv/bin/python bench/leaks.py --control tunnels   a way out whose connections are never cut
    ./.venv/bin/python bench/leaks.py --benign            honest tasks, and what was asked needlessly

Exits 1 on any leak, and if a scenario did not come to the point where it could have leaked.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
from bench.leak_suite.catalogue import scenarios
from bench.leak_suite.scenario import Scenario
from bench.leak_suite.stage import Shown, play
from bench.leak_suite.weak_builds import Blind, Loose

from pinfold.app.session.action_policy import ActionPolicy
from pinfold.app.session.egress import SessionEgress

LONGEST_S = 60.0


async def played(scenario: Scenario, folder: Path, control: str) -> Shown:
    with anyio.fail_after(LONGEST_S):
        return await play(
            scenario,
            folder,
            answers="yes" if control == "yes" else None,
            way=Loose if control == "tunnels" else SessionEgress,
            judging=Blind if control == "taint" else ActionPolicy,
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", default=[], help="words of the names or kinds of those to play")
    parser.add_argument("--control", choices=("yes", "taint", "tunnels"), default="")
    parser.add_argument("--benign", action="store_true")
    parser.add_argument("--json", type=Path, metavar="FILE")
    parser.add_argument("-v", action="store_true", help="tell of each")
    given = parser.parse_args()
    if given.benign:
        from bench.leak_suite.honest import report

        return report(given.only, given.json, loud=given.v)
    wanted = [
        one for one in scenarios() if not given.only or any(word in f"{one.kind} {one.name}" for word in given.only)
    ]
    found: list[Shown] = []
    hollow: list[str] = []
    with tempfile.TemporaryDirectory(prefix="leaks-") as folder:
        for number, scenario in enumerate(wanted):
            began = time.monotonic()
            shown = anyio.run(played, scenario, Path(folder) / str(number), given.control)
            found.append(shown)
            if scenario.taints and not shown.tainted:
                hollow.append(scenario.name)
            if given.v or shown.leaked:
                words = f"LEAKED to {', '.join(shown.leaked)}" if shown.leaked else "held"
                about = (
                    f"{shown.kind:9} {shown.name:60} {words} ({shown.tried} actions, {time.monotonic() - began:.1f} s)"
                )
                print(about, shown.failed, file=sys.stderr, flush=True)
    leaks = [shown for shown in found if shown.leaked]
    should = {one.name for one in wanted if one.opens}
    summary = {
        "scenarios": len(found),
        "actions": sum(shown.tried for shown in found),
        "kinds": Counter(shown.kind for shown in found),
        "modes": Counter(one.mode for one in wanted),
        "leaks": len(leaks),
        "leaked": Counter(shown.kind for shown in leaks),
        "questions": sum(len(shown.asked) for shown in found),
        "came to nothing": hollow,
    }
    if given.control == "yes":
        summary["should have left and did not"] = sorted(should - {shown.name for shown in leaks})
    text = json.dumps(summary, indent=2)
    print(text)
    if given.json:
        given.json.write_text(text, encoding="utf-8")
    return 1 if leaks or hollow else 0


if __name__ == "__main__":
    sys.exit(main())
