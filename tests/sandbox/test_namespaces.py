"""`namespaces`: what a session can and cannot do, each with the same program run where it can.

Every program here is harmless in itself: the bait is our own, and the control is what runs it without isolation.
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from struct import pack

import pytest
from bench.escape_suite.calls import HERE

import pinfold
from pinfold.sandbox import Limits, Provider, SandboxUnavailable, Session, Spec, parse_named_paths, provider_named
from pinfold.sandbox.providers.canaries import bait, find_holes
from pinfold.sandbox.providers.launcher import Launcher
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [
    pytest.mark.safety,
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
BASE_PYTHON = Path(sys.executable).resolve()
LOCAL = provider_named("unsafe-local")
JAILED = provider_named("namespaces")
ALLOW_ALL = pack("<HBBI", 0x06, 0, 0, 0x7FFF0000)


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


class Unproven(Namespaces):
    """ActionRunner out sessions that are known not to be shut in."""

    async def prove(self, launcher: Launcher) -> None:
        launcher.proven = True


async def test_nothing_gets_out_and_the_same_attempts_do_where_nothing_is_shut(workspace: Path) -> None:
    async with opened(JAILED, Spec(workspace=workspace)) as session:
        assert await find_holes(session) == []
    async with opened(LOCAL, Spec(workspace=workspace)) as session:
        found = await find_holes(session)
    assert len(found) >= 14, found


async def test_a_process_of_its_own_with_the_same_number_is_not_taken_for_the_hosts(workspace: Path) -> None:
    with bait() as program:
        pid = program.partition('"pid": ')[2].partition("}")[0]
        async with opened(JAILED, Spec(workspace=workspace)) as session:
            own = (await session.run("import os\nos.getpid()")).value
            outcome = await session.run(program.replace(f'"pid": {pid}', f'"pid": {own}'))
        found = await said(LOCAL, Spec(workspace=workspace), program)
    assert '"sees the host\'s processes": false, "reads the host\'s environment": false' in outcome.stdout
    assert '"sees the host\'s processes": true, "reads the host\'s environment": true' in found


async def test_a_session_that_is_not_shut_in_is_never_handed_out(workspace: Path) -> None:
    # A Python of its own means a zygote of its own, which has proven nothing yet.
    weakened = Namespaces(BASE_PYTHON, program=ALLOW_ALL)
    with pytest.raises(SandboxUnavailable, match="not isolated: it makes namespaces"):
        await weakened.open(Spec(workspace=workspace))


SYSTEM_CALLS = """
import ctypes, errno, json, os
libc = ctypes.CDLL(None, use_errno=True)
numbers = {numbers}
def answer(name, *args):
    ctypes.set_errno(0)
    libc.syscall(ctypes.c_long(numbers.get(name, name)), *map(ctypes.c_long, args))
    return errno.errorcode.get(ctypes.get_errno(), "0")
