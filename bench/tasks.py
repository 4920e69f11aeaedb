"""Small tasks with checkers, half of them held out: Pinfold against smolagents' CodeAgent, same server, same weights.

    ./.venv/bin/python bench/tasks.py [--half dev|test|all] [--arm pinfold|smolagents|both] [--weights FILE]
    ./.venv/bin/python bench/tasks.py --resume RUN ...      goes on where a run was cut
    ./.venv/bin/python bench/tasks.py --share 1/4 ...       one of four runs side by side, each with its own server
    ./.venv/bin/python bench/tasks.py --report RUN RUN ...  what several runs came to together
    ./.venv/bin/python bench/tasks.py --self-test           do the checkers judge rightly?
    ./.venv/bin/python bench/tasks.py --set FOLDER --arm pinfold [--checkout DIR]
                                                            questions of a folder (bench/task_suite/questions.py), with the
                                                            Pinfold of this checkout or another
    ./.venv/bin/python bench/tasks.py --krama FOLDER --arm pinfold [--window 8192]
                                                            KramaBench's legal tasks (bench/task_suite/krama.py), with a
                                                            context of this size
    ./.venv/bin/python bench/tasks.py --compare RUN RUN     solved, tokens and calls of two such runs

Needs the file mbpp/sanitized-mbpp.json of google-research, in bench/out/ or as `--mbpp FILE`.
Tokens are counted between agent and server, for both alike. Results and transcripts are under bench/out/tasks/RUN/.
Of the held-out half (`test`) only totals by kind are shown: what became of its single tasks is in files only, and
not for the eyes of whoever tunes.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from types import FrameType

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.task_suite import baseline, dev, held_out, krama, mbpp, questions, results, self_test, server
from bench.task_suite.arms import ARMS, ROOT, ArmName, Asked
from bench.task_suite.checks import now
from bench.task_suite.meter import Meter
from bench.task_suite.results import Result
from bench.task_suite.server import Server
from bench.task_suite.task import KINDS, Outcome, Scene, Task

OUT = Path(__file__).resolve().parent / "out"
PATIENCE = 8
"""Times the limit that a task may take by the clock on the wall."""
WARMING = Task(
    id="warming",
    kind="arithmetic",
    half="dev",
    scene=Scene(prompt="What is 1 + 1?", check=lambda _: None, oracle="print(2)"),
)
"""Before an agent's first task, so that it does not pay for the server's reading the agent's prompt for the first time."""


def self_tested(tasks: Sequence[Task], python: Path) -> int:
    """Of the held-out half only ids are shown."""
    halves = [Counter(task.kind for task in tasks if task.half == half) for half in ("dev", "test")]
    print(f"{halves[0].total()} dev tasks, {halves[1].total()} test tasks; kinds alike: {halves[0] == halves[1]}")
    everything = self_test.everything_said([task for task in tasks if task.kind != "mbpp"], python)
    bad = 0
    for task in tasks:
        for fault in self_test.faults(task, python, everything):
            print(f"{task.id}: {fault if task.half == 'dev' else 'its checker is wrong'}")
            bad += 1
    print(f"{bad} FAULTS" if bad else "every checker says yes to its oracle and no to everything else")
    return 1 if bad else 0


@dataclass(frozen=True, slots=True)
class Bench:
    folder: Path
    server: Server
    meter: Meter
    limit_s: float
    checkout: Path
    window: int | None

    def expiry(self) -> Callable[[], bool]:
        """From now on. A hang that keeps no model busy has its end too."""
        began, worked = time.monotonic(), self.server.worked_s()
        return lambda: (
            self.server.worked_s() - worked > self.limit_s or time.monotonic() - began > PATIENCE * self.limit_s
        )


