"""`kill -9` at random moments of a session's work: of its owner alone, or of every process it has started.

Half of the sessions are a program that owns one with a scripted model and a tool that writes to a ledger outside; the others
are a row of `pinfold exec -s NAME`. After every kill `pinfold exec -s NAME` opens the session again and looks at its variables.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.sandbox_suite.processes import descendants, is_alive
from bench.undo_suite.oracle import (
    CELLS,
    CONTROL,
    DONE,
    ENDED,
    LAWS,
    MARK,
    NAMED,
    ONCE,
    PROBE,
    RESUMED,
    TRUE,
    Reference,
    Tally,
    Told,
    pretend_tools,
)
from bench.undo_suite.report import Asked, Report

NAME = "work"
OWNER = Path(__file__).with_name("owner.py")
WORKERS = 2
KILLS_PER_SESSION = 4
START_SHARE = 0.15
"""Of the kills fall before the session says that it is open; the others after."""
GONE_S = 15.0
LONGEST_S = 90.0


@dataclass(frozen=True, slots=True)
class Place:
    root: Path

    @property
    def workspace(self) -> Path:
        return self.root / "workspace"

    @property
    def ledger(self) -> Path:
        return self.root / "ledger"

    def environment(self) -> dict[str, str]:
        folders = {f"XDG_{name.upper()}_HOME": str(self.root / name) for name in ("data", "state", "config", "cache")}
        # With the warm helper, the process that is killed would not own the session: the helper interrupts its cell.
        return {**os.environ, **folders, "PINFOLD_SANDBOX_PYTHON": sys.executable, "PINFOLD_SANDBOX_WARM": "off"}

    def owner(self) -> list[str]:
        return [
            *(sys.executable, str(OWNER), NAME, str(self.workspace)),
            *(str(self.root / "script.jsonl"), str(self.ledger)),
        ]

    def exec(self, code: str) -> list[str]:
        return [
            *(sys.executable, "-m", "pinfold", "exec", "--json", "--sandbox", "namespaces"),
            *("-s", NAME, "-c", code),
        ]

    def sessions(self) -> list[Path]:
        return [*(self.root / "data" / "pinfold" / "sessions").glob("s_*")]


def new_place(root: Path, chance: random.Random) -> tuple[Place, list[str]]:
    """And the cells of its script, the first ones first, the others in any order."""
    place = Place(root)
    place.workspace.mkdir(parents=True)
    root.chmod(0o755)
    cells = [cell for group in ("first", "code", "large") for cell in CELLS[group]]
    later = [*CELLS["effects"] * 3, *CELLS["changes"]]
    chance.shuffle(later)
    cells += [MARK.format(at=at) + cell.replace("TOKEN", f"t{at}") for at, cell in enumerate(later)]
    lines: list[dict[str, Any]] = []
    for at, cell in enumerate(cells):
        calls: list[dict[str, Any]] = [{"tool": "python", "args": {"code": cell}}]
        if at % 4 == 3:
            calls.append({"tool": "note", "args": {"token": f"m{at}"}})
        lines.append({"calls": calls, "delay_s": 0.01})
    lines.append({"text": "Done."})
    script = "".join(json.dumps(line) + "\n" for line in lines)
    (root / "script.jsonl").write_text(script, encoding="utf-8")
    return place, [cell for cell in cells if "tools" not in cell]


class Run:
    """A process of the product's, whose events are read as they come."""

    def __init__(self, place: Place, command: list[str]) -> None:
        self.events: list[dict[str, Any]] = []
        self._errors = (place.root / "stderr").open("w+b")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            cwd=place.workspace,
            env=place.environment(),
        )

    def until_open(self) -> None:
        """Or until it has ended."""
        stdout = self._process.stdout
        assert stdout
        while line := stdout.readline():
            self.events.append(json.loads(line))
            if self.events[-1]["kind"] == "SessionOpened":
                return

    def kill(self, *, tree: bool) -> set[int]:
        """All processes there were below it. Empty if it had ended already."""
        if self._process.poll() is not None:
            self._close()
            return set()
        below = descendants(self._process.pid)
        for pid in (self._process.pid, *(below if tree else ())):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._close()
        return below or {self._process.pid}

    def finish(self) -> int:
        self._close()
        return self._process.returncode

    def complaints(self) -> str:
        return (Path(self._errors.name)).read_text(encoding="utf-8", errors="replace")[-500:]

    def _close(self) -> None:
        out, _ = self._process.communicate(timeout=LONGEST_S)
        self.events += [json.loads(line) for line in out.splitlines() if line.endswith(b"}")]
        self._errors.close()


