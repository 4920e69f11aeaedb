"""The gates a change must pass. Run by ./check inside .venv, with the standard library and grimp only."""

import argparse
import ast
import hashlib
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Literal, TypeAlias, assert_never, get_args
from xml.etree import ElementTree as ET

import grimp

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "pinfold"
GOLDEN = ROOT / "tests" / "logs" / "v1"
BIN = Path(sys.executable).parent
UV = ROOT / ".uv" / "uv"

GATE_LIMIT_S = 2_400
FILE_LINES = 450
FUNCTION_LINES = 60
SMOKE_CHECKS = 14
SMOKE_LIMIT_S = 60
"""Of processor time, which other programs on the machine do not use up: 20 s as a rule."""
TORCH = "2.13.0+cpu"
"""The build for CPUs: the other one brings gigabytes."""

Part: TypeAlias = Literal["lint", "types", "unit", "integration", "safety", "smoke", "wheel", "slow"]


@dataclass(frozen=True, slots=True)
class Passed:
    pass


@dataclass(frozen=True, slots=True)
class Failed:
    output: str


@dataclass(frozen=True, slots=True)
class Skipped:
    reason: str


Outcome: TypeAlias = Passed | Failed | Skipped


@dataclass(frozen=True, slots=True)
class Gate:
    name: str
    part: Part
    judge: Callable[[], Outcome]


@dataclass(slots=True)
class Tally:
    passed: int = 0
    failed: int = 0

    def count(self, outcome: Outcome) -> None:
        self.passed += isinstance(outcome, Passed)
        self.failed += isinstance(outcome, Failed)


# Running programs

RUNNING: set[subprocess.Popen[str]] = set()
INTERRUPTED = threading.Event()


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    output: str

    @property
    def outcome(self) -> Outcome:
        return Passed() if self.code == 0 else Failed(f"{self.output}\nexit status {self.code}")


