"""`landlock`: what a lite session can and cannot do, each with the same program run where it can.

Every program here is harmless in itself: the bait is our own, and the control is what runs it without isolation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import anyio
import pytest
from tests.sandbox.evaluation import as_user
from tests.sandbox.test_launcher import groups_of

from pinfold.sandbox import Limits, Provider, SandboxUnavailable, Session, Spec, provider_named
from pinfold.sandbox.kernel.processes import stamp
from pinfold.sandbox.providers.canaries import find_holes
from pinfold.sandbox.providers.landlock import Landlock, landlock_abi

pytestmark = [
    pytest.mark.safety,
    pytest.mark.alone,
    pytest.mark.skipif(landlock_abi() == 0, reason="this kernel has no Landlock"),
]
LOCAL = provider_named("unsafe-local")
LITE = Landlock()


@asynccontextmanager
async def opened(provider: Provider, spec: Spec) -> AsyncGenerator[Session]:
    session = await provider.open(spec)
    try:
        yield session
    finally:
        await session.close()


async def said(provider: Provider, spec: Spec, code: str) -> str:
    async with opened(provider, spec) as session:
        outcome = await session.run(code, timeout_s=20)
    return (outcome.stdout + (outcome.error or "")).strip()


async def test_nothing_gets_out_and_the_same_attempts_do_where_nothing_is_shut(workspace: Path) -> None:
    async with opened(LITE, Spec(workspace=workspace)) as session:
        assert await find_holes(session) == []
    async with opened(LOCAL, Spec(workspace=workspace)) as session:
        found = await find_holes(session)
    assert len(found) >= 14, found


def test_the_page_of_sandboxes_is_up_to_date() -> None:
    root = Path(__file__).parents[2]
    spec = spec_from_file_location("sandboxes", root / "scripts" / "sandboxes.py")
    assert spec is not None
    assert spec.loader is not None
    script = module_from_spec(spec)
    spec.loader.exec_module(script)
    assert script.PAGE.read_text(encoding="utf-8") == script.page()


CONTRACT = """
import anyio, os
from pinfold.sandbox.providers.landlock import Landlock
from pinfold.testing import SANDBOX_CHECKS, SandboxReport, run_check
async def main():
    results = [None] * len(SANDBOX_CHECKS)
    async def one(place, check):
        async with limiter:
            results[place] = await run_check(check, Landlock())
    limiter = anyio.CapacityLimiter(4)
    async with anyio.create_task_group() as tasks:
        for place, check in enumerate(SANDBOX_CHECKS):
            tasks.start_soon(one, place, check)
    report = SandboxReport(provider="landlock", results=tuple(results))
    print(os.getuid(), report.ok, report.failed)
anyio.run(main)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become someone else")
def test_an_ordinary_user_has_the_same_sandbox() -> None:
    done = as_user(CONTRACT)
    assert done.stdout == "1234 True ()\n", done


WITHOUT_NAMESPACES = """
import anyio, sys
from pinfold.sandbox import SandboxUnavailable, open_session, provider_named
async def main():
    provider = provider_named(sys.argv[1])
    try:
        async with open_session(sandbox=provider) as session:
            print("ran", (await session.run("6 * 7")).value, provider.name, provider.notice)
    except SandboxUnavailable as refused:
        print("refused:", refused)
anyio.run(main)
"""


