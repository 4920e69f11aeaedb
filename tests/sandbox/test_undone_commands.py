"""Commands that count as cells: undone and redone with their files, their processes and the numbers of cells."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from tests.sandbox.evaluation import value

from pinfold.sandbox import (
    CommandOutcome,
    Freezable,
    Limits,
    NotSupported,
    Provider,
    Resumable,
    SandboxUnavailable,
    Spec,
    UndoRefused,
)
from pinfold.sandbox.guests import UnsafeLocal
from pinfold.sandbox.providers.landlock import Landlock
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.saved_states import COMMAND

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
LIMITS = Limits(cell_s=20, reply_s=2, interrupt_grace_s=0.1, memory_bytes=700 << 20)
PROVIDERS: dict[str, Callable[[], Provider]] = {
    "namespaces": Namespaces,
    "landlock": Landlock,
    "unsafe-local": UnsafeLocal,
}
everywhere = pytest.mark.parametrize("provider", PROVIDERS)
HOLD = "import os\nos.mkfifo('/tmp/held')\nend = os.open('/tmp/held', os.O_RDONLY | os.O_NONBLOCK)"
HELD = "try: os.read(end, 1); held = False\nexcept BlockingIOError: held = True\nheld"
"""Whether a process that was given the other end still lives."""


def made(folder: Path) -> Path:
    folder.chmod(0o755)
    (folder / "workspace").mkdir(exist_ok=True)
    return folder / "workspace"


@asynccontextmanager
async def opened(folder: Path, provider: str = "namespaces") -> AsyncGenerator[Resumable]:
    spec = Spec(workspace=made(folder), state=folder / "state", limits=LIMITS)
    session = await PROVIDERS[provider]().open(spec)
    assert isinstance(session, Resumable)
    try:
        yield session
    finally:
        await session.close()


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Resumable]:
    async with opened(tmp_path) as session:
        yield session


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


async def step(session: Resumable, script: str, cell: int = 0, *, timeout_s: float = 20) -> CommandOutcome:
    return await session.command(["/bin/sh", "-c", script], timeout_s=timeout_s, cell=cell)


def files(workspace: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in workspace.iterdir()}


@everywhere
async def test_to_undo_a_command_takes_back_its_files_and_leaves_the_interpreter_alone(
    tmp_path: Path, workspace: Path, provider: str
) -> None:
    """A generator that runs cannot be saved, so that it tells whether the interpreter is still the same."""
    async with opened(tmp_path, provider) as session:
        await session.run("import os\nwho = os.getpid()\nnumbers = (n for n in range(9))\nnext(numbers)")
        await session.run("out = open('of-the-cell', 'w').write('x')")
        await step(session, "echo one > a; rm of-the-cell")
        await step(session, "echo two > a; mkdir -p deep; ln -s a deep/link")
        await session.undo()
        assert files(workspace) == {"a": "one\n"}
        await session.undo()
        assert files(workspace) == {"of-the-cell": "x"}
        assert session.path == (1, 2)
        await session.redo()
        await session.redo()
        assert (workspace / "deep" / "link").is_symlink()
        await session.undo(to=2)
        assert await value(session, "(os.getpid() == who, next(numbers))") == "(True, 1)"
        assert session.path == (1, 2, 5)


async def test_commands_and_cells_are_undone_in_any_order_together(session: Resumable, workspace: Path) -> None:
    await session.run("items = list(range(1))")
    await step(session, "echo 2 > a")
    await session.run("items.append(3); out = open('b', 'w').write('3')")
    await step(session, "echo 4 > a")
    await session.undo(to=1)
    assert (files(workspace), await value(session, "items")) == ({}, "[0]")
    await session.undo()
    with pytest.raises(UndoRefused, match="there is no state after cell 2"):
        await session.undo(to=2)
    await session.undo()
    await step(session, "echo 6 > a")
    await session.run("items.append(7)")
    await session.undo(to=6)
    assert files(workspace) == {"a": "6\n"}
    assert await value(session, "len(globals().get('items', ''))") == "0"
    assert session.path == (6, 8)


@everywhere
async def test_what_an_undone_command_left_running_is_ended_and_what_was_before_it_runs_on(
    tmp_path: Path, provider: str
) -> None:
    async with opened(tmp_path, provider) as session:
        opens = "ends = [os.open(name, os.O_RDONLY | os.O_NONBLOCK) for name in ('first', 'second')]"
        await session.run(f"import os\nos.mkfifo('first')\nos.mkfifo('second')\n{opens}")
        for fifo in ("first", "second"):
            begun = await step(session, f"exec 3> {fifo}; sleep 600 & echo $!")
            still = await session.command(["/bin/sh", "-c", f"kill -0 {begun.stdout.decode()}"], timeout_s=20)
            assert still.status == "ok"
        await session.undo()
        # One that was killed may still be dying.
        ended = "import select\n_ = select.select(ends[1:], [], [], 20)\nos.read(ends[1], 1)"
        assert await value(session, ended) == "b''"
        assert "BlockingIOError" in ((await session.run("os.read(ends[0], 1)")).error or "")


async def test_what_left_its_process_group_is_ended_as_well(session: Resumable) -> None:
    await session.run(HOLD)
    await step(session, "exec 3> /tmp/held; setsid -f sleep 600")
    still = "while ! grep -l sleep /proc/[0-9]*/comm; do :; done"  # it is not yet one when setsid ends
    assert (await session.command(["/bin/sh", "-c", still], timeout_s=20)).stdout.count(b"\n") == 1
    await session.undo()
    assert await value(session, HELD) == "False"


async def test_what_a_command_writes_from_the_background_is_left_like_the_users_and_ends(
    session: Resumable, workspace: Path
) -> None:
    """Between cells nobody can tell who writes."""
    await step(
        session, "echo x > mine; while :; do echo x >> log; sleep 0.01; done & while [ ! -s log ]; do sleep 0.01; done"
    )
    seen = files(workspace)["log"]
    with anyio.fail_after(60):
        while files(workspace)["log"] == seen:
            await anyio.sleep(0.01)
    assert await session.undo() == ("Left as it is, because it was changed outside of cells: log.",)
    left = files(workspace)
    assert left.keys() == {"log"}
    await session.command(["sleep", "0.2"], timeout_s=20)
    assert files(workspace) == left


async def test_a_command_under_which_the_interpreter_dies_is_taken_back(session: Resumable, workspace: Path) -> None:
    await session.run("items = list(range(3))")
    await step(session, "echo one > a")
    await session.run("import os, threading\nitems.append(3)")
    leave = "threading.Thread(target=lambda: (os.open('/tmp/go', os.O_RDONLY), os._exit(7))).start()"
    await session.run(f"os.mkfifo('/tmp/go')\n{leave}")
    ended = await step(session, "echo two > a; echo > b; echo > /tmp/go; sleep 600")
    assert (ended.status, ended.code, ended.rolled_back) == ("error", None, True), ended
    assert b"it exited with code 7; variables and files are as before it" in ended.stderr
    assert (files(workspace), session.path) == ({"a": "one\n"}, (1, 2, 3, 4))
    assert await value(session, "items") == "[0, 1, 2, 3]"


async def test_a_command_that_counts_for_nothing_is_no_cell_when_it_is_cancelled_or_dies(
    session: Resumable, workspace: Path
) -> None:
    await session.run("items = list(range(3))\nout = open('kept', 'w').write('x')")
    with anyio.CancelScope() as scope:
        await session.command(
            ["/bin/sh", "-c", "echo said; sleep 60"], timeout_s=50, on_output=lambda _stream, _text: scope.cancel()
        )
    assert scope.cancelled_caught
    assert session.path == (1,)
    leave = "threading.Thread(target=lambda: (open('/tmp/go'), os._exit(7))).start()"
    await session.run(f"import os, threading\nos.mkfifo('/tmp/go')\n{leave}")
    with pytest.raises(SandboxUnavailable, match="it exited with code 7"), anyio.fail_after(60):
        await session.command(["/bin/sh", "-c", "echo > /tmp/go; sleep 60"], timeout_s=50)
    assert await value(session, "items") == "[0, 1, 2]"
    assert (files(workspace), session.path) == ({"kept": "x"}, (1, 2, 3))


async def test_what_the_sandbox_has_to_say_comes_with_the_first_step(tmp_path: Path) -> None:
    with (made(tmp_path) / "big").open("wb") as file:
        file.truncate(1 << 40)
    async with opened(tmp_path) as session:
        (notice,) = (await step(session, "true")).notices
        assert "Undo does not cover big;" in notice
        assert (await step(session, "echo obey > AGENTS.md")).notices == ("AGENTS.md was made and has been removed",)


@everywhere
async def test_a_session_goes_on_with_its_commands_and_they_cost_no_state(
    tmp_path: Path, workspace: Path, provider: str
) -> None:
    async with opened(tmp_path, provider) as session:
        await session.run("items = [1]\nitems.append(2)")
        for number in range(3):
            await step(session, f"echo {number} > a")
    saved = [*(tmp_path / "state" / "variables" / "states").glob("*.json")]
    assert len(saved) == 1
    async with opened(tmp_path, provider) as session:
        assert session.resumed is not None
        assert (session.path, session.resumed.cell, session.resumed.missing) == ((1, 2, 3, 4), 4, ())
        await session.undo(to=2)
        assert (files(workspace), await value(session, "items")) == ({"a": "0\n"}, "[1, 2]")


async def test_a_command_that_was_cut_off_with_its_host_loses_no_variable(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.run("items = list(range(3))")
    with (tmp_path / "state" / "trail").open("a", encoding="utf-8") as trail:
        trail.write(json.dumps(["runs", 2, COMMAND]) + "\n")
    async with opened(tmp_path) as session:
        assert session.resumed is not None
        assert (session.path, session.resumed.missing) == ((1, 2), ())
        assert await value(session, "items") == "[0, 1, 2]"


KILLED = """
import asyncio, sys
from pathlib import Path
from pinfold.sandbox import Spec
from pinfold.sandbox.providers.namespaces import Namespaces

