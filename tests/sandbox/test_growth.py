"""Cells and commands that fill the disk: stopped, and taken back. Each also where the limit leaves room for it."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from tests.sandbox.evaluation import as_user

from pinfold.sandbox import Limits, Provider, Resumable, Spec
from pinfold.sandbox.providers.landlock import Landlock, landlock_abi
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.limits import FEW, count_usage

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="sandboxes are Linux's")]
LIMIT = 16 << 20
STOPPED = "stopped: the workspace grew by more than 16 MB ([limits] disk_mb)"
PROVIDERS = [
    pytest.param(Namespaces(), id="namespaces"),
    pytest.param(
        Landlock(),
        id="landlock",
        marks=[pytest.mark.alone, pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock")],
    ),
]
BOMBS = {
    "a file in one go": "import os\nos.posix_fallocate(os.open('x', os.O_CREAT | os.O_WRONLY), 0, 40 << 20)",
    "block after block": "f = open('x', 'wb')\nwhile True: f.write(bytes(1 << 20)); f.flush()",
    "a file that is there already": "f = open('kept', 'ab')\nwhile True: f.write(bytes(1 << 20)); f.flush()",
    # Not without end: on a busy machine it would take longer to remove them than to make them.
    "many small files": (
        "import os, time\nos.mkdir('d')\n"
        "for n in range(1_000): open(f'd/{n}', 'wb').write(bytes(1 << 16))\ntime.sleep(60)"
    ),
    "a file without a name": (
        "import os, time\nf = open('x', 'wb')\nos.unlink('x')\n"
        "for _ in range(60): f.write(b'x' * (1 << 20))\nf.flush()\ntime.sleep(60)"
    ),
}
LEFT = """
import subprocess
loop = 'until [ -e go ]; do sleep 0.1; done; while :; do head -c 1000000 /dev/zero >> grows; done'
_ = subprocess.Popen(['sh', '-c', loop], start_new_session=True)
"""
TAKE = """
import os
def take(name):
    fd = os.open(name, os.O_CREAT | os.O_WRONLY)
    os.posix_fallocate(fd, 0, 12 << 20)
    os.close(fd)
"""
DESCEND = "import os\nwhile os.path.isdir('d' * 200): os.chdir('d' * 200)\nos.listdir()"
AS_USER = """
import sys
from pathlib import Path
import anyio
from pinfold.sandbox import Limits, open_session
from pinfold.sandbox.kernel.folders import folder
from pinfold.sandbox.providers.landlock import Landlock
from pinfold.sandbox.providers.namespaces import Namespaces
async def main():
    for provider in (Namespaces(), Landlock()):
        for code in sys.argv[1:]:
            with folder('workspace') as place:
                async with open_session(place, provider, limits=Limits(disk_bytes=16 << 20)) as session:
                    Path(place, 'kept').write_text('kept')
                    await session.run("import os; os.mkdir('shut'); open('shut/a', 'w').close(); os.chmod('shut', 0)")
                async with open_session(place, provider, limits=Limits(disk_bytes=16 << 20)) as session:
                    print((await session.run(code)).error.splitlines()[0].partition(';')[0])
