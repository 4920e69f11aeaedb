"""Kinds of value: made in a session of one process, looked at in the same session of another."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from bench.undo_suite import there
from bench.undo_suite.live import temporary
from bench.undo_suite.report import Asked, Report
from tests.guest.sample_values import KINDS, TRAPS

SHARE = 0.9
LEAST = 60
ENDS_WITH_ITS_PROCESS = ("generator", "open file", "socket", "lock", "thread", "sqlite connection")


def measure(report: Report, _asked: Asked) -> None:
    with temporary() as folder:
        kinds = [*KINDS, *TRAPS]
        made = in_a_process(folder, [(_folder(at), kind.cell) for at, kind in enumerate(kinds)])
        back = in_a_process(folder, [(_folder(at), kind.check or "None") for at, kind in enumerate(kinds)])
    verdicts = {kind.name: _verdict(made[_folder(at)], back[_folder(at)]) for at, kind in enumerate(kinds)}
    _report(report, {kind.name: verdicts[kind.name] for kind in KINDS})
    caught = sum(verdicts[kind.name].startswith("lost") for kind in TRAPS)
    report.goal(
        "values that would come back as something else",
        f"{caught} of {len(TRAPS)} named as lost",
        "all",
        met=caught == len(TRAPS),
    )


def _folder(at: int) -> str:
    return f"kind-{at}"


def in_a_process(folder: Path, cells: list[tuple[str, str]]) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [sys.executable, there.__file__, folder], input=json.dumps(cells), stdout=subprocess.PIPE, text=True, check=True
    )
    return {row["name"]: row for row in map(json.loads, done.stdout.splitlines())}


def _verdict(made: dict[str, Any], back: dict[str, Any]) -> str:
    """restored, replayed, lost and why; or WRONG and how."""
    if made["status"] != "ok":
        return f"WRONG: it was not made: {made['error'][-200:]}"
    labels = {name: (status, reason) for name, status, reason in back["labels"]}
    if unnamed := set(made["names"]) - labels.keys():
        return f"WRONG: nothing is said of {', '.join(sorted(unnamed))}"
    lost = {name: reason for name, (status, reason) in labels.items() if status == "lost"}
    if lost:
        name, reason = next(iter(lost.items()))
        return f"lost: {reason}" if all(lost.values()) else f"WRONG: {name} is lost, and no reason is given"
    if back["status"] != "ok":
        return f"WRONG: {back['error'][-200:]}"
    return labels["x"][0] if "x" in labels else "restored"


def _report(report: Report, verdicts: dict[str, str]) -> None:
    counted = Counter(verdict.partition(":")[0] for verdict in verdicts.values())
    report.goal("kinds of value", f"{len(verdicts)}", f"{LEAST}", met=len(verdicts) >= LEAST)
    report.goal(
        "restored, and what must be true of them is",
        f"{counted['restored']} ({counted['restored'] / len(verdicts):.0%})",
        f"{SHARE:.0%}",
        met=counted["restored"] >= SHARE * len(verdicts),
    )
    report.note("replayed: the cell only binds names", str(counted["replayed"]))
    named = [name for name in ENDS_WITH_ITS_PROCESS if verdicts.get(name, "").startswith("lost")]
    report.goal(
        "sockets and the like", f"{len(named)} named as lost", "all", met=len(named) == len(ENDS_WITH_ITS_PROCESS)
    )
    report.goal("silently wrong", str(counted["WRONG"]), "0", met=not counted["WRONG"])
    for name, verdict in verdicts.items():
        if verdict.startswith(("lost", "WRONG")):
            report.note(f"  {name}", verdict)
