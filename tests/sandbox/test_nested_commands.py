"""Commands while a cell waits for a call: in its slot, undone with it, and no way for a hostile cell to the host."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path

import anyio
import pytest
from tests.sandbox.evaluation import value
from tests.sandbox.test_calls import FORGE, IMPORT

from pinfold.events import Json
from pinfold.sandbox import Answer, CommandOutcome, Limits, OnCall, Outcome, Resumable, open_session
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
SHELL = ("/bin/sh", "-c")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the sandbox's own user may go too."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
async def session(place: Path) -> AsyncGenerator[Resumable]:
    limits = Limits(cell_s=30, reply_s=1, interrupt_grace_s=0.2)
    async with open_session(place, Namespaces(), limits=limits) as session:
        assert isinstance(session, Resumable)
        assert (await session.run(f"{IMPORT}\n{FORGE}")).status == "ok"
        yield session


def names(place: Path) -> list[str]:
    return sorted(path.name for path in place.iterdir())


class Tool:
    """Runs the script it is called with, inside, and remembers what came of it."""

    def __init__(self, session: Resumable, timeout_s: float = 20) -> None:
        self.session = session
        self.timeout_s = timeout_s
        self.ends: list[CommandOutcome] = []

    async def __call__(self, _tool: str, args: Mapping[str, Json]) -> Answer:
        argv = (*SHELL, str(args["script"]))
        ended = await self.session.command(argv, timeout_s=self.timeout_s, stdin=b"in")
        self.ends.append(ended)
        return Answer(status="ok", value=[ended.status, ended.code, ended.stdout.decode()])


@pytest.fixture
def tool(session: Resumable) -> Tool:
    return Tool(session)


async def in_step(session: Resumable) -> None:
    """The session goes on, with calls and with commands in them."""
    tool = Tool(session)
    await session.run(IMPORT)
    for number in range(2):
        outcome = await session.run(f"call('sh', script='cat; exit {number}')", on_call=tool)
        assert outcome.value == f"['{('ok', 'error')[number]}', {number}, 'in']", outcome
        ended = await session.command(["true"], timeout_s=20)
        assert ended.status == "ok"


async def test_one_undo_takes_back_what_a_cell_and_the_commands_of_its_calls_did(
    session: Resumable, tool: Tool, tmp_path: Path
) -> None:
    code = "call('sh', script='echo of the command > a')\nout = open('b', 'w').write('of the cell')\nx = 1"
    assert (await session.run(code, on_call=tool)).status == "ok"
    assert names(tmp_path) == ["a", "b"]
    assert session.path == (1, 2)
    await session.undo()
    assert names(tmp_path) == []
    await session.redo()
    assert (tmp_path / "a").read_text() == "of the command\n"


async def test_a_number_of_its_own_means_nothing_within_a_cell(session: Resumable, tmp_path: Path) -> None:
    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await session.command((*SHELL, "echo x > a"), timeout_s=20, cell=17)
        return Answer(status="ok")

    await session.run("call('sh')", on_call=answer)
    assert session.path == (1, 2)
    await session.undo()
    assert names(tmp_path) == []


async def test_the_clock_of_the_cell_stands_still_while_a_command_runs(session: Resumable, tool: Tool) -> None:
    outcome = await session.run("call('sh', script='sleep 4.2')", timeout_s=4, on_call=tool)
    assert outcome.status == "ok", outcome
    outcome = await session.run("call('sh', script='true')\nwhile True: pass", timeout_s=0.3, on_call=tool)
    assert outcome.status == "timeout", outcome
    await in_step(session)


async def test_other_threads_go_on_and_each_has_its_own_command(session: Resumable, tool: Tool) -> None:
    code = """
from concurrent.futures import ThreadPoolExecutor
import threading
count = 0
def counts():
    global count
    while not over: count += 1
over = False
counter = threading.Thread(target=counts)
counter.start()
with ThreadPoolExecutor(4) as pool:
    said = list(pool.map(lambda n: call('sh', script=f'cat; echo {n}; sleep 0.05')[2], range(8)))
