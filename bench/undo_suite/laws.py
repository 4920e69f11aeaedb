"""The state machine of tests/sandbox/test_undo_laws.py, with many more examples than the tests take time for."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from bench.sandbox_suite.figures import shown
from bench.undo_suite.report import Asked, Report

ROOT = Path(__file__).resolve().parents[2]
STEPS = 20


def measure(report: Report, asked: Asked) -> None:
    begun = time.perf_counter()
    counts = {"PINFOLD_UNDO_EXAMPLES": str(asked.examples), "PINFOLD_UNDO_STEPS": str(STEPS)}
    at_random = {"PINFOLD_TEST_LAWS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--timeout", "0", "tests/sandbox/test_undo_laws.py"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, **counts, **at_random}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        print(done.stdout[-4000:], file=sys.stderr)
    report.goal(
        "any order of cells, undo, redo, branches, crashes, timeouts, reopening",
        f"{asked.examples} examples of up to {STEPS} steps in {shown(time.perf_counter() - begun)}: "
        f"{'agrees' if not done.returncode else 'FAILED, see above'}",
        "agrees with plain Python",
        met=done.returncode == 0,
    )
