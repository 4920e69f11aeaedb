"""Sessions in a folder of their own, begun before anyone asks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import pytest
from tests.sandbox.asking import value

from pinfold.sandbox import Limits, open_session
from pinfold.sandbox._ahead import Begun
from pinfold.sandbox.namespaces import Namespaces

pytestmark = [
    pytest.mark.safety,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]

WHERE = "import os; os.getcwd()"
HOST = """
import anyio, sys
from pinfold.sandbox import open_session
from pinfold.sandbox.namespaces import Namespaces
async def main():
    provider = Namespaces(pool=1)
    async with open_session(provider=provider) as session:
        await session.run("1")
    await provider.warm()
    for begun in provider._source().ahead._begun:
        print(begun.folder.path, flush=True)
anyio.run(main)
"""


def begun(provider: Namespaces) -> list[Begun]:
    return list(provider._source().ahead._begun)  # pyright: ignore[reportPrivateUsage]


def kinds_in(folder: Path) -> set[str]:
    return {place.name.partition(".")[0] for place in folder.iterdir()}


async def test_a_session_begun_ahead_is_given_out_once_and_is_as_new() -> None:
    provider = Namespaces(pool=2)
    await provider.warm()
    places = {str(one.folder.path) for one in begun(provider)}
    assert len(places) == 2
    async with open_session(provider=provider) as first, open_session(provider=provider) as second:
        assert {await value(first, WHERE), await value(second, WHERE)} == {repr(place) for place in places}
        assert [variable.name for variable in await first.variables()] == ["os"]
        assert await value(first, "import random; a = random.random(); a") != await value(
            second, "import random; a = random.random(); a"
        )
        assert [variable.cell for variable in await first.variables() if variable.name == "a"] == [2]
        assert (await first.run("1 /")).status == "error"
    assert not any(map(os.path.exists, places))


async def test_one_with_other_limits_is_not_given_out() -> None:
    provider = Namespaces(pool=1)
    await provider.warm()
    (other,) = begun(provider)
    async with open_session(provider=provider, limits=Limits(cell_s=7, processes=40)) as session:
        assert await value(session, WHERE) != repr(str(other.folder.path))
        assert (
            await value(session, "import resource; resource.getrlimit(resource.RLIMIT_NPROC)") == "(40, 40)"
        )
    assert not other.folder.path.exists()


async def test_one_that_died_meanwhile_is_not_given_out() -> None:
    provider = Namespaces(pool=1)
    await provider.warm()
    (dead,) = begun(provider)
    signal.pidfd_send_signal(dead.ends.pidfd, signal.SIGKILL)
    with anyio.fail_after(10):
        await anyio.wait_readable(dead.ends.pidfd)
    async with open_session(provider=provider) as session:
        assert await value(session, "6 * 7") == "42"
    assert not dead.folder.path.exists()


async def test_none_is_begun_for_who_asks_only_once() -> None:
    provider = Namespaces()
    async with open_session(provider=provider) as session:
        assert await value(session, "1") == "1"
    ahead = provider._source().ahead  # pyright: ignore[reportPrivateUsage]
    assert not ahead.is_wanted
    async with open_session(provider=provider):
        assert ahead.is_wanted


async def test_a_session_in_which_no_cell_ran_leaves_no_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    provider = Namespaces(pool=0)
    await provider.probe()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with open_session(provider=provider):
        assert kinds_in(tmp_path) == {"pinfold-workspace", "pinfold-versions"}
    assert kinds_in(tmp_path) == set()


def test_none_is_left_when_the_process_ends() -> None:
    done = subprocess.run([sys.executable, "-c", HOST], stdout=subprocess.PIPE, check=True, timeout=60)
    (place,) = done.stdout.decode().split()
    assert not Path(place).exists()


async def test_short_cells_one_after_the_other_leave_turns_to_others(tmp_path: Path) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    async with open_session(tmp_path, Namespaces()) as session, anyio.create_task_group() as tasks:
        await session.run("x = 0")
        tasks.start_soon(others)
        for _ in range(300):
            assert (await session.run("x += 1")).status == "ok"
        assert turns > 2
        tasks.cancel_scope.cancel()