over = True
counter.join()
said == [f'in{n}\\n' for n in range(8)], count > 1000
"""
    outcome = await session.run(code, on_call=tool)
    assert outcome.value == "(True, True)", outcome
    await in_step(session)


async def test_two_commands_of_one_call_take_turns(session: Resumable) -> None:
    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        async with anyio.create_task_group() as tasks:
            for number in range(4):
                tasks.start_soon(run, number)
        return Answer(status="ok", value=sorted(said))

    async def run(number: int) -> None:
        ended = await session.command((*SHELL, f"sleep 0.05; echo {number}"), timeout_s=20)
        said.append(ended.stdout.decode())

    said: list[str] = []
    outcome = await session.run("call('sh')", on_call=answer)
    assert outcome.value == r"['0\n', '1\n', '2\n', '3\n']", outcome


async def test_the_command_of_a_call_times_out_and_the_cell_goes_on(session: Resumable) -> None:
    tool = Tool(session, timeout_s=0.3)
    outcome = await session.run("call('sh', script='echo x > a; sleep 60')[0]", on_call=tool)
    assert outcome.value == "'timeout'", outcome
    await in_step(session)


async def stopped_while_it_runs(session: Resumable, code: str, how: Callable[[], Awaitable[None]]) -> Outcome:
    """Runs the cell, and does `how` when the command of its call has said something."""
    outcomes: list[Outcome] = []
    speaks = anyio.Event()

    async def answer(_tool: str, args: Mapping[str, Json]) -> Answer:
        argv = (*SHELL, str(args["script"]))
        ended = await session.command(argv, timeout_s=50, on_output=lambda _stream, _text: speaks.set())
        return Answer(status="ok", value=ended.status)

    async def run() -> None:
        outcomes.append(await session.run(code, timeout_s=20, on_call=answer))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await speaks.wait()
            await how()
    return outcomes[0]


HOLDS = "exec 3> held; trap '' TERM INT; echo on; sleep 60"
HELD = "import os, select\nos.mkfifo('held')\nend = os.open('held', os.O_RDONLY | os.O_NONBLOCK)"
IS_FREE = "_ = select.select([end], [], [], 10)\nos.read(end, 1)"


async def test_an_interrupt_ends_the_command_and_the_call(session: Resumable) -> None:
    await session.run(HELD)
    for _ in range(10):
        outcome = await stopped_while_it_runs(session, f'call("sh", script="{HOLDS}")', session.interrupt)
        assert (outcome.status, outcome.state_lost) == ("interrupted", False), outcome
        assert await value(session, IS_FREE) == "b''"
        await in_step(session)


async def test_interrupts_at_any_moment_leave_the_channel_in_step(session: Resumable) -> None:
    interrupted = 0

    async def run(tool: Tool, done: anyio.Event) -> None:
        nonlocal interrupted
        outcome = await session.run("for n in range(8): call('sh', script='cat')", timeout_s=20, on_call=tool)
        assert (outcome.status, outcome.state_lost, outcome.rolled_back) in (
            ("interrupted", False, False),
            ("ok", False, False),
        ), outcome
        interrupted += outcome.status == "interrupted"
        done.set()

    for moment in range(60):
        tool, done = Tool(session), anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, tool, done)
                for _ in range(moment % 20 * 3):
                    if not done.is_set():
                        await anyio.lowlevel.checkpoint()
                while len(tool.ends) < moment // 12 and not done.is_set():
                    await anyio.lowlevel.checkpoint()
                await session.interrupt()
        assert await value(session, "1") == "1"
    assert interrupted > 20
    await in_step(session)


async def test_a_cell_that_catches_the_interrupt_goes_on_calling(session: Resumable) -> None:
    code = (
        f'try: call("sh", script="{HOLDS}")\nexcept KeyboardInterrupt: caught = True\n'
        'caught, call("sh", script="echo on")'
    )
    await session.run(HELD)
    outcome = await stopped_while_it_runs(session, code, session.interrupt)
    assert (outcome.status, outcome.value) == ("ok", "(True, 'ok')"), outcome


@pytest.mark.parametrize("dies", ["os._exit(3)", "os.kill(os.getpid(), 9)", "import ctypes; ctypes.string_at(0)"])
async def test_a_cell_that_dies_meanwhile_ends_the_command_and_both_are_rolled_back(
    session: Resumable, tmp_path: Path, dies: str
) -> None:
    await session.run("import threading, time\nitems = list(range(3))")
    code = (
        "def dies():\n    while not os.path.exists('begun'): pass\n"
        f"    {dies}\nitems.append(3)\nthreading.Thread(target=dies).start()\n"
        "call('sh', script='echo > begun; sleep 60')"
    )
    tool = Tool(session)
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=tool)
    assert (outcome.status, outcome.rolled_back) == ("killed", True), outcome
    assert [ended.status for ended in tool.ends] in ([], ["error"])
    assert names(tmp_path) == []
    assert await value(session, "items") == "[0, 1, 2]"
    assert await value(session, "[name for name in os.listdir('/proc') if name.isdigit()][1:]") == "[]"
    await in_step(session)


async def test_a_command_that_the_tool_gives_up_ends_and_the_call_is_answered(session: Resumable) -> None:
    await session.run(HELD)

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        with anyio.CancelScope() as scope:
            argv = (*SHELL, HOLDS)
            await session.command(argv, timeout_s=50, on_output=lambda _stream, _text: scope.cancel())
        after = await session.command((*SHELL, "echo after"), timeout_s=20)
        return Answer(status="ok", value=after.stdout.decode())

    with anyio.fail_after(60):
        outcome = await session.run(f"call('sh'), {IS_FREE.splitlines()[1]}", on_call=answer)
    assert outcome.value == r"('after\n', b'')", outcome
    await in_step(session)


async def test_a_cancelled_cell_takes_the_command_with_it_and_keeps_its_state(session: Resumable) -> None:
    await session.run(HELD)

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await session.command((*SHELL, HOLDS), timeout_s=50, on_output=lambda _stream, _text: scope.cancel())
        return Answer(status="ok")

    with anyio.fail_after(60), anyio.CancelScope() as scope:
        await session.run("x = 5\ncall('sh')", on_call=answer)
    assert scope.cancelled_caught
    assert await value(session, f"{IS_FREE}, x") == "(b'', 5)"
    await in_step(session)


async def test_a_session_that_is_closed_meanwhile_ends(session: Resumable) -> None:
    outcome = await stopped_while_it_runs(session, f'call("sh", script="{HOLDS}")', session.close)
    assert outcome.status == "killed"


RING = "import signal\ndef ring(*_): raise TimeoutError('rang')\nsignal.signal(signal.SIGALRM, ring)\n"


async def test_a_timer_of_the_programs_own_cuts_the_command_short_and_is_raised_in_the_cell(
    session: Resumable, tool: Tool
) -> None:
    code = (
        f"{RING}try:\n    signal.setitimer(signal.ITIMER_REAL, 0.2)\n    call('sh', script='sleep 60')\n"
        "except TimeoutError as rang:\n    print(rang)"
    )
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=tool)
    assert (outcome.status, outcome.stdout) == ("ok", "rang\n"), outcome
    assert [ended.status for ended in tool.ends] in (["error"], [])  # on a busy machine it rings before the command
    await in_step(session)


async def test_a_timer_that_rings_while_a_command_is_started_is_no_fault_of_the_command(
    session: Resumable, tool: Tool
) -> None:
    """Its exception is of a kind that starting raises too."""
    code = (
        f"{RING}import subprocess\nPopen = subprocess.Popen\n"
        "def slow(*args, **named):\n    signal.raise_signal(signal.SIGALRM)\n    return Popen(*args, **named)\n"
        "subprocess.Popen = slow\ntry:\n    call('sh', script='sleep 60')\n"
        "except TimeoutError as rang:\n    print(rang)\nfinally:\n    subprocess.Popen = Popen"
    )
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=tool)
    assert (outcome.status, outcome.stdout) == ("ok", "rang\n"), outcome
    assert tool.ends[0].stderr == b"it was cut short: TimeoutError\n"
    await in_step(session)


async def test_signals_reach_the_command_as_ever(session: Resumable, tool: Tool) -> None:
    """The guest keeps signals away while it speaks to the host; what it starts must not inherit that."""
    script = "trap 'echo caught' USR1; kill -USR1 $$; grep SigBlk /proc/self/status"
    outcome = await session.run(f"call('sh', script={script!r})[2]", on_call=tool)
    assert outcome.value == r"'caught\nSigBlk:\t0000000000000000\n'", outcome


async def test_a_command_for_a_call_nobody_waits_for_is_told_so(session: Resumable) -> None:
    """The cell has left the wait by an alarm of its own, and calls again."""
    ends: list[CommandOutcome] = []
    left = anyio.Event()

    async def answer(tool: str, _args: Mapping[str, Json]) -> Answer:
        if tool == "slow":
            await left.wait()
            with anyio.CancelScope(shield=True):
                ends.append(await session.command((*SHELL, "echo too late"), timeout_s=20))
        return Answer(status="ok", value=tool)

    def on_output(_stream: str, _text: str) -> None:
        left.set()

    code = (
        f"{RING}try:\n    signal.setitimer(signal.ITIMER_REAL, 1)\n    call('slow')\n"
        "except TimeoutError: print('left', flush=True)\ncall('next')"
    )
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=answer, on_output=on_output)
    assert outcome.value == "'next'", outcome
    assert [(ended.status, ended.code, ended.stdout) for ended in ends] == [("error", None, b"")]
    assert b"this call is no longer waited for" in ends[0].stderr
    await in_step(session)


GOOD = b'{"status":"ok","code":0,"out":2,"err":0,"dropped":0}\nhi'
READ = (
    f"good = {GOOD!r}"
    """
