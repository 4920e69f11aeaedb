"""Programs beside the cells, where a session has something to lose by them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import CommandOutcome, FileRefused, Limits, SandboxUnavailable, Session, open_session
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.channel import ChannelBroken, command_outcome

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
LEAVES = "import threading, os\nkept = 1\nthreading.Timer(0.5, os._exit, [1]).start()"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    async with open_session(tmp_path, Namespaces(), limits=Limits(file_bytes=1000)) as session:
        yield session


async def test_a_command_that_makes_what_the_agent_would_obey_is_treated_as_a_cell_is(
    session: Session, tmp_path: Path
) -> None:
    ended = await session.command(["/bin/sh", "-c", "echo obey > AGENTS.md; echo x > mine"], timeout_s=20)
    assert ended.notices == ("AGENTS.md was made and has been removed",)
    assert not (tmp_path / "AGENTS.md").exists()
    assert (tmp_path / "mine").read_text() == "x\n"


async def test_what_a_command_plants_is_removed_whether_a_cell_runs_it_or_the_host(
    session: Session, tmp_path: Path
) -> None:
    plant = "mkdir -p .vscode && echo x > .vscode/tasks.json && echo x > .vscode/kept-out && echo x > mine"
    removed = ".vscode was made and has been removed: VS Code would obey it"
    assert (await session.command(["/bin/sh", "-c", plant], timeout_s=20)).notices == (removed,)
    outcome = await session.run(f"import subprocess; subprocess.run({plant!r}, shell=True, check=True)")
    assert (outcome.status, outcome.notices) == ("ok", (removed,))
    assert not (tmp_path / ".vscode").exists()
    assert (tmp_path / "mine").exists()


async def test_what_a_command_changes_no_undo_takes_back(session: Session) -> None:
    await session.run("open('of-the-cell', 'w').close()")
    await session.command(["/bin/sh", "-c", "echo x > of-the-command"], timeout_s=20)
    await session.undo()
    assert (await session.command(["ls"], timeout_s=20)).stdout == b"of-the-command\n"


async def test_an_interpreter_that_dies_under_a_command_comes_back(session: Session) -> None:
    await session.run(LEAVES)
    with pytest.raises(SandboxUnavailable, match=r"^the interpreter died while it ran '/bin/sleep'"):
        await session.command(["/bin/sleep", "30"], timeout_s=40)
    outcome = await session.run("kept")
    assert (outcome.status, outcome.value) == ("ok", "1"), outcome


async def test_an_interrupt_ends_a_command(session: Session, tmp_path: Path) -> None:
    ends: list[CommandOutcome] = []

    async def commanded() -> None:
        ends.append(await session.command(["/bin/sh", "-c", "echo > begun; sleep 60"], timeout_s=50))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(commanded)
        while not (tmp_path / "begun").exists():
            await anyio.sleep(0.01)
        await session.interrupt()
    assert [(ended.status, ended.code) for ended in ends] == [("error", -9)]


async def test_a_background_job_writes_on_and_ends_with_the_session(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "held", 0o666)
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    async with open_session(tmp_path, Namespaces()) as session:
        script = "exec 3> held; while :; do echo x >> log; sleep 0.01; done > /dev/null 2>&1 & echo $!"
        begun = await session.command(["/bin/sh", "-c", script], timeout_s=20)
        waits = "import os\ntry: os.wait()\nexcept ChildProcessError: alone = True\nalone"
        for code in ("x = list(range(3))", waits):
            assert (await session.run(code)).status == "ok"
            await grows(tmp_path / "log")
        told = await session.command(["/bin/sh", "-c", f"kill -CONT {begun.stdout.decode()}"], timeout_s=20)
        assert told.status == "ok", told
        await grows(tmp_path / "log")
        with pytest.raises(BlockingIOError):
            os.read(held, 1)
    assert os.read(held, 1) == b""  # nobody holds it any more
    os.close(held)


def size_of(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


async def grows(log: Path) -> None:
    size = size_of(log)
    with anyio.fail_after(60):
        while size_of(log) == size:
            await anyio.sleep(0.01)


async def test_what_a_background_job_writes_to_nobody_does_not_hold_up_its_command(session: Session) -> None:
    with anyio.fail_after(50):
        ended = await session.command(["/bin/sh", "-c", "yes & echo begun >&2"], timeout_s=30)
    assert (ended.status, ended.stderr) == ("ok", b"begun\n")


async def test_background_jobs_count_to_the_limit_of_processes(tmp_path: Path) -> None:
    script = "for n in $(seq 40); do sleep 60 & done; echo all"
    async with open_session(tmp_path, Namespaces(), limits=Limits(processes=20)) as session:
        ended = await session.command(["/bin/sh", "-c", script], timeout_s=20)
        assert ended.status == "error", ended
        assert b"fork" in ended.stderr.lower()
    async with open_session(tmp_path, Namespaces(), limits=Limits(processes=60)) as session:
        ended = await session.command(["/bin/sh", "-c", script], timeout_s=20)
        assert ended.stdout == b"all\n", ended


@pytest.mark.parametrize(
    "handler", ["signal.SIG_IGN", "lambda *_: os.wait()", "lambda *_: 1 / 0", "lambda *_: seen.append(1)"]
)
async def test_what_the_cells_do_about_children_does_not_touch_those_of_commands(
    session: Session, handler: str
) -> None:
    await session.run(f"import os, signal\nseen = []\nbefore = {handler}\nsignal.signal(signal.SIGCHLD, before)")
    for code in (0, 3):
        ended = await session.command(["/bin/sh", "-c", f"(exit 1); exit {code}"], timeout_s=20)
        assert (ended.status, ended.code) == ("ok" if code == 0 else "error", code), ended
    outcome = await session.run("seen, signal.getsignal(signal.SIGCHLD) is before or before == 1")
    assert outcome.value == "([], True)", outcome


async def test_a_commands_output_is_heard_in_order_and_whole(session: Session) -> None:
    heard: list[tuple[str, str]] = []
    script = "i=0; while [ $i -lt 3000 ]; do echo line-$i; i=$((i+1)); done; printf '\\377' >&2"
    ended = await session.command(
        ["/bin/sh", "-c", script], timeout_s=30, on_output=lambda stream, text: heard.append((stream, text))
    )
    assert ended.stdout.decode() == "".join(text for stream, text in heard if stream == "stdout")
    assert [text for stream, text in heard if stream == "stderr"] == ["\ufffd"]
    assert ended.stderr == b"\xff"


async def test_input_over_the_limit_and_no_program_are_refused(session: Session) -> None:
    with pytest.raises(FileRefused, match="'cat' has 1001 bytes of input; the limit is 1000"):
        await session.command(["cat"], timeout_s=5, stdin=b"x" * 1001)
    with pytest.raises(FileRefused, match="needs the name of a program"):
        await session.command([], timeout_s=5)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}\n",
        b'{"status":"ok","code":0,"out":1,"err":0,"dropped":0}\n',
        b'{"status":"ok","code":0,"out":2,"err":-1,"dropped":0}\nx',
        b'{"status":"call","code":0,"out":0,"err":0,"dropped":0}\n',
    ],
)
def test_a_command_that_is_told_wrongly_breaks_the_channel(body: bytes) -> None:
    with pytest.raises(ChannelBroken):
        command_outcome(body)


async def test_a_session_closed_right_after_a_command_killed_its_interpreter_leaves_nothing_open(
    workspace: Path,
) -> None:
    async with open_session(workspace, "namespaces") as session:
        await session.run("kept = [object()]")
        with pytest.raises(SandboxUnavailable, match="the interpreter died while it ran"):
            await session.command(["/bin/sh", "-c", "kill -9 $PPID"], timeout_s=5)
    del session
    gc.collect()  # what was left open says so now, and fails the test
