"""The warm helper: that a command in it is the command of whoever asked, and that it is nobody else's. With real processes."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from pinfold.app.ownership.warm_helper import PROGRAM, running_helper, stop_helper
from pinfold.app.paths import config_dir, warm_dir
from pinfold.app.storage.session_store import holder_of
from pinfold.sandbox.kernel.processes import descendants

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="the helper is for Linux")]
LONG = "print('begun', flush=True)\nimport time\nwhile True: time.sleep(0.1)"
LIMIT_S = 60
_SUBREAPER = 36
Running = subprocess.Popen[str]
Begin = Callable[..., Running]


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch) -> Generator[Begin]:
    """Starts a helper that leaves after so many idle seconds, and waits until it listens. It rehearses only if asked to."""
    monkeypatch.setenv("PINFOLD_SANDBOX_WARM", "auto")
    started: list[Running] = []

    def start(idle_s: float = 600, quiet_s: float = 600) -> Running:
        argv = [sys.executable, "-P", "-m", PROGRAM, str(idle_s), str(quiet_s)]
        helper = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, cwd="/")
        started.append(helper)
        assert helper.stdout
        assert helper.stdout.readline() == "ready\n"
        return helper

    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # what a command leaves is ours to end
    yield start
    for helper in started:
        helper.terminate()
        helper.communicate(timeout=LIMIT_S)
    for pid in children(os.getpid()):
        if PROGRAM in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    libc.prctl(_SUBREAPER, 0, 0, 0, 0)


def run(*args: str, cwd: Path, given: str = "", **more: Any) -> subprocess.CompletedProcess[str]:
    """With what the command itself had to import on stderr."""
    return subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "pinfold", *args],
        cwd=cwd,
        input=given,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
        **more,
    )


def was_relayed(done: subprocess.CompletedProcess[str]) -> bool:
    return " click\n" not in done.stderr


def test_a_command_has_its_own_folder_input_mask_and_exit_code(begin: Begin, workspace: Path) -> None:
    begin()
    code = "import os, sys\nopen('made', 'w').close()\nprint(os.getcwd(), file=sys.stderr)\nsys.exit(3)"
    done = run("exec", "-", cwd=workspace, given=code, umask=0o027)
    assert was_relayed(done)
    assert (done.returncode, done.stdout) == (3, "")
    assert str(workspace) in done.stderr.splitlines()
    assert (workspace / "made").exists()
    elsewhere = workspace / "elsewhere"
    elsewhere.mkdir()
    again = run("exec", "-c", "import os; os.getcwd()", cwd=elsewhere)
    assert was_relayed(again)
    assert again.stdout.strip("'\n") == str(elsewhere)


def test_a_command_has_its_own_variables_and_none_of_the_one_before(
    begin: Begin, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin()
    monkeypatch.setenv("PINFOLD_SANDBOX_CELL_S", "nonsense")
    wrong = run("exec", "-c", "x = 1", cwd=workspace)
    assert was_relayed(wrong)
    assert (wrong.returncode, "PINFOLD_SANDBOX_CELL_S" in wrong.stderr) == (2, True)
    monkeypatch.delenv("PINFOLD_SANDBOX_CELL_S")
    right = run("exec", "-c", "x = 1; x", cwd=workspace)
    assert (was_relayed(right), right.returncode, right.stdout) == (True, 0, "1\n")
    gone = run("exec", "-c", "x", cwd=workspace)
    assert (gone.returncode, "NameError" in gone.stderr) == (1, True)


@pytest.mark.slow
def test_what_it_rehearsed_leaves_no_trace_in_the_command(begin: Begin, workspace: Path) -> None:
    begin(quiet_s=0)
    (workspace / "here").touch()
    code = "import os; os.getcwd(), os.listdir(), [name for name in dir() if name[0] != '_'], os.getpid() < 100"
    done = next(done for _ in range(5) if was_relayed(done := run("exec", "--json", "-c", code, cwd=workspace)))
    events = [json.loads(line) for line in done.stdout.splitlines()]
    (finished,) = [event for event in events if event["kind"] == "ActionFinished"]
    assert str(workspace) in finished["observation"]
    assert "['here'], ['os']" in finished["observation"]


@pytest.mark.slow
def test_commands_at_the_same_time_are_all_served(begin: Begin, workspace: Path) -> None:
    begin()
    argv = [sys.executable, "-m", "pinfold", "exec", "-c"]
    running = [
        subprocess.Popen([*argv, str(number)], cwd=workspace, stdout=subprocess.PIPE, text=True) for number in range(3)
    ]
    assert [one.communicate(timeout=200)[0] for one in running] == ["0\n", "1\n", "2\n"]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_what_ends_the_command_ends_what_runs_it(begin: Begin, workspace: Path, how: signal.Signals) -> None:
    helper = begin()
    command = subprocess.Popen(
        [sys.executable, "-m", "pinfold", "exec", "-c", LONG], cwd=workspace, stdout=subprocess.PIPE, text=True
    )
    assert command.stdout
    assert command.stdout.readline() == "begun\n"
    before = {pid: os.pidfd_open(pid) for pid in children(helper.pid) if streams_to(pid, command)}
    (runner,) = before.values()
    command.send_signal(how)
    command.communicate(timeout=LIMIT_S)
    assert command.returncode == (130 if how == signal.SIGINT else -signal.SIGKILL)
    assert has_ended(runner)
    os.close(runner)


@pytest.mark.slow
def test_one_with_other_limits_or_less_power_runs_by_itself(begin: Begin, workspace: Path) -> None:
    begin()

    def with_fewer_files() -> None:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (500, most))

    def without_new_privileges() -> None:
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)

    for less in (with_fewer_files, without_new_privileges):
        done = run("exec", "-c", "1 + 1", cwd=workspace, preexec_fn=less)
        assert (was_relayed(done), done.stdout) == (False, "2\n")


@pytest.mark.slow
def test_it_ends_when_the_settings_have_changed_and_the_command_runs_by_itself(begin: Begin, workspace: Path) -> None:
    helper = begin()
    assert was_relayed(run("exec", "-c", "1", cwd=workspace))
    config_dir().mkdir(parents=True, exist_ok=True)
    (config_dir() / "config.toml").write_text("[sandbox]\ncell_s = 100\n", encoding="utf-8")
    done = run("exec", "-c", "1 + 1", cwd=workspace)
    assert (was_relayed(done), done.stdout) == (False, "2\n")
    assert helper.wait(LIMIT_S) == 0


def test_it_leaves_when_nobody_asks_and_takes_all_of_its_processes_along(begin: Begin) -> None:
    helper = begin(0.2)
    pidfds = [os.pidfd_open(pid) for pid in descendants(helper.pid)[1:]]
    assert helper.wait(LIMIT_S) == 0
    assert all(has_ended(pidfd) for pidfd in pidfds)
    assert list(warm_dir().glob("*.sock")) == []


def test_it_is_private_and_small_and_up_knows_it(begin: Begin, workspace: Path) -> None:
    helper = begin()
    assert was_relayed(run("exec", "-c", "1", cwd=workspace))
    assert stat.S_IMODE(warm_dir().stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in warm_dir().glob("*.sock")} == {0o600}
    told = json.loads(run("up", "--status", "--json", cwd=workspace).stdout)
    assert told["helper"]["pid"] == helper.pid
    assert 0 < told["helper"]["mb"] < 150
    stopped = run("up", "--stop", cwd=workspace)
    assert (stopped.returncode, "the warm helper has ended" in stopped.stdout) == (0, True)
    assert helper.wait(LIMIT_S) == 0
    assert running_helper() is None


def test_the_first_command_leaves_one_that_holds_nothing_of_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PINFOLD_SANDBOX_WARM", "auto")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    libc = ctypes.CDLL(None)
    libc.prctl(_SUBREAPER, 1, 0, 0, 0)  # so that what a command leaves is ours
    try:
        before = set(children(os.getpid()))
        done = run("exec", "-c", "1 + 1", cwd=workspace)
        assert (was_relayed(done), done.stdout) == (False, "2\n")
        (helper,) = set(children(os.getpid())) - before
        try:
            process = Path(f"/proc/{helper}")
            assert os.getsid(helper) == helper
            assert (process / "cwd").readlink() == Path("/")
            assert {(process / "fd" / str(fd)).readlink() for fd in range(3)} == {Path(os.devnull)}
            assert b"sk-of-the-user" not in (process / "environ").read_bytes()
        finally:
            os.kill(helper, signal.SIGKILL)
            os.waitpid(helper, 0)
    finally:
        libc.prctl(_SUBREAPER, 0, 0, 0, 0)


def test_switched_off_no_command_leaves_one(workspace: Path) -> None:
    done = run("exec", "-c", "1 + 1", cwd=workspace)
    assert (done.stdout, holder_of(warm_dir())) == ("2\n", None)
    assert not warm_dir().exists()
    assert stop_helper() is False


def children(pid: int) -> list[int]:
    return [int(one) for task in Path(f"/proc/{pid}/task").iterdir() for one in (task / "children").read_text().split()]


def streams_to(pid: int, command: Running) -> bool:
    """Whether the process has the command's own output."""
    assert command.stdout
    ours = os.fstat(command.stdout.fileno()).st_ino
    return Path(f"/proc/{pid}/fd/1").readlink() == Path(f"pipe:[{ours}]")


def has_ended(pidfd: int) -> bool:
    import select

    return bool(select.select([pidfd], [], [], LIMIT_S)[0])