data = b''
def heard(op):
    '''The host's next frame of this kind, read past the guest.'''
    global data
    while True:
        while len(data) < 8 or len(data) < 8 + sum(struct.unpack('<II', data[:8])): data += os.read(channel, 1 << 20)
        head, body = struct.unpack('<II', data[:8])
        header = json.loads(data[8:8 + head])
        data = data[8 + head + body:]
        if header['op'] == op: return header
def ran(command=1, body=good, **more):
    forge({'id': own(), 'status': 'ran', 'command': command, **more}, body)
def said(stream='stdout', command=1, body=b'x', **more):
    forge({'id': own(), 'status': 'output', 'command': command, 'stream': stream, **more}, body)
"""
)


CALLS = """
forge({'id': own(), 'status': 'call', 'call': 1, 'tool': 'sh'}, b'{"script": "true"}')
heard('nested')
"""


async def test_a_forged_end_of_a_command_fools_nobody_but_the_cell(session: Resumable, tool: Tool) -> None:
    """The control for the attacks below: the frames are right, so they are taken."""
    await session.run(READ)
    outcome = await session.run(CALLS + "ran()\nheard('answer')['ok']", on_call=tool)
    assert (outcome.status, outcome.value) == ("ok", "True"), outcome
    assert [(ended.status, ended.stdout) for ended in tool.ends] == [("ok", b"hi")]
    await in_step(session)


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("ran(2)", "a command that was not started"),
        ("ran(0)", "a command that was not started"),
        ("ran(None)", "a command that was not started"),
        ("ran(-1)", "a command that was not started"),
        ("ran()\nran()", "a command that was not started"),
        ("ran()\nran(2)", "a command that was not started"),
        ("ran('1')", "header is malformed"),
        ("ran(id=99)", "answered request 99"),
        ("ran(body=b'')", "end is malformed"),
        ("ran(body=b'{}')", "end is malformed"),
        ("ran(body=b'[' * 100000)", "end is malformed"),
        ("ran(body=b'\\x80\\x04N.')", "end is malformed"),
        ('ran(body=b\'{"status":"ok","code":0,"out":9,"err":0,"dropped":0}\\nhi\')', "add up"),
        ("ran(body=b'x' * (33 << 20))", "bytes"),
        ("said()", "not requested"),
        ("said(command=0)", "not requested"),
        ("said(command=None)", "not requested"),
        ("said('stdin')", "header is malformed"),
        ("os.write(channel, struct.pack('<II', 10, 1 << 31))", "announced a frame"),
    ],
)
async def test_a_forged_frame_of_a_command_that_is_none_kills_the_guest(
    session: Resumable, tool: Tool, attack: str, why: str
) -> None:
    await session.run(READ)
    with anyio.fail_after(60):
        outcome = await session.run(f"{CALLS}{attack}\nwhile True: pass", on_call=tool)
    assert (outcome.status, outcome.rolled_back) == ("killed", True), outcome
    assert "its channel was broken" in (outcome.error or "")
    assert why in (outcome.error or "")
    await in_step(session)


@pytest.mark.parametrize("attack", ["ran()", "ran(0)", "said()", "said(command=0)"])
async def test_a_command_nobody_asked_for_cannot_be_told_of(session: Resumable, attack: str) -> None:
    await session.run(READ)
    for on_call in (None, Tool(session)):
        with anyio.fail_after(60):
            outcome = await session.run(f"{attack}\nwhile True: pass", on_call=on_call)
        assert outcome.status == "killed", outcome


async def test_pieces_of_output_are_bounded_and_only_for_whoever_asked(session: Resumable) -> None:
    await session.run(READ)
    heard: list[str] = []

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await session.command(["true"], timeout_s=5, on_output=lambda _stream, text: heard.append(text))
        return Answer(status="ok")

    fine = "for n in range(100): said(body=b'y' * 65536)\nran()\nheard('answer')['ok']"
    outcome = await session.run(CALLS + fine, on_call=answer)
    assert outcome.value == "True", outcome
    assert sum(map(len, heard)) == 100 << 16
    for attack in ("said(body=b'y' * 65537)", "ran()\nsaid()", "said(command=2)"):
        with anyio.fail_after(60):
            outcome = await session.run(f"{CALLS}{attack}\nwhile True: pass", on_call=answer)
        assert outcome.status == "killed", outcome
        await session.run(READ)
    await in_step(session)


async def test_a_cell_that_never_tells_the_end_holds_up_nobody_for_longer_than_the_limits(session: Resumable) -> None:
    tool = Tool(session, timeout_s=0.2)
    await session.run(READ)
    with anyio.fail_after(60):
        outcome = await session.run(f"{CALLS}heard('answer')['ok']", timeout_s=30, on_call=tool)
    assert (outcome.status, outcome.value) == ("ok", "True"), outcome
    assert [ended.status for ended in tool.ends] == ["error"]
    assert tool.ends[0].duration_s < 10  # 0.2 + 1 s on a machine that has nothing else to do
    with anyio.fail_after(60):
        outcome = await session.run(f"{CALLS}while True: pass", timeout_s=0.2, on_call=tool)
    assert outcome.status == "timeout", outcome
    await in_step(session)


async def test_an_end_that_comes_too_late_is_dropped_and_the_next_is_heard(session: Resumable) -> None:
    ends: list[CommandOutcome] = []

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        ends.append(await session.command(["true"], timeout_s=0.1))
        ends.append(await session.command(["true"], timeout_s=20))
        return Answer(status="ok")

    await session.run(READ)
    code = CALLS + "heard('stop')\nheard('nested')\nran(1)\nran(2)\nheard('answer')['ok']"
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=answer)
    assert (outcome.status, outcome.value) == ("ok", "True"), outcome
    assert [ended.status for ended in ends] == ["error", "ok"]
    await in_step(session)


async def test_what_on_output_raises_is_raised_by_the_command(session: Resumable) -> None:
    def broken(_stream: str, _text: str) -> None:
        raise LookupError("the screen is gone")

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        with pytest.raises(LookupError, match="the screen is gone"):
            await session.command(["echo", "x"], timeout_s=20, on_output=broken)
        return Answer(status="ok", value="raised")

    assert (await session.run("call('sh')", on_call=answer)).value == "'raised'"
    with pytest.raises(LookupError, match="the screen is gone"):
        await session.command(["echo", "x"], timeout_s=20, on_output=broken)
    await in_step(session)


async def test_a_command_runs_in_the_slot_of_a_branch_too(session: Resumable) -> None:
    branch = await session.fork()

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        ended = await branch.command((*SHELL, "echo in the branch"), timeout_s=20)
        return Answer(status="ok", value=ended.stdout.decode())

    on_call: OnCall = answer
    assert (await branch.run("call('sh')", on_call=on_call)).value == r"'in the branch\n'"