calls = {calls}
print(json.dumps({{title: answer(*call) for title, call in calls.items()}}))
"""
# With arguments that can do nothing even where the call is allowed.
DANGEROUS: dict[str, tuple[str | int, *tuple[int, ...]]] = {
    "ptrace": ("ptrace", 99, 0, 0, 0),
    "process_vm_readv": ("process_vm_readv", 0, 0, 0, 0, 0, 0),
    "mount": ("mount", 0, 0, 0, 0, 0),
    "umount2": ("umount2", 0, 0),
    "pivot_root": ("pivot_root", 0, 0),
    "chroot": ("chroot", 0),
    "unshare": ("unshare", 0x10000000),
    "setns": ("setns", -1, 0),
    "clone NEWUSER": ("clone", 0x10000000 | 0x200, 0, 0, 0, 0),
    "clone3": ("clone3", 0, 0),
    "bpf": ("bpf", 99, 0, 0),
    "keyctl": ("keyctl", 99),
    "add_key": ("add_key", 0, 0, 0, 0, 0),
    "userfaultfd": ("userfaultfd", 0xFFFF),
    "io_uring_setup": ("io_uring_setup", 0, 0),
    "perf_event_open": ("perf_event_open", 0, 0, 0, 0, 0),
    "open_by_handle_at": ("open_by_handle_at", -1, 0, 0),
    "name_to_handle_at": ("name_to_handle_at", -1, 0, 0, 0, 0),
    "init_module": ("init_module", 0, 0, 0),
    "kexec_load": ("kexec_load", 0, 0, 0, 0xFFFF),
    "swapon": ("swapon", 0, 0),
    "syslog": ("syslog", 99, 0, 0),
    "acct": ("acct", 1),
    "mknodat": ("mknodat", -1, 0, 0, 0),
    "fsopen": ("fsopen", 0, 0),
    "open_tree": ("open_tree", -1, 0, 0),
    "move_mount": ("move_mount", -1, 0, -1, 0, 0),
    "openat2": ("openat2", -1, 0, 0, 0),
    "pidfd_getfd": ("pidfd_getfd", -1, 0, 0),
    "memfd_secret": ("memfd_secret", 0xFF),
    "socket VSOCK": ("socket", 40, 1, 0),
    "socket NETLINK": ("socket", 16, 3, 0),
    "socket PACKET": ("socket", 17, 3, 0),
    "socket RAW": ("socket", 2, 3, 0),
    "kill everyone": ("kill", -1, 0),
    "x32 getpid": (0x40000027,),
}


async def test_dangerous_system_calls_are_refused_and_the_filter_is_what_refuses_them(workspace: Path) -> None:
    spec, program = Spec(workspace=workspace), SYSTEM_CALLS.format(calls=DANGEROUS, numbers=HERE)
    refused = json.loads(await said(JAILED, spec, program))
    assert {name: code for name, code in refused.items() if code not in ("EPERM", "ENOSYS", "EAFNOSUPPORT")} == {}
    # The same session without the filter: most of these reach the kernel, and it answers otherwise.
    unfiltered = Unproven(program=ALLOW_ALL)
    reached = json.loads(await said(unfiltered, spec, program))
    assert sum(reached[name] != refused[name] for name in DANGEROUS) >= 20, reached


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a folder someone else's")
async def test_what_a_session_makes_belongs_to_the_workspaces_owner(workspace: Path) -> None:
    os.chown(workspace, 4321, 4321)
    assert (
        await said(JAILED, Spec(workspace=workspace), "open('made', 'w').write('x')\nimport os\nprint(os.getuid())")
        == "1000"
    )
    made = (workspace / "made").stat()
    assert (made.st_uid, made.st_gid) == (4321, 4321)


async def test_secrets_in_the_workspace_read_as_empty(workspace: Path) -> None:
    (workspace / "deep" / "er").mkdir(parents=True)
    for name in (".env", "deep/er/.env.local", "deep/server.pem", "id_rsa", ".env.example", "notes.txt"):
        (workspace / name).write_text(f"content of {name}")
    code = "import glob\nfor n in sorted(glob.glob('**/*', recursive=True, include_hidden=True)):\n    try: print(n, len(open(n).read()))\n    except OSError as e: pass"
    shut = await said(JAILED, Spec(workspace=workspace), code)
    assert shut.split("\n") == [
        ".env 0",
        ".env.example 23",
        "deep/er/.env.local 0",
        "deep/server.pem 0",
        "id_rsa 0",
        "notes.txt 20",
    ]
    assert ".env 15" in (await said(LOCAL, Spec(workspace=workspace), code)).split("\n")


async def test_what_steers_the_agent_cannot_be_changed(workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    for name in (".git/config", "AGENTS.md", ".mcp.json", "pinfold.toml"):
        (workspace / name).write_text("as it was")
    code = (
        "import os\n"
        "def attempt(f):\n    try: f()\n    except OSError as e: return e.strerror\n    return 'done'\n"
        "names = ['.git/config', 'AGENTS.md', '.mcp.json', 'pinfold.toml', '.git/hooks/pre-commit']\n"
        "print([attempt(lambda: open(n, 'w').write('changed')) for n in names], attempt(lambda: os.remove('AGENTS.md')), attempt(lambda: os.rename('AGENTS.md', 'x')))"
    )
    shut = await said(JAILED, Spec(workspace=workspace), code)
    assert "done" not in shut, shut
    assert "Read-only file system" in shut
    assert (workspace / "AGENTS.md").read_text() == "as it was"
    assert (await said(LOCAL, Spec(workspace=workspace), code)).count("done") >= 5


@pytest.mark.skipif(not os.access(pinfold.__file__, os.W_OK), reason="its files are not ours to write anyway")
async def test_pinfolds_own_files_are_read_only_in_a_workspace_that_holds_them() -> None:
    package = Path(pinfold.__file__).parent
    workspace = package.parents[1]
    code = f"import os\nprint(os.access({str(package / 'log' / 'store.py')!r}, os.W_OK), os.access('.', os.W_OK))"
    assert await said(JAILED, Spec(workspace=workspace), code) == "False True"
    assert await said(LOCAL, Spec(workspace=workspace), code) == "True True"


async def test_data_and_a_read_only_workspace_cannot_be_written(workspace: Path, tmp_path: Path) -> None:
    data = tmp_path / "sales.csv"
    data.write_text("1,2\n")
    spec = Spec(workspace=workspace, writable=False, data={"sales.csv": data})
    code = (
        "print(open('/mnt/datasets/sales.csv').read().strip())\n"
        "for path in ('/mnt/datasets/sales.csv', 'new.txt'):\n"
        "    try: open(path, 'w')\n    except OSError as error: print(error.strerror)"
    )
    assert (await said(JAILED, spec, code)).split("\n") == ["1,2", "Read-only file system", "Read-only file system"]


async def test_no_set_id_file_can_be_left_in_the_workspace(workspace: Path) -> None:
    code = "import os\nos.close(os.open('f', os.O_CREAT | os.O_WRONLY, 0o755))\ntry: os.chmod('f', 0o4755)\nexcept OSError as e: print(e.strerror)\ntry: os.open('g', os.O_CREAT | os.O_WRONLY, 0o4755)\nexcept OSError as e: print(e.strerror)"
    assert (await said(JAILED, Spec(workspace=workspace), code)).split("\n") == ["Operation not permitted"] * 2
    (workspace / "f").unlink()
    assert await said(LOCAL, Spec(workspace=workspace), code) == ""
    assert (workspace / "f").stat().st_mode & stat.S_ISUID


async def test_processes_and_memory_are_bounded(workspace: Path) -> None:
    spec = Spec(workspace=workspace, limits=Limits(memory_bytes=1 << 30))
    forks = "import os, time\nn = 0\ntry:\n    while n < 400:\n        if os.fork() == 0: time.sleep(60)\n        n += 1\nexcept OSError as e: print(n < 256, e.strerror)"
    assert await said(JAILED, spec, forks) == "True Resource temporarily unavailable"
    memory = "try: bytearray(2 << 30)\nexcept MemoryError: print('no more')"
    assert await said(JAILED, spec, memory) == "no more"


async def test_a_session_has_few_of_the_inotify_instances_that_its_user_has(workspace: Path) -> None:
    code = (
        "import ctypes\nlibc = ctypes.CDLL(None)\nn = 0\nwhile n < 20 and libc.inotify_init1(0) >= 0: n += 1\nprint(n)"
    )
    assert await said(JAILED, Spec(workspace=workspace), code) == "16"
    assert await said(LOCAL, Spec(workspace=workspace), code) == "20"


async def test_no_process_is_left_when_a_session_has_closed(workspace: Path) -> None:
    daemons = """
