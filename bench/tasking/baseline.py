"""The environment of the baseline and of the model server: made once under bench/out/ with uv."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

OUT = Path(__file__).resolve().parents[1] / "out"
PYTHON = OUT / "smolagents-venv" / "bin" / "python"
PACKAGES = ("smolagents[openai]==1.26.0", "pandas", "numpy", "matplotlib", "xllamacpp")


def make() -> Path:
    """Its interpreter; the environment is made if it is not there yet in this form."""
    stamp, wanted = PYTHON.parents[1] / "made", " ".join(PACKAGES)
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return PYTHON
    print("making bench/out/smolagents-venv, once ...", file=sys.stderr, flush=True)
    subprocess.run(["uv", "venv", "-q", "--clear", "--python", sys.executable, PYTHON.parents[1]], check=True)
    install = ["uv", "pip", "install", "-q", "--only-binary", ":all:", "--compile-bytecode", "--python"]
    subprocess.run([*install, PYTHON, *PACKAGES], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return PYTHON
