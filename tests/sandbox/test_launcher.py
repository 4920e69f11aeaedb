"""The launcher of sessions: its pool, its zygotes, and what bounds a session as a whole."""

from __future__ import annotations

import fcntl
import os
import resource
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.sandbox.evaluation import as_user, value

from pinfold.sandbox import Limits, Spec
from pinfold.sandbox.providers.launcher import is_open
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [
    pytest.mark.safety,
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]

PROCESSES = """
import os, select, time
filled, said = os.pipe()
held_until, let_go = os.pipe()
kids = []
for _ in range(8):
    pid = os.fork()
    if pid == 0:
        os.close(let_go)
        held = bytearray(100 << 20)
        for at in range(0, len(held), 4096): held[at] = 1
        os.write(said, b'.')
        os.read(held_until, 1)
        os._exit(0)
    kids.append(pid)
full = dead = 0
until = None
while not dead and (until is None or time.monotonic() < until):
    if select.select([filled], [], [], 0.05)[0]: full += len(os.read(filled, 8))
    if full == 8 and until is None: until = time.monotonic() + 1
    dead, _ = os.waitpid(-1, os.WNOHANG)
os.close(let_go)
int(dead > 0)
"""


class Recycled(Namespaces):
    """Takes a new zygote after every other session."""

    def _settings(self) -> dict[str, Any]:
        return {**super()._settings(), "recycle_after": 2, "warm": False}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path


def spec_in(workspace: Path, **limits: Any) -> Spec:
    return Spec(workspace=workspace, limits=Limits(**limits))


async def test_sessions_kept_ready_share_nothing_and_serve_whoever_comes(tmp_path: Path) -> None:
    provider = Namespaces(pool=2)
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        session = await provider.open(Spec(workspace=folder))
        try:
            assert await value(session, "import os; 'x' in globals(), os.getcwd()") == str((False, str(folder)))
            await session.run("x = 1; open('made', 'w').write('1')")
            assert (folder / "made").exists()
        finally:
            await session.close()


async def test_zygotes_are_replaced_and_sessions_of_the_old_one_live_on(workspace: Path) -> None:
    provider = Recycled()
    first = await provider.open(Spec(workspace=workspace))
    seeds = {await value(first, "hash('pinfold')")}
    try:
        with anyio.fail_after(60):
            while len(seeds) < 3:
                session = await provider.open(Spec(workspace=workspace))
                seeds.add(await value(session, "hash('pinfold')"))
                await session.close()
        assert await value(first, "hash('pinfold')") in seeds
    finally:
        await first.close()


async def test_after_the_launcher_died_sessions_say_so_and_new_ones_begin(workspace: Path) -> None:
    provider = Namespaces(pool=1)
    session = await provider.open(Spec(workspace=workspace))
    process = provider._launcher()._process  # pyright: ignore[reportPrivateUsage]
    assert process is not None
    process.kill()
    try:
        outcome = await session.run("import signal; signal.pause()", timeout_s=10)
        assert (outcome.status, outcome.rolled_back) == ("killed", True)
        assert (await session.run("1 + 1")).value == "2"
    finally:
        await session.close()


@pytest.mark.parametrize("pool", [0, 1], ids=["watched-by-its-init", "in-a-control-group"])
async def test_memory_is_bounded_over_all_processes_of_a_session(workspace: Path, pool: int) -> None:
    provider = Namespaces(pool=pool)
    for memory, is_enough in ((512 << 20, False), (2 << 30, True)):
        await provider.warm()
        session = await provider.open(spec_in(workspace, memory_bytes=memory))
        try:
            with anyio.fail_after(60):
                outcome = await session.run(PROCESSES, timeout_s=10)
            ended = outcome.status == "killed" or int(outcome.value or 0) > 0
            assert ended != is_enough, outcome
        finally:
            await session.close()


async def test_a_session_that_ran_out_of_memory_says_so(workspace: Path) -> None:
    session = await Namespaces().open(spec_in(workspace, memory_bytes=300 << 20))
    shared = "import mmap\nheld = mmap.mmap(-1, 1 << 30)\nfor at in range(0, 1 << 30, 4096): held[at] = 1"
    try:
        outcome = await session.run(shared)
        assert (outcome.status, outcome.rolled_back, outcome.state_lost) == ("killed", True, False)
        assert "ran out of memory" in (outcome.error or "")
    finally:
        await session.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_an_ordinary_user_has_the_same_sandbox(tmp_path: Path) -> None:
    done = as_user(AS_USER)
    assert done.stdout.split() == ["1000", "1234", "killed"], done


