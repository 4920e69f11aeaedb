"""Checks of calls that code inside makes to tools."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from pinfold.events import Json
from pinfold.sandbox.conformance.bench import Bench, check, check_session, expect, expect_outcome
from pinfold.sandbox.contract import Answer, CommandOutcome, Outcome, Session

IMPORT = "from _pinfold_guest.calls import call\n"
THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda n: call("echo", n=n)["n"], range(40)))
found == list(range(40))
"""
CATCHES = """
try:
    call("wait")
except KeyboardInterrupt:
    caught = True
call("echo", caught=caught)
"""


async def _echo(_tool: str, args: Mapping[str, Json]) -> Answer:
    return Answer(status="ok", value=args)


@check(needs="calls")
async def a_call_is_answered(bench: Bench) -> None:
    asked: list[tuple[str, Json]] = []

    async def answer(tool: str, args: Mapping[str, Json]) -> Answer:
        asked.append((tool, args))
        return Answer(status="ok", value={"found": [1, None, "\u00e9"]})

    async with bench.session() as session:
        outcome = await session.run(IMPORT + "call('look', at='x', deep={'n': [1.5]})['found']", on_call=answer)
        expect_outcome(outcome, status="ok", value="[1, None, '\u00e9']")
    expect(asked == [("look", {"at": "x", "deep": {"n": [1.5]}})], f"what was asked came as {asked!r}")


@check_session(needs="calls")
async def a_call_that_is_refused_or_fails_is_an_exception(session: Session) -> None:
    async def answer(tool: str, _args: Mapping[str, Json]) -> Answer:
        return Answer(status="refused" if tool == "no" else "failed", value=f"{tool} it is")

    for tool, name in (("no", "ToolRefused"), ("broken", "ToolFailed")):
        outcome = await session.run(f"{IMPORT}call({tool!r})", on_call=answer)
        expect(outcome.status == "error", f"got {outcome!r}")
        expect((outcome.error or "").endswith(f"{name}: {tool} it is\n"), f"got {outcome!r}")


@check_session(needs="calls")
async def without_anybody_to_answer_a_call_is_refused(session: Session) -> None:
    await session.run(IMPORT + "call('echo')", on_call=_echo)
    outcome = await session.run("call('echo')")
    expect("ToolRefused: no host answers calls" in (outcome.error or ""), f"got {outcome!r}")
    expect_outcome(await session.run("1"), status="ok", value="1")


@check_session(needs="calls")
async def waiting_for_an_answer_does_not_count_to_the_limit(session: Session) -> None:
    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await anyio.sleep(0.7)
        return Answer(status="ok", value=1)

    await session.run(IMPORT)
    expect_outcome(await session.run("call('slow')", timeout_s=0.4, on_call=answer), status="ok", value="1")
    outcome = await session.run("call('slow')\nwhile True: pass", timeout_s=0.4, on_call=answer)
    expect(outcome.status == "timeout", f"after an answer the limit no longer held: {outcome!r}")


@check_session(needs="calls")
async def calls_from_threads_get_each_its_own_answer(session: Session) -> None:
    expect_outcome(await session.run(IMPORT + THREADS, on_call=_echo), status="ok", value="True")


@check(needs="calls")
async def an_interrupt_ends_the_wait_and_late_answers_are_dropped(bench: Bench) -> None:
    waiting, late = anyio.Event(), anyio.Event()

    async def answer(tool: str, args: Mapping[str, Json]) -> Answer:
        if tool == "wait":
            waiting.set()
            await late.wait()
            return Answer(status="ok", value="late")
        return Answer(status="ok", value=args)

    outcomes: list[Outcome] = []
    async with bench.session() as session, anyio.create_task_group() as tasks:

        async def run() -> None:
            outcomes.append(await session.run(IMPORT + CATCHES, timeout_s=20, on_call=answer))

        tasks.start_soon(run)
        await waiting.wait()
        await session.interrupt()
        late.set()
    expect_outcome(outcomes[0], status="ok", value="{'caught': True}")


@check_session(needs="calls")
async def a_cell_that_ends_takes_its_call_with_it(session: Session) -> None:
    given_up: list[str] = []
    code = "import threading\nthreading.Thread(target=call, args=['never'], daemon=True).start()\nwhile True: pass"

    async def answer(tool: str, _args: Mapping[str, Json]) -> Answer:
        await session.interrupt()
        try:
            await anyio.sleep_forever()
        finally:
            given_up.append(tool)
        return Answer(status="ok")

    outcome = await session.run(IMPORT + code, timeout_s=20, on_call=answer)
    expect(outcome.status == "interrupted", f"got {outcome!r}")
    expect(given_up == ["never"], f"the tool was not given up: {given_up!r}")
    expect_outcome(await session.run("call('echo', n=1)", on_call=_echo), status="ok", value="{'n': 1}")


@check_session(needs="calls and commands")
async def a_command_runs_while_a_cell_waits_for_a_call(session: Session) -> None:
    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        ended = [
            await session.command(["/bin/sh", "-c", "sleep 0.3; cat; exit 3"], timeout_s=20, stdin=b"in")
            for _ in range(2)
        ]
        return Answer(status="ok", value=[[it.status, it.code, it.stdout.decode()] for it in ended])

    with anyio.fail_after(20):
        outcome = await session.run(IMPORT + "call('shell')", timeout_s=0.4, on_call=answer)
    expect_outcome(outcome, status="ok", value="[['error', 3, 'in'], ['error', 3, 'in']]")
    waits = "import os\ntry: os.wait()\nexcept ChildProcessError: none = True\nnone"
    expect_outcome(await session.run(waits), status="ok", value="True")


@check_session(needs="calls and commands")
async def a_cell_that_ends_takes_the_command_of_its_call_with_it(session: Session) -> None:
    """A thread waits for the call; the cell ends beside it."""
    ends: list[CommandOutcome] = []
    code = (
        "import threading\nthreading.Thread(target=call, args=['x'], daemon=True).start()\n"
        "while not os.path.exists('begun'): pass"
    )
    hold = "import os\nos.mkfifo('held')\nend = os.open('held', os.O_RDONLY | os.O_NONBLOCK)"
    await session.run(IMPORT + hold)

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        script = 'exec 3> held; trap "" TERM; echo > begun; sleep 60'
        with anyio.CancelScope(shield=True):
            ends.append(await session.command(["/bin/sh", "-c", script], timeout_s=50))
        return Answer(status="ok")

    with anyio.fail_after(20):
        outcome = await session.run(code, timeout_s=20, on_call=answer)
        expect(outcome.status == "ok", f"got {outcome!r}")
    expect([it.status for it in ends] == ["error"], f"the command came to {ends!r}")
    expect_outcome(
        await session.run("import select\n_ = select.select([end], [], [], 20)\nos.read(end, 1)"),
        status="ok",
        value="b''",
    )
    expect_outcome(await session.run("call('echo', n=1)", on_call=_echo), status="ok", value="{'n': 1}")
