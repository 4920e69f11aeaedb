"""`pinfold extras`: added by whatever installed Pinfold, and still there after the next upgrade."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import Index, pinfold_in, uv

from pinfold.app.models.extras import EXTRAS, requirements
from pinfold.front.progress import TimeLeft
from pinfold.sandbox.environment import Progress
from pinfold.sandbox.environment.uv import progress_of_uv


@pytest.fixture
def offered(index: Index) -> Index:
    """An index with a Pinfold that has one extra."""
    index.add("pinfold", files={"pinfold_stub.py": ""}, requires=("heron; extra == 'local'\nProvides-Extra: local",))
    index.add("heron", requires=("xllamacpp",))
    index.add("xllamacpp")
    return index


def extras(python: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*pinfold_in(python), "extras", *args], capture_output=True, text=True, timeout=100, check=False, cwd="/"
    )


def has(python: Path, module: str) -> bool:
    return subprocess.run([python, "-I", "-c", f"import {module}"], capture_output=True, check=False).returncode == 0


@pytest.fixture
def plain(offered: Index, tmp_path: Path) -> Path:
    """The Python of an environment that Pinfold was installed into."""
    folder = tmp_path / "venv"
    uv("venv", folder, "--python", sys.executable)
    uv("pip", "install", "--python", folder / "bin" / "python", "pinfold")
    return folder / "bin" / "python"


@pytest.mark.integration
def test_in_an_environment_what_the_metadata_names_is_installed_there(plain: Path) -> None:
    done = extras(plain, "add", "local")
    said = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (0, "")
    assert said[0] == f"pinfold: adding local (heron) to the environment {plain.parents[1]}"
    assert said[-1].endswith(": local installed")
    assert has(plain, "heron")
    assert "installed already" in extras(plain, "add", "local").stderr


@pytest.mark.slow
@pytest.mark.integration
def test_without_a_network_one_line_says_so(plain: Path, offered: Index) -> None:
    offered.close()
    done = extras(plain, "add", "local")
    assert done.returncode == 1
    assert f"pinfold: local could not be added: {offered.host} cannot be reached" in done.stderr.splitlines()[-1]
    assert not has(plain, "heron")


@pytest.mark.integration
def test_what_cannot_be_imported_afterwards_is_said(plain: Path, offered: Index) -> None:
    offered.add("xllamacpp", files={"xllamacpp.py": "raise ImportError('no backend')"})
    done = extras(plain, "add", "local")
    assert done.returncode == 1
    assert "local was installed, but does not work: ImportError: no backend" in done.stderr.splitlines()[-1]


@pytest.mark.slow
@pytest.mark.integration
def test_in_a_uv_tool_it_survives_an_upgrade_with_all_that_was_there(
    offered: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered.add("nest")
    monkeypatch.setenv("UV_TOOL_DIR", str(tmp_path / "tools"))
    monkeypatch.setenv("UV_TOOL_BIN_DIR", str(tmp_path / "bin"))
    uv("tool", "install", "pinfold", "--with", "nest", "--python", sys.executable)
    python = tmp_path / "tools" / "pinfold" / "bin" / "python"
    monkeypatch.delenv("UV_TOOL_DIR")
    monkeypatch.delenv("UV_TOOL_BIN_DIR")
    done = extras(python, "add", "local")
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    offered.add("pinfold", "1.1", {"pinfold_stub.py": ""}, ("heron; extra == 'local'\nProvides-Extra: local",))
    monkeypatch.setenv("UV_TOOL_DIR", str(tmp_path / "tools"))
    monkeypatch.setenv("UV_TOOL_BIN_DIR", str(tmp_path / "bin"))
    uv("tool", "upgrade", "pinfold")
    assert (
        python.parents[1] / "lib" / f"python3.{sys.version_info[1]}" / "site-packages/pinfold-1.1.dist-info"
    ).exists()
    assert [has(python, module) for module in ("heron", "xllamacpp", "nest")] == [True] * 3
    assert (tmp_path / "bin" / "pinfold").exists()


@pytest.mark.unit
def test_every_extra_is_one_that_the_package_declares() -> None:
    assert [name for name in EXTRAS if not requirements(name)] == []


@pytest.mark.integration
def test_the_list_says_what_is_here_and_a_wrong_name_is_one_line(pinfold: Callable[..., Any]) -> None:
    listed = {line.split()[0]: line for line in pinfold("extras", "list").out.splitlines()}
    assert list(listed) == list(EXTRAS)
    assert "installed  databases" in listed["sql"]
    wrong = pinfold("extras", "add", "nosuch")
    assert (wrong.code, len(wrong.err.splitlines())) == (2, 1)
    assert "providers" in wrong.err


@pytest.mark.unit
def test_downloads_are_counted_in_bytes_as_if_all_had_the_same_share_of_the_line() -> None:
    said: list[Progress] = []
    follow = progress_of_uv(said.append)
    lines = [
        "Resolved 3 packages in 1s\n",
        "Downloading a (1.0MiB)\n",
        "Downloading b (4.0MiB)\n",
        " Downloaded a\n",
        "",
    ]
    for line in [*lines, "Prepared 3 packages in 2s\n", "Installed 3 packages in 1ms\n"]:
        follow(line)
    megabytes = [(one.done >> 20, one.total >> 20) for one in said if one.phase == "download"]
    assert megabytes == [(0, 1), (0, 5), (2, 5), (2, 5)]
    assert said[-2:] == [Progress(phase="install", total=3), Progress(phase="install", done=3, total=3)]


@pytest.mark.unit
def test_the_time_left_counts_only_what_came_since_it_began() -> None:
    left = TimeLeft()
    assert left.after("downloading", 900, 1000, now=0.0) == ""
    assert left.after("downloading", 910, 1000, now=0.5) == ""
    assert left.after("downloading", 920, 1000, now=2.0) == ", 8 s left"
    assert left.after("downloading", 1000, 1000, now=9.0) == ""
    assert left.after("checking", 10, 1000, now=10.0) == ""
    assert left.after("checking", 20, 1000, now=12.0) == ", 3 min left"
