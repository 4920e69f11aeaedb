"""What a user waits for. Run it on a quiet machine: `./check --list && .venv/bin/python bench/felt.py [--json] [--times 5] [--files 100000]`

`exec -c 1+1` against importing pandas with the Python of the cells, in an empty folder and in a large one; with the warm
helper against `python -c pass` as a user types it, with the `python` of PATH; and the chat in a terminal. Prints a table; exits with 1 if a goal is missed.
CPU is that of the command and of the processes it waited for; what a helper does for it is not in it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.chat import PROMPT, ROOT, Screen

IN_ONE_FOLDER = 200
PINFOLD = str(ROOT / "pinfold")
EXEC = [PINFOLD, "exec", "-c", "1+1"]
ANSWER = "the-scripted-answer"
WARM_WAIT_S = 60.0


@dataclass(frozen=True)
class Took:
    wall: float
    cpu: float


@dataclass(frozen=True)
class Goal:
    what: str
    figure: float
    most: float
    unit: str

    @property
    def is_met(self) -> bool:
        return self.figure <= self.most


def took(argv: list[str], cwd: Path, env: dict[str, str]) -> Took:
    began = time.perf_counter()
    process = subprocess.Popen(
        argv, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    assert process.stdout
    with process.stdout as output:
        said = output.read()
    _, status, used = os.wait4(process.pid, 0)
    wall = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv} failed with {process.returncode}: {said.decode(errors='replace')}")
    return Took(wall, used.ru_utime + used.ru_stime)


def by_turns(cases: dict[str, tuple[list[str], Path, dict[str, str]]], times: int) -> dict[str, Took]:
    """Medians, after one run of each that fills the caches; by turns, so that other work disturbs all of them alike."""
    runs = {name: [took(*case) for _ in range(1)] for name, case in cases.items()}
    for _ in range(times):
        for name, case in cases.items():
            runs[name].append(took(*case))
    return {
        name: Took(statistics.median(one.wall for one in all_of[1:]), statistics.median(one.cpu for one in all_of[1:]))
        for name, all_of in runs.items()
    }


def make_files(top: Path, count: int) -> None:
    """A repository with an environment and packages of its own."""
    for number in range(count // IN_ONE_FOLDER):
        place = ("node_modules", ".venv/lib", "src")[number % 3]
        folder = top / place / f"package{number}"
        folder.mkdir(parents=True)
        for at in range(IN_ONE_FOLDER):
            (folder / f"module{at}.py").write_text("x = 1\n", encoding="utf-8")


def environment(home: Path, warm: str) -> dict[str, str]:
    own = {f"XDG_{name.upper()}_HOME": str(home / name) for name in ("config", "data", "state", "cache")}
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PINFOLD_")},
        **own,
        "HOME": str(home),
        "TERM": "xterm-256color",
        "PINFOLD_SANDBOX_WARM": warm,
    }


def wait_for_helper(env: dict[str, str], cwd: Path) -> float:
    """Starts it by a command, as a user would. The megabytes it takes; none at all if there is no helper."""
    took(EXEC, cwd, env)
    until = time.monotonic() + WARM_WAIT_S
    while time.monotonic() < until:
        answer = subprocess.run(
            [PINFOLD, "up", "--status", "--json"], env=env, cwd=cwd, capture_output=True, text=True, check=False
        )
        helper = json.loads(answer.stdout).get("helper")
        if helper and (Path(env["XDG_STATE_HOME"]) / "pinfold" / "warm" / "helper.sock").exists():
            took(EXEC, cwd, env)  # waits until it has rehearsed
            time.sleep(2.0)
            return helper["mb"]
        time.sleep(0.1)
    return 0.0


def chat(env: dict[str, str], folder: Path, times: int) -> dict[str, float]:
    script = folder / "script.jsonl"
    replies = [{"calls": [{"tool": "python", "args": {"code": "1+1"}}]}, {"text": ANSWER}]
    script.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    workspace = folder / "talk"
    workspace.mkdir()
    argv = [PINFOLD, "--mode", "auto", "--model", f"scripted:{script}"]
    prompts: list[float] = []
    answers: list[float] = []
    for _ in range(times + 1):
        began = time.perf_counter()
        screen = Screen(argv, env, workspace)
        try:
            screen.wait(PROMPT)
            prompts.append(time.perf_counter() - began)
            screen.wait(b" 0 in 0 out")  # the session is open: whoever types sooner waits for it
            began = time.perf_counter()
            os.write(screen.fd, b"go\r")
            screen.wait(ANSWER.encode())
            answers.append(time.perf_counter() - began)
        finally:
            screen.close()
    return {"prompt": statistics.median(prompts[1:]), "answer": statistics.median(answers[1:])}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--files", type=int, default=100_000)
    given = parser.parse_args()
    subprocess.run([PINFOLD, "env", "build"], check=True, stdout=sys.stderr)
    from pinfold.sandbox.environment import default_python

    python = default_python()
    assert python
    with tempfile.TemporaryDirectory() as made:
        top = Path(made)
        empty, large, home = top / "empty", top / "large", top / "home"
        for folder in (empty, large, home / "data" / "pinfold"):
            folder.mkdir(parents=True)
        (home / "data" / "pinfold" / "environments").symlink_to(python.parents[2])
        off, on = environment(home, "off"), environment(home, "auto")
        used = subprocess.run([PINFOLD, "exec", "-c", "import pandas"], env=off, cwd=empty, check=False)
        if used.returncode:
            raise SystemExit("cells do not run in the data environment: `pinfold env build` builds it")
        make_files(large, given.files)
        cold = by_turns(
            {
                "import pandas": ([str(python), "-c", "import pandas"], empty, off),
                "exec, empty folder": (EXEC, empty, off),
                f"exec, {given.files:,} files": (EXEC, large, off),
            },
            given.times,
        )
        try:
            helper_mb = wait_for_helper(on, empty)
            warm = by_turns(
                {
                    "python -c pass": ([shutil.which("python") or "python3", "-c", "pass"], empty, on),
                    f"the same, {sys.executable}": ([sys.executable, "-c", "pass"], empty, on),
                    "exec, warm": (EXEC, empty, on),
                    f"exec, warm, {given.files:,} files": (EXEC, large, on),
                },
                3 * given.times,
            )
            talk = chat(on, top, given.times)
        finally:
            subprocess.run([PINFOLD, "up", "--stop"], env=on, capture_output=True, check=False)
    pandas, bare, large_one = (cold["import pandas"], warm["python -c pass"], cold[f"exec, {given.files:,} files"])
    first = cold["exec, empty folder"]
    goals = [
        Goal("exec, empty folder, of importing pandas, wall", first.wall / pandas.wall, 1.4, "x"),
        Goal("exec, empty folder, of importing pandas, CPU", first.cpu / pandas.cpu, 1.4, "x"),
        Goal(f"exec, {given.files:,} files, more than empty, wall", large_one.wall - first.wall, 0.2, "s"),
        Goal("exec, warm, of python -c pass, wall", warm["exec, warm"].wall / bare.wall, 2.5, "x"),
        Goal("chat, until its prompt stands", talk["prompt"], 0.4, "s"),
        Goal("chat, warm, until the first scripted answer", talk["answer"], 1.0, "s"),
        Goal("the helper takes", helper_mb, 150, "MB"),
    ]
    report = {
        "took_s": {name: {"wall": one.wall, "cpu": one.cpu} for name, one in {**cold, **warm}.items()},
        "goals": [{"what": it.what, "figure": it.figure, "most": it.most, "met": it.is_met} for it in goals],
    }
    if given.json:
        print(json.dumps(report))
    else:
        print(f"{'':44}{'wall s':>8}{'CPU s':>8}")
        for name, one in {**cold, **warm}.items():
            print(f"{name:44}{one.wall:8.3f}{one.cpu:8.3f}")
        print()
        for it in goals:
            verdict = "met" if it.is_met else "MISSED"
            print(f"{it.what:56}{it.figure:8.2f} {it.unit:3}goal {it.most:g} {it.unit:3}{verdict}")
    return 0 if all(it.is_met for it in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
