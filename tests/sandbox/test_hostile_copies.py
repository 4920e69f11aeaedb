"""Programs that lie about copies of their state: undo leads to what was there, and nothing of what was undone runs on."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from tests.sandbox.evaluation import value

from pinfold.sandbox import Limits, Session, Spec, open_session
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.session import GuestSession

pytestmark = [
    pytest.mark.safety,
    pytest.mark.alone,
    pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's"),
]
LINE = """
import json, os, socket, struct, time
def kind(fd):
    try: return socket.socket(fileno=os.dup(fd)).type
    except OSError: return None
[line] = [fd for fd in range(3, 100) if kind(fd) == socket.SOCK_SEQPACKET]
line = socket.socket(fileno=os.dup(line))
def say(message, fd=None):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    words = message if type(message) is bytes else json.dumps(message).encode()
    socket.send_fds(line, [words], [theirs.fileno() if fd is None else fd])
    return ours
def copy(cell, pid): return {'cell': cell, 'pid': pid, 'threads': 0}
def daemon():
    # A child of the init, as a copy is. True in it.
    ready, told = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork(): os._exit(0)
        os.write(told, b'x')
        return True
    os.wait(); os.read(ready, 1)
    return False
WAITS = "while not os.path.exists('go'): time.sleep(0.005)"
"""
LIES = {
    "a waker that is a file": "say(copy(50, os.getpid()), os.open('/dev/null', os.O_RDONLY))",
    "a waker that is a stream": "a, b = socket.socketpair(); say(copy(50, os.getpid()), b.fileno())",
    "no number": 'say(b\'{"cell": Infinity, "pid": 2, "threads": 0}\')',
    "numbers of hundreds of digits": "for n in range(16): say(copy(10**200 + n, 2))",
    "a negative number": "say(copy(-1, -1))",
    "no JSON": "say(b'\\xff' * 250); say(b'[' * 250); say(b'{}')",
    "itself": "say(copy(50, os.getpid()))",
    "the init": "say(copy(50, 1))",
    "its own group": "say(copy(50, 0))",
    "everybody": "say(copy(50, -1))",
    "nobody": "say(copy(50, 30000))",
}


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    limits = Limits(cell_s=20, interrupt_grace_s=0.1, memory_bytes=700 << 20)
    async with open_session(tmp_path, Namespaces(), limits=limits) as session:
        yield session


async def prepared(session: Session) -> None:
    await value(session, "items = []\nitems.append(1)")
    await value(session, LINE)


@pytest.mark.parametrize("lie", LIES)
async def test_a_lie_about_a_copy_costs_no_state(session: Session, lie: str) -> None:
    await prepared(session)
    await value(session, LIES[lie])
    assert (await session.run("os._exit(3)")).rolled_back
    await session.undo(to=1)
    assert await value(session, "items") == "[1]"


ANSWERS = """
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
ready, told = os.pipe()
if daemon():
    os.write(told, str(os.getpid()).encode())
    theirs.close()
    _, [channel, *_], _, _ = socket.recv_fds(ours, 16, 8)
    def answer(header, body=b''):
        encoded = json.dumps(header).encode()
        os.write(channel, struct.pack('<II', len(encoded), len(body)) + encoded + body)
    answer(dict(id=0, status='hello'))
    while data := os.read(channel, 65536):
        header = json.loads(data[8:8 + struct.unpack_from('<I', data)[0]])
        answer(dict(id=header['id'], status='ok', value=6), b'forged')
    os._exit(0)
say(copy({cell}, int(os.read(ready, 16))), theirs.fileno())
ours.close(); theirs.close()
time.sleep(0.05)
"""


@pytest.mark.parametrize("cell", [1, 3])
async def test_a_cell_cannot_have_itself_woken_in_place_of_an_earlier_state(session: Session, cell: int) -> None:
    """Neither of one that is kept nor of one that is not, because its cell can be run again."""
    await prepared(session)
    await value(session, "bound = 3")
    await value(session, ANSWERS.format(cell=cell))
    await session.undo(to=cell)
    assert await value(session, "items") == "[1]"


async def test_nor_in_place_of_a_state_from_before_the_session_went_on(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    spec = Spec(workspace=tmp_path / "workspace", state=tmp_path / "state")
    first = await Namespaces().open(spec)
    for code in ("items = []; items.append(1)", "items.append(2)", "items.append(3)"):
        await value(first, code)
    await first.close()
    again = await Namespaces().open(spec)
    await value(again, LINE)
    await value(again, ANSWERS.format(cell=2))
    await again.undo(to=2)
    assert await value(again, "items") == "[1, 2]"
    await again.close()


@pytest.mark.parametrize("number", ["3", "4", "77"])
async def test_nothing_lives_on_after_undo_by_posing_as_a_copy(session: Session, tmp_path: Path, number: str) -> None:
    await prepared(session)
    pose = f"""
said = os.pipe()
if daemon():
    kept = say(copy({number}, os.getpid()))
    os.write(said[1], b'x')
    exec(WAITS); open('late', 'w').close(); os._exit(0)
os.read(said[0], 1)
"""
    await value(session, pose)
    await session.undo(to=2, what="variables")
    (tmp_path / "go").touch()
    await value(session, "time.sleep(0.2)")
    assert not (tmp_path / "late").exists()


async def test_what_poses_as_a_copy_would_have_lived(session: Session, tmp_path: Path) -> None:
    await prepared(session)
    await value(session, "if daemon(): exec(WAITS); open('late', 'w').close(); os._exit(0)")
    (tmp_path / "go").touch()
    await value(session, "while not os.path.exists('late'): time.sleep(0.005)")


async def test_a_program_that_never_stops_talking_is_still_interrupted(session: Session) -> None:
    await prepared(session)
    await value(session, "items.append(2)")
    with anyio.fail_after(50):
        outcome = await session.run("while True: say(b'{}')", timeout_s=0.5)
    assert outcome.status == "timeout"
    assert await value(session, "items") == "[1, 2]"


async def test_a_state_can_be_gone_back_to_again_and_again(session: Session) -> None:
    await prepared(session)
    for number in range(5):
        await session.run(f"items.append({number})")
        await session.undo(to=1)
        await session.redo()
        await session.undo(to=1)
        assert await value(session, "items") == "[1]"


async def test_cycles_of_undo_and_branches_leave_no_descriptor(session: Session) -> None:
    assert isinstance(session, GuestSession)
    await prepared(session)

    async def cycle() -> None:
        await session.run("items.append(0)")
        await session.undo()
        await session.redo()
        await session.undo(to=1)
        branch = await session.fork()
        await branch.run("items")
        await branch.close()

    await cycle()
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    for _ in range(20):
        await cycle()
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # noqa: PTH208


async def test_names_cannot_steer_the_terminal_of_whoever_reads_the_notices(session: Session, tmp_path: Path) -> None:
    name = "a\x1b[31mb\nc"
    await value(session, f"_ = open({name!r}, 'w').write('1')")
    (tmp_path / name).write_text("mine", encoding="utf-8")
    notices = await session.undo()
    assert notices is not None
    assert "a\\x1b[31mb\\nc" in notices[0]
