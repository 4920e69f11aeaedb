"""One environment for everything that is compared: same interpreter, same packages, bytecode made beforehand.

Made once under bench/out/ with uv; the benchmark then runs itself in it, so that host, cells and kernels share it.
"""

from __future__ import annotations

import compileall
import os
import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).resolve().parents[1]
SOURCE = BENCH.parent / "src"
PYTHON = BENCH / "out" / "env" / "bin" / "python"
DATA = (
    *("numpy", "pandas", "scikit-learn", "matplotlib", "scipy", "pyarrow", "duckdb", "polars", "seaborn"),
    *("statsmodels", "openpyxl", "python-calamine", "pillow", "tabulate", "ipython"),
)
BASELINES = ("ipykernel", "jupyter_client")
HOST = ("anyio", "click", "msgspec", "pydantic")
"""What Pinfold itself needs; its own code comes from this checkout."""
PACKAGES = (*DATA, *BASELINES, *HOST)


def make() -> None:
    """The environment, if it is not there yet in this form."""
    from pinfold.sandbox.environment import preferred_python

    python = preferred_python()
    stamp, wanted = PYTHON.parents[1] / "made", " ".join((python.number, *PACKAGES))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return
    print("making bench/out/env, once: about a minute and 1 GB ...", file=sys.stderr, flush=True)
    subprocess.run(["uv", "venv", "-q", "--clear", "--python", python.base, PYTHON.parents[1]], check=True)
    install = ["uv", "pip", "install", "-q", "--only-binary", ":all:", "--compile-bytecode", "--python"]
    subprocess.run([*install, PYTHON, *PACKAGES], check=True)
    stamp.write_text(wanted, encoding="utf-8")


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