def tried(task: Task, arm: ArmName, bench: Bench) -> Result:
    folder = bench.folder
    workspace, scratch = folder / arm / "work" / task.id, folder / arm / "scratch"
    shutil.rmtree(workspace, ignore_errors=True)
    workspace.mkdir(parents=True)
    task.lay(workspace)
    asked = Asked(
        prompt=task.prompt,
        workspace=workspace,
        url=bench.meter.url,
        model=server.NAME,
        expired=bench.expiry(),
        checkout=bench.checkout,
        window=bench.window,
        scratch=scratch,
    )
    began, clock, worked = now(), time.monotonic(), bench.server.worked_s()
    with bench.meter.watching(folder / arm / f"{task.id}.jsonl") as spent:
        attempt = ARMS[arm](asked)
    seconds = time.monotonic() - clock
    outcome = Outcome(
        prompt=task.prompt,
        answer=attempt.answer,
        workspace=workspace,
        actions=attempt.actions,
        began=began,
        ended=now(),
    )
    return Result(
        arm=arm,
        task=task.id,
        kind=task.kind,
        half=task.half,
        why=task.check(outcome),
        answer=attempt.answer,
        ended=attempt.ended,
        note=attempt.note,
        prompt_tokens=spent.prompt,
        completion_tokens=spent.completion,
        requests=spent.requests,
        cut=spent.cut,
        actions=attempt.actions,
        seconds=round(seconds, 2),
        model_s=round(bench.server.worked_s() - worked, 2),
    )


def shown(result: Result) -> str:
    """Nothing that tells how a single held-out task went."""
    if result.half == "test":
        return f"{result.arm:<11} a held-out task ({result.kind}), {result.seconds:.0f} s"
    verdict = "solved" if result.solved else f"NOT: {result.why}"
    return f"{result.arm:<11} {result.task:<36} {result.tokens:>7,} tokens {result.seconds:>5.0f} s  {verdict}"


