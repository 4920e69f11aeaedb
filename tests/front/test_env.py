"""`pinfold env`: builds with progress, is quiet when there is nothing to do, shows what is there."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.wheels import Index, pinfold_with

from pinfold.app.trust.project_files import read_project_files
from pinfold.app.trust.workspace_trust import trust

pytestmark = pytest.mark.integration


@pytest.fixture
def env(index: Index, tmp_path: Path, workspace: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The real command, but that the usual packages are one, from the index of this test."""
    lock = tmp_path / "lock.txt"
    lock.write_text(index.add("heron"))

    def run(*args: str, terminal: int | None = None) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*pinfold_with(lock), "env", *args],
            cwd=workspace,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE if terminal is None else terminal,
            text=True,
            timeout=200,
            check=False,
        )

    return run


def test_a_build_says_what_it_does_and_a_second_says_nothing(env: Any) -> None:
    first = env("build")
    assert (first.returncode, first.stdout) == (0, "")
    phases = [line for line in first.stderr.splitlines() if line.endswith(" ...")]
    assert phases == [f"pinfold: {phase} ..." for phase in ("resolving", "installing", "compiling")]
    assert "ready in" in first.stderr.splitlines()[-1]
    second = env("build")
    assert (second.returncode, second.stdout, second.stderr) == (0, "", "")
    assert "ready in" in env("build", "--rebuild").stderr


def test_on_a_terminal_a_bar_is_drawn_and_taken_away(env: Any) -> None:
    ours, theirs = pty.openpty()
    done = env("build", terminal=theirs)
    os.close(theirs)
    drawn = os.read(ours, 65536).decode()
    os.close(ours)
    assert done.returncode == 0
    assert "\r\x1b[K------------------------ resolving" in drawn
    assert "######################## installing 1/1" in drawn
    assert drawn.rpartition("\x1b[K")[2].startswith("pinfold: ready in")


def test_show_says_how_to_build_and_then_what_is_there(env: Any, index: Index) -> None:
    index.add("nest")
    assert "not built: `pinfold env build` makes it" in env("show").stdout
    assert json.loads(env("show", "--json").stdout)["built"] is False
    env("build")
    shown = json.loads(env("show", "--json").stdout)
    assert (shown["built"], shown["used"], shown["packages"], shown["added"]) == (True, True, {"heron": "1.0"}, [])
    assert Path(shown["python"]).parent.parent == Path(shown["path"])
    assert "  heron 1.0\n" in env("show").stdout


def test_a_projects_packages_are_added(env: Any, index: Index, workspace: Path) -> None:
    index.add("nest")
    (workspace / "pinfold.toml").write_text('[sandbox]\npackages = ["nest"]\n')
    trust(read_project_files(workspace))
    assert env("build").returncode == 0
    assert json.loads(env("show", "--json").stdout)["packages"] == {"heron": "1.0", "nest": "1.0"}


@pytest.mark.parametrize(
    ("package", "words"), [("nosuch", "there is no package 'nosuch'"), ("../x", "is not a package name")]
)
def test_a_package_that_cannot_be_had_is_one_line_and_exit_2(env: Any, package: str, words: str) -> None:
    done = env("build", "--package", package)
    assert (done.returncode, done.stdout) == (2, "")
    assert words in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[sandbox]\npackages = ['a b']", "sandbox.packages: 'a b' is not a package name"),
        ("[sandbox]\npackages = 'numpy'", "sandbox.packages: Expected `array`"),
        ("[sandbox]\npython = 'python3'", "sandbox.python: the Python 'python3' must be named by its whole path"),
        ("[sandbox]\npython = '/nowhere'", "sandbox.python: the Python /nowhere does not exist"),
        ("[sandbox]\nmemory_mb = 0", "sandbox.memory_mb must be more than 0"),
        ("[sandbox]\nprocesses = 1.5", "sandbox.processes: Expected `int`"),
    ],
)
def test_a_wrong_setting_is_named(pinfold: Any, tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "xdg" / "config" / "pinfold" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = pinfold("exec", "--sandbox", "unsafe-local", "-c", "1")
    assert (done.code, done.out) == (2, "")
    assert words in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_ctrl_c_ends_a_build_and_leaves_nothing(env: Any, index: Index, workspace: Path, tmp_path: Path) -> None:
    index.hold()
    argv = [*pinfold_with(tmp_path / "lock.txt"), "env", "build"]
    running = subprocess.Popen(argv, cwd=workspace, stderr=subprocess.PIPE, text=True)
    assert index.held.wait(20)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=20)
    assert running.returncode == 130
    assert "Traceback" not in said
    left = [path.name for path in (tmp_path / "xdg/data/pinfold/environments").iterdir()]
    assert left == [".lock"]


@pytest.fixture
def exec_(env: Any, tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`pinfold exec` with the packages of `env`, free to build."""
    monkeypatch.delenv("PINFOLD_SANDBOX_BUILD")

    def run(code: str) -> subprocess.CompletedProcess[str]:
        argv = [*pinfold_with(tmp_path / "lock.txt"), "exec", "-c", code]
        return subprocess.run(argv, cwd=workspace, capture_output=True, text=True, timeout=200, check=False)

    return run


def test_code_that_needs_the_environment_has_it_built_first(exec_: Any, index: Index) -> None:
    plain = exec_("import os, json\n1 + 1")
    assert (plain.returncode, plain.stdout, index.asked) == (0, "2\n", [])
    done = exec_("try:\n    import os, pandas\nexcept ImportError:\n    import heron\n    print(heron.version)")
    assert (done.returncode, done.stdout) == (0, "1.0\n")
    said = done.stderr.splitlines()
    assert said[0].startswith("pinfold: building the Python that code runs in, once: numpy, pandas")
    assert any(line.startswith("pinfold: ready in") for line in said)


def test_without_a_network_one_line_says_so_once_and_the_code_runs_without(exec_: Any, index: Index) -> None:
    index.close()
    code = "try: import pandas\nexcept ImportError: print('without')"
    first, second = exec_(code), exec_(code)
    assert [(one.returncode, one.stdout) for one in (first, second)] == [(0, "without\n")] * 2
    assert sum("going on with the standard library only" in line for line in first.stderr.splitlines()) == 1
    assert "building" not in second.stderr


def test_a_setting_does_without(exec_: Any, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PINFOLD_SANDBOX_BUILD", "off")
    exec_("import pandas")
    assert index.asked == []
