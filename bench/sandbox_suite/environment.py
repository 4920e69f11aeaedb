"""One environment for everything that is compared: same interpreter, same packages, bytecode made beforehand.

Made once under bench/out/ with uv; the benchmark then runs itself in it, so that host, cells and kernels share it.
"""

from __future__ import annotations

import compileall
import os
import sys
from pathlib import Path

from bench.environments import make_environment

from pinfold.sandbox.environment import PACKAGES as DATA
from pinfold.sandbox.environment import choose_python

BENCH = Path(__file__).resolve().parents[1]
SOURCE = BENCH.parent / "src"
PYTHON = BENCH / "out" / "env" / "bin" / "python"
BASELINES = ("ipykernel", "jupyter_client")
HOST = ("anyio", "click", "msgspec", "pydantic")
"""What Pinfold itself needs; its own code comes from this checkout."""
PACKAGES = (*DATA, *BASELINES, *HOST)


def make() -> None:
    make_environment(PYTHON.parents[1], PACKAGES, choose_python().base)


def enter() -> None:
    """Go on in the environment: this program again, by the other interpreter."""
    if Path(sys.prefix) == PYTHON.parents[1]:
        return
    make()
    compileall.compile_dir(SOURCE, quiet=2)
    os.execve(PYTHON, [str(PYTHON), "-P", *sys.argv], environment())


def environment() -> dict[str, str]:
    """Of the benchmark and of every baseline."""
    here = f"{SOURCE}{os.pathsep}{BENCH}"
    return {**os.environ, "PYTHONPATH": here, "OPENBLAS_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
