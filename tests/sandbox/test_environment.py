"""Environments for cells: built from wheels alone, put in place whole, found again without any network."""

from __future__ import annotations

import importlib.util
import marshal
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.time_complexity import took_s
from tests.wheels import Index

from pinfold.app.paths import data_dir
from pinfold.sandbox import open_session, provider_named
from pinfold.sandbox.environment import (
    PACKAGES,
    EnvironmentFailed,
    Progress,
    Recipe,
    build,
    check_python,
    choose_python,
    environments,
    find,
    running_python,
)

pytestmark = pytest.mark.integration

BUILD = """
import sys
from pathlib import Path
from pinfold.sandbox.environment import build
print(build(lock=Path(sys.argv[1]).read_text()).built_at.isoformat())
"""


def said_by(python: Path, code: str) -> str:
    done = subprocess.run([python, "-I", "-c", code], capture_output=True, text=True, check=True, timeout=200)
    return done.stdout.strip()


def unfinished() -> list[Path]:
    return list(environments().glob(".new-*"))


def test_an_environment_works_where_it_was_put(index: Index) -> None:
    made = build(lock=index.add("heron"))
    assert made.folder.parent == environments()
    assert dict(made.packages) == {"heron": "1.0"}
    assert said_by(made.python, "import heron, sys; print(heron.version, sys.prefix)") == f"1.0 {made.folder}"
    script = subprocess.run([made.folder / "bin" / "heron"], capture_output=True, text=True, check=True)
    assert script.stdout == "heron 1.0\n"
    assert unfinished() == []


def test_the_sandbox_and_the_app_agree_on_the_folder() -> None:
    assert environments() == data_dir() / "environments"


def test_a_second_call_asks_nobody_and_takes_no_time(index: Index) -> None:
    lock = index.add("heron")
    first = build(lock=lock)
    index.close()
    asked = len(index.asked)
    seen: list[Progress] = []
    assert min(took_s(lambda: build(on_progress=seen.append, lock=lock)) for _ in range(5)) < 0.5
    assert build(on_progress=seen.append, lock=lock) == first
    assert (len(index.asked), seen) == (asked, [])


def test_progress_goes_through_its_phases(index: Index) -> None:
    seen: list[Progress] = []
    build(on_progress=seen.append, lock=index.add("heron"))
    assert list(dict.fromkeys(progress.phase for progress in seen)) == ["resolve", "install", "compile"]
    assert seen[-1].done == seen[-1].total > 0


