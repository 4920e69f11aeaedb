"""Calls from cells of a real sandbox: what the host hears, what the cell gets, and what a hostile program gains."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path

import anyio
import pytest
from tests.sandbox.evaluation import value

from pinfold.events import Json
from pinfold.sandbox import Answer, Limits, Outcome, Session, open_session
from pinfold.sandbox.session.channel import ANSWER_BYTES, ANSWERS_BYTES, CALL_BYTES, CALLS, CALLS_BYTES

pytestmark = [pytest.mark.integration, pytest.mark.safety]
IMPORT = "from _pinfold_guest.calls import call"
FORGE = """
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
def forge(header, body=b'{}'):
    encoded = json.dumps(header).encode()
    os.write(channel, struct.pack('<II', len(encoded), len(body)) + encoded + body)
def forged(number, id=None, **more):
    forge({'id': own() if id is None else id, 'status': 'call', 'call': number, 'tool': 'echo', **more})
"""


class Host:
    """Answers every call with its arguments, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Json]]] = []

    async def __call__(self, tool: str, args: Mapping[str, Json]) -> Answer:
        self.asked.append((tool, args))
        return Answer(status="ok", value=args)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the sandbox's own user may go too."""
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
async def session(place: Path) -> AsyncGenerator[Session]:
    async with open_session(place, "namespaces", limits=Limits(cell_s=30)) as session:
        assert (await session.run(f"{IMPORT}\n{FORGE}")).status == "ok"
        yield session


async def in_step(session: Session, host: Host) -> None:
    for number in range(3):
        outcome = await session.run(f"call('echo', n={number})['n']", on_call=host)
        assert (outcome.status, outcome.value) == ("ok", str(number))


async def interrupted(session: Session, code: str) -> Outcome:
    """Runs the cell and interrupts it as soon as the host has heard a call, which is never answered."""
    outcomes: list[Outcome] = []
    heard = anyio.Event()

    async def never(_tool: str, _args: Mapping[str, Json]) -> Answer:
        heard.set()
        await anyio.sleep_forever()
        return Answer(status="ok")

    async def run() -> None:
        outcomes.append(await session.run(code, timeout_s=20, on_call=never))

    with anyio.fail_after(60):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await heard.wait()
            await session.interrupt()
    return outcomes[0]


async def test_an_interrupt_ends_the_wait_and_the_session_goes_on(session: Session, host: Host) -> None:
    for _ in range(20):
        outcome = await interrupted(session, "call('echo')")
        assert (outcome.status, outcome.state_lost) == ("interrupted", False)
        await in_step(session, host)


async def test_interrupts_at_any_moment_leave_the_channel_in_step(session: Session, host: Host) -> None:
    async def run(done: anyio.Event) -> None:
        outcome = await session.run("for n in range(100000): call('echo', n=n)\n", timeout_s=20, on_call=host)
        assert (outcome.status, outcome.state_lost) in (("interrupted", False), ("error", False)), outcome
        done.set()

    for moment in range(1, 41):  # an interrupt before it has begun would be nobody's
        host.asked.clear()
        done = anyio.Event()
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run, done)
                while len(host.asked) < moment and not done.is_set():
                    await anyio.lowlevel.checkpoint()
                await session.interrupt()
        assert (await session.run("1")).value == "1"
    await in_step(session, host)


async def test_a_timer_of_the_programs_own_ends_the_wait(session: Session, host: Host) -> None:
    """The usual way to bound a call: a handler that raises."""
    code = (
        "import signal\ndef ring(*_): raise TimeoutError('rang')\nsignal.signal(signal.SIGALRM, ring)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "try:\n    call('echo')\nexcept TimeoutError as rang:\n    print(rang)"
    )

    async def slow(_tool: str, args: Mapping[str, Json]) -> Answer:
        await anyio.sleep(1.5)
        return Answer(status="ok", value=args)

    outcome = await session.run(code, on_call=slow)
    assert (outcome.status, outcome.stdout) == ("ok", "rang\n")
    await in_step(session, host)


async def test_cancelling_the_caller_gives_up_the_tool_and_keeps_the_state(session: Session, host: Host) -> None:
    ends: list[str] = []

    async def never(tool: str, _args: Mapping[str, Json]) -> Answer:
        tasks.cancel_scope.cancel()
        try:
            await anyio.sleep_forever()
        finally:
            ends.append(tool)
        return Answer(status="ok")

    async with anyio.create_task_group() as tasks:
        await session.run("x = 5\ncall('send')", on_call=never)
    assert ends == ["send"]
    assert (await session.run("x")).value == "5"
    await in_step(session, host)


