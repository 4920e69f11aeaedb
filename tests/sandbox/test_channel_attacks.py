"""Programs that attack the channel, by accident or not: cells never come out of step. All are harmless."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import Limits, Outcome, Session, open_session

pytestmark = [pytest.mark.safety, pytest.mark.alone]

CHANNEL = """
import json, os, socket, struct, sys
def is_socket(fd):
    try:
        return socket.socket(fileno=os.dup(fd)).type == socket.SOCK_STREAM
    except OSError:
        return False
[channel] = [fd for fd in range(3, 100) if is_socket(fd)]
def own():
    frame = sys._getframe(1)
    while 'id' not in frame.f_locals.get('header', ()): frame = frame.f_back
    return frame.f_locals['header']['id']
def forge(header, body=b''):
    encoded = json.dumps(header).encode()
    os.write(channel, struct.pack('<II', len(encoded), len(body)) + encoded + body)
"""


async def in_step(session: Session) -> list[str]:
    """Runs numbered cells; returns how they ended. An answer of another cell fails."""
    statuses: list[str] = []
    for number in range(100, 104):
        outcome = await session.run(f"{number}")
        statuses.append(outcome.status)
        if outcome.status == "ok":
            assert outcome.value == str(number)
        else:
            assert (outcome.status, outcome.state_lost or outcome.rolled_back) == ("killed", True)
    assert statuses[-1] == "ok"
    return statuses


async def prepared(session: Session, code: str = CHANNEL) -> None:
    outcome = await session.run(code)
    assert outcome.status == "ok", outcome


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("os.write(channel, b'garbage and more garbage')", "announced a frame"),
        ("os.write(channel, struct.pack('<II', 0xFFFFFFFF, 0xFFFFFFFF))", "announced a frame"),
        ("os.write(channel, struct.pack('<II', 2, 0) + b'{}')", "header is malformed"),
        ("forge({'id': 99, 'status': 'ok'})", "answered request 99 instead of"),
        ("forge({'id': own(), 'status': 'refused'})", "answered 'refused'"),
        ("forge({'id': own(), 'status': 'ok', 'value': 10**30})", "do not add up"),
        ("forge({'id': own(), 'status': 'ok', 'value': 99}, b'x')", "do not add up"),
    ],
)
async def test_a_forged_frame_kills_the_guest_and_it_is_said(session: Session, attack: str, why: str) -> None:
    await prepared(session)
    with anyio.fail_after(50):
        outcome = await session.run(f"{attack}\nwhile True: pass")
    assert (outcome.status, outcome.state_lost or outcome.rolled_back) == ("killed", True)
    assert "its channel was broken" in (outcome.error or "")
    assert why in (outcome.error or "")
    assert await in_step(session) == ["ok"] * 4


async def test_a_forged_answer_to_its_own_cell_gains_nothing(session: Session) -> None:
    await prepared(session)
    outcome = await session.run("forge({'id': own(), 'status': 'ok', 'value': 6}, b'forged')")
    assert outcome.status in ("ok", "killed")
    assert "killed" in [outcome.status, *await in_step(session)]


async def test_a_forged_answer_to_the_next_cell_is_not_taken(session: Session) -> None:
    await prepared(session)
    outcome = await session.run("forge({'id': 3, 'status': 'ok', 'value': 6}, b'forged')")
    assert outcome.status == "killed"
    assert await in_step(session) == ["ok"] * 4


async def test_half_a_frame_ends_with_the_cells_limit(session: Session) -> None:
    await prepared(session)
    with anyio.fail_after(50):
        outcome = await session.run("os.write(channel, struct.pack('<II', 90, 90))\nwhile True: pass", timeout_s=0.3)
    assert outcome.status in ("killed", "timeout")
    await in_step(session)


@pytest.mark.parametrize(
    "attack", ["os.close(channel)", "os.closerange(3, 256)", "os.closerange(3, 256)\nwhile True: pass"]
)
async def test_closing_the_channel_kills_the_guest_and_it_is_said(session: Session, attack: str) -> None:
    await prepared(session)
    with anyio.fail_after(50):
        outcome = await session.run(attack)
    assert (outcome.status, outcome.state_lost or outcome.rolled_back) == ("killed", True)
    await in_step(session)


async def test_a_reply_is_never_written_into_the_programs_file(session: Session) -> None:
    await prepared(session)
    await session.run("os.close(channel)\nf = open('mine.txt', 'w')\nassert f.fileno() == channel")
    assert await session.get("mine.txt") == b""


async def test_the_programs_processes_do_not_get_the_channel(session: Session) -> None:
    code = (
        "import os, subprocess, sys\n"
        'look = \'import os; print(*(os.readlink(f"/proc/self/fd/{n}") for n in (3, 4, 5, 6) if os.path.exists(f"/proc/self/fd/{n}")))\'\n'
        "print(subprocess.run([sys.executable, '-c', look], close_fds=False, capture_output=True, text=True).stdout)\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    print(*(os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if os.path.exists(f'/proc/self/fd/{n}')))\n"
        "    sys.stdout.flush(); os._exit(0)\n"
        "_ = os.waitpid(child, 0)"
    )
    outcome = await session.run(code)
    assert outcome.status == "ok", outcome
    assert "pipe:" in outcome.stdout
    assert "socket:" not in outcome.stdout


async def test_two_hundred_megabytes_are_bounded(tmp_path: Path) -> None:
    async with open_session(tmp_path, "unsafe-local", limits=Limits(output_bytes=1 << 20)) as session:
        code = "import sys\nfor _ in range(200): sys.stdout.write('x' * 1_000_000)\nsys.stderr.write('e' * 2_000_000)\n'done'"
        with anyio.fail_after(60):
            outcome = await session.run(code)
        assert (outcome.status, outcome.value) == ("ok", "'done'")
        assert (len(outcome.stdout), len(outcome.stderr)) == (1 << 20, 1 << 20)
        assert outcome.dropped_bytes == 202_000_000 - 2 * (1 << 20)
        assert await in_step(session) == ["ok"] * 4


async def test_a_background_flood_does_not_keep_a_cell_from_ending(session: Session) -> None:
    await prepared(session, "import subprocess\nflood = subprocess.Popen(['yes'])")
    with anyio.fail_after(60):
        for number in range(20):
            assert (await session.run(f"{number}")).value == str(number)
        await session.run("flood.kill()\n_ = flood.wait()")


@pytest.mark.parametrize(
    "spoil",
    [
        "sys.stdout.close()",
        "sys.stdout.detach()",
        "os.close(1)",
        "del sys.stdout",
        "sys.stdout = None",
        "os.close(1); os.close(2); sys.stdout.close(); sys.stderr.close()",
    ],
)
async def test_a_closed_stdout_works_again_in_the_next_cell(session: Session, spoil: str) -> None:
    assert (await session.run(f"import os, sys\n{spoil}")).status in ("ok", "error")
    outcome = await session.run("print('back')\nos.system('echo also')")
    assert (outcome.status, outcome.stdout) == ("ok", "back\nalso\n")


async def test_a_stdout_that_raises_on_flush_is_the_programs_affair(session: Session) -> None:
    await session.run(
        "import sys\nclass Bad:\n    __hash__ = None\n    def write(self, text): pass\n    def flush(self): raise BaseException('no')\n"
        "real, sys.stdout = sys.stdout, Bad()"
    )
    assert (await session.run("print('gone')\n1")).value == "1"
    assert (await session.run("sys.stdout = real\nprint('here')")).stdout == "here\n"


FORKS = [
    "child = os.fork()",
    "child = os.fork()\nif not child: raise ValueError('in the child')",
    "child = os.fork()\nif not child: sys.exit(7)",
    "import ctypes\nchild = ctypes.CDLL(None).fork()",
]


@pytest.mark.parametrize("fork", FORKS)
async def test_a_forked_child_that_falls_out_of_the_cell_ends(session: Session, fork: str) -> None:
    await prepared(session, "import os, sys\nme = os.getpid()")
    for _ in range(5):
        outcome = await session.run(f"{fork}\nos.getpid() == me")
        assert (outcome.status, outcome.value) == ("ok", "True")
        with anyio.fail_after(50):
            assert (await session.run("os.waitpid(child, 0)[0] == child")).value == "True"
    assert await in_step(session) == ["ok"] * 4


async def test_a_forked_child_ends_as_a_script_would(session: Session) -> None:
    await prepared(session, "import os, sys")
    code = "child = os.fork()\nif not child: print('child'); sys.exit(7)\nos.waitstatus_to_exitcode(os.waitpid(child, 0)[1])"
    outcome = await session.run(code)
    assert (outcome.value, outcome.stdout) == ("7", "child\n")
    outcome = await session.run(code.replace("sys.exit(7)", "raise ValueError('odd')"))
    assert (outcome.value, outcome.stdout) == ("1", "child\n")
    assert "ValueError: odd" in outcome.stderr


async def test_a_forked_child_may_run_on_past_the_cell(session: Session) -> None:
    await prepared(
        session,
        "import os, time\nr, w = os.pipe()\nchild = os.fork()\nif not child: os.read(r, 1); print('late', flush=True)",
    )
    assert await in_step(session) == ["ok"] * 4
    outcome = await session.run("os.write(w, b'x')\nos.waitpid(child, 0)[1]")
    assert (outcome.value, outcome.stdout) == ("0", "late\n")


ODD = [
    "class UnknownContent(Exception):\n    def __str__(self): raise BaseException('no text')\nraise UnknownContent",
    "class UnknownContent(Exception):\n    __traceback__ = property(lambda self: 1/0)\nraise UnknownContent",
    "class UnknownContent(Exception):\n    __class__ = property(lambda self: 1/0)\nraise UnknownContent",
    "class UnknownContent(Exception):\n    __cause__ = __context__ = property(lambda self: 1/0)\nraise UnknownContent",
    (
        "class Meta(type):\n    def __getattribute__(cls, name): raise BaseException(name)\n"
        "class UnknownContent(BaseException, metaclass=Meta): pass\nraise UnknownContent"
    ),
    "class UnknownContent(Exception):\n    def __getattribute__(self, name): raise SystemExit(name)\nraise UnknownContent",
    "raise BaseException('bare')",
    "raise GeneratorExit",
    "raise StopIteration",
    "raise KeyboardInterrupt",
    "raise ExceptionGroup('many', [ValueError(1), OSError(2)])",
    "raise ValueError('\\ud800 \\x00 \\x1b[31m')",
    "def deep(): deep()\ndeep()",
    "import asyncio\nraise asyncio.CancelledError",
    "import asyncio\nawait asyncio.sleep(0)\nraise SystemExit(1)",
    "import asyncio\nawait asyncio.sleep(0)\nraise KeyboardInterrupt",
    "import asyncio\nasyncio.get_running_loop().stop()\nawait asyncio.sleep(1)",
    "import asyncio\nasyncio.current_task().cancel()\nawait asyncio.sleep(1)",
    (
        "class T(str):\n    def encode(self, *a): raise BaseException('evil')\n"
        "class UnknownContent:\n    def __repr__(self): return T('fine')\nOdd()\n1/0"
    ),
    "\0",
    "'unfinished",
    "(" * 500,
]


@pytest.mark.parametrize("code", ODD)
async def test_an_odd_exception_is_the_cells_error(session: Session, code: str) -> None:
    with anyio.fail_after(60):
        outcome = await session.run(code)
    assert (outcome.status, outcome.state_lost) == ("error", False)
    assert outcome.error
    assert await in_step(session) == ["ok"] * 4


HABITS = [
    "import sys\ndef trace(*_): raise BaseException('traced')\nsys.settrace(trace)",
    "import sys\ndef profile(*_): raise BaseException('profiled')\nsys.setprofile(profile)",
    "import sys\nsys.setrecursionlimit(60)",
    "import json, os\njson.dumps = json.loads = os.read = os.write = os.getpid = None",
    "import builtins\nbuiltins.compile = builtins.eval = builtins.repr = None",
    "import sys\nsys.modules.clear()",
    "import os\nos.chdir('/')",
    "__builtins__ = {}",
    "globals().clear()",
    "import gc\ngc.disable()",
    "import threading\nthreading.Thread(target=lambda: 1/0).start()",
    "import atexit\natexit.register(lambda: 1/0)",
]


@pytest.mark.parametrize("code", HABITS)
async def test_a_bad_habit_never_puts_cells_out_of_step(session: Session, code: str) -> None:
    with anyio.fail_after(60):
        assert (await session.run(code)).status in ("ok", "error", "killed")
        await in_step(session)


def wait_until_asleep(pid: int) -> None:
    """The guest sleeps nowhere but where it waits for its next request."""
    while ") S " not in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8"):
        pass


async def test_a_timer_that_raises_between_cells_is_shown_and_changes_nothing(session: Session) -> None:
    await prepared(
        session,
        "import os, signal\ndef ring(*_): raise ValueError('rang')\n_ = signal.signal(signal.SIGALRM, ring)\nx = 1",
    )
    pid = int((await session.run("os.getpid()")).value or "")
    await anyio.to_thread.run_sync(wait_until_asleep, pid)
    os.kill(pid, signal.SIGALRM)
    outcome = await session.run("x")
    assert outcome.status in ("ok", "error")
    assert "rang" in outcome.stderr + (outcome.error or "")
    assert (await session.run("x")).value == "1"


async def test_an_interrupt_sent_with_the_cell_is_never_lost(session: Session) -> None:
    for _ in range(100):
        outcomes: list[Outcome] = []

        async def run(outcomes: list[Outcome] = outcomes) -> None:
            outcomes.append(await session.run("while True: pass", timeout_s=20))

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await anyio.lowlevel.checkpoint()
                await session.interrupt()
        assert [outcome.status for outcome in outcomes] == ["interrupted"]


async def test_a_thousand_interrupts_at_random_moments_never_break_the_session(session: Session) -> None:
    dice = random.Random(20261115)
    sent = 0
    statuses: list[str] = []
    await prepared(session, "import os, time\npid = os.getpid()")
    with anyio.fail_after(200):
        async with anyio.create_task_group() as tasks:

            async def disturb() -> None:
                nonlocal sent
                while sent < 1000:
                    for _ in range(dice.randrange(6)):
                        await anyio.lowlevel.checkpoint()
                    await session.interrupt()
                    sent += 1

            tasks.start_soon(disturb)
            number = 0
            while sent < 1000:
                number += 1
                outcome = await session.run(f"for _ in range({dice.randrange(3000)}): print(end='')\n{number}")
                statuses.append(outcome.status)
                assert outcome.status in ("ok", "interrupted"), outcome
                assert outcome.value == (str(number) if outcome.status == "ok" else None)
    assert (await session.run("os.getpid() == pid")).value == "True"
    assert "interrupted" in statuses