AS_USER = """
import anyio, os, tempfile
from pathlib import Path
from pinfold.sandbox import Limits, Spec
from pinfold.sandbox.providers.namespaces import Namespaces
async def main():
    with tempfile.TemporaryDirectory() as folder:
        session = await Namespaces().open(Spec(workspace=Path(folder), limits=Limits(memory_bytes=300 << 20)))
        print((await session.run("import os; open('made', 'w').close(); os.getuid()")).value)
        print(os.stat(Path(folder, 'made')).st_uid)
        code = "import mmap\\nheld = mmap.mmap(-1, 1 << 30)\\nfor at in range(0, 1 << 30, 4096): held[at] = 1"
        print((await session.run(code)).status)
        await session.close()
anyio.run(main)
"""


@pytest.mark.parametrize("victim", ["host", "launcher"])
def test_nothing_is_left_of_a_host_or_launcher_that_was_killed(victim: str) -> None:
    with subprocess.Popen([sys.executable, "-c", HOST, "stay"], stdout=subprocess.PIPE, text=True) as host:
        assert host.stdout is not None
        launcher, init = map(int, host.stdout.readline().split())
        ends = [os.pidfd_open(launcher), os.pidfd_open(init)]
        os.kill(host.pid if victim == "host" else launcher, signal.SIGKILL)
        for end in ends:
            assert select.select([end], [], [], 10)[0], "it outlived what it belongs to"
            os.close(end)
        host.kill()
    if victim == "launcher":  # nobody was left to remove its control groups: the next one does
        subprocess.run([sys.executable, "-c", HOST, "go"], stdout=subprocess.DEVNULL, check=True, timeout=200)
    assert groups_of(launcher) == []


HOST = """
import anyio, os, sys, tempfile
from pathlib import Path
from pinfold.sandbox import Spec
from pinfold.sandbox.providers.namespaces import Namespaces
async def main():
    provider = Namespaces(pool=1)
    await provider.warm()
    with tempfile.TemporaryDirectory() as folder:
        session = await provider.open(Spec(workspace=Path(folder)))
        launcher = provider._launcher()._process.pid
        zygote = open(f"/proc/{launcher}/task/{launcher}/children").read().split()[0]
        init = open(f"/proc/{zygote}/task/{zygote}/children").read().split()[0]
        print(launcher, init, flush=True)
        if sys.argv[1] == "stay":
            await anyio.sleep_forever()
        await session.close()
anyio.run(main)
"""


def groups_of(launcher: int) -> list[Path]:
    # Not by glob, which fails where a folder goes meanwhile.
    return [
        Path(folder, name)
        for folder, names, _ in os.walk("/sys/fs/cgroup")
        for name in names
        if name.startswith(f"pinfold-{launcher}-")
    ]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
async def test_a_disk_mounted_later_is_what_a_session_works_on(tmp_path: Path) -> None:
    provider = Namespaces(pool=0)
    await provider.warm()
    disk = tmp_path / "disk"
    disk.mkdir()
    await anyio.run_process(["mount", "-t", "tmpfs", "-o", "size=1m", "disk", str(disk)])
    session = None
    try:
        session = await provider.open(Spec(workspace=disk))
        outcome = await session.run("open('big', 'wb').write(bytes(2 << 20))")
        assert "No space left on device" in (outcome.error or ""), outcome
    finally:
        if session:
            await session.close()
        await anyio.run_process(["umount", str(disk)])


async def test_when_a_session_is_closed_nothing_of_it_is_left(workspace: Path) -> None:
    session = await Namespaces(pool=0).open(Spec(workspace=workspace))
    mark = f"6{os.getpid()}.75"
    code = f"import subprocess\nfor _ in range(5): subprocess.Popen(['sleep', '{mark}'], start_new_session=True)"
    assert (await session.run(code)).status == "ok"
    await session.close()
    assert running(mark) == []


def running(mark: str) -> list[Path]:
    return [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in path.read_bytes()]


def test_a_launcher_is_found_open_or_not_where_a_thousand_descriptors_are_in_use() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    try:
        ours, theirs = socket.socketpair()
        with ours, theirs, socket.socket(fileno=fcntl.fcntl(ours, fcntl.F_DUPFD_CLOEXEC, 1500)) as high:
            assert is_open(high)
            theirs.close()
            assert not is_open(high)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
