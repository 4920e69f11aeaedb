"""Programs beside the cells, where a session has something to lose by them."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import CommandOutcome, FileRefused, Limits, SandboxUnavailable, Session, open_session
from pinfold.sandbox.channel import ChannelBroken, command_outcome
from pinfold.sandbox.namespaces import Namespaces

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
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
        while not (tmp_path / "begun").exists():  # noqa: ASYNC110 - another process's doing
            await anyio.sleep(0.01)
        await session.interrupt()
    assert [(ended.status, ended.code) for ended in ends] == [("error", -9)]


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
