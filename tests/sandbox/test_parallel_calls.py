"""Several calls of one cell at once, from threads and from event loops, and values that JSON has no form for."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.sandbox.evaluation import value
from tests.sandbox.test_calls import FORGE, Host, in_step, interrupted

from pinfold.events import Json
from pinfold.sandbox import Answer, Limits, Resumable, Session, open_session
from pinfold.sandbox.session.channel import OPEN_CALLS

pytestmark = pytest.mark.integration
IMPORT = "import asyncio\nfrom _pinfold_guest.calls import call\nfrom _pinfold_guest.servers import call as call2\n"
ECHO = "def echo(n): return call2('echo', {'n': n})\n"


class Together:
    """Answers when so many calls are open at once, the last first."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.most = self.open = 0
        self.given_up: list[Json] = []
        self._all = anyio.Event()

    async def __call__(self, _tool: str, args: Mapping[str, Json]) -> Answer:
        self.open += 1
        self.most = max(self.most, self.open)
        if self.open == self.count:
            self._all.set()
        try:
            await self._all.wait()
            await anyio.sleep(max(0, self.count - args["n"]) * 0.001)
        except BaseException:
            self.given_up.append(args["n"])
            raise
        finally:
            self.open -= 1
        return Answer(status="ok", value=args["n"])


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where the sandbox's own user may go too."""
    tmp_path.chmod(0o755)
    (tmp_path / "other").mkdir(mode=0o755)
    return tmp_path


@pytest.fixture
async def session(place: Path) -> AsyncGenerator[Session]:
    async with open_session(place, "namespaces", limits=Limits(cell_s=30)) as session:
        assert (await session.run(IMPORT + ECHO + FORGE)).status == "ok"
        yield session


@pytest.mark.parametrize(
    "code",
    [
        "await asyncio.gather(*(echo(n) for n in range(20)))",
        "async def main(): return await asyncio.gather(*(echo(n) for n in range(20)))\nasyncio.run(main())",
        "from concurrent.futures import ThreadPoolExecutor\nlist(ThreadPoolExecutor(20).map(echo, range(20)))",
    ],
    ids=["gather", "asyncio.run", "threads"],
)
async def test_calls_run_side_by_side_and_each_gets_its_own_answer(session: Session, code: str) -> None:
    together = Together(20)
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=together)
    assert (outcome.value, together.most) == (str(list(range(20))), 20), outcome


async def test_so_many_are_open_at_once_and_the_others_follow(session: Session) -> None:
    together = Together(32)
    code = "sum(await asyncio.gather(*(echo(n) for n in range(200))))"
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=together)
    assert (outcome.value, together.most) == (str(sum(range(200))), 32)


