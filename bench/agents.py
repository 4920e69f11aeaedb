"""Sub-agents: how soon they start over much data, what they leave when they are killed, whether several beat one.

    ./.venv/bin/python bench/agents.py start [--megabytes 1024] [--children 4]
    ./.venv/bin/python bench/agents.py kills [--times 100] [--seed N]
    ./.venv/bin/python bench/agents.py best [--of 4] [--model builtin] [--limit N]

`start` and `kills` exit with 0 only if the goals hold. `best` runs each task of the dev half once alone, and then up to
four times with a verifier, of which the first attempt counts that was accepted; it takes hours with `builtin`.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.task_suite.checks import now
from bench.task_suite.dev import TASKS
from bench.task_suite.task import Outcome, Task

from pinfold.app.session.live_session import LiveSession, open_session
from pinfold.app.session.options import Options
from pinfold.events import ActionFinished, Entry, Execute, SessionId, new_action_id
from pinfold.sandbox import Answer, Limits, Spec, provider_named
from pinfold.sandbox.session.session import GuestSession

START_S = 0.25
EXTRA = 0.15
GAIN = 1.2
STEPS = 5


def memory_of(session: GuestSession) -> int:
    """Bytes of all processes of a session, what they share counted once."""
    assert session.slot.guest is not None
    about = Path(f"/proc/self/fdinfo/{session.slot.guest.body.fd}").read_text(encoding="ascii")
    init = next(line.split()[1] for line in about.splitlines() if line.startswith("Pid:"))
    space, total = Path(f"/proc/{init}/ns/pid").readlink(), 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "ns/pid").readlink() == space:
                lines = (process / "smaps_rollup").read_text(encoding="ascii").splitlines()
                total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) << 10
        except OSError:  # it has ended
            continue
    return total


async def measure_start(megabytes: int, children: int) -> bool:
    """Forks in the middle of a cell, each with files of its own and a cell that reads some of the data."""
    seconds: list[float] = []
    extra = 0.0
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "workspace"
        workspace.mkdir()
        limits = Limits(memory_bytes=(megabytes << 20) * 4)
        session: Any = await provider_named("namespaces").open(Spec(workspace=workspace, limits=limits))
        rows = f"rows = [bytearray(b'x') * (1 << 20) for _ in range({megabytes})]"

        async def on_call(_tool: str, _args: object) -> Answer:
            nonlocal extra
            before, forks = memory_of(session), list[Any]()
            for number in range(children):
                view = Path(place) / f"view{number}"
                view.mkdir(mode=0o700)
                began = time.perf_counter()
                fork = await session.fork(view)
                ready = await fork.run(f"len(rows), open('own.txt', 'w').write('{number}')")
                seconds.append(time.perf_counter() - began)
                assert ready.value == f"({megabytes}, 1)", ready
                forks.append(fork)
            for fork in forks:
                await fork.run("total = sum(row[0] for row in rows)")
            extra = memory_of(session) / before - 1
            for fork in forks:
                await fork.close()
                fork.release_view()
            return Answer(status="ok")

        await session.run("from _pinfold_guest.calls import call", on_call=on_call)
        outcome = await session.run(f"{rows}\ncall('agents.start')", on_call=on_call, timeout_s=300)
        assert outcome.status == "ok", outcome
        await session.close()
    told = ", ".join(f"{one * 1000:.0f}" for one in seconds)
    print(
        f"{children} forks of {megabytes:,} MB, each to the end of its first cell: {told} ms (goal {START_S * 1000:.0f})"
    )
    print(f"extra memory with all of them open: {extra:.1%} (goal {EXTRA:.0%})")
    return max(seconds) < START_S and extra < EXTRA


async def run_cell(live: LiveSession, code: str) -> ActionFinished:
    execute = Execute(id=new_action_id(), code=code)
    async with live.subscribe(live.log.seq) as feed:
        await live.submit(execute)
        async for item in feed:
            if isinstance(item, Entry) and isinstance(item.event, ActionFinished) and item.event.id == execute.id:
                return item.event
    raise AssertionError("the session ended")


async def measure_kills(times: int, seed: int) -> bool:
    """Sub-agents whose process is killed before, between or after what they keep and write in a step."""
    chance, whole = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place) / "workspace"
        workspace.mkdir()
        options = Options(workspace=workspace, sandbox="namespaces", mode="auto")
        async with open_session(None, SessionId("s_kills"), options) as live:
            for number in range(times):
                at, where = chance.randrange(STEPS), chance.randrange(3)
                cells, names, files = list[Any](), list[str](), list[str]()
                for step in range(at + 1):
                    parts = [f"v{step} = {step}; keep('v{step}')", f"open('f{number}_{step}', 'w').write('x')"]
                    if step == at:
                        parts.insert(where, "import os; os.kill(os.getpid(), 9)")
                    done = parts if step < at else parts[:where]
                    names += [f"v{step}"] if parts[0] in done or (step == at and where > 0) else []
                    files += [f"f{number}_{step}"] if len(done) > 1 else []
                    cells.append({"calls": [{"tool": "python", "args": {"code": "\n".join(parts)}}]})
                script = Path(place) / f"{number}.jsonl"
                script.write_text("".join(f"{json.dumps(cell)}\n" for cell in cells), encoding="utf-8")
                await run_cell(live, f"r = agents.run('go on', model='scripted:{script}')")
                shown = await run_cell(live, "r.status, sorted(r.variables), sorted(r.files)")
                if shown.value == repr(("failed", names, files)):
                    whole += 1
                else:
                    print(f"killed in step {at + 1} at {where}: {shown.value}, not {names} {files}")
    print(f"{whole} of {times} sub-agents that were killed left all they had")
    return whole == times


def attempt(task: Task, model: str, seed: int, *flags: str) -> tuple[bool, int, bool]:
    """Whether it is solved, the tokens it took, and whether the verifier let its first answer stand."""
    with tempfile.TemporaryDirectory() as place:
        workspace = Path(place)
        task.lay(workspace)
        began = now()
        command = [sys.executable, "-m", "pinfold", "run", task.prompt, "--json", "--ephemeral", "--workspace", place]
        command += ["--model", model, "--seed", str(seed), "--temperature", "0.7", *flags]
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        events = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
        of = [event.get("event", event) for event in events]
        answer = next((str(one["text"]) for one in reversed(of) if one.get("kind") == "TurnEnded"), "")
        cells = sum(one.get("kind") == "ActionStarted" for one in of)
        usages = [
            one["usage"] for one in of if one.get("kind") in ("ModelReplied", "ApproachChanged") and one.get("usage")
        ]
        tokens = sum(one.get("input_tokens", 0) + one.get("output_tokens", 0) for one in usages)
        verdicts = [one.get("verdict") for one in of if one.get("kind") == "ApproachChanged"]
        outcome = Outcome(
            prompt=task.prompt, answer=answer, workspace=workspace, actions=cells, began=began, ended=now()
        )
        return task.check(outcome) is None, tokens, "accepted" in verdicts


def measure_best(count: int, model: str, limit: int | None) -> bool:
    alone = best = alone_tokens = best_tokens = 0
    tasks = TASKS[:limit]
    for task in tasks:
        solved, tokens, _ = attempt(task, model, 0)
        alone, alone_tokens = alone + solved, alone_tokens + tokens
        chosen = False
        for seed in range(1, count + 1):
            chosen, tokens, accepted = attempt(task, model, seed, "--verify", "model")
            best_tokens += tokens
            if accepted:
                break
        best += chosen
        print(
            f"{task.id:<36} alone {'solved' if solved else 'not':<7} best of {count} {'solved' if chosen else 'not'}",
            flush=True,
        )
    print(f"alone {alone} of {len(tasks)}, {alone_tokens:,} tokens; best of {count} {best}, {best_tokens:,} tokens")
    print(f"solved {best / max(1, alone):.2f} x (goal {GAIN}), tokens {best_tokens / max(1, alone_tokens):.1f} x")
    return best >= GAIN * alone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = parser.add_subparsers(dest="what", required=True)
    start, kills, best = (what.add_parser(name) for name in ("start", "kills", "best"))
    start.add_argument("--megabytes", type=int, default=1024)
    start.add_argument("--children", type=int, default=4)
    kills.add_argument("--times", type=int, default=100)
    kills.add_argument("--seed", type=int, default=1)
    best.add_argument("--of", type=int, default=4)
    best.add_argument("--model", default="builtin")
    best.add_argument("--limit", type=int)
    given = parser.parse_args()
    match given.what:
        case "start":
            holds = anyio.run(measure_start, given.megabytes, given.children)
        case "kills":
            holds = anyio.run(measure_kills, given.times, given.seed)
        case _:
            holds = measure_best(given.of, given.model, given.limit)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
