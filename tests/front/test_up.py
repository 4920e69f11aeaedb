"""`pinfold up`: what other commands gain from it, and that nothing depends on it. With real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from pinfold.app import Options, RemoteSession, SessionStore, connect
from pinfold.app.ownership.daemon import Daemon, ask_daemon
from pinfold.app.ownership.daemon_handoff import decode_options, encode_options
from pinfold.app.paths import up_dir
from pinfold.app.storage.session_store import holder_of
from pinfold.engine import Hooks
from pinfold.events import new_session_id
from pinfold.sandbox import Mount, Spec, provider_named
from pinfold.sandbox.kernel.processes import stamp
from pinfold.sandbox.providers.launcher import look_in
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]
Running = subprocess.Popen[str]


@pytest.fixture
def up(start: Callable[..., Running]) -> Running:
    running = start("up")
    assert running.stdout is not None
    assert running.stdout.readline().startswith("pinfold up: ready, namespaces is warm")
    return running


def ended(process: Running, how: signal.Signals = signal.SIGTERM) -> int:
    process.send_signal(how)
    return process.wait(timeout=200)


def launchers_of(pid: int) -> list[int]:
    """Without its children, which look like it until they become what they are for."""
    found = [entry for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    alike = [int(entry.name) for entry in found if f"\0{stamp(pid)}\0" in words(entry)]
    return [one for one in alike if parent_of(one) not in alike]


def parent_of(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def words(process: Path) -> str:
    try:
        return (process / "cmdline").read_text()
    except OSError:
        return ""


def test_variables_stay_live_between_commands_and_what_can_be_saved_outlives_it(pinfold: Pinfold, up: Running) -> None:
    assert pinfold("exec", "-s", "work", "-c", "x = 41\ng = (n for n in range(3))").code == 0
    done = pinfold("exec", "-s", "work", "-c", "x + 1, next(g)")
    assert (done.code, done.out, done.err) == (0, "(42, 0)\n", "")
    assert ended(up) == 0
    done = pinfold("exec", "-s", "work", "-c", "x, 'g' in globals()")
    assert (done.code, done.out) == (0, "(41, False)\n")
    assert "lost: g (" in done.err


def test_it_ends_on_a_signal_and_leaves_nothing(up: Running, pinfold: Pinfold) -> None:
    assert pinfold("exec", "-s", "work", "-c", "1").code == 0
    (launcher,) = launchers_of(up.pid)
    assert ended(up, signal.SIGINT) == 0
    assert not Path(f"/proc/{launcher}").exists()
    assert [path.name for path in up_dir().iterdir()] == ["owner.lock"]
    assert not list(SessionStore().root.glob("s_*/owner.sock"))


def test_status_and_stop(up: Running, pinfold: Pinfold) -> None:
    report = json.loads(pinfold("up", "--status", "--json").out)
    assert (report["running"], report["pid"], report["warm"]) == (True, up.pid, "namespaces")
    assert pinfold("up", "--stop").code == 0
    assert up.wait(timeout=200) == 0
    done = pinfold("up", "--status")
    assert (done.code, done.out) == (1, "pinfold up is not running\n")
    assert pinfold("up", "--stop").code == 1


def test_a_second_one_is_refused_by_name_of_the_first(up: Running, pinfold: Pinfold) -> None:
    done = pinfold("up")
    assert done.code == 75
    assert f"is already running, as process {up.pid}" in done.err


def test_its_sockets_are_for_their_user_alone(up: Running) -> None:
    assert up.poll() is None
    assert stat.S_IMODE(up_dir().stat().st_mode) == 0o700
    sockets = list(up_dir().glob("*.sock"))
    assert len(sockets) == 2
    assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600}


async def test_a_session_comes_from_the_warm_launcher_and_goes_on_without_it(up: Running, workspace: Path) -> None:
    before = launchers_of(os.getpid())
    look_in(up_dir())
    provider = Namespaces(pool=7)  # with a launcher that no other test has started
    try:
        session = await provider.open(Spec(workspace=workspace))
        assert (await session.run("x = 1")).status == "ok"
        assert launchers_of(os.getpid()) == before
        (launcher,) = launchers_of(up.pid)
        pidfd = os.pidfd_open(launcher)
        await anyio.to_thread.run_sync(ended, up, signal.SIGKILL)
        with anyio.fail_after(45):
            await anyio.wait_readable(pidfd)
        os.close(pidfd)
        outcome = await session.run("x")
        assert (outcome.value, outcome.state_lost) == ("1", False)
        assert any("died between cells" in notice for notice in outcome.notices)
        assert len(launchers_of(os.getpid())) == len(before) + 1
        await session.close()
    finally:
        look_in()


@pytest.mark.slow
def test_a_killed_one_leaves_stale_sockets_that_hurt_nobody_and_are_cleaned_up(up: Running, pinfold: Pinfold) -> None:
    assert pinfold("exec", "-s", "work", "-c", "1").code == 0
    ended(up, signal.SIGKILL)
    assert len(list(up_dir().glob("*.sock"))) == 2
    assert pinfold("exec", "-s", "work", "-c", "1 + 1").out == "2\n"
    assert pinfold("exec", "-c", "1 + 2").out == "3\n"
    found = json.loads(pinfold("cleanup", "--json").out)["leftovers"]
    assert len([item for item in found if item["name"].startswith(str(up_dir()))]) == 2
    assert not list(up_dir().glob("*.sock"))


def test_nonsense_does_not_hurt_the_warm_launcher(up: Running, pinfold: Pinfold) -> None:
    (path,) = up_dir().glob("launcher-*.sock")
    for message in (b"nonsense", b"{}", b'{"op": "open"}', b'{"op": "listen", "proven": true}', b"[]"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as peer:
            place = os.open(path.parent, os.O_RDONLY)
            peer.connect(f"/proc/self/fd/{place}/{path.name}")
            assert json.loads(peer.recv(1000)) == {"proven": True}
            socket.send_fds(peer, [message], [place])
            os.close(place)
    (launcher,) = launchers_of(up.pid)
    assert pinfold("exec", "-c", "1 + 1").out == "2\n"
    assert launchers_of(up.pid) == [launcher]


@pytest.mark.slow
def test_a_lost_launcher_is_replaced(up: Running, pinfold: Pinfold) -> None:
    (launcher,) = launchers_of(up.pid)
    pidfd = os.pidfd_open(launcher)
    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    os.close(pidfd)
    assert pinfold("exec", "-c", "1 + 1").out == "2\n"
    for _ in range(20):  # each takes longer than a new launcher does
        pinfold("up", "--status")
        if list(up_dir().glob("launcher-*.sock")):
            break
    assert launchers_of(up.pid) not in ([], [launcher])


def test_what_opening_a_session_refuses_is_said_here(up: Running, pinfold: Pinfold, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert pinfold("exec", "-s", "work", "-c", "1", cwd=elsewhere).code == 0
    done = pinfold("up", "--close", "work")
    assert done.code == 0, done.err
    elsewhere.rmdir()
    done = pinfold("exec", "-s", "work", "-c", "1")
    assert done.code == 2
    assert "is gone; name another with --workspace" in done.err
    assert up.poll() is None


@pytest.mark.slow
def test_mounts_of_a_live_session_can_be_asked_for_again_but_not_changed(
    up: Running, pinfold: Pinfold, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    assert pinfold("exec", "-s", "work", "--mount", str(shelf), "-c", "x = 1").code == 0
    assert pinfold("exec", "-s", "work", "--mount", str(shelf), "-c", "x").out == "1\n"
    done = pinfold("exec", "-s", "work", "--mount", f"{shelf}:rw", "-c", "x")
    assert (done.code, done.out) == (2, "")
    assert "is open with other mounts" in done.err
    assert up.poll() is None


def test_a_turn_runs_there_too_with_all_that_was_asked_for(
    up: Running, pinfold: Pinfold, script: Callable[..., str], cell: Callable[..., Any], tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    model = script(cell(f"import os\nos.listdir({str(shelf)!r})"), {"expect": "[]", "text": "empty"})
    done = pinfold(
        "run", "--model", model, "--mount", str(shelf), "--title", "look", "--max-steps", "3", "--json", "go"
    )
    assert done.code == 0, done.err
    (opened,) = done.of_kind("SessionOpened")
    assert opened["mounts"] == {str(shelf): False}
    report = json.loads(pinfold("up", "--status", "--json").out)
    assert report["sessions"] == [opened["session"]]
    assert up.poll() is None


def test_ctrl_c_stops_the_cell_and_the_variables_stay(
    up: Running, start: Callable[..., Running], pinfold: Pinfold
) -> None:
    code = "x = 1\nprint('ready', flush=True)\nimport time\ntime.sleep(60)"
    running = start("exec", "-s", "work", "-c", code)
    assert running.stdout is not None
    assert running.stdout.readline() == "ready\n"
    assert ended(running, signal.SIGINT) == 130
    after = pinfold("exec", "-s", "work", "-c", "x")
    assert (after.out, after.err) == ("1\n", "")
    assert up.poll() is None


async def test_an_idle_session_is_closed_and_one_that_is_listened_to_is_not(workspace: Path) -> None:
    up, ready = Daemon(idle_s=0.6, pool=0), anyio.Event()

    def tell(_: str) -> None:
        ready.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(up.serve, tell)
        with anyio.fail_after(40):
            await ready.wait()
            session = new_session_id()
            options = Options(workspace=workspace, sandbox="unsafe-local")
            async with connect(SessionStore().folder_of(session), session, options) as link:
                assert isinstance(link, RemoteSession)
                async with link.subscribe() as feed:
                    await anyio.sleep(1.5)
                    assert (await ask_daemon({"op": "status"}) or {})["sessions"] == [session]
                    del feed
            while holder_of(SessionStore().folder_of(session)) is not None:
                await anyio.sleep(0.05)
            assert (await ask_daemon({"op": "status"}) or {})["sessions"] == []
        up.stop()


def test_options_travel_whole_or_not_at_all(tmp_path: Path) -> None:
    options = Options(
        workspace=tmp_path,
        model="scripted:a.jsonl",
        data={"a": tmp_path},
        mounts=(Mount(path=tmp_path, writable=True),),
        settings={"temperature": 0.5},
        notices=("one",),
    )
    plain = encode_options(options)
    assert plain is not None
    there = decode_options(json.loads(json.dumps(plain)))
    assert there.model == f"scripted:{Path.cwd() / 'a.jsonl'}"
    assert (there.workspace, there.data, there.mounts) == (options.workspace, options.data, options.mounts)
    assert (there.settings, there.notices, there.budget) == (options.settings, options.notices, options.budget)
    assert encode_options(Options(sandbox=provider_named("unsafe-local"))) is None
    assert encode_options(Options(hooks=Hooks([object()]))) is None
    assert encode_options(Options(tools=(print,))) is None


def test_undo_goes_to_whoever_has_the_session_live(pinfold: Pinfold, up: Running, workspace: Path) -> None:
    assert pinfold("exec", "-s", "work", "-c", "g = (n for n in range(9)); next(g)").code == 0
    assert pinfold("exec", "-s", "work", "-c", "next(g); open('made.txt', 'w').close()").code == 0
    done = pinfold("undo", "work")
    assert (done.code, done.err) == (0, ""), done.err
    assert not (workspace / "made.txt").exists()
    assert pinfold("exec", "-s", "work", "-c", "next(g)").out == "1\n"
    assert up.poll() is None