def run(*argv: str | Path, cwd: Path = ROOT, without: tuple[str, ...] = ()) -> Finished:
    if INTERRUPTED.is_set():
        return Finished(code=130, output="interrupted")
    try:
        process = subprocess.Popen(
            argv,
            cwd=cwd,
            env={name: value for name, value in os.environ.items() if name not in without},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,  # so that what a stopped gate had started is stopped with it
        )
    except OSError as error:
        return Finished(code=127, output=str(error))
    RUNNING.add(process)
    try:
        output, _ = process.communicate(timeout=GATE_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return Finished(code=124, output=f"{output}\nstopped after {GATE_LIMIT_S} s")
    finally:
        RUNNING.discard(process)
    return Finished(code=process.returncode, output=output)


def command(*argv: str | Path) -> Callable[[], Outcome]:
    return lambda: run(*argv).outcome


def pytest(marker: str, *options: str, less: tuple[str, ...] = ()) -> Callable[[], Outcome]:
    """The tests with this marker, without those that have one of the others."""
    expression = " and not ".join((marker, *less))

    # What selects nothing exits 5, and so fails: a part without tests proves nothing.
    def judge() -> Outcome:
        chosen = ("-m", expression, *options, *files_naming(marker))
        return run(sys.executable, "-m", "pytest", "-q", *chosen).outcome

    return judge


def files_naming(marker: str) -> list[Path]:
    """Collecting all the others as well would take longer than many a part."""
    paths = sorted((ROOT / "tests").rglob("test_*.py"))
    return [path for path in paths if f"mark.{marker}" in path.read_text(encoding="utf-8")]


# Gates on the text of the repository


def code_version() -> str:
    text = (SOURCE / "_version.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return found[1] if found else "none"


def version_is_the_top_of_the_changelog() -> Outcome:
    changelog = ROOT / "CHANGELOG.md"
    if not changelog.exists():
        return Failed("there is no CHANGELOG.md")
    heading = re.search(r"^## \[(\d.*?)\]", changelog.read_text(encoding="utf-8"), re.MULTILINE)
    top = heading[1] if heading else "none"
    if top != code_version():
        return Failed(f"CHANGELOG.md is at {top}, src/pinfold/_version.py at {code_version()}")
    return Passed()


def golden_logs_are_unchanged() -> Outcome:
    sums = GOLDEN / "SHA256SUMS"
    if not sums.exists():
        return Failed(f"there is no {sums.relative_to(ROOT)}")
    listed: dict[str, str] = {}
    for line in sums.read_text(encoding="utf-8").splitlines():
        digest, _, name = line.partition("  ")
        listed[name] = digest
    found = {
        path.relative_to(GOLDEN).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in GOLDEN.rglob("*")
        if path.is_file() and path != sums
    }
    problems = [
        *(f"{name}: not listed in SHA256SUMS" for name in sorted(found.keys() - listed.keys())),
        *(f"{name}: listed and gone" for name in sorted(listed.keys() - found.keys())),
        *(f"{name}: changed" for name in sorted(found.keys() & listed.keys()) if found[name] != listed[name]),
    ]
    if not found:
        problems.append("no golden log at all")
    return Failed("\n".join(problems)) if problems else Passed()


def files_and_functions_are_small() -> Outcome:
    problems = [problem for path in sorted(SOURCE.rglob("*.py")) for problem in too_long(path)]
    return Failed("\n".join(problems)) if problems else Passed()


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    where = path.relative_to(ROOT)
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield f"{where}: {lines} lines, at most {FILE_LINES}"
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        yield f"{where}:{error.lineno}: {error.msg}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{where}:{node.lineno}: {node.name} has {lines} lines, at most {FUNCTION_LINES}"


def modules_import_in_no_circle() -> Outcome:
    """Late imports count, those for annotations do not."""
    graph = grimp.build_graph("pinfold", exclude_type_checking_imports=True, cache_dir=None)
    circle = circle_in({name: graph.find_modules_directly_imported_by(name) for name in graph.modules})
    return Failed(f"imports go round: {' -> '.join(circle)}") if circle else Passed()


def circle_in(imports: Mapping[str, Iterable[str]]) -> list[str]:
    try:
        TopologicalSorter(imports).prepare()
    except CycleError as error:
        return error.args[1][::-1]  # it names what is imported before its importer
    return []


# Gates on packaging


def lock_is_current() -> Outcome:
    # Without the user's mirror: the lock names the index it was made from, and any other makes it look outdated.
    mirror = ("UV_DEFAULT_INDEX", "UV_INDEX_URL")
    finished = run(UV, "lock", "--check", "--python", sys.executable, without=mirror)
    offline = "error sending request" in finished.output or "network was disabled" in finished.output
    if finished.code == 2 and offline:
        return Skipped("uv cannot reach the package index")
    return finished.outcome


def data_environment_is_built() -> Outcome:
    """Once for this user; tests that need it are told where it is."""
    program = "from pinfold.sandbox.environment import build; print(build().python)"
    finished = run(sys.executable, "-c", program)
    if finished.code == 0:
        os.environ["PINFOLD_TEST_DATA_PYTHON"] = finished.output.strip()
    elif "cannot be reached" in finished.output or "unset UV_OFFLINE" in finished.output:
        return Skipped("the package index cannot be reached; tests that need the environment are skipped")
    return finished.outcome


def torch_is_there() -> Outcome:
    """A Python with torch and transformers, made by pip, which may know a place with the build for CPUs."""
    folder = ROOT / ".uv" / "torch"
    python = folder / "bin" / "python"
    whole = folder / "whole"
    if not whole.exists():
        shutil.rmtree(folder, ignore_errors=True)
        how = ("-q", "--no-compile", "--only-binary", ":all:", "--prefer-binary")
        pip = (python, "-m", "pip", "install", *how)
        for step in ((sys.executable, "-m", "venv", folder), (*pip, f"torch=={TORCH}"), (*pip, "transformers>=5")):
            finished = run(*step)
            if finished.code != 0:
                last = finished.output.strip().rpartition("\n")[2]
                return Skipped(f"torch=={TORCH} cannot be had: {last}")
        whole.touch()
    os.environ["PINFOLD_TEST_TORCH_PYTHON"] = str(python)
    return Passed()


def every_test_is_in_a_part() -> Outcome:
    strays = "not (unit or integration or safety or smoke)"
    finished = run(sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", strays)
    return Passed() if finished.code == 5 else Failed(f"{finished.output}\nno part of ./check runs these")


def wheel_works_when_installed() -> Outcome:
    with tempfile.TemporaryDirectory(prefix="pinfold-wheel-") as name:
        return install_and_try(Path(name))


def install_and_try(folder: Path) -> Outcome:
    venv, dist, checkout = folder / "venv", folder / "dist", folder / "checkout"
    python = venv / "bin" / "python"
    locked, dev = folder / "locked.txt", folder / "dev.txt"
    checkout.mkdir()
    shutil.copy(ROOT / "pyproject.toml", checkout)  # pytest's settings; without src/ beside it
    # tests/crash and tests/bench are about the suites of bench/, which are no part of the wheel; others use some of them.
    left_out = shutil.ignore_patterns("__pycache__", "crash", "bench")
    shutil.copytree(ROOT / "tests", checkout / "tests", ignore=left_out)
    shutil.copytree(ROOT / "bench", checkout / "bench", ignore=shutil.ignore_patterns("__pycache__", "out"))
    export = (UV, "export", "--quiet", "--frozen", "--no-hashes")
    steps: list[tuple[str | Path, ...]] = [
        (UV, "build", "--quiet", "--python", sys.executable, "--out-dir", dist),
        (UV, "venv", "--quiet", "--python", sys.executable, venv),
        (*export, "--no-emit-project", "--group", "dev", "--output-file", locked),
        (*export, "--only-group", "dev", "--output-file", dev),
    ]
    for step in steps:
        finished = run(*step)
        if finished.code:
            return failed_step(step, finished)
    (wheel,) = dist.glob("*.whl")
    marked = [path.relative_to(ROOT) for path in files_naming("installed")]
    here = f"import pinfold; assert pinfold.__file__.startswith({str(venv)!r}), pinfold.__file__"
    says_version: list[tuple[str | Path, ...]] = [
        (python, "-m", "pinfold", "--version"),
        (UV, "tool", "run", "--quiet", "--python", sys.executable, "--from", wheel, "pinfold", "--version"),
    ]
    steps = [
        (UV, "pip", "install", "--quiet", "--python", python, "-c", locked, "-r", dev, wheel),
        (python, "-c", here),
        *says_version,
        (python, "-m", "pytest", "-q", "-m", "installed", *marked),
    ]
    for step in steps:
        finished = run(*step, cwd=checkout, without=("PYTHONPATH", "VIRTUAL_ENV"))
        if finished.code or (step in says_version and code_version() not in finished.output):
            return failed_step(step, finished)
    return Passed()


def failed_step(step: tuple[str | Path, ...], finished: Finished) -> Failed:
    return Failed(f"$ {' '.join(map(str, step))}\n{finished.output}\nexit status {finished.code}")


# Smoke


@dataclass(frozen=True, slots=True)
class Smoke:
    name: str
    seconds: float
    outcome: Outcome


def smoke() -> Iterator[Smoke]:
    with tempfile.TemporaryDirectory(prefix="pinfold-smoke-") as folder:
        report = Path(folder) / "report.xml"
        began = processor_s()
        finished = run(
            sys.executable, "-m", "pytest", "-q", "-m", "smoke", f"--junitxml={report}", *files_naming("smoke")
        )
        seconds = processor_s() - began
        cases = list(ET.parse(report).iter("testcase")) if report.exists() else []
    yield from map(smoke_case, cases)
    if finished.code not in (0, 1):
        yield Smoke("pytest", seconds, finished.outcome)
    if len(cases) < SMOKE_CHECKS:
        yield Smoke("enough checks", 0, Failed(f"{len(cases)} of at least {SMOKE_CHECKS}"))
    if seconds > SMOKE_LIMIT_S:
        yield Smoke("fast enough", seconds, Failed(f"{seconds:.0f} s, at most {SMOKE_LIMIT_S}"))


def processor_s() -> float:
    """Of all that has been run."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def smoke_case(case: ET.Element) -> Smoke:
    outcome: Outcome = Passed()
    for result in case:
        if result.tag in ("failure", "error"):
            outcome = Failed(result.text or result.get("message", ""))
        elif result.tag == "skipped":
            outcome = Skipped(result.get("message", ""))
    return Smoke(case.get("name", "?"), float(case.get("time", "0")), outcome)


def smoke_passes() -> Outcome:
    outcomes = [(check.name, check.outcome) for check in smoke()]
    problems = [f"{name}\n{outcome.output}" for name, outcome in outcomes if isinstance(outcome, Failed)]
    return Failed("\n\n".join(problems)) if problems else Passed()


def waiting(workers: int) -> tuple[str, ...]:
    """More workers than cores, for tests that wait for what they start: each keeps a core busy a third of the time."""
    return ("-n", str(workers), "--dist", "worksteal")


DATA_ENVIRONMENT = Gate("the data environment is built", "integration", data_environment_is_built)
STAGES: tuple[tuple[tuple[Gate, ...], ...], ...] = (
    # Side by side what keeps one core busy at best; but no tests beside those that must be alone among tests.
    (
        (
            Gate("ruff check", "lint", command(BIN / "ruff", "check")),
            Gate("ruff format", "lint", command(BIN / "ruff", "format", "--check")),
            Gate("import contracts", "lint", command(BIN / "lint-imports", "--no-logo")),
            Gate("no import circles", "lint", modules_import_in_no_circle),
            Gate("version is the top of CHANGELOG", "lint", version_is_the_top_of_the_changelog),
            Gate("golden logs unchanged", "lint", golden_logs_are_unchanged),
            Gate("files and functions are small", "lint", files_and_functions_are_small),
            Gate("uv.lock is current", "lint", lock_is_current),
        ),
        (
            DATA_ENVIRONMENT,
            Gate("the page is what web/ gives", "wheel", command(sys.executable, "scripts/build_page.py", "--check")),
        ),
    ),
    (
        (Gate("safety tests, one at a time", "safety", pytest("alone", less=("slow",))),),
        (
            Gate("pyright", "types", command(BIN / "pyright")),
            Gate("every test is in a part", "lint", every_test_is_in_a_part),
        ),
    ),
    (
        (Gate("unit tests", "unit", pytest("unit", "-n", "2")),),
        (Gate("the wheel works when installed", "wheel", wheel_works_when_installed),),
    ),
    # As many workers of each that both end at about the same time; neighbours stay together, which share what is made once.
    (
        (Gate("integration tests", "integration", pytest("integration", *waiting(5), less=("safety", "slow"))),),
        (Gate("safety tests", "safety", pytest("safety", *waiting(3), less=("alone", "slow"))),),
    ),
    ((Gate("smoke tests", "smoke", smoke_passes),),),
)
"""One after the other; of each, these lines side by side; of each line, these gates one after the other."""
SLOW = [
    DATA_ENVIRONMENT,
    Gate("a Python with torch", "slow", torch_is_there),
    Gate("slow tests", "slow", pytest("slow", *waiting(3))),
]
"""Run by name only: more cases of what the other parts try as well."""


def show(name: str, outcome: Outcome, seconds: float) -> None:
    match outcome:
        case Passed():
            print(f"ok    {seconds:6.1f} s  {name}")
        case Failed(output):
            print(f"FAIL  {seconds:6.1f} s  {name}\n{output.strip()}\n")
        case Skipped(reason):
            print(f"skip  {seconds:6.1f} s  {name}: {reason}")
        case _:
            assert_never(outcome)
    sys.stdout.flush()


def chosen(part: Part | None) -> Iterator[list[list[Gate]]]:
    """The stages, with the gates of that part only, and what they need."""
    if part == "slow":
        yield [SLOW]
    if part == "safety":
        yield [[DATA_ENVIRONMENT]]
    for stage in STAGES:
        yield [[gate for gate in line if part in (None, gate.part)] for line in stage]


def run_gates(stages: Iterable[list[list[Gate]]], tally: Tally) -> None:
    for lines in stages:
        with ThreadPoolExecutor(len(lines)) as pool:
            try:
                for line in [pool.submit(run_line, line, tally) for line in lines]:
                    line.result()
            except KeyboardInterrupt:
                INTERRUPTED.set()
                for process in RUNNING.copy():
                    os.killpg(process.pid, signal.SIGKILL)
                raise


def run_line(gates: list[Gate], tally: Tally) -> None:
    for gate in gates:
        began = time.monotonic()
        outcome = gate.judge()
        if INTERRUPTED.is_set():
            return
        show(gate.name, outcome, time.monotonic() - began)
        tally.count(outcome)


def run_smoke(tally: Tally) -> None:
    for check in smoke():
        show(check.name, check.outcome, check.seconds)
        tally.count(check.outcome)


def main() -> int:
    parser = argparse.ArgumentParser(prog="./check", description="Run every gate, or one part of them.")
    parser.add_argument("part", nargs="?", choices=get_args(Part), help="run only this part")
    parser.add_argument("--list", action="store_true", help="name the gates, each with its part, and stop")
    arguments = parser.parse_args()
    stages = list(chosen(arguments.part))
    if arguments.list:
        for gate in (gate for lines in stages for line in lines for gate in line):
            print(f"{gate.part:12} {gate.name}")
        return 0
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # else every gate compiles all the tests again
    tally = Tally()
    try:
        if arguments.part == "smoke":
            run_smoke(tally)
        else:
            run_gates(stages, tally)
    except KeyboardInterrupt:
        print("interrupted")
        return 130
    finally:
        print(f"{tally.passed} passed, {tally.failed} failed")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
