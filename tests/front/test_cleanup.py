"""`pinfold cleanup`: what a killed host left is ended and removed, and nothing else is touched. With real processes."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from pinfold.events import new_session_id
from pinfold.sandbox.kernel.folders import TemporaryFolder, folder
from pinfold.sandbox.kernel.processes import Stray, stamp, strays

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")]
Pinfold = Callable[..., Any]
HOST = """
import anyio, sys
from pathlib import Path
from pinfold.sandbox import open_session
async def main():
    async with open_session(sandbox=sys.argv[1]) as session:
        print((await session.run(sys.argv[2])).stdout, flush=True)
        await anyio.sleep_forever()
anyio.run(main)
"""


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Temporary folders of others are out of sight."""
    place = tmp_path / "tmp"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    monkeypatch.setattr("tempfile.tempdir", None)
    return place


@pytest.fixture
def hosting() -> Generator[Callable[..., subprocess.Popen[str]]]:
    """A process that holds a session; what its cell prints can be read from it."""
    started: list[subprocess.Popen[str]] = []

    def begin(provider: str, code: str) -> subprocess.Popen[str]:
        arguments = [sys.executable, "-c", HOST, provider, code]
        started.append(subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for process in started:
        process.kill()
        process.communicate(timeout=200)


def told(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def killed(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.wait(timeout=200)


def launcher_of(host: int) -> int:
    for entry in Path("/proc").iterdir():
        with suppress(OSError):
            if entry.name.isdigit() and f"\0{stamp(host)}\0" in (entry / "cmdline").read_text():
                return int(entry.name)
    raise AssertionError("there is no launcher")


def is_there(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def leftovers(pinfold: Pinfold, *more: str) -> list[str]:
    """Of ours: other tests may be killing hosts at the same time."""
    done = pinfold("cleanup", "--json", *more)
    assert done.code == 0, done.err
    return [f"{item['kind']} {item['name']}" for item in json.loads(done.out)["leftovers"]]


def test_nothing_left_is_said(pinfold: Pinfold) -> None:
    done = pinfold("cleanup")
    assert done.code == 0
    assert done.out == "Nothing to clean up.\n" or "removed: control group" in done.out


def test_the_folder_of_a_killed_host_goes_and_that_of_a_living_one_stays(
    pinfold: Pinfold, temporary: Path, hosting: Callable[..., Any]
) -> None:
    host = hosting("namespaces", "import os; print(os.getcwd())")
    place = Path(told(host))
    assert place.parent == temporary
    assert f"folder {place}" not in leftovers(pinfold)
    assert place.is_dir()
    killed(host)
    assert f"folder {place}" in leftovers(pinfold, "--dry-run")
    assert place.is_dir()
    assert f"folder {place}" in leftovers(pinfold)
    assert not place.exists()


@pytest.mark.slow
def test_a_launcher_that_cannot_end_by_itself_is_ended_with_its_sessions(
    pinfold: Pinfold, hosting: Callable[..., Any]
) -> None:
    host = hosting("namespaces", "print('ready')")
    assert told(host) == "ready"
    launcher = launcher_of(host.pid)
    zygotes = [int(pid) for pid in Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()]
    os.kill(launcher, signal.SIGSTOP)
    try:
        assert f"process {launcher} (launcher)" not in leftovers(pinfold)
        assert is_there(launcher)
        killed(host)
        assert f"process {launcher} (launcher)" in leftovers(pinfold)
        assert not is_there(launcher)
        assert not any(map(is_there, zygotes))
    finally:
        with suppress(ProcessLookupError):
            os.kill(launcher, signal.SIGCONT)


def test_what_an_unsafe_cell_started_ends_too(pinfold: Pinfold, hosting: Callable[..., Any]) -> None:
    start = "import subprocess\nprint(subprocess.Popen(['sleep', '600'], start_new_session=True).pid)"
    host = hosting("unsafe-local", start)
    left = int(told(host))
    assert f"process {left}" not in leftovers(pinfold)
    killed(host)
    assert f"process {left}" in leftovers(pinfold)
    assert not is_there(left)


@pytest.mark.parametrize(
    ("path", "program", "host", "is_stray"),
    [
        ("pinfold/guest/__main__.py", "launcher", "gone", True),
        ("pinfold/guest/__main__.py", "launcher", "here", False),
        ("pinfold/guest/__main__.py", "launcher", "7", False),
        ("pinfold/guest/__main__.py", "other", "gone", False),
        ("elsewhere/guest/__main__.py", "launcher", "gone", False),
        ("pinfold/guest/__main__.py", "zygote", "3", True),
        ("elsewhere/guest/__main__.py", "zygote", "3", False),
    ],
)
def test_only_what_is_surely_ours_and_alone_counts_as_a_stray(
    tmp_path: Path, path: str, program: str, host: str, is_stray: bool
) -> None:
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("print(flush=True)\ninput()\n", encoding="utf-8")
    last = {"gone": "1-1", "here": stamp(os.getpid())}.get(host, host)
    arguments = [sys.executable, "-I", str(file), program, "3", last]
    process = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        told(process)
        assert (process.pid in [stray.pid for stray in strays()]) is is_stray
    finally:
        killed(process)
        process.communicate(timeout=200)


def test_a_process_that_took_over_the_number_is_left_alone() -> None:
    process = subprocess.Popen(["sleep", "600"])
    try:
        assert not Stray(pid=process.pid, stamp=f"{process.pid}-1", program="launcher").end()
        assert process.poll() is None
        assert Stray(pid=process.pid, stamp=stamp(process.pid), program="launcher").end()
        assert process.wait(timeout=200) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait()


def test_a_folder_without_a_lock_of_ours_goes_only_when_it_is_old_and_empty(pinfold: Pinfold, temporary: Path) -> None:
    kept, emptied, full = (temporary / f"pinfold-{name}" for name in ("abcdefg1", "abcdefg2", "abcdefg3"))
    foreign = temporary / "pinfold-notes.of-mine"
    for place in (kept, emptied, full, foreign):
        place.mkdir()
    (full / "file").touch()
    for place in (emptied, full, foreign):
        os.utime(place, (0, 0))
    assert [line for line in leftovers(pinfold) if str(temporary) in line] == [f"folder {emptied}"]
    assert sorted(temporary.iterdir()) == [kept, full, foreign]


def test_a_link_that_looks_like_ours_is_not_followed(pinfold: Pinfold, temporary: Path, tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.mkdir()
    (target / "file").touch()
    (temporary / "pinfold-workspace.abcdefgh").symlink_to(target)
    assert not [line for line in leftovers(pinfold) if str(temporary) in line]
    assert (target / "file").exists()


def test_a_folder_with_thousands_in_each_other_goes_too(pinfold: Pinfold, temporary: Path) -> None:
    left = temporary / "pinfold-workspace.abcdefgh"
    left.mkdir()
    here = os.open(left, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)
    assert f"folder {left}" in leftovers(pinfold)
    assert not left.exists()


def test_a_folder_is_held_from_the_moment_it_has_its_name() -> None:
    with folder("bait") as place:
        lock = os.open(place, os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(lock)
    assert not place.exists()
    made = TemporaryFolder("home")
    made.remove()
    made.remove()


def test_stale_sockets_and_unfinished_sessions_go_and_live_ones_stay(
    pinfold: Pinfold, start: Callable[..., Any], tmp_path: Path
) -> None:
    sessions = tmp_path / "xdg" / "data" / "pinfold" / "sessions"
    code = "print('ready', flush=True)\nimport time\ntime.sleep(60)"
    running = start("exec", "--sandbox", "unsafe-local", "-s", "live", "-c", code)
    assert running.stdout.readline() == "ready\n"
    (live,) = sessions.glob("s_*/owner.sock")
    (sessions / f".removed-{new_session_id()}").mkdir()
    dead = sessions / new_session_id()
    dead.mkdir()
    (dead / "owner.sock").touch()
    found = [line for line in leftovers(pinfold) if str(sessions) in line]
    assert [line.split()[0] for line in found] == ["socket", "unfinished"]
    assert live.exists()
    assert not (dead / "owner.sock").exists()
    assert dead.is_dir()


def test_the_scratch_folder_of_a_killed_ephemeral_session_goes(
    pinfold: Pinfold, start: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "workspace"))
    code = "print('ready', flush=True)\nimport time\ntime.sleep(60)"
    running = start("exec", "--sandbox", "unsafe-local", "-c", code)
    assert running.stdout.readline() == "ready\n"
    (scratch,) = (tmp_path / "xdg" / "cache" / "pinfold" / "scratch").iterdir()
    assert f"scratch folder {scratch}" not in leftovers(pinfold)
    running.kill()
    running.wait(timeout=200)
    assert f"scratch folder {scratch}" in leftovers(pinfold)
    assert not scratch.exists()


def test_a_half_built_environment_goes_unless_it_is_being_built(pinfold: Pinfold, tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "data" / "pinfold" / "environments"
    half = folder / ".new-abcdefgh"
    (half / "environment").mkdir(parents=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert f"unfinished environment {half}" not in leftovers(pinfold)
        assert half.exists()
    assert f"unfinished environment {half}" in leftovers(pinfold)
    assert not half.exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_a_signal_stops_while_its_session_opens_leaves_no_egress_folder(
    number: int, pinfold: Pinfold, start: Callable[..., subprocess.Popen[str]], temporary: Path
) -> None:
    assert pinfold("exec", "-s", "work", "-c", "x = 1").code == 0
    process = start("exec", "-s", "work", "-c", "import time; time.sleep(60)")
    while not any(temporary.glob("pinfold-egress.*")):
        with suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"ended with {process.wait(0.01)}")
    process.send_signal(number)
    assert process.wait(60) == 130
    assert not any(temporary.glob("pinfold-egress.*"))
