"""The provider under examples/ is found by its entry point alone, and keeps the contract by its own tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed"),
]

EXAMPLE = Path(__file__).parents[2] / "examples" / "sandbox-provider"
WHERE = "import os; print(os.getcwd(), sorted(os.listdir('/')))"


def installed(place: Path) -> dict[str, str]:
    """What `pip install --no-deps --target PLACE` would put there; the environment that finds it."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    place.mkdir()
    shutil.copy(EXAMPLE / "pinfold_bubblewrap.py", place)
    info = place / f"pinfold_bubblewrap-{project['version']}.dist-info"
    info.mkdir()
    head = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(head, encoding="utf-8")
    points = project["entry-points"]["pinfold.sandboxes"]
    lines = ["[pinfold.sandboxes]", *(f"{name} = {where}" for name, where in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    return {**os.environ, "PYTHONPATH": str(place)}


def run(*argv: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=200
    )


def test_the_example_is_at_most_sixty_lines_and_uses_public_names_only() -> None:
    source = (EXAMPLE / "pinfold_bubblewrap.py").read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    assert "pinfold.sandbox._" not in source


def test_its_own_tests_run_the_contract_and_pass(tmp_path: Path) -> None:
    environment = installed(tmp_path / "site")
    shutil.copy(EXAMPLE / "test_contract.py", tmp_path)
    plain = ("-p", "no:cacheprovider", "-p", "no:randomly", "-q", "--rootdir", str(tmp_path), "-c", os.devnull)
    done = run("-m", "pytest", *plain, "test_contract.py", cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_a_command_finds_it_when_it_is_installed_and_only_then(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    argv = ("-m", "pinfold", "exec", "--sandbox", "bubblewrap", "-c", WHERE)
    without = run(*argv, cwd=workspace, env=dict(os.environ))
    assert without.returncode == 2
    assert "there is no sandbox 'bubblewrap'" in without.stderr
    found = run(*argv, cwd=workspace, env=installed(tmp_path / "site"))
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(f"{workspace} ")
    assert "'home'" not in found.stdout
