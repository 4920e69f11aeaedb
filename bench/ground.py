"""Figures of the ground floor: reopening a long session, overhead of a turn, start-up, texts. Each bound is checked.

./.venv/bin/python bench/ground.py
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import anyio
from bench.sink_suite.ordinary import ordinary
from msgspec.structs import replace
from tests.time_complexity import took_s
from tests.tools.stubs.known_tools import known_tools

from pinfold.app import Options, open_session
from pinfold.app.session.live_session import load
from pinfold.events import (
    ActionAllowed,
    ActionFinished,
    ActionId,
    ActionProposed,
    ActionStarted,
    Call,
    Event,
    ModelCalled,
    ModelReplied,
    RunCell,
    Say,
    SessionId,
    SessionOpened,
    TurnEnded,
    TurnId,
    UserSpoke,
    new_turn_id,
)
from pinfold.log import Damage, Log
from pinfold.model import KeptCall, KeptReply, ScriptedModel
from pinfold.policy import explain, read_script
from pinfold.text import printable, redact
from pinfold.tools.search import Index

SESSION = SessionId("s_bench")
CODE = "x = 6 * 7\nprint('cell says', x)\nx"
PER_TURN = 10
COMMAND = (
    'git log --oneline -20 | grep -v "fix" | sort | uniq -c | head -5 && find . -name "*.py" -exec grep -l foo {} + '
    '2>/dev/null; for f in src/*.py; do wc -l "$f"; done; echo "$(git rev-parse HEAD) ok"'
)


def turn_events(number: int) -> list[Event]:
    """What one turn with one cell leaves in the log."""
    turn, action = TurnId(f"t_{number:012d}"), ActionId(f"a_{number:012d}")
    call = Call(id=action, tool="python", args={"code": CODE})
    return [
        UserSpoke(turn=turn, text="What is six times seven, and is it still what it was before?"),
        ModelCalled(turn=turn, model="scripted"),
        ModelReplied(turn=turn, model="scripted", text="computing", actions=(call,)),
        ActionProposed(id=action, action=RunCell(code=CODE), turn=turn),
        ActionAllowed(id=action, rule="cells run in the sandbox"),
        ActionStarted(id=action, effect="once", cell=number),
        ActionFinished(id=action, outcome="ok", observation="cell says 42\n42\n", duration_s=0.001),
        ModelCalled(turn=turn, model="scripted"),
        ModelReplied(turn=turn, model="scripted", text="It is 42, as before."),
        TurnEnded(turn=turn, text="It is 42, as before."),
    ]


def make_session(folder: Path, events: int) -> None:
    opened = SessionOpened(
        version="0", workspace=str(folder), model="scripted", mode="auto", sandbox="unsafe-local", prompt="p" * 500
    )

    async def write() -> None:
        log = Log(folder, SESSION)
        batch: list[Event] = [opened]
        for number in range(events // PER_TURN):
            batch += turn_events(number)
            if len(batch) >= 5000:
                await log.append(*batch)
                batch = []
        await log.append(*batch)
        log.close()

    anyio.run(write)


def reopen(folder: Path) -> None:
    """In a process of its own, so that the memory is its own."""
    begun = time.perf_counter()
    log = Log(folder, SESSION)
    _, state = load(log, Damage())
    took = time.perf_counter() - begun
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"seconds": took, "mib": peak, "events": log.seq, "turns": sum(1 for _ in state.turns)}))


def measure_reopen() -> bool:
    with tempfile.TemporaryDirectory() as name:
        make_session(Path(name), 100_000)
        runs = [json.loads(subprocess.check_output([sys.executable, __file__, "--reopen", name])) for _ in range(5)]
    seconds = statistics.median(run["seconds"] for run in runs)
    peak = max(run["mib"] for run in runs)
    print(f"reopen {runs[0]['events']:,} events: {seconds:.2f} s (median of 5), {peak:.0f} MiB at most")
    return seconds < 1.0 and peak < 200


async def turn_times(folder: Path, turns: int) -> list[float]:
    """Wall time of each scripted turn with one cell, the cell's own run included."""
    reply = KeptReply(text="computing", calls=(KeptCall(tool="python", args={"code": CODE}),))
    model = ScriptedModel([line for _ in range(turns + 3) for line in (reply, KeptReply(text="It is 42."))])
    options = Options(workspace=folder, model=model, sandbox="unsafe-local")
    times: list[float] = []
    async with open_session(folder, SESSION, options) as live:
        for number in range(turns + 3):
            async with live.subscribe(live.log.seq) as feed:
                begun = time.perf_counter()
                await live.submit(Say(turn=new_turn_id(), text="and now?"))
                async for item in feed:
                    if type(getattr(item, "event", item)) is TurnEnded:
                        break
            if number >= 3:
                times.append(time.perf_counter() - begun)
    return times