anyio.run(main)
"""


def names(workspace: Path) -> list[str]:
    return [it.name for it in workspace.iterdir()]


@asynccontextmanager
async def opened(provider: Provider, workspace: Path, *, limit: int | None = LIMIT) -> AsyncGenerator[Resumable]:
    state = workspace.parent / f"state-{limit}"
    state.mkdir()
    session = await provider.open(Spec(workspace=workspace, state=state, limits=Limits(disk_bytes=limit)))
    assert isinstance(session, Resumable)
    try:
        yield session
    finally:
        await session.close()


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_fills_the_disk_is_stopped_and_can_be_undone(provider: Provider, workspace: Path) -> None:
    (workspace / "kept").write_text("kept")
    async with opened(provider, workspace) as session:
        await session.run("kept = 1")
        for name, code in BOMBS.items():
            outcome = await session.run(code)
            assert outcome.status in ("error", "killed"), (name, outcome)
            assert (outcome.error or "").startswith(STOPPED), (name, outcome)
            if not outcome.rolled_back:
                await session.undo()
            if outcome.state_lost:  # it did not heed the interrupt in time, and this sandbox keeps no copy
                assert not provider.capabilities.fork
                await session.run("kept = 1")
            assert names(workspace) == ["kept"], name
            assert (workspace / "kept").read_text() == "kept", name
        shell = ["sh", "-c", "while :; do head -c 1000000 /dev/zero >> x; done"]
        ended = await session.command(shell, timeout_s=60, cell=100)
        assert ended.status == "error"
        assert STOPPED in ended.stderr.decode()
        await session.undo()
        assert names(workspace) == ["kept"]
        assert (await session.run("kept")).value == "1"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_has_room_goes_on_whatever_others_write(provider: Provider, workspace: Path) -> None:
    async with opened(provider, workspace, limit=None) as session:
        assert (await session.run(BOMBS["a file in one go"])).status == "ok"
    async with opened(provider, workspace) as session:
        holes = await session.run("import time\nopen('holes', 'wb').truncate(1 << 40)\nopen('a', 'w').write('a')")
        assert holes.status == "ok"
        await anyio.run_process(["fallocate", "-l", str(3 * LIMIT), str(workspace.parent / "of-another")])
        outcome = await session.run("for n in range(8): open('a', 'a').write('a'); time.sleep(0.1)")
        assert outcome.status == "ok", outcome
        # What is there already is no growth, nor is a second name of it. What is taken away makes room.
        await session.run(TAKE)
        assert (await session.run("os.rename('x', 'y'); os.link('y', 'z')")).status == "ok"
        assert (await session.run("take('more')")).status == "ok"
        outcome = await session.run("take('most')")
        if outcome.status == "ok":  # others made room on the disk just then: it is noticed a moment later
            outcome = await session.run("time.sleep(20)")
        assert outcome.status == "error", outcome
        assert (await session.run("os.remove('more'); os.remove('most')")).status == "ok"
        assert (await session.run("take('more')")).status == "ok"


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_was_left_running_is_ended_when_it_fills_the_disk(provider: Provider, workspace: Path) -> None:
    grows = workspace / "grows"
    async with opened(provider, workspace) as session:
        await session.run("kept = [1]")
        outcome = await session.run(LEFT)
        assert outcome.status == "ok", outcome
        (workspace / "go").touch()
        sizes = [0]
        with anyio.fail_after(200):
            # On a busy machine it rests at times without having been ended.
            while sizes[-1] < LIMIT or len(set(sizes[-6:])) > 1:
                await anyio.sleep(0.5)
                sizes.append(grows.stat().st_size if grows.exists() else 0)
        outcome = await session.run("kept")
    assert outcome.value == "[1]", outcome
    assert any(STOPPED in line for line in outcome.notices), outcome


@pytest.mark.skipif(os.geteuid() != 0 or landlock_abi() == 0, reason="needs root, to become a user, and Landlock")
def test_an_ordinary_user_is_protected_too_and_opens_what_a_cell_closed() -> None:
    codes = [BOMBS["a file in one go"], BOMBS["a file without a name"]]
    done = as_user(AS_USER, *codes)
    assert done.stdout.splitlines() == [STOPPED] * 4, done


def nested(top: Path) -> int:
    """The last of folders in each other, whose path the kernel would not take."""
    there = os.open(top, os.O_RDONLY)
    for _ in range(30):
        os.mkdir("d" * 200, dir_fd=there)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=there)
        os.close(there)
        there = below
    return there


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_folder_with_endless_paths_and_closed_folders_can_be_opened_again(
    provider: Provider, workspace: Path
) -> None:
    there = nested(workspace)
    os.close(os.open(".env", os.O_CREAT, dir_fd=there))
    os.close(there)
    (workspace / "shut" / "in").mkdir(parents=True)
    (workspace / "shut").chmod(0)
    async with opened(provider, workspace) as session:
        await session.run("open('a', 'w').close()")
        found = await session.run(DESCEND)
        # Where nothing can be mounted, nothing can be hidden.
        assert found.value == ("[]" if session.capabilities.mounts else "['.env']"), found
        await session.undo(to=0)
        assert not (workspace / "a").exists()


@pytest.fixture
def large_workspace(workspace: Path) -> Path:
    """A workspace with too many files to count before the first cell."""
    for number in range(FEW + 1):
        (workspace / str(number)).touch()
    with (workspace / "large").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 3 * LIMIT)
    return workspace


@pytest.mark.alone  # what other tests write while the second cell runs would count as its own
async def test_in_a_large_workspace_a_large_file_that_a_cell_adds_to_is_no_growth(large_workspace: Path) -> None:
    elsewhere = str(large_workspace.parent / "of-another")
    async with opened(Namespaces(), large_workspace) as session:
        for code in ("1", "open('large', 'ab').write(b'more'); open('new', 'wb').write(b'x')"):
            await anyio.run_process(["fallocate", "-l", str(3 * LIMIT), elsewhere + str(len(code))])
            outcome = await session.run(code)
            assert outcome.status == "ok", outcome
        outcome = await session.run(BOMBS["a file in one go"] + "\nimport time; time.sleep(60)")
        assert STOPPED in (outcome.error or ""), outcome


async def test_in_a_large_workspace_a_new_file_with_an_old_date_is_growth(large_workspace: Path) -> None:
    async with opened(Namespaces(), large_workspace) as session:
        outcome = await session.run(BOMBS["a file in one go"] + "; os.utime('x', (0, 0))\nimport time; time.sleep(60)")
        assert STOPPED in (outcome.error or ""), outcome


def test_holes_are_not_counted_and_long_paths_are(tmp_path: Path) -> None:
    (tmp_path / "holes").touch()
    os.truncate(tmp_path / "holes", 1 << 40)
    there = nested(tmp_path)
    before = count_usage([str(tmp_path)])
    assert before is not None
    assert before.allocated < 1 << 20
    full = os.open("full", os.O_CREAT | os.O_WRONLY, dir_fd=there)
    os.write(full, b"x" * (2 << 20))
    os.close(full)
    os.close(there)
    after = count_usage([str(tmp_path)])
    assert after is not None
    assert 2 << 20 <= after.allocated - before.allocated < 3 << 20
    assert count_usage([str(tmp_path)], most=3) is None