def test_all_bytecode_is_there_and_never_doubts_its_source(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    files = {"heron/__init__.py": "", "heron/deep/er/still.py": "x = 1\n", "heron/bad.py": "def"}
    made = build(lock=index.add("heron", files=files), python=running_python())
    package = made.folder / running_python().packages / "heron"
    sources = [path for path in package.rglob("*.py") if path.name != "bad.py"]
    assert len(sources) == 2
    for path in sources:
        data = Path(importlib.util.cache_from_source(str(path))).read_bytes()
        assert int.from_bytes(data[4:8], "little") == 0b01  # by hash, unchecked
        assert marshal.loads(data[16:]).co_filename == str(path)


def test_a_leaner_python_that_is_installed_goes_before_an_older_one_that_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    assert choose_python() == running_python()
    for name in ("pyenv/versions/3.13.9", "uv/cpython-3.13.11-linux-x86_64-gnu", "uv/cpython-3.13.12rc1-linux"):
        folder = tmp_path / name / "bin"
        folder.mkdir(parents=True)
        (folder / "python3.13").touch(0o755)
    (tmp_path / "pyenv/versions/3.13.12").mkdir()  # unfinished
    chosen = choose_python()
    if sys.version_info < (3, 13):
        assert (chosen.version, "cpython-3.13.11" in str(chosen.base)) == ((3, 13, 11), True)
    else:
        assert chosen == running_python()


def test_added_packages_come_with_what_they_need_and_leave_the_lock_alone(index: Index) -> None:
    lock = index.add("heron")
    index.add("heron", "2.0")
    index.add("nest", requires=("heron", "twig"))
    index.add("twig")
    made = build(["nest"], lock=lock)
    assert dict(made.packages) == {"heron": "1.0", "nest": "1.0", "twig": "1.0"}
    assert made.asked == ("nest",)
    index.add("tower", requires=("heron>=2",))
    with pytest.raises(EnvironmentFailed, match="tower") as caught:
        build(["tower"], lock=lock)
    assert "\n" not in str(caught.value)


def test_the_key_stands_for_what_goes_in() -> None:
    keys = [
        Recipe.of([]).key,
        Recipe.of(["nest"]).key,
        Recipe.of(["nest>=2"]).key,
        Recipe.of([], lock="heron==1.0").key,
        Recipe.of([], python=check_python(Path("/usr/bin/python3"))).key
        if Path("/usr/bin/python3").exists() and sys.base_prefix != "/usr"
        else "",
    ]
    assert len(set(keys)) == len(keys)
    assert Recipe.of(["B_b", "a [z, y] >=1 , <2"]).key == Recipe.of(["a[y,z]<2,>=1", "b.B"]).key


def test_the_lock_has_every_package_with_hashes() -> None:
    entries = Recipe.of().lock.replace("\\\n", " ").splitlines()
    pinned = {line.partition("==")[0] for line in entries if "--hash=sha256:" in line}
    assert set(PACKAGES) <= pinned
    assert all("--hash=sha256:" in line for line in entries if line and not line.startswith("#"))


@pytest.mark.parametrize(
    "package",
    ["", "-r x", "./here", "/tmp/x", "x @ https://a/b.whl", "https://a/b", "git+https://a", "a b", "a;b", "a\nb"],
)
def test_what_is_no_package_is_refused(package: str) -> None:
    with pytest.raises(EnvironmentFailed, match="is not a package name; give"):
        Recipe.of([package])


def test_a_source_distribution_is_refused_and_not_run(index: Index, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    index.add_source("trap", "1.0", f"open({str(canary)!r}, 'w').close()\n")
    with pytest.raises(EnvironmentFailed, match=r"trap.* has no wheel for Python 3\.\d+ on .*only wheels"):
        build(["trap"], lock=index.add("heron"))
    assert not canary.exists()
    # The trap is a real one: whoever builds it runs it.
    venv = tmp_path / "venv"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert uv is not None
    subprocess.run([uv, "venv", "-q", venv], check=True)
    subprocess.run([uv, "pip", "install", "-q", "--python", venv, "trap"], check=False, capture_output=True)
    assert canary.exists()


def test_nothing_that_is_installed_runs_on_the_host(index: Index, tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    trap = f"import os; open({str(canary)!r}, 'w').close()\n"
    files = {"trap.pth": trap, "sitecustomize.py": trap, "usercustomize.py": trap}
    lock = index.add("heron")
    index.add("trap", files=files)
    made = build(["trap"], lock=lock)
    build(["trap"], lock=lock, rebuild=True)
    assert not canary.exists()
    # The trap is a real one: the environment's own Python steps into it.
    said_by(made.python, "")
    assert canary.exists()


def test_a_file_that_is_not_what_the_lock_names_is_refused(index: Index) -> None:
    index.add("heron")
    with pytest.raises(EnvironmentFailed, match=r"heron==1\.0 is not what the lock names \(hash mismatch\)"):
        build(lock=f"heron==1.0 --hash=sha256:{'0' * 64}\n")
    assert find(lock=f"heron==1.0 --hash=sha256:{'0' * 64}\n") is None
    assert unfinished() == []


@pytest.mark.parametrize(
    ("package", "words"),
    [("nosuch", "there is no package 'nosuch'"), ("heron==9", "there is no heron==9 in the package index")],
)
def test_what_the_index_does_not_have_is_named(index: Index, package: str, words: str) -> None:
    index.add("heron")
    with pytest.raises(EnvironmentFailed) as caught:
        build([package], lock="")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_without_a_network_the_host_is_named(index: Index) -> None:
    lock = index.add("heron")
    index.close()
    with pytest.raises(EnvironmentFailed, match=f"{index.host} cannot be reached .*UV_DEFAULT_INDEX") as caught:
        build(lock=lock)
    assert "\n" not in str(caught.value)


def test_uv_told_to_stay_offline_is_said(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UV_OFFLINE", "1")
    with pytest.raises(EnvironmentFailed, match="unset UV_OFFLINE"):
        build(lock=index.add("heron"))


def test_a_full_disk_is_said_in_one_line(index: Index, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(index.add("heron", files={"heron.bin": os.urandom(3 << 20)}))
    small = tmp_path / "small"
    small.mkdir()
    program = f'mount -t tmpfs -o size=1m none {small} && XDG_DATA_HOME={small} exec {sys.executable} -c "$0" {lock}'
    done = subprocess.run(["unshare", "-rm", "sh", "-c", program, BUILD], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 1
    assert "EnvironmentFailed: the disk is full: make room for" in done.stderr.splitlines()[-1]


def test_a_killed_build_leaves_nothing_that_counts(index: Index, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(index.add("heron"))
    index.hold()
    process = subprocess.Popen([sys.executable, "-c", BUILD, lock], stdout=subprocess.DEVNULL)
    assert index.held.wait(20)
    process.kill()
    process.wait()
    assert find(lock=lock.read_text()) is None
    assert len(unfinished()) == 1
    index.release()
    made = build(lock=lock.read_text())
    assert made.python.exists()
    assert unfinished() == []


def test_two_builds_at_once_make_one_environment(index: Index, tmp_path: Path) -> None:
    lock = tmp_path / "lock.txt"
    lock.write_text(index.add("heron"))
    index.hold()
    builds = [
        subprocess.Popen([sys.executable, "-c", BUILD, lock], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert index.held.wait(20)
    index.release()
    outputs = [process.communicate(timeout=200)[0] for process in builds]
    assert outputs[0] == outputs[1] != ""
    assert len([path for path in index.asked if path.endswith(".whl")]) == 1


def test_an_environment_whose_python_is_gone_is_built_again(index: Index) -> None:
    lock = index.add("heron")
    made = build(lock=lock)
    made.python.unlink()
    made.python.symlink_to("/nowhere/python")
    assert find(lock=lock) is None
    assert said_by(build(lock=lock).python, "import heron; print(heron.version)") == "1.0"


def test_a_folder_without_its_marker_does_not_count(index: Index) -> None:
    lock = index.add("heron")
    made = build(lock=lock)
    (made.folder / "pinfold.json").write_text('{"key": ')
    assert find(lock=lock) is None
    assert build(lock=lock).packages == made.packages


def test_everyone_can_read_it_whatever_the_umask(index: Index) -> None:
    before = os.umask(0o077)
    try:
        made = build(lock=index.add("heron"))
    finally:
        os.umask(before)
    assert all(path.stat().st_mode & 0o004 for path in made.folder.rglob("*"))
    assert made.folder.parent.parent.stat().st_mode & 0o077 == 0


OLD = '{"version": [3, 9, 1], "implementation": "cpython", "flags": "", "machine": "m", "base": "/x"}'


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("exit 3", "does not run as Python 3: exit code 3"),
        ("echo hello", "does not run as Python 3: its answer was not understood"),
        (f"echo '{OLD}'", "is Python 3.9.1; cells need 3.11 or newer"),
    ],
)
def test_a_program_that_is_no_python_for_cells_is_named_with_why(tmp_path: Path, program: str, words: str) -> None:
    path = tmp_path / "python"
    path.write_text(f"#!/bin/sh\n{program}\n")
    path.chmod(0o755)
    with pytest.raises(EnvironmentFailed) as caught:
        check_python(path)
    assert f"{path} {words}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("python", "must be named by its whole path"),
        ("/usr/share", "is a folder; name the program in it"),
        (sys.prefix, "is a folder; did you mean"),
        ("/nowhere/python", "does not exist"),
        ("/etc/passwd", "does not run as Python 3: Permission denied"),
    ],
)
def test_a_path_where_no_python_is_is_named_with_why(path: str, words: str) -> None:
    with pytest.raises(EnvironmentFailed, match=words):
        check_python(Path(path))


def test_a_python_fit_for_cells_is_known_as_the_running_one() -> None:
    assert check_python(Path(sys.executable)) == running_python()


@pytest.mark.parametrize("target", ["evil", "/usr/bin/env"])
def test_what_code_of_a_session_could_have_put_in_place_of_a_python_is_not_run(
    workspace: Path, tmp_path: Path, target: str
) -> None:
    python, ran = workspace / ".venv" / "bin" / "python", tmp_path / "ran"
    python.parent.mkdir(parents=True)
    python.symlink_to(Path(sys.executable).resolve())
    found = check_python(python, writable=[workspace])
    assert (found.path, found.version) == (python, sys.version_info[:3])
    evil = python.with_name("evil")
    evil.write_text(f"#!/bin/sh\ntouch {ran}\n")
    evil.chmod(0o755)
    python.unlink()
    python.symlink_to(target)
    with pytest.raises(EnvironmentFailed, match="is not run on this machine"):
        check_python(python, writable=[workspace])
    assert not ran.exists()
    if target == "evil":
        with pytest.raises(EnvironmentFailed, match="its answer was not understood"):
            check_python(python)
        assert ran.exists()  # where nobody could have put it, it is


async def test_an_environment_behind_a_link_runs_cells(tmp_path: Path) -> None:
    environment = Path(sys.executable).parents[1]
    (tmp_path / "linked").symlink_to(environment.resolve())
    found = check_python(tmp_path / "linked" / "bin" / Path(sys.executable).name)
    assert found.path.parent == (environment / "bin").resolve()
    async with open_session(sandbox=provider_named("namespaces", python=found.path)) as session:
        outcome = await session.run("import sys, msgspec; sys.prefix")
    assert outcome.value == repr(str(environment.resolve()))
