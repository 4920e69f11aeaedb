"""Forty problems of the sanitized MBPP. Their text stays in its own file: here are only ids and the file's hash."""

from __future__ import annotations

import ast
import hashlib
import json
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.task_suite.confine import without_network
from bench.task_suite.task import Check, Half, Outcome, Scene, Task, program

SHA256 = "ca95deaa9a01ef0a6f439f88bcf0dd3db3563d22f22aad6cae04ebb9a8d8c8e9"
"""Of mbpp/sanitized-mbpp.json in google-research/google-research."""
DEV = (66, 70, 95, 102, 108, 111, 116, 117, 141, 142, 163, 228, 229, 248, 257, 262, 284, 306, 425, 458)
TEST = (72, 82, 85, 97, 99, 103, 115, 130, 133, 140, 161, 247, 281, 292, 415, 433, 437, 439, 442, 451)
LIMIT_S = 20
FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


class NotMbpp(Exception):
    """The file is missing or is another one."""


def load(path: Path) -> list[Task]:
    if not path.is_file():
        raise NotMbpp(f"{path} is not there: it is mbpp/sanitized-mbpp.json of google-research; or --mbpp FILE")
    data = path.read_bytes()
    if hashlib.sha256(data).hexdigest() != SHA256:
        raise NotMbpp(f"{path} is not the official sanitized-mbpp.json: its sha256 is not {SHA256}")
    problems: dict[int, dict[str, Any]] = {one["task_id"]: one for one in json.loads(data)}
    return [*_half("dev", DEV, problems), *_half("test", TEST, problems)]


def _half(half: Half, numbers: Sequence[int], problems: dict[int, dict[str, Any]]) -> list[Task]:
    return [
        Task(id=f"{half}-mbpp-{number}", kind="mbpp", half=half, scene=_scene(problems[number])) for number in numbers
    ]


def _scene(problem: dict[str, Any]) -> Scene:
    tests: list[str] = problem["test_list"]
    code: str = problem["code"]
    called = _called(code, tests[0])
    return Scene(
        prompt=(
            f"{problem['prompt']} Write the function to a file solution.py. It must satisfy for example:\n{tests[0]}"
        ),
        check=passes([*problem["test_imports"], *tests]),
        oracle=f"open('solution.py', 'w').write({code!r})",
        wrong=(f"```python\ndef {called}(*given):\n    return 'no'\n```", "I wrote the function to solution.py."),
        slips=(
            f"open('solution.py', 'w').write({f'def {called}(*given):{chr(10)}    return None'!r})",
            "open('solution.py', 'w').write('raise SystemExit(0)')",
        ),
    )


def _called(code: str, test: str) -> str:
    """The function that the test calls, out of those that the code defines."""
    names = [node.name for node in ast.parse(code).body if isinstance(node, ast.FunctionDef)]
    return next(name for name in names if re.search(rf"\b{name}\(", test))


def passes(tests: list[str]) -> Check:
    def check(outcome: Outcome) -> str | None:
        written = outcome.workspace / "solution.py"
        if written.is_file():
            return _run(written.read_text(encoding="utf-8", errors="replace"), tests)
        answered = code_in(outcome.answer)
        return _run(answered, tests) if answered else "there is no solution.py, and no code in the answer"

    return check


def code_in(answer: str) -> str | None:
    """The last python block, or the whole answer if it is a program."""
    if blocks := FENCE.findall(answer):
        return blocks[-1]
    try:
        parsed = ast.parse(answer)
    except (SyntaxError, ValueError):
        return None
    return answer if any(isinstance(node, ast.FunctionDef) for node in parsed.body) else None


def _run(solution: str, tests: list[str]) -> str | None:
    """A solution that exits early passes nothing: the word that says all passed is made up for each run."""
    word = secrets.token_hex(8)
    tail = program(f"""
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        space = {{}}
        exec(compile({solution!r}, 'solution.py', 'exec'), space)
        for test in {tests!r}:
            exec(test, space)
        print({word!r})
    """)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "judge.py").write_text(tail, encoding="utf-8")
        command = [*without_network(), sys.executable, "-B", "judge.py"]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return f"does not end within {LIMIT_S} s"
    if done.returncode == 0 and done.stdout.endswith(f"{word}\n"):
        return None
    return (done.stderr.strip().splitlines() or ["exits early"])[-1][:200]