def commit_of(checkout: Path) -> str:
    """What is compared must be known: a checkout may move on while others work in it."""
    told = subprocess.run(
        ["git", "-C", str(checkout), "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or "no commit"


def commits_in(folder: Path) -> str:
    path = folder / "commits"
    return ", ".join(dict.fromkeys(path.read_text(encoding="utf-8").split("\n")[:-1])) if path.exists() else "?"


def run(given: argparse.Namespace, tasks: Sequence[Task], folder: Path) -> None:
    arms: list[ArmName] = ["smolagents", "pinfold"] if given.arm == "both" else [given.arm]
    book = folder / "results.jsonl"
    known = {(result.arm, result.task) for result in results.read(book)}
    left: list[tuple[ArmName, Task]] = [(arm, task) for arm in arms for task in tasks if (arm, task.id) not in known]
    print(f"{folder}: {len(left)} to do, {len(known)} done before", flush=True)
    with (folder / "commits").open("a", encoding="utf-8") as commits:
        commits.write(f"{commit_of(given.checkout)}\n")
    if not left:
        return
    own = server.serving(given.weights, given.threads, folder / "server.log")
    with nullcontext(Server(given.server)) if given.server else own as there, closing(Meter(there.url)) as meter:
        bench = Bench(folder, there, meter, given.limit_s, given.checkout, given.window)
        warm = ""
        for number, (arm, task) in enumerate(left, 1):
            if warm != arm:
                tried(WARMING, arm, bench)
                warm = arm
            result = tried(task, arm, bench)
            results.add(book, result)
            print(f"{number:>3}/{len(left)} {shown(result)}", flush=True)
            if not server.healthy(there.url):
                raise server.NoServer(f"the model server is gone: see {folder / 'server.log'}")


def _share(text: str) -> tuple[int, int]:
    part, _, parts = text.partition("/")
    if not (part.isdigit() and parts.isdigit() and 1 <= int(part) <= int(parts)):
        raise argparse.ArgumentTypeError(f"{text!r} is not K/N with K from 1 to N, such as 1/4")
    return int(part), int(parts)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--half", choices=("dev", "test", "all"), default="dev")
    add("--arm", choices=(*ARMS, "both"), default="both")
    add("--only", action="append", metavar="GLOB", help="ids of tasks")
    add("--kind", action="append", choices=KINDS, help="only these kinds")
    add("--limit", type=int, metavar="N", help="at most so many tasks")
    add("--limit-s", type=float, default=300, metavar="SECONDS", help="of the model, for one task (default 300)")
    add("--mbpp", type=Path, default=OUT / "sanitized-mbpp.json", metavar="FILE")
    add("--no-mbpp", action="store_true", help="without the problems of MBPP")
    add("--weights", type=Path, default=OUT / "builtin.gguf", metavar="FILE", help="GGUF to serve")
    add("--threads", type=int, default=2, help="of the model server")
    add("--server", metavar="URL", help="a running llama.cpp server, instead of one of our own")
    add("--resume", metavar="RUN", help="name or folder of a run to go on with")
    add("--share", type=_share, default=(1, 1), metavar="K/N", help="the K-th of N parts of the tasks")
    add("--report", nargs="+", metavar="RUN", help="names or folders of runs; nothing is run")
    add("--compare", nargs="+", metavar="RUN", help="names or folders of runs of ours; nothing is run")
    add("--set", type=Path, metavar="FOLDER", help="questions with labels and tables, instead of our own tasks")
    add("--krama", type=Path, metavar="FOLDER", help="a checkout of KramaBench, instead of our own tasks")
    add("--domain", default="legal", help="of KramaBench")
    add("--window", type=int, metavar="TOKENS", help="the context that Pinfold may fill")
    add("--checkout", type=Path, default=ROOT, metavar="DIR", help="whose Pinfold is asked (default: this one)")
    add("--self-test", action="store_true", help="check the checkers; no model")
    return parser.parse_args()


def chosen(given: argparse.Namespace) -> list[Task]:
    if given.krama:
        tasks = krama.load(given.krama, given.domain)
    else:
        tasks = questions.load(given.set) if given.set else [*dev.TASKS, *held_out.TASKS]
    if not given.no_mbpp and not given.set and not given.krama:
        tasks += mbpp.load(given.mbpp)
    if given.self_test:
        return tasks
    patterns: list[str] = given.only or ["*"]
    picked = [
        task
        for task in tasks
        if given.half in {task.half, "all"}
        and (not given.kind or task.kind in given.kind)
        and any(fnmatch(task.id, pattern) for pattern in patterns)
    ]
    part, parts = given.share
    return in_turn(picked)[: given.limit][part - 1 :: parts]


def in_turn(tasks: Sequence[Task]) -> list[Task]:
    """One of each kind after the other, so that a part of a run tells something of the whole."""
    turns: Counter[str] = Counter()
    placed: list[tuple[int, Task]] = []
    for task in tasks:
        placed.append((turns[task.kind], task))
        turns[task.kind] += 1
    return [task for _, task in sorted(placed, key=lambda one: one[0])]


def _stop(_number: int, _frame: FrameType | None) -> None:
    """As an exception, so that the server and the agent end too."""
    print("stopped by SIGTERM; --resume goes on", file=sys.stderr, flush=True)
    sys.exit(143)


def main() -> int:
    given = arguments()
    signal.signal(signal.SIGTERM, _stop)
    books = {run: OUT / "tasks" / run / "results.jsonl" for run in given.report or given.compare or ()}
    if given.compare:
        named = {f"{run} ({commits_in(book.parent)})": results.read(book) for run, book in books.items()}
        print(results.compare(named))
        return 0
    if given.report:
        print(results.report([result for book in books.values() for result in results.read(book)]))
        return 0
    try:
        tasks = chosen(given)
    except (mbpp.NotMbpp, questions.NoQuestions, krama.NoKrama) as missing:
        print(missing, file=sys.stderr)
        return 2
    if given.self_test:
        return self_tested(tasks, baseline.make())
    folder = OUT / "tasks" / (given.resume or time.strftime("%Y%m%d-%H%M%S"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        run(given, tasks, folder)
    except server.NoServer as gone:
        print(gone, file=sys.stderr)
        return 1
    told = results.report(results.read(folder / "results.jsonl"))
    (folder / "report.md").write_text(told + "\n", encoding="utf-8")
    print(f"\n{told}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