async def test_a_call_of_the_next_cell_is_not_given_to_whoever_was_cancelled(session: Session, host: Host) -> None:
    given: list[Mapping[str, Json]] = []

    async def first(_tool: str, args: Mapping[str, Json]) -> Answer:
        given.append(args)
        scope.cancel()
        await anyio.sleep_forever()
        return Answer(status="ok")

    with anyio.CancelScope() as scope:
        await session.run("call('echo', n=1)", on_call=first)
    outcome = await session.run("call('echo', n=2)['n']", on_call=host, timeout_s=10)
    assert (outcome.status, outcome.value) == ("ok", "2")
    assert (given, host.asked) == ([{"n": 1}], [("echo", {"n": 2})])


async def test_what_the_answering_raises_ends_the_cell_and_is_raised(session: Session, host: Host) -> None:
    async def broken(_tool: str, _args: Mapping[str, Json]) -> Answer:
        raise LookupError("the disk is full")

    with pytest.raises(LookupError, match="the disk is full"):
        await session.run("x = 6\ncall('send')", on_call=broken)
    assert (await session.run("x")).value == "6"
    await in_step(session, host)


async def test_a_thread_that_outlives_its_cell_gets_an_error_and_disturbs_nobody(session: Session, host: Host) -> None:
    code = (
        "import threading\nends = []\n"
        "def work():\n    try: call('echo')\n    except Exception as error: ends.append(str(error))\n"
        "thread = threading.Thread(target=work)\nthread.start()\nwhile True: pass"
    )
    assert (await interrupted(session, code)).status == "interrupted"
    await in_step(session, host)
    outcome = await session.run("thread.join()\nends", on_call=host)
    assert outcome.value == "['the cell that made this call has ended']"


async def test_calls_under_asyncio(session: Session, host: Host) -> None:
    code = (
        "import asyncio\n"
        "found = await asyncio.gather(*(asyncio.to_thread(call, 'echo', n=n) for n in range(20)))\n"
        "[one['n'] for one in found] == list(range(20)), call('echo', n=1)"
    )
    assert (await session.run(code, on_call=host)).value == "(True, {'n': 1})"


@pytest.mark.parametrize("fork", ["os.fork()", "__import__('ctypes').CDLL(None).fork()"], ids=["fork", "raw fork"])
async def test_a_forked_process_cannot_call(session: Session, host: Host, fork: str) -> None:
    code = (
        f"import os\nr, w = os.pipe()\npid = {fork}\n"
        "if not pid:\n"
        "    try: said = call('echo', child=1)\n"
        "    except BaseException as error: said = repr(error)\n"
        "    os.write(w, str(said).encode()); os._exit(0)\n"
        "os.waitpid(pid, 0)\nos.read(r, 1000).decode()"
    )
    outcome = await session.run(code, on_call=host)
    assert "ToolRefused('a forked process cannot call tools" in (outcome.value or "")
    assert host.asked == []
    await in_step(session, host)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        (f"call('x', data='x' * {CALL_BYTES})", "ToolRefused: the arguments have 1,048,588 bytes"),
        ("call('x', data={1, 2})", "TypeError: Object of type set is not JSON serializable"),
        ("call('x', data=float('nan'))", "ValueError: Out of range float values"),
        ("call('')", "ToolRefused: that is not the name of a tool"),
        ("call('\\ud800')", "ToolRefused: that is not the name of a tool"),
        ("call(5)", "ToolRefused: that is not the name of a tool"),
    ],
)
async def test_what_cannot_be_sent_is_said_in_the_cell(session: Session, host: Host, code: str, why: str) -> None:
    outcome = await session.run(code, on_call=host)
    assert outcome.status == "error"
    assert why in (outcome.error or "")
    assert host.asked == []
    await in_step(session, host)


@pytest.mark.slow
async def test_a_cell_has_so_many_calls_and_the_next_has_them_again(session: Session, host: Host) -> None:
    code = f"for n in range({CALLS}): call('echo')\ncall('one more')"
    outcome = await session.run(code, on_call=host, timeout_s=120)
    assert (outcome.error or "").endswith("ToolRefused: this cell has made 10,000 calls, the most a cell may make\n")
    assert len(host.asked) == CALLS
    await in_step(session, host)