import fcntl, os, time
lock = open('lock', 'w')
fcntl.flock(lock, fcntl.LOCK_SH)
ready, done = os.pipe()
for _ in range(60):
    if os.fork() == 0:
        os.setsid()
        memory = bytearray(4 << 20)
        os.write(done, b'x')
        time.sleep(600)
for _ in range(60): os.read(ready, 1)
"""
    assert await said(JAILED, Spec(workspace=workspace), daemons) == ""
    with (workspace / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_killed_host_leaves_no_process_behind(workspace: Path) -> None:
    mark = f"7{os.getpid()}.25"
    # Popen returns in the middle of the exec, a moment before the new command line can be seen.
    cell = (
        f"import subprocess\nchild = subprocess.Popen(['sleep', '{mark}'], start_new_session=True)\n"
        "while not open(f'/proc/{child.pid}/cmdline').read().startswith('sleep'): pass"
    )
    program = (
        "import anyio\nfrom pathlib import Path\nfrom pinfold.sandbox import open_session\n"
        "async def main():\n"
        f"    async with open_session(Path({str(workspace)!r}), 'namespaces') as session:\n"
        f"        await session.run({cell!r})\n"
        "        print('ready', flush=True)\n        await anyio.sleep_forever()\n"
        "anyio.run(main)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as host:
        try:
            assert host.stdout is not None
            assert host.stdout.readline() == "ready\n"
            (sleeper,) = sleepers(mark)
            ended = select.poll()
            ended.register(os.pidfd_open(sleeper), select.POLLIN)
        finally:
            host.send_signal(signal.SIGKILL)
    assert ended.poll(10_000), "it outlived its host"
    assert sleepers(mark) == []


def sleepers(mark: str) -> list[int]:
    found: list[int] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if process.read_bytes() == f"sleep\0{mark}\0".encode():
                found.append(int(process.parent.name))
    return found


async def test_what_says_where_git_looks_can_be_neither_changed_nor_put_aside(workspace: Path) -> None:
    (workspace / ".git" / "hooks").mkdir(parents=True)
    (workspace / "sub").mkdir()
    (workspace / "sub" / ".git").write_text("gitdir: ../.git/modules/sub")
    code = (
        "import os\n"
        "def attempt(f):\n    try: f()\n    except OSError as e: return e.strerror\n    return 'done'\n"
        "for path in ('.git', 'sub/.git', '.git/hooks'):\n"
        "    print(attempt(lambda: os.rename(path, os.path.dirname(path) + '/aside' if '/' in path else 'aside')))\n"
        "for path in ('.git/hooks/x', 'sub/.git'): print(attempt(lambda: open(path, 'w')))"
    )
    shut = await said(JAILED, Spec(workspace=workspace), code)
    assert shut.split("\n") == ["Device or resource busy"] * 3 + ["Read-only file system"] * 2
    assert (await said(LOCAL, Spec(workspace=workspace), code)).split("\n")[0] == "done"


async def test_secrets_are_masked_by_whatever_name_they_go(workspace: Path, tmp_path: Path) -> None:
    (workspace / "plain.txt").write_text("secret")
    (workspace / ".env").symlink_to("plain.txt")
    (workspace / ".netrc").write_text("secret")
    (workspace / "other").hardlink_to(workspace / ".netrc")
    (workspace / ".ENV").write_text("secret")
    (workspace / "id_rsa.d").mkdir()
    (workspace / "id_rsa.d" / "key").write_text("secret")
    data = tmp_path / "data"
    data.mkdir()
    (data / ".env").write_text("secret")
    names = ["plain.txt", ".env", ".netrc", "other", ".ENV", "id_rsa.d/key"]
    code = f"print([open(n).read() for n in {names!r} + DATA])"
    spec = Spec(workspace=workspace, data={"data": data})
    inside = code.replace("DATA", "['/mnt/datasets/data/.env']")
    assert await said(JAILED, spec, inside) == str([""] * 7)
    outside = await said(LOCAL, Spec(workspace=workspace), code.replace("DATA", f"[{str(data / '.env')!r}]"))
    assert outside == str(["secret"] * 7)


async def test_a_hosts_socket_in_the_workspace_cannot_be_reached(workspace: Path) -> None:
    with tempfile.TemporaryDirectory() as short, socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{short}/s")
        listener.listen(1)
        code = "import socket\ntry: socket.socket(socket.AF_UNIX).connect('s'); print('reached')\nexcept OSError as e: print(e.strerror)"
        assert await said(JAILED, Spec(workspace=Path(short)), code) in ("Connection refused", "Permission denied")
        assert await said(LOCAL, Spec(workspace=Path(short)), code) == "reached"


@pytest.mark.skipif(os.geteuid() != 0, reason="root's own set-id files are the case")
async def test_a_set_id_file_of_roots_that_is_there_cannot_be_rewritten(workspace: Path) -> None:
    tool = workspace / "tool"
    tool.write_bytes(b"x" * 10)
    tool.chmod(0o4755)
    code = "import os\ntry: os.open('tool', os.O_RDWR); print('opened')\nexcept OSError as e: print(e.strerror)"
    assert await said(JAILED, Spec(workspace=workspace), code) == "Read-only file system"
    assert await said(LOCAL, Spec(workspace=workspace), code) == "opened"


@pytest.mark.skipif(not os.access(pinfold.__file__, os.W_OK), reason="its files are not ours to write anyway")
async def test_a_link_to_a_workspace_changes_nothing_about_what_is_protected(tmp_path: Path) -> None:
    package = Path(pinfold.__file__).parent
    link = tmp_path / "link"
    link.symlink_to(package.parents[1])
    inside = link / package.relative_to(package.parents[1]) / "__init__.py"
    code = f"import os\nprint(os.access({str(inside)!r}, os.W_OK))"
    assert await said(JAILED, Spec(workspace=link), code) == "False"
    assert await said(LOCAL, Spec(workspace=link), code) == "True"


@pytest.mark.parametrize("folder", ["/", "/etc", "/proc", "/usr"])
async def test_a_folder_of_the_systems_is_no_workspace(folder: str) -> None:
    with pytest.raises(SandboxUnavailable, match="belongs to the system"):
        await JAILED.open(Spec(workspace=Path(folder)))


async def test_a_python_whose_folder_would_show_the_home_is_refused(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "bin").mkdir(parents=True)
    (home / "pyvenv.cfg").touch()
    (home / "bin" / "python3").symlink_to(BASE_PYTHON)
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(SandboxUnavailable, match="would be seen inside"):
        await Namespaces(home / "bin" / "python3").open(Spec(workspace=workspace))


async def test_thousands_of_masked_files_are_all_masked(workspace: Path) -> None:
    for number in range(1500):
        (workspace / f"service-{number:04d}-with-a-long-name-to-fill-the-message.pem").write_text("secret")
    code = "import glob\nprint(len(glob.glob('*.pem')), sum(len(open(n).read()) for n in glob.glob('*.pem')))"
    assert await said(JAILED, Spec(workspace=workspace), code) == "1500 0"


@pytest.mark.skipif(os.geteuid() != 0, reason="root's own files are the case")
async def test_data_that_only_its_owner_may_read_is_readable_inside(workspace: Path, tmp_path: Path) -> None:
    data = tmp_path / "private.csv"
    data.write_text("1,2")
    data.chmod(0o600)
    spec = Spec(workspace=workspace, data={"private.csv": data})
    assert await said(JAILED, spec, "print(open('/mnt/datasets/private.csv').read())") == "1,2"


@pytest.mark.parametrize("items", [["..=/etc"], ["/"], ["a=/tmp", "a=/usr"], [".x=/tmp"]])
def test_data_names_that_lead_astray_are_refused(items: list[str]) -> None:
    with pytest.raises(SandboxUnavailable):
        parse_named_paths(items)


async def test_a_program_finds_the_signals_as_any_python_does(workspace: Path) -> None:
    code = (
        "import os, signal, subprocess\n"
        "print([signal.getsignal(n).name for n in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE)])\n"
        "r, w = os.pipe(); os.close(r)\n"
        "try: os.write(w, b'x')\nexcept BrokenPipeError: print('broken')\n"
        "child = subprocess.Popen(['sleep', '60']); child.terminate(); print(child.wait())"
    )
    shown = ["['SIG_DFL', 'SIG_DFL', 'SIG_DFL', 'SIG_IGN']", "broken", "-15"]
    assert (await said(JAILED, Spec(workspace=workspace), code)).split("\n") == shown
