"""Environments for what benches compare with, made by the uv that comes with this checkout's .venv."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))

from pinfold.sandbox.environment.uv import find_uv


def make_environment(place: Path, packages: Sequence[str], base: str | Path = sys.executable) -> Path:
    """Its interpreter, with the packages from the package index; `made` in it says which."""
    python, stamp, wanted = place / "bin" / "python", place / "made", " ".join((str(base), *packages))
    if stamp.exists() and stamp.read_text(encoding="utf-8") == wanted:
        return python
    print(f"making {place}, once ...", file=sys.stderr, flush=True)
    uv = find_uv()
    subprocess.run([uv, "venv", "-q", "--clear", "--python", base, place], check=True)
    install = [uv, "pip", "install", "-q", "--only-binary", ":all:", "--compile-bytecode"]
    subprocess.run([*install, "--python", python, *packages], check=True)
    stamp.write_text(wanted, encoding="utf-8")
    return python