def measure_overhead() -> bool:
    medians: dict[int, float] = {}
    for events in (10, 1_000, 10_000):
        with tempfile.TemporaryDirectory() as name:
            make_session(Path(name), events)
            times = anyio.run(turn_times, Path(name), 60)
        medians[events] = statistics.median(times) * 1e3
        p95 = statistics.quantiles(times, n=20)[-1] * 1e3
        print(f"turn with one cell after {events:>6,} events: median {medians[events]:.1f} ms, p95 {p95:.1f} ms")
    return all(median < 15 for median in medians.values())


def cpu_of(argv: list[str], runs: int = 7) -> float:
    best = float("inf")
    for _ in range(runs):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(argv, stdout=subprocess.DEVNULL, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        best = min(best, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return best


def measure_startup() -> bool:
    bare = cpu_of([sys.executable, "-c", "pass"])
    command = str(Path(sys.executable).parent / "pinfold")
    ratios = {flag: cpu_of([command, flag]) / bare for flag in ("--version", "--help")}
    for flag, ratio in ratios.items():
        print(f"pinfold {flag}: {ratio:.1f} times the CPU of python -c pass ({bare * 1e3:.0f} ms)")
    return all(ratio <= 12 for ratio in ratios.values())


def measure_texts() -> bool:
    """What every text of a program or a model goes through, of the processor, best of 5."""
    lines = "\n".join(ordinary())
    megabyte = (lines * (1_000_000 // len(lines) + 1))[:1_000_000]
    known = known_tools()
    tools = [replace(one, name=f"{one.name}_{turn}") for turn in range(4) for one in known][:500]
    index = Index(tools)

    def judge() -> None:
        read_script.cache_clear()
        explain(COMMAND)

    figures = {
        "a megabyte of ordinary text, keys hidden": (lambda: redact(megabyte), 1.5),
        "a megabyte of names of keys, keys hidden": (lambda: redact('"token": "' * 100_000), 3.0),
        "a megabyte of ordinary text, made printable": (lambda: printable(megabyte), 2.0),
        "a megabyte of accents, made printable": (lambda: printable("\u0301" * 1_000_000), 2.0),
        f"a shell command of {len(COMMAND)} characters, read and judged": (judge, 0.005),
        "500 tools, indexed": (lambda: Index(tools).search("first question"), 0.25),
        "500 tools, searched": (lambda: index.search("list the open issues"), 0.01),
    }
    held = True
    for what, (work, bound_s) in figures.items():
        best = min(took_s(work) for _ in range(5))
        print(f"{what}: {best * 1e3:.1f} ms, at most {bound_s * 1e3:g}")
        held &= best < bound_s
    return held


if __name__ == "__main__":
    if sys.argv[1:2] == ["--reopen"]:
        reopen(Path(sys.argv[2]))
        sys.exit()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    held = [measure_reopen(), measure_overhead(), measure_startup(), measure_texts()]
    print("all bounds hold" if all(held) else "a bound is broken")
    sys.exit(not all(held))