async def test_a_program_that_has_too_many_open_is_ended(session: Session, host: Host) -> None:
    async def never(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await anyio.sleep_forever()
        return Answer(status="ok")

    with anyio.fail_after(60):
        outcome = await session.run(f"for n in range({OPEN_CALLS + 1}): forged(n + 1)\nwhile True: pass", on_call=never)
    assert f"more than {OPEN_CALLS} calls at once" in (outcome.error or "")
    await session.run(IMPORT)
    await in_step(session, host)


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.mark.parametrize("use", ["b['n']", "f'{b}'", "list(b)", "len(b)", "b == 1", "'n' in b", "b.get('n')", "b + 1"])
async def test_a_call_in_an_event_loop_must_be_awaited_to_be_used(session: Session, host: Host, use: str) -> None:
    outcome = await session.run(f"a = await echo(1)\nb = echo(2)\n{use}", on_call=host)
    assert "<call of echo, not awaited: write `await` before it to get the result>" in (outcome.error or "")
    assert await value(session, "b = echo(2)\n(await b)['n'] + (await b)['n']", on_call=host) == "4"


async def test_without_an_event_loop_a_call_is_its_plain_value(session: Session, host: Host) -> None:
    assert await value(session, "type(echo(1)), echo(1)", on_call=host) == "(<class 'dict'>, {'n': 1})"


async def test_what_was_begun_and_not_awaited_is_finished_with_the_cell(session: Session, host: Host) -> None:
    async def slow(tool: str, args: Mapping[str, Json]) -> Answer:
        await anyio.sleep(0.1)
        return await host(tool, args)

    code = "async def main():\n    echo(1); kept.append(echo(2))\nkept = []\nasyncio.run(main())"
    assert (await session.run(code, on_call=slow)).status == "ok"
    assert [args for _, args in host.asked] == [{"n": 1}, {"n": 2}]
    assert await value(session, "(await kept[0])['n']", on_call=host) == "2"


async def test_a_failure_that_nobody_awaited_is_the_cells(session: Session) -> None:
    async def fails(_tool: str, _args: Mapping[str, Json]) -> Answer:
        return Answer(status="failed", value="the disk is full")

    outcome = await session.run("async def main(): echo(1)\nasyncio.run(main())", on_call=fails)
    assert (outcome.error or "").endswith("ToolFailed: the disk is full\n")


async def test_a_task_that_is_cancelled_gives_up_its_call_and_no_other(session: Session) -> None:
    together = Together(3)
    code = (
        "late = asyncio.ensure_future(asyncio.wait_for(echo(0), 1))\nother = asyncio.ensure_future(echo(1))\n"
        "try: await late\nexcept asyncio.TimeoutError: print('gave up')\n"
        "print(await asyncio.gather(other, echo(1), echo(2)))"
    )
    with anyio.fail_after(60):
        outcome = await session.run(code, on_call=together)
    assert (outcome.stdout, outcome.error) == ("gave up\n[1, 1, 2]\n", None)
    assert together.given_up == [0]


async def test_an_interrupt_ends_the_wait_for_many_and_the_session_goes_on(session: Session, host: Host) -> None:
    for code in ("await asyncio.gather(echo(1), echo(2))", "asyncio.run(asyncio.wait_for(echo(1), 60))"):
        for _ in range(5):
            outcome = await interrupted(session, code)
            assert (outcome.status, outcome.state_lost) == ("interrupted", False)
            await in_step(session, host)


async def test_calls_are_answered_after_an_interrupt_that_came_as_their_loop_began_to_listen(
    session: Session, host: Host
) -> None:
    cut = (
        "loop = asyncio.get_running_loop()\n"
        "def cut(*_):\n    del loop.add_reader\n    raise KeyboardInterrupt\n"
        "loop.add_reader = cut\nawait echo(1)"
    )
    outcome = await session.run(cut, on_call=host)
    assert (outcome.error or "").endswith("KeyboardInterrupt\n")
    assert await value(session, "(await echo(2))['n']", on_call=host) == "2"


async def test_commands_run_for_one_call_while_others_are_answered(session: Session) -> None:
    assert isinstance(session, Resumable)
    ended = anyio.Event()

    async def answer(tool: str, args: Mapping[str, Json]) -> Answer:
        if tool == "quick":
            return Answer(status="ok", value=args["n"])
        ran = await session.command(["/bin/sh", "-c", f"sleep 0.2; echo {args['n']}"], timeout_s=20)
        ended.set()
        return Answer(status="ok", value=ran.stdout.decode())

    code = (
        "import time\nt = time.perf_counter()\n"
        "async def quick(n): return (await call2('quick', {'n': n})), time.perf_counter() - t\n"
        "shells = [call2('shell', {'n': n}) for n in range(3)]\n"
        "found = await asyncio.gather(*shells, *(quick(n) for n in range(3)))\n"
        "found[:3], [n for n, _ in found[3:]]"
    )
    with anyio.fail_after(60):
        assert (await session.run(code, on_call=answer)).value == "(['0\\n', '1\\n', '2\\n'], [0, 1, 2])"


async def test_bytes_come_as_bytes_wherever_they_are(session: Session) -> None:
    sent: Any = {"a": [b"\0\xff", {"b": b""}], "c": b"x" * 3_000_000, "d": "text"}

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        return Answer(status="ok", value=sent)

    code = "got = call('x')\ngot['a'], len(got['c']), type(got['c']), got['d']"
    assert (
        await value(session, code, on_call=answer) == "([b'\\x00\\xff', {'b': b''}], 3000000, <class 'bytes'>, 'text')"
    )

    async def whole(_tool: str, _args: Mapping[str, Json]) -> Answer:
        return Answer(status="ok", value=b"\0" * 100_000_000)

    assert await value(session, "len(call('x'))", on_call=whole) == "100000000"


async def test_arguments_are_sent_as_anybody_would_write_them(session: Session, host: Host) -> None:
    code = (
        "import datetime, pathlib\n"
        "call('echo', at=datetime.date(2026, 1, 2), path=pathlib.Path('a/b'), raw=b'ab', many=(1, 2))"
    )
    assert await value(session, code, on_call=host) == str(
        {"at": "2026-01-02", "path": "a/b", "raw": "YWI=", "many": [1, 2]}
    )


async def test_two_sessions_do_not_wait_for_each_other(place: Path, session: Session, host: Host) -> None:
    """One waits for a tool that never answers; the other makes its calls."""
    blocked = anyio.Event()

    async def never(_tool: str, _args: Mapping[str, Json]) -> Answer:
        blocked.set()
        await anyio.sleep_forever()
        return Answer(status="ok")

    async with (
        open_session(place / "other", "namespaces", limits=Limits(cell_s=30)) as other,
        anyio.create_task_group() as tasks,
    ):
        await other.run(IMPORT)

        async def wait() -> None:
            await other.run("call('never')", on_call=never)

        tasks.start_soon(wait)
        await blocked.wait()
        with anyio.fail_after(60):
            code = "for n in range(50): call('echo', n=n)\nn"
            assert await value(session, code, on_call=host) == "49"
        tasks.cancel_scope.cancel()


async def test_where_nobody_answers_a_tool_is_refused(session: Session) -> None:
    outcome = await session.run("from servers.tools import double\ndouble(1)")
    assert (outcome.error or "").endswith("ToolRefused: no host answers calls from this code\n")
