"""The environment of the baseline and of the model server: made once under bench/out/ with uv."""

from __future__ import annotations

from pathlib import Path

from bench.environments import make_environment

OUT = Path(__file__).resolve().parents[1] / "out"
PYTHON = OUT / "smolagents-venv" / "bin" / "python"
PACKAGES = ("smolagents[openai]==1.26.0", "pandas", "numpy", "matplotlib", "xllamacpp")


def make() -> Path:
    """Its interpreter; the environment is made if it is not there yet in this form."""
    return make_environment(PYTHON.parents[1], PACKAGES)