def kill_session(number: int, seed: int) -> Tally:
    """One session, killed and resumed until it is through."""
    chance, tally, reference = random.Random(f"{seed}/{number}"), Tally(), Reference()
    with tempfile.TemporaryDirectory(prefix="bench-") as temporary:
        place, cells = new_place(Path(temporary) / "place", chance)
        by_command = number % 2 == 1
        if by_command and chance.random() < 0.5:
            Run(place, place.exec(cells.pop(0))).finish()
        for _ in range(KILLS_PER_SESSION):
            command = place.exec(cells.pop(0)) if by_command else place.owner()
            run = Run(place, command)
            if chance.random() < START_SHARE:
                time.sleep(chance.uniform(0.0, 0.5))
            else:
                run.until_open()
                time.sleep(chance.uniform(0.0, 0.3 if by_command else 0.8))
            tree = chance.random() < 0.5
            below = run.kill(tree=tree)
            if below:
                tally.seen["kills"] += 1
                tally.seen[f"kills of {'the whole tree' if tree else 'the owner alone'}"] += 1
                tally.seen[f"kills of {'`pinfold exec`' if by_command else 'an owner with a model'}"] += 1
                tally.judge(ENDED, _all_gone(below), f"{below} still run")
            _look(tally, place, reference)
            if by_command:
                for _ in range(chance.randrange(3)):
                    Run(place, place.exec(cells.pop(0))).finish()
        if not by_command:
            Run(place, place.owner()).finish()
        _look(tally, place, reference)
        tally.seen["sessions"] += 1
    return tally


def _all_gone(pids: set[int]) -> bool:
    until = time.monotonic() + GONE_S
    while any(is_alive(pid) for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def _look(tally: Tally, place: Place, reference: Reference) -> None:
    """Open the session again, and compare."""
    probe = Run(place, place.exec(PROBE))
    code = probe.finish()
    by_kind = {event["kind"]: event for event in probe.events}
    seen = next(
        (
            line[5:]
            for line in by_kind.get("ActionFinished", {}).get("observation", "").splitlines()
            if line.startswith("SEEN ")
        ),
        None,
    )
    tally.judge(RESUMED, code == 0 and seen is not None, f"exit {code}: {probe.complaints()}")
    if seen is None:
        return
    [folder] = [path for path in place.sessions() if path.name == by_kind["SessionOpened"]["session"]]
    told = Told.of(folder)
    lost = by_kind["SessionOpened"].get("lost", [])
    reference.hears(told)
    tally.seen["opened with something named as lost"] += bool(lost)
    how, unnamed = reference.agrees(told, json.loads(seen))
    tally.judge(TRUE, not how, how)
    tally.seen[CONTROL] += reference.would_see(told, json.loads(seen))
    tally.judge(NAMED, not unnamed, f"cells {unnamed}: {[told.cells[cell][:60] for cell in unnamed]}; said: {lost}")
    ledger = Counter(place.ledger.read_text(encoding="utf-8").split()) if place.ledger.exists() else Counter[str]()
    tally.judge(ONCE, all(times == 1 for times in ledger.values()), f"{ledger}")
    tally.judge(DONE, all(ledger[token] == 1 for token in told.done), f"{told.done} in {ledger}")
    tally.seen["looks at a ledger with effects in it"] += bool(ledger)


def measure(report: Report, asked: Asked) -> None:
    pretend_tools()
    total = Tally()
    with ThreadPoolExecutor(WORKERS) as pool:
        number = 0
        while total.seen["kills"] < asked.kills:
            numbers = range(number, number + WORKERS)
            number += WORKERS
            for found in pool.map(kill_session, numbers, [asked.seed] * WORKERS):
                total.examined += found.examined
                total.broken += found.broken
                total.seen += found.seen
                total.examples += found.examples
    for law in LAWS:
        got = f"{total.examined[law]} examined, {total.broken[law]} broken"
        report.goal(law, got, "0 broken", met=bool(total.examined[law]) and not total.broken[law])
    shows = total.seen.pop(CONTROL, 0)
    report.goal(CONTROL, f"{shows} of {total.examined[TRUE]} times", "most times", met=2 * shows > total.examined[TRUE])
    for what, times in sorted(total.seen.items()):
        report.note(what, str(times))
    for example in total.examples[:10]:
        print(f"BROKEN {example}", file=sys.stderr)
