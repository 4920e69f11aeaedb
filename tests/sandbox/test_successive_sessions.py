"""Sessions one after the other: what one leaves behind, and to whom."""

from __future__ import annotations

import ast
import sys
import tempfile
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import Session, open_session
from pinfold.sandbox.providers.landlock import Landlock, landlock_abi
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def names_in(folder: Path) -> list[str]:
    return [place.name for place in folder.iterdir()]


async def test_a_session_in_which_no_cell_ran_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Namespaces(pool=0)
    await provider.probe()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with open_session(sandbox=provider):
        assert any(name.startswith("pinfold-workspace") for name in names_in(tmp_path))
    assert names_in(tmp_path) == []


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


POISON = """
import builtins, ctypes, glob, os, signal, socket, subprocess, sys, sysconfig
libc = ctypes.CDLL(None, use_errno=True)
done = []
def attempt(name, act):
    try: act()
    except BaseException: return
    done.append(name)
def write(path):
    with open(path, 'a') as file: file.write('poison = 1\\n')
def memory(pid):
    with open(f'/proc/{pid}/mem', 'r+b') as file:
        start = int(open(f'/proc/{pid}/maps').readline().split('-')[0], 16)
        file.seek(start); file.write(b'poison')
def shared():
    kept = libc.shmget(4242, 4096, 0o1666)
    if kept < 0: raise OSError
def abstract():
    global listener
    listener = socket.socket(socket.AF_UNIX); listener.bind('\\0poison'); listener.listen()
for folder in ('/tmp', '/dev/shm', '/var/tmp', '/run', '/', os.environ.get('TMPDIR', '/tmp'), os.path.expanduser('~')):
    attempt(folder, lambda: write(folder + '/poison.py'))
for folder in {*sys.path, sysconfig.get_path('purelib'), os.path.dirname(os.__file__), os.path.dirname(sys.executable)}:
    if folder.startswith('/tmp/'): continue  # a checkout there: what is beside its mounts is the session's own
    attempt('site', lambda: write(folder + '/sitecustomize.py'))
    attempt('compiled', lambda: os.makedirs(folder + '/__pycache__/poison'))
try: pids = {int(one) for one in os.listdir('/proc') if one.isdigit()}
except OSError: pids = set()  # then the machine's own: none but the one that made us is tried
for pid in {os.getppid(), *pids} - {0, os.getpid()}:
    attempt('memory', lambda: memory(pid))
    attempt('limit', lambda: __import__('resource').prlimit(pid, 7, (3, 3)))
    attempt('traced', lambda: libc.ptrace(16, pid, 0, 0) and 1 / 0)
attempt('shared', shared)
attempt('abstract', abstract)
attempt('name', lambda: libc.sethostname(b'poison', 6) and 1 / 0)
builtins.poison = sys.poison = os.poison = 1
os.environ['PYTHONSTARTUP'] = os.environ['LD_PRELOAD'] = '/tmp/poison.py'
sys.path.insert(0, '/tmp'); sys.setrecursionlimit(321); os.umask(0); signal.signal(signal.SIGUSR1, signal.SIG_IGN)
os.nice(5)
left = os.open('/dev/null', os.O_RDONLY)
subprocess.Popen(['sleep', '1000'], start_new_session=True, env={})
"""
LOOK = """
import builtins, ctypes, os, resource, signal, socket, sys
def reached(act):
    try: act()
    except OSError: return False
    return True
def connect():
    with socket.socket(socket.AF_UNIX) as one: one.connect('\\0poison')
folders = ('/tmp', '/dev/shm', '/var/tmp', '/run', '/', os.environ.get('TMPDIR', '/tmp'), os.path.expanduser('~'))
umask = os.umask(0o22); os.umask(umask)
def is_poisoned(path):
    try:
        with open(path) as file: return 'poison' in file.read()
    except OSError: return False
try: pids = [pid for pid in os.listdir('/proc') if pid.isdigit() and os.access(f'/proc/{pid}/cmdline', os.R_OK)]
except OSError: pids = []
found = dict(
    files=[folder for folder in folders if os.path.exists(folder + '/poison.py')],
    start=[folder for folder in sys.path if is_poisoned(folder + '/sitecustomize.py')],
    marks=[where.__name__ for where in (builtins, sys, os) if hasattr(where, 'poison')],
    shared=ctypes.CDLL(None).shmget(4242, 4096, 0o666) >= 0,
    abstract=reached(connect),
    environment={name: os.environ.get(name) for name in ('PYTHONSTARTUP', 'LD_PRELOAD')},
    path='/tmp' in sys.path, limit=sys.getrecursionlimit(), umask=umask, name=os.uname().nodename == 'poison',
    ignored=signal.getsignal(signal.SIGUSR1) == signal.SIG_IGN,
    nice=os.nice(0), files_open=resource.getrlimit(7), descriptors=len(os.listdir('/proc/self/fd')),
    programs=sum(b'sleep' in open(f'/proc/{pid}/cmdline', 'rb').read() for pid in pids),
)
print(found)
"""


@pytest.mark.parametrize("provider", [Namespaces(pool=2), Landlock()], ids=lambda one: one.name)
@pytest.mark.alone
async def test_a_session_leaves_nothing_to_the_next_one_of_its_pool(
    provider: Namespaces | Landlock, tmp_path: Path
) -> None:
    if isinstance(provider, Landlock) and not landlock_abi():
        pytest.skip("this kernel has no Landlock")
    own = isinstance(provider, Landlock)  # its zygote is of one workspace
    (workspace := tmp_path / "workspace").mkdir()
    where = workspace if own else None

    async def looked(session: Session) -> str:
        outcome = await session.run(LOOK, timeout_s=30)
        assert outcome.status == "ok", outcome
        return outcome.stdout

    if isinstance(provider, Namespaces):
        await provider.warm()
    async with open_session(where, provider) as before:
        fresh = await looked(before)
    async with open_session(where, provider) as beside:
        async with open_session(where, provider) as hostile:
            done = await hostile.run(POISON + "print(sorted(set(done)))", timeout_s=30)
            assert done.status == "ok", done
            assert not {"memory", "traced", "site", "compiled"} & set(ast.literal_eval(done.stdout)), done.stdout
            assert await looked(hostile) != fresh  # what is looked for can be found
            assert await looked(beside) == fresh
        for _ in range(3):
            async with open_session(where, provider) as after:
                assert await looked(after) == fresh