@pytest.mark.parametrize(
    ("name", "begins", "names"),
    [
        ("auto", "ran 42 landlock", "sudo sysctl -w user.max_user_namespaces=28633"),
        ("landlock", "ran 42 landlock", "no network at all"),
        ("namespaces", "refused: the zygote did not start", "max_user_namespaces"),
    ],
)
def test_where_user_namespaces_are_refused_auto_goes_down_and_a_name_does_not(
    name: str, begins: str, names: str
) -> None:
    shut = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1" "$2"'
    unshare = ["unshare", "--user", "--map-root-user", "sh", "-c", shut]
    done = subprocess.run(
        [*unshare, sys.executable, WITHOUT_NAMESPACES, name], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith(begins), done
    assert names in done.stdout


@pytest.mark.parametrize("abi", [1, 2, 4, 5])
async def test_older_landlocks_hold_as_well(abi: int, workspace: Path) -> None:
    older = Landlock(abi=abi)
    own = "import subprocess\nchild = subprocess.Popen(['sleep', '60'])\nchild.kill()\nprint(child.wait())"
    async with opened(older, Spec(workspace=workspace)) as session:  # proven before it is handed out
        assert await find_holes(session) == []
        assert (await session.run(own, timeout_s=20)).stdout == "-9\n"


DAEMONS = """
import os, subprocess, sys
for _ in range(3):
    subprocess.Popen(['sleep', '{mark}'], start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execvp('sleep', ['sleep', '{mark}'])
    os._exit(0)
os.wait()
print('ready')
"""


@pytest.mark.parametrize("abi", [5, 99])
async def test_daemons_end_with_the_session_and_so_do_its_folders(abi: int, workspace: Path) -> None:
    mark = f"8{os.getpid()}.{abi}"
    async with opened(Landlock(abi=abi), Spec(workspace=workspace)) as session:
        outcome = await session.run(DAEMONS.format(mark=mark) + "print(os.environ['TMPDIR'])")
        folder = outcome.stdout.split()[1]
        assert is_folder(folder)
        # A program still on its way into `sleep` has our own command line for a moment.
        await until(lambda: len(sleepers(mark)) == 4)
    assert sleepers(mark) == []
    await until(lambda: not is_folder(folder))


def test_a_killed_host_leaves_no_process_folder_or_group_behind(workspace: Path) -> None:
    mark = f"9{os.getpid()}.25"
    program = (
        "import anyio\nfrom pathlib import Path\nfrom pinfold.sandbox import open_session\n"
        "async def main():\n"
        f"    async with open_session(Path({str(workspace)!r}), 'landlock') as session:\n"
        f"        outcome = await session.run({DAEMONS.format(mark=mark)!r} + \"print(os.environ['TMPDIR'])\")\n"
        "        print(outcome.stdout.split()[1], flush=True)\n        await anyio.sleep_forever()\n"
        "anyio.run(main)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as host:
        try:
            assert host.stdout is not None
            folder = Path(host.stdout.readline().strip()).parent
            assert folder.is_dir()
            anyio.run(until, lambda: len(sleepers(mark)) == 4)
            pids = launchers(stamp(host.pid))
            assert pids
        finally:
            host.send_signal(signal.SIGKILL)
    anyio.run(until, lambda: not folder.exists() and not sleepers(mark))
    anyio.run(until, lambda: not any(groups_of(pid) for pid in pids))


def launchers(host: str) -> list[int]:
    """Those of one host: one for each workspace, and one that was proven."""
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = process.read_bytes().decode("utf-8", "replace").split("\0")
            if words[-2:] == [host, ""] and "lite" in words:
                found.append(int(process.parent.name))
    return found


async def until(holds: Callable[[], bool]) -> None:
    """A process that was ended, or a folder that is being removed, takes its moment."""
    with anyio.fail_after(50):
        while not holds():
            await anyio.lowlevel.checkpoint()


def owner_of(path: str) -> tuple[int, int]:
    found = Path(path).stat()
    return found.st_uid, found.st_gid


def is_folder(path: str) -> bool:
    return Path(path).is_dir()


def sleepers(mark: str) -> list[int]:
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if process.read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(int(process.parent.name))
    return found


async def test_a_workspace_with_secrets_is_refused_unless_they_may_be_read(workspace: Path) -> None:
    (workspace / ".env").write_text("secret")
    with pytest.raises(SandboxUnavailable, match=r"\.env would be readable: .* --allow-unmasked"):
        await LITE.open(Spec(workspace=workspace))
    allowed = Landlock(allow_unmasked=True)
    assert await said(allowed, Spec(workspace=workspace), "print(open('.env').read())") == "secret"
    assert provider_named("landlock", allow_unmasked=True).name == "landlock"


async def test_what_a_cell_planted_that_is_cancelled_and_killed_is_not_taken_for_the_users(workspace: Path) -> None:
    """Also where no history of the files takes it back: it cannot be kept in the workspace."""
    stubborn = "import os\nos.mkdir('.vscode')\nprint('on', flush=True)\nsum(iter(int, 1))"
    async with opened(LITE, Spec(workspace=workspace, state=workspace / "state")) as session:
        assert (await session.run("x = 1")).notices[0].startswith("Undo restores variables only")
        async with anyio.create_task_group() as tasks:

            def stop(_stream: str, _text: str) -> None:
                tasks.cancel_scope.cancel()

            tasks.start_soon(partial(session.run, stubborn, on_output=stop))
        outcome = await session.run("x")
        assert ".vscode was made and has been removed: VS Code would obey it" in outcome.notices
        assert not (workspace / ".vscode").exists()


@pytest.mark.parametrize("abi", [2, 99])
async def test_data_and_a_read_only_workspace_are_read_at_their_own_paths_and_not_written(
    abi: int, workspace: Path, tmp_path: Path
) -> None:
    data = tmp_path / "sales.csv"
    data.write_text("1,2")
    (workspace / "notes").write_text("kept")
    spec = Spec(workspace=workspace, writable=False, data={"sales.csv": data})
    code = (
        f"import os\nprint(open({str(data)!r}).read(), open('notes').read())\n"
        f"attempts = [lambda p=p, f=f: f(p) for p in ({str(data)!r}, 'notes', 'new')\n"
        "    for f in (lambda p: open(p, 'w'), lambda p: os.truncate(p, 0), os.remove, lambda p: os.chmod(p, 0o600))]\n"
        "def done(attempt):\n    try: attempt()\n    except OSError: return 0\n    return 1\n"
        "print(sum(map(done, attempts)))"
    )
    assert (await said(Landlock(abi=abi), spec, code)).split("\n") == ["1,2 kept", "0"]
    assert (data.read_text(), (workspace / "notes").read_text()) == ("1,2", "kept")
    assert (await said(LOCAL, spec, code)).split("\n")[1] == "9"


async def test_modes_and_times_of_the_workspaces_files_can_be_changed(workspace: Path) -> None:
    (workspace / "sub").mkdir()
    code = (
        "import os, shutil, subprocess\n"
        "open('a', 'w').write('x')\nshutil.copy2('a', 'sub/b')\nos.chmod('a', 0o755)\nos.utime('a', (5, 6))\n"
        "os.chdir('sub')\nos.chmod('../sub/b', 0o640)\nwith open('b') as f: os.fchmod(f.fileno(), 0o600)\n"
        "folder = os.open('.', os.O_RDONLY)\nos.utime('b', ns=(7, 8), dir_fd=folder)\n"
        "print(subprocess.run(['touch', '-d', '@9', 'c'], capture_output=True, text=True).stderr, end='')\n"
        "print(subprocess.run(['chmod', '700', 'c'], capture_output=True, text=True).stderr, end='')"
    )
    assert await said(LITE, Spec(workspace=workspace), code) == ""
    seen = [(workspace / name).stat() for name in ("a", "sub/b", "sub/c")]
    assert [(oct(one.st_mode & 0o7777), one.st_mtime_ns) for one in seen] == [
        ("0o755", 6_000_000_000),
        ("0o600", 8),
        ("0o700", 9_000_000_000),
    ]


async def test_files_are_moved_between_folders_of_the_workspace_and_not_out_of_it(
    workspace: Path, tmp_path: Path
) -> None:
    if landlock_abi() < 2:
        pytest.skip("this Landlock moves nothing between folders")
    (workspace / "sub" / "deep").mkdir(parents=True)
    (workspace / "sub" / "file").write_text("x")
    code = (
        "import os\nos.rename('sub/file', 'file')\nos.rename('sub/deep', 'deep')\nos.link('file', 'deep/again')\n"
        f"try: os.rename('file', {str(tmp_path / 'out')!r})\nexcept OSError: print('held')"
    )
    assert await said(LITE, Spec(workspace=workspace), code) == "held"
    assert (workspace / "deep" / "again").read_text() == (workspace / "file").read_text() == "x"
    assert not (tmp_path / "out").exists()


async def test_a_link_does_not_lead_a_change_of_mode_out(workspace: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("x")
    outside.chmod(0o644)
    code = (
        f"import os\nos.symlink({str(outside)!r}, 'link')\nos.symlink({str(tmp_path)!r}, 'up')\n"
        "for path in ('link', 'up/outside', '../outside', f'/proc/{os.getpid()}/cwd/../outside'):\n"
        "    try: os.chmod(path, 0o600); print('done')\n    except OSError as e: print(e.strerror)\n"
        "try: os.chmod('.', 0o4755); print('done')\nexcept OSError as e: print(e.strerror)"
    )
    assert (await said(LITE, Spec(workspace=workspace), code)).split("\n") == ["Operation not permitted"] * 5
    assert outside.stat().st_mode & 0o777 == 0o644
    (workspace / "link").unlink()
    (workspace / "up").unlink()
    assert "done" in await said(LOCAL, Spec(workspace=workspace), code)


async def test_memory_and_processes_are_bounded(workspace: Path) -> None:
    spec = Spec(workspace=workspace, limits=Limits(memory_bytes=1 << 30, processes=60))
    memory = "try: bytearray(2 << 30)\nexcept MemoryError: print('no more')"
    assert await said(LITE, spec, memory) == "no more"
    forks = "import os, time\nfor _ in range(200):\n    if os.fork() == 0: time.sleep(60); os._exit(0)\ntime.sleep(30)"
    async with opened(LITE, spec) as session:
        outcome = await session.run(forks, timeout_s=20)
    assert outcome.status in ("killed", "error"), outcome


BENIGN = """
import asyncio, concurrent.futures, multiprocessing, os, sqlite3, subprocess, sys, tempfile, threading
with tempfile.TemporaryDirectory() as folder:
    open(os.path.join(folder, 'x'), 'w').close()
base = sqlite3.connect('db.sqlite')
base.execute('create table t(a)'); base.execute('insert into t values (1)'); base.commit()
async def shell():
    process = await asyncio.create_subprocess_exec('sh', '-c', 'echo hi | cat', stdout=subprocess.PIPE)
    return (await process.communicate())[0]
reader, writer = multiprocessing.Pipe()
child = multiprocessing.get_context('fork').Process(target=writer.send, args=(41,))
child.start(); child.join()
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    squares = list(pool.map(lambda n: n * n, range(4)))
python = subprocess.run([sys.executable, '-c', 'import json, os; print(os.cpu_count() > 0)'], capture_output=True, text=True)
print(base.execute('select a from t').fetchall(), asyncio.run(shell()), reader.recv(), squares, python.stdout, python.stderr)
"""


async def test_ordinary_programs_run(workspace: Path) -> None:
    assert (await said(LITE, Spec(workspace=workspace), BENIGN)).strip() == ("[(1,)] b'hi\\n' 41 [0, 1, 4, 9] True")


async def test_two_sessions_of_one_workspace_cannot_reach_each_other(workspace: Path) -> None:
    spec = Spec(workspace=workspace)
    async with opened(LITE, spec) as one, opened(LITE, spec) as other:
        told = await one.run(
            "import os\nopen(os.environ['TMPDIR'] + '/x', 'w').write('secret')\n(os.getpid(), os.environ['TMPDIR'])"
        )
        reach = (
            f"import os\npid, folder = {told.value}\ndef tried(f):\n    try: f()\n    except OSError as e: return e.strerror\n    return 'done'\n"
            "print([tried(f) for f in (lambda: os.kill(pid, 9), lambda: open(folder + '/x'), lambda: os.listdir(f'/proc/{pid}'))])"
        )
        outcome = await other.run(reach)
        assert outcome.stdout == "['Operation not permitted', 'Permission denied', 'Permission denied']\n"
        assert (await one.run("1")).status == "ok"


SAYS = """
import anyio, sys
from pathlib import Path
from pinfold.sandbox import Spec
from pinfold.sandbox.providers.landlock import Landlock
async def main():
    session = await Landlock().open(Spec(workspace=Path(sys.argv[1])))
    print((await session.run(sys.argv[2])).stdout, end="")
    await session.close()
anyio.run(main)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder someone else's")
def test_under_root_code_runs_as_the_workspaces_owner() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chown(folder, 4321, 4321)
        code = "import os\nopen('made', 'w').close()\nprint(os.getuid(), os.getgid(), os.getgroups())"
        done = as_user(SAYS, folder, code, uid=0)
        assert done.stdout == "4321 4321 []\n", done
        assert owner_of(f"{folder}/made") == (4321, 4321)


BURDEN = """
import os
attempts = dict(
    user=lambda: os.setpriority(os.PRIO_USER, 0, 19),
    number=lambda: os.setpriority(os.PRIO_USER, os.getuid(), 19),
    own=lambda: os.setpriority(os.PRIO_PROCESS, 0, 19),
)
def tried(attempt):
    try: attempt()
    except OSError: return False
    return True
print([name for name, attempt in attempts.items() if tried(attempt)])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can have a user to itself")
def test_a_session_cannot_slow_down_what_else_its_user_runs() -> None:
    uid = 4322
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(["cat"], stdin=subprocess.PIPE, user=uid, group=uid, cwd="/") as victim,
    ):
        os.chown(folder, uid, uid)
        before = os.getpriority(os.PRIO_PROCESS, victim.pid)
        done = as_user(SAYS, folder, BURDEN, uid=0)
        assert done.stdout == "['own']\n", done
        assert os.getpriority(os.PRIO_PROCESS, victim.pid) == before < 19
        done = as_user(BURDEN, uid=uid)
        assert done.stdout == "['user', 'number', 'own']\n", done
        assert os.getpriority(os.PRIO_PROCESS, victim.pid) == 19


@pytest.mark.skipif(os.geteuid() != 0, reason="root's own workspace is the case")
async def test_root_without_powers_is_said_and_cannot_change_what_root_owns(workspace: Path) -> None:
    provider = Landlock()
    code = (
        "import os\nfor act in (lambda: os.chmod('/usr', 0o755), lambda: open('/etc/shadow'), lambda: open('/usr/x', 'w'),\n"
        "    lambda: os.chown('made', 5, 5), lambda: os.setuid(5), lambda: os.listdir('/root')):\n"
        "    try: open('made', 'w').close(); act(); print('done')\n    except OSError as e: print(e.strerror)"
    )
    answers = (await said(provider, Spec(workspace=workspace), code)).split("\n")
    assert set(answers) == {"Operation not permitted", "Permission denied"}, answers
    assert provider.notice is not None
    assert "runs as root, without any of root's powers" in provider.notice
