"""`pinfold bench` runs the benchmarks of the checkout it belongs to, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import pinfold

pytestmark = pytest.mark.integration

PACKAGE = Path(pinfold.__file__).parent


def bench(package: Path, *args: str, cwd: Path) -> tuple[int, str, str]:
    """By a Pinfold that is found at `package`."""
    done = subprocess.run(
        [sys.executable, "-m", "pinfold", "bench", *args],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(package.parent), "PYTHONSAFEPATH": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Pinfold in the folder `src` of a checkout, which may have benchmarks or not."""
    place = tmp_path / "checkout" / "src" / "pinfold"
    place.parent.mkdir(parents=True)
    place.symlink_to(PACKAGE)
    return place


def put_benchmark(folder: Path, name: str) -> None:
    (folder / "bench").mkdir(parents=True)
    program = "import sys; print('ran', *sys.argv[1:]); sys.exit(7)"
    (folder / "bench" / name).write_text(program, encoding="utf-8")


def test_a_benchmark_gets_what_follows_its_name_and_gives_its_exit_code(package: Path, tmp_path: Path) -> None:
    put_benchmark(package.parents[1], "speed.py")
    assert bench(package, "speed", "--help", "-n", "3", cwd=tmp_path) == (7, "ran --help -n 3\n", "")


@pytest.mark.installed
def test_without_a_checkout_one_line_says_where_benchmarks_are(package: Path, tmp_path: Path) -> None:
    workspace = tmp_path / "workspace"
    put_benchmark(workspace, "tokens.py")  # of a workspace: never run
    code, out, err = bench(package, "tokens", cwd=workspace)
    assert (code, out) == (2, "")
    assert err == (
        "pinfold: an installed Pinfold has no benchmarks; run ./pinfold bench tokens in a checkout of its repository "
        "(see pinfold bench --help)\n"
    )


def test_an_unknown_name_gets_those_there_are(package: Path, tmp_path: Path) -> None:
    put_benchmark(package.parents[1], "speed.py")
    code, _, err = bench(package, "sped", cwd=tmp_path)
    assert code == 2
    assert err == "pinfold: there is no benchmark 'sped'; there is speed (see pinfold bench --help)\n"
