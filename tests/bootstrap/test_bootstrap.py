"""./pinfold on machines of several kinds: a checkout with the real scripts and a tiny project, and no network."""

import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from tests.front.chat.terminal import Terminal

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ("bash", "cp", "env", "flock", "ln", "mkdir", "mv", "readlink", "rm", "sh", "sleep")
RUN_LIMIT_S = 100
"""Which no test is about: on a busy machine to make an environment takes its time."""

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "pinfold"
version = "1"
requires-python = ">=3.11"
[dependency-groups]
dev = []
"""
LOCK = """
version = 1
requires-python = ">=3.11"
[[package]]
name = "pinfold"
version = "1"
source = { editable = "." }
[package.metadata.requires-dev]
dev = []
"""
BACKEND = """
import pathlib, zipfile
def build_editable(folder, config_settings=None, metadata_directory=None):
    with zipfile.ZipFile(f"{folder}/pinfold-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("pinfold.pth", str(pathlib.Path("src").resolve()))
        wheel.writestr("pinfold-1.dist-info/METADATA", "Metadata-Version: 2.1\\nName: pinfold\\nVersion: 1\\n")
        wheel.writestr("pinfold-1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("pinfold-1.dist-info/entry_points.txt", "[console_scripts]\\npinfold = pinfold.__main__:main\\n")
        wheel.writestr("pinfold-1.dist-info/RECORD", "")
    return "pinfold-1-py3-none-any.whl"
"""
MAIN = """
import os, sys
def main():
    print(__file__, os.getcwd(), *sys.argv[1:])
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A checkout, and a PATH with nothing on it but what the test put there."""

    checkout: Path
    path: Path
    settings: dict[str, str] = field(default_factory=dict[str, str])

    def put(self, name: str, script: str) -> None:
        (self.path / name).unlink(missing_ok=True)
        (self.path / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        (self.path / name).chmod(0o755)

    def link(self, name: str, target: str | Path) -> None:
        (self.path / name).unlink(missing_ok=True)
        (self.path / name).symlink_to(target)

    @property
    def env(self) -> dict[str, str]:
        return {
            "PATH": str(self.path),
            "HOME": str(self.path.parent),
            "PYTHONDONTWRITEBYTECODE": "1",
            "UV_OFFLINE": "1",
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_NO_INDEX": "1",
            **self.settings,
        }

    def start(self, *argv: str | Path, cwd: Path | None = None) -> subprocess.Popen[str]:
        return subprocess.Popen(
            argv or [self.checkout / "pinfold"],
            cwd=cwd or self.path.parent,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, *argv: str | Path, cwd: Path | None = None) -> tuple[int, str, str]:
        process = self.start(*argv, cwd=cwd)
        out, err = process.communicate(timeout=RUN_LIMIT_S)
        return process.returncode, out, err


def real_uv() -> str:
    """A line of shell; with the whole PATH, because what is called uv may itself be a script."""
    found = ROOT / ".uv" / "uv"
    uv = str(found) if found.exists() else shutil.which("uv")
    assert uv, "no uv: run these tests by ./check"
    return f"PATH='{os.environ['PATH']}' exec '{uv}' \"$@\""


def real_python() -> str:
    return os.path.realpath(sys.executable)


def can(python: str, *arguments: str) -> bool:
    return subprocess.run([python, *arguments], capture_output=True, check=False).returncode == 0


def write_wheel(folder: Path, name: str, files: dict[str, str]) -> None:
    metadata = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 9.9\n",
        "WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    with zipfile.ZipFile(folder / f"{name}-9.9-py3-none-any.whl", "w") as wheel:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path)
            entry.external_attr = 0o100755 << 16
            wheel.writestr(entry, text)
        for path, text in metadata.items():
            wheel.writestr(f"{name}-9.9.dist-info/{path}", text)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    checkout = tmp_path / "a check out"
    package = checkout / "src" / "pinfold"
    package.mkdir(parents=True)
    (checkout / "scripts").mkdir()
    for name in ("pinfold", "check", "scripts/bootstrap.sh"):
        shutil.copy(ROOT / name, checkout / name)
    texts = {"pyproject.toml": PYPROJECT, "uv.lock": LOCK, "backend.py": BACKEND, "src/pinfold/__main__.py": MAIN}
    for name, text in texts.items():
        (checkout / name).write_text(text, encoding="utf-8")
    machine = Machine(checkout=checkout, path=tmp_path / "bin")
    machine.path.mkdir()
    for tool in TOOLS:
        if found := shutil.which(tool):
            machine.link(tool, found)
    # Without pip's settings, which there are none of: to ask pip takes longer than the rest.
    machine.put("python3", f"[ \"$*\" = '-m pip config list' ] || exec '{real_python()}' \"$@\"")
    machine.put("uv", real_uv())
    return machine


def test_the_first_run_sets_up_and_starts_pinfold_where_the_user_is(machine: Machine, tmp_path: Path) -> None:
    code, out, err = machine.run(machine.checkout / "pinfold", "a b", cwd=tmp_path)
    assert (code, out) == (0, f"{machine.checkout}/src/pinfold/__main__.py {tmp_path} a b\n"), err
    assert "pinfold: installing the dependencies ...\n" in err


def test_a_benchmark_gets_the_dependencies_of_development_and_nothing_else_does(machine: Machine) -> None:
    stamp = machine.checkout / ".venv" / ".pinfold-dev"
    machine.run()
    assert not stamp.exists()
    code, _, err = machine.run(machine.checkout / "pinfold", "bench")
    assert (code, stamp.exists()) == (0, True), err


@pytest.mark.parametrize(("name", "is_there"), [("one", True), ("several", True), ("none", False)])
def test_a_benchmark_that_does_not_exist_installs_nothing(machine: Machine, name: str, is_there: bool) -> None:
    (machine.checkout / "bench" / "several").mkdir(parents=True)
    for file in ("one.py", "several/__main__.py"):
        (machine.checkout / "bench" / file).touch()
    code, _, err = machine.run(machine.checkout / "pinfold", "bench", name)
    assert (code, (machine.checkout / ".venv" / ".pinfold-dev").exists()) == (0, is_there), err


def test_on_a_terminal_the_first_run_has_one_line_for_how_far_it_is_and_none_for_each_package(
    machine: Machine, tmp_path: Path
) -> None:
    terminal = Terminal([str(machine.checkout / "pinfold")], machine.env, tmp_path, columns=200)
    try:
        assert terminal.exit_code() == 0
        assert b"\r\x1b[Kpinfold: Installed 1 package" in terminal.raw
        first, done, ready, *_ = terminal.lines()
        assert first == "pinfold: installing the dependencies ..."
        assert done.startswith("pinfold: installing the dependencies ... done (")
        assert ready.startswith("pinfold: ready (")
    finally:
        terminal.close()


def test_on_a_terminal_why_nothing_could_be_installed_stays(machine: Machine, tmp_path: Path) -> None:
    (machine.checkout / "uv.lock").write_text("nonsense", encoding="utf-8")
    terminal = Terminal([str(machine.checkout / "pinfold")], machine.env, tmp_path, columns=200)
    try:
        assert terminal.exit_code() == 2
        assert "error: " in terminal.text()
        assert "pinfold: could not install the dependencies (see above)" in terminal.text()
    finally:
        terminal.close()


def test_a_second_run_needs_no_uv_and_no_python3_and_says_nothing(machine: Machine) -> None:
    machine.run()
    (machine.path / "uv").unlink()
    (machine.path / "python3").unlink()
    code, _, err = machine.run()
    assert (code, err) == (0, "")


def test_it_runs_through_a_chain_of_links_found_on_the_path(machine: Machine) -> None:
    machine.link("first", machine.checkout / "pinfold")
    machine.link("second", "first")
    code, out, err = machine.run("bash", "-c", "second through")
    assert code == 0, err
    assert out.endswith(" through\n")


def test_bytecode_is_written_even_where_python_is_told_not_to_and_again_after_an_edit(machine: Machine) -> None:
    package = machine.checkout / "src" / "pinfold"
    machine.run()
    (compiled,) = package.glob("__pycache__/__main__.*.pyc")
    before = compiled.stat().st_mtime_ns
    later = time.time() + 5  # bytecode remembers whole seconds
    os.utime(package / "__main__.py", (later, later))
    assert machine.run()[2] == ""
    assert compiled.stat().st_mtime_ns > before


@pytest.mark.parametrize("module", [pytest.param("venv", marks=pytest.mark.slow), "pip"])
def test_without_uv_it_comes_from_the_package_index(machine: Machine, tmp_path: Path, module: str) -> None:
    python = real_python()
    if not can(python, "-c", f"import ensurepip, {module}"):
        pytest.skip(f"{python} has no {module}")
    if module == "pip":
        hide(machine, tmp_path, "ensurepip")
    (machine.path / "uv").unlink()
    write_wheel(tmp_path, "uv", {"uv-9.9.data/scripts/uv": f"#!/bin/sh\n{real_uv()}\n"})
    machine.settings["PIP_FIND_LINKS"] = str(tmp_path)
    code, _, err = machine.run()
    assert code == 0, err
    assert "pinfold: installing uv ...\n" in err
    assert [path.name for path in (machine.checkout / ".uv").iterdir() if path.is_dir()] == []


def hide(machine: Machine, folder: Path, *modules: str) -> None:
    lines = [f"sys.modules[{module!r}] = None" for module in modules]
    (folder / "sitecustomize.py").write_text("\n".join(["import sys", *lines]), encoding="utf-8")
    machine.put("python3", f"PYTHONPATH='{folder}' exec '{real_python()}' \"$@\"")


def test_a_python_without_venv_and_pip_gets_one_line_with_the_fix(machine: Machine, tmp_path: Path) -> None:
    (machine.path / "uv").unlink()
    hide(machine, tmp_path, "ensurepip", "pip")
    code, _, err = machine.run()
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("pinfold: python3 has neither venv nor pip; fix: ")
    if Path("/etc/debian_version").exists():
        assert err.endswith("fix: sudo apt install python3-venv\n")


def test_an_old_python_gets_one_line_with_the_fix(machine: Machine) -> None:
    machine.put("python3", "echo 3.9.18 /old/python3.9; exit 1")
    code, _, err = machine.run()
    assert code == 2
    assert err.count("\n") == 1
    assert err.startswith("pinfold: needs Python 3.11 or newer (python3 is 3.9.18); fix: ")


def test_a_newer_python_beside_an_old_one_is_found(machine: Machine) -> None:
    machine.put("python3", "echo 3.9.18 /old/python3.9; exit 1")
    machine.link("python3.12", real_python())
    assert machine.run()[0] == 0


def test_a_checkout_that_cannot_be_written_gets_one_line(machine: Machine) -> None:
    (machine.checkout / ".uv").touch()  # in the way of the folder, which stops root as well
    code, _, err = machine.run()
    assert (code, err.count("\n")) == (2, 1)
    assert err.startswith(f"pinfold: cannot write in {machine.checkout}; ")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_run_stopped_half_way_is_repaired_by_the_next(machine: Machine, tmp_path: Path, how: signal.Signals) -> None:
    machine.run()
    (machine.checkout / "uv.lock").touch()
    reached = tmp_path / "reached"
    machine.put("uv", f"[ $1 = sync ] && echo > '{reached}' && exec sleep 60\n{real_uv()}")
    stopped = machine.start()
    deadline = time.monotonic() + RUN_LIMIT_S
    while not reached.exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    # A half-done sync may leave this: a package that looks installed to uv and is not.
    (path_file,) = machine.checkout.glob(".venv/lib/*/site-packages/pinfold.pth")
    path_file.unlink()
    os.killpg(stopped.pid, how)
    _, err = stopped.communicate(timeout=RUN_LIMIT_S)
    if how == signal.SIGINT:
        assert stopped.returncode == 130
        assert err.endswith("pinfold: interrupted; run it again to go on\n")
    machine.put("uv", real_uv())
    assert machine.run()[0] == 0
    assert machine.run()[2] == ""


@pytest.mark.parametrize("lock", ["flock", "link"])
def test_of_two_started_at_once_one_sets_up(machine: Machine, lock: str) -> None:
    if lock == "link":
        (machine.path / "flock").unlink(missing_ok=True)
    both = [machine.start(), machine.start()]
    told = [process.communicate(timeout=RUN_LIMIT_S)[1] for process in both]
    assert [process.returncode for process in both] == [0, 0], told
    assert "".join(told).count("pinfold: installing the dependencies ...\n") == 1


def test_the_lock_of_a_dead_run_is_taken_over(machine: Machine) -> None:
    (machine.path / "flock").unlink(missing_ok=True)
    gone = subprocess.Popen(["true"])
    gone.wait()
    (machine.checkout / ".uv").mkdir()
    (machine.checkout / ".uv" / "lock.pid").symlink_to(str(gone.pid))
    assert machine.run()[0] == 0


def test_a_renamed_checkout_runs_its_own_code(machine: Machine, tmp_path: Path) -> None:
    machine.run()
    renamed = machine.checkout.rename(tmp_path / "renamed")
    code, out, err = machine.run(renamed / "pinfold")
    assert code == 0, err
    assert out.startswith(f"{renamed}/src/pinfold/")


def test_a_venv_whose_interpreter_is_gone_is_made_again(machine: Machine) -> None:
    machine.run()
    python = machine.checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/gone/python3.11")
    assert machine.run()[0] == 0
    assert python.exists()


def test_what_else_is_installed_stays(machine: Machine, tmp_path: Path) -> None:
    machine.run()
    write_wheel(tmp_path, "extra", {"extra.py": ""})
    venv = machine.checkout / ".venv"
    machine.run("uv", "pip", "install", "--python", venv, tmp_path / "extra-9.9-py3-none-any.whl")
    (machine.checkout / "uv.lock").touch()
    assert "installing the dependencies" in machine.run()[2]
    assert list(venv.glob("lib/*/site-packages/extra.py"))


@pytest.fixture
def with_extra(machine: Machine) -> Machine:
    """The project has an extra, locked by the hash of a wheel that lies in the checkout."""
    write_wheel(machine.checkout, "heron", {"heron.py": ""})
    extra = '[project.optional-dependencies]\nheron = ["heron"]\n'
    source = '[tool.uv.sources]\nheron = { path = "heron-9.9-py3-none-any.whl" }\n'
    (machine.checkout / "pyproject.toml").write_text(f"{PYPROJECT}{extra}{source}", encoding="utf-8")
    code, _, err = machine.run("uv", "lock", "--project", machine.checkout)
    assert code == 0, err
    return machine


def add_extra(machine: Machine) -> tuple[int, str, str]:
    script = machine.checkout / "scripts" / "bootstrap.sh"
    return machine.run("bash", "-c", 'source "$0" && add_extras heron', script)


def has_heron(machine: Machine) -> bool:
    return any((machine.checkout / ".venv").glob("lib/*/site-packages/heron.py"))


@pytest.mark.parametrize("command", ["pinfold", "check"])
def test_an_extra_that_was_added_comes_back_with_a_new_environment(with_extra: Machine, command: str) -> None:
    machine = with_extra
    machine.run()
    assert not has_heron(machine)
    code, _, err = add_extra(machine)
    assert (code, has_heron(machine)) == (0, True), err
    assert machine.run()[2] == ""
    (machine.checkout / "scripts" / "check.py").write_text("", encoding="utf-8")
    shutil.rmtree(machine.checkout / ".venv")
    assert machine.run(machine.checkout / command)[0] == 0
    assert has_heron(machine)


@pytest.mark.slow
def test_an_extra_that_cannot_be_had_is_not_tried_again(with_extra: Machine) -> None:
    machine = with_extra
    machine.run()
    (machine.checkout / "heron-9.9-py3-none-any.whl").unlink()
    code, _, err = add_extra(machine)
    assert (code, "error: " in err) == (2, True)
    (machine.checkout / "uv.lock").touch()
    assert machine.run()[0] == 0


@pytest.mark.slow
def test_an_extra_that_the_project_no_longer_has_is_passed_over(with_extra: Machine) -> None:
    machine = with_extra
    add_extra(machine)
    (machine.checkout / "pyproject.toml").write_text(PYPROJECT, encoding="utf-8")
    (machine.checkout / "uv.lock").write_text(LOCK, encoding="utf-8")
    code, _, err = machine.run()
    assert code == 0, err