async def test_instant_calls_without_end_are_the_cells_own_time_and_waiting_is_not(
    session: Session, host: Host
) -> None:
    outcome = await session.run("while True: call('echo')", on_call=host, timeout_s=0.2)
    assert outcome.status == "timeout", outcome
    assert len(host.asked) < CALLS

    async def slow(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await anyio.sleep(0.5)
        return Answer(status="ok", value="waited")

    outcome = await session.run("call('slow')", on_call=slow, timeout_s=0.2)
    assert (outcome.status, outcome.value) == ("ok", "'waited'"), outcome
    await in_step(session, host)


async def test_the_calls_of_a_cell_are_bounded_in_bytes_both_ways(
    session: Session, host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    call_all = "for n in range(4): call('x', text='x' * 1000)"
    less = f"import _pinfold_guest.calls as calls\nwas, calls.CALLS_BYTES = calls.CALLS_BYTES, 3500\n{call_all}"
    outcome = await session.run(less, on_call=host)
    assert (outcome.error or "").endswith(
        "ToolRefused: the calls of this cell have reached 0 MB, the most a cell may send\n"
    )
    assert len(host.asked) == 3
    assert await value(session, "calls.CALLS_BYTES = was; was", host) == str(CALLS_BYTES)
    assert (await session.run(call_all, on_call=host)).status == "ok"
    monkeypatch.setattr("pinfold.sandbox.session.cell_calls.ANSWERS_BYTES", 3500)
    outcome = await session.run(call_all, on_call=host)
    assert (
        "ToolFailed: a cell can be given 0 MB by tools, and this cell has reached that; continue in another cell"
        in (outcome.error or "")
    )
    monkeypatch.setattr("pinfold.sandbox.session.cell_calls.ANSWERS_BYTES", ANSWERS_BYTES)
    monkeypatch.setattr("pinfold.sandbox.session.channel.CALLS_BYTES", 3500)
    outcome = await session.run(call_all, on_call=host)
    assert "it made calls with more than 0 MB in one cell" in (outcome.error or "")


async def test_a_result_that_is_too_large_is_a_failure(session: Session, host: Host) -> None:
    async def large(_tool: str, args: Mapping[str, Json]) -> Answer:
        return Answer(status="ok", value="x" * (ANSWER_BYTES - 2 + int(args["more"])))

    assert (await session.run("len(call('x', more=0))", on_call=large)).value == str(ANSWER_BYTES - 2)
    outcome = await session.run("call('x', more=1)", on_call=large)
    assert "ToolFailed: its result has 16,777,217 bytes" in (outcome.error or "")


async def test_a_forged_call_is_heard_as_any_other(session: Session, host: Host) -> None:
    """The control for the attacks below: the frame is right, so it is judged like any call."""
    outcome = await session.run("forged(1)\nos.read(channel, 1000)[-2:]", on_call=host)
    assert (outcome.status, outcome.value) == ("ok", "b'{}'")
    assert host.asked == [("echo", {})]
    await in_step(session, host)


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        ("forged(1, id=99)", "answered request 99"),
        ("forged(1, id=1)", "answered request 1"),
        ("forged(2)", "its call is malformed"),
        ("forged(1, tool='')", "its call is malformed"),
        ("forged(1, status='drop')", "dropped a call that it never made"),
        (f"forge({{'id': own(), 'status': 'call', 'call': 1, 'tool': 'x'}}, b' ' * {CALL_BYTES + 1})", "bytes"),
        ("forge({'id': own(), 'status': 'call', 'call': 1, 'tool': 'x'}, b'[]')", "are not a JSON object"),
        ("forge({'id': own(), 'status': 'call', 'call': 1, 'tool': 'x'}, b'\\x80\\x04N.')", "not JSON"),
    ],
)
async def test_a_forged_call_that_is_none_kills_the_guest(session: Session, host: Host, attack: str, why: str) -> None:
    with anyio.fail_after(60):
        outcome = await session.run(f"{attack}\nwhile True: pass", on_call=host)
    assert (outcome.status, outcome.state_lost or outcome.rolled_back) == ("killed", True)
    assert "its channel was broken" in (outcome.error or "")
    assert why in (outcome.error or "")
    await session.run(IMPORT)
    await in_step(session, host)


@pytest.mark.parametrize("attack", ["forged(1)", "pid = os.fork()\nforged(1)"])
async def test_a_forged_call_where_nobody_answers_kills_the_guest(session: Session, attack: str) -> None:
    with anyio.fail_after(60):
        outcome = await session.run(f"{attack}\nwhile True: pass")
    assert outcome.status == "killed"
    assert "calls are not served" in (outcome.error or "")


async def test_a_forged_call_between_cells_kills_the_guest(session: Session, host: Host) -> None:
    await session.run("import threading, time\ngo = threading.Event()")
    code = (
        "def late():\n    go.wait(); time.sleep(0.05); forged(1, id=9)\nthreading.Thread(target=late).start()\ngo.set()"
    )
    outcomes = [await session.run(code, on_call=host)]
    with anyio.fail_after(60):
        while all(outcome.status == "ok" for outcome in outcomes):
            outcomes.append(await session.run("1"))
    assert outcomes[-1].status == "killed"
    assert host.asked == []