async def main():
    folder = Path(sys.argv[1])
    session = await Namespaces().open(Spec(workspace=folder / "workspace", state=folder / "state"))
    await session.run("x = 1")
    await session.command(["/bin/sh", "-c", "echo one > a"], timeout_s=20, cell=0)
    on = lambda _stream, _text: print("on", flush=True)
    await session.command(["/bin/sh", "-c", "echo two > a; echo; sleep 60"], timeout_s=90, cell=0, on_output=on)

asyncio.run(main())
"""


def killed(folder: Path) -> None:
    """A process of its own is killed while its last command runs."""
    made(folder)
    with subprocess.Popen([sys.executable, "-c", KILLED, str(folder)], stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline() == b"on\n"
        process.send_signal(signal.SIGKILL)


async def test_after_a_kill_commands_that_had_ended_can_be_undone(tmp_path: Path, workspace: Path) -> None:
    killed(tmp_path)
    async with opened(tmp_path) as session:
        assert session.resumed is not None
        assert (session.path, session.resumed.missing) == ((1, 2, 3), ())
        assert await value(session, "x") == "1"
        await session.undo(to=1)
        assert "one\n" not in files(workspace).values()


async def test_a_branch_begins_after_a_command_and_is_kept(session: Resumable, workspace: Path) -> None:
    await session.run("items = list(range(3))")
    await step(session, "echo one > a")
    branch = await session.fork()
    await branch.run("items.append(3)")
    assert (await branch.command(["cat", "a"], timeout_s=20)).stdout == b"one\n"
    await session.keep(branch)
    await step(session, "echo two > a")
    await session.undo()
    assert (files(workspace), await value(session, "items")) == ({"a": "one\n"}, "[0, 1, 2, 3]")
    await session.undo(to=2)
    assert await value(session, "items") == "[0, 1, 2]"
    await session.undo(to=1)
    assert files(workspace) == {}


# Two that wake each other, fork and write for ever: whoever stops one of them must stop all of them.
RESTLESS = """
import subprocess, sys
subprocess.Popen([sys.executable, "-c", '''
import os, signal
first = os.getpid()
other = os.fork() or first
while True:
    if os.fork() == 0:
        with open(f"beat{os.getpid() % 2}", "a") as file: file.write("x")
        os._exit(0)
    os.wait()
    try: os.kill(other, signal.SIGCONT)
    except OSError: pass
'''])
"""


@pytest.mark.parametrize("provider", ["namespaces", "landlock"])
async def test_a_frozen_session_does_nothing_and_goes_on_afterwards(tmp_path: Path, provider: str) -> None:
    async with opened(tmp_path, provider) as session:
        assert isinstance(session, Freezable)
        await session.run("x = 1")
        await session.run(RESTLESS)
        beats = [tmp_path / "workspace" / f"beat{number}" for number in (0, 1)]

        def beat() -> int:
            return sum(file.stat().st_size for file in beats if file.exists())

        async def goes_on(after: int) -> None:
            with anyio.fail_after(60):
                while beat() <= after:
                    await anyio.lowlevel.checkpoint()

        await goes_on(0)
        for _ in range(3):
            async with session.freeze():
                stood = beat()
                for _ in range(200):
                    await anyio.lowlevel.checkpoint()
                    assert beat() == stood
            await goes_on(stood)
        assert await value(session, "x") == "1"
        await session.undo()
        await session.undo()
        assert await value(session, "x") == "1"  # the copy that it goes back to was not woken


async def test_what_cannot_be_frozen_says_so(tmp_path: Path) -> None:
    async with opened(tmp_path, "unsafe-local") as session:
        assert isinstance(session, Freezable)
        with pytest.raises(NotSupported, match="cannot be stopped"):
            async with session.freeze():
                pass
