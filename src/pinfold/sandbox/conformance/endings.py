"""Checks of cells that do not end normally: limits, interrupts, crashes, close."""

from __future__ import annotations

import fcntl

import anyio

from pinfold.sandbox.conformance.capabilities import Bench, check, check_session, expect, expect_outcome, expect_refused
from pinfold.sandbox.contract import Limits, Outcome, SandboxUnavailable, Session, Stream

LOOP = "print('on', flush=True)\nwhile True: pass"
STUBBORN = """
print('on', flush=True)
while True:
    try:
        while True:
            len('')
    except BaseException:
        len('')
"""
HOLD = """
import subprocess, sys
held = "import fcntl, time; f = open('held', 'w'); fcntl.flock(f, fcntl.LOCK_EX); print(flush=True); time.sleep(300)"
process = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, start_new_session=NEW_SESSION)
process.stdout.readline()
"""
GARBAGE = """
import os
for fd in range(3, 64):
    try:
        os.write(fd, b'\\xff' * 64)
    except OSError:
        pass
"""


def _expect_state_is_told(before_was_kept: Outcome, outcome: Outcome) -> None:
    """Check that the outcome reports truly whether the state was rolled back or lost."""
    expect(outcome.state_lost != outcome.rolled_back, f"it must say what became of the state: {outcome!r}")
    kept = before_was_kept.status == "ok"
    expect(kept == outcome.rolled_back, f"it says {outcome!r}, but then got {before_was_kept!r}")


async def _run_and(session: Session, code: str, act: str, timeout_s: float = 10) -> Outcome | None:
    """Run the cell and, once it has printed something, interrupt it or cancel its caller."""
    started = anyio.Event()
    outcome: Outcome | None = None

    def listen(_stream: Stream, _text: str) -> None:
        started.set()

    async def run() -> None:
        nonlocal outcome
        outcome = await session.run(code, timeout_s=timeout_s, on_output=listen)
        started.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run)
        await started.wait()
        if act == "cancel":
            tasks.cancel_scope.cancel()
        else:
            await session.interrupt()
    return outcome


@check_session()
async def a_timeout_keeps_the_variables(session: Session) -> None:
    await session.run("x = 1")
    outcome = await session.run("x = 2\nwhile True: pass", timeout_s=0.3)
    expect(outcome.status == "timeout" and outcome.error, f"got {outcome!r}")
    expect(not outcome.state_lost, f"an interruptible cell lost the state: {outcome!r}")
    expect((await session.run("x")).value in ("1", "2"), "the variable is gone, and it was not said")


@check()
async def a_cell_that_cannot_be_interrupted_is_ended_within_its_limits(bench: Bench) -> None:
    async with bench.session(Limits(interrupt_grace_s=0.2)) as session:
        await session.run("x = 1")
        with anyio.move_on_after(15) as bound:
            outcome = await session.run(STUBBORN, timeout_s=0.3)
            expect(outcome.status == "timeout" and outcome.error, f"got {outcome!r}")
            _expect_state_is_told(await session.run("x"), outcome)
        expect(not bound.cancelled_caught, "it went on long after the limit and the grace")


@check()
async def the_sessions_own_limit_holds_when_none_is_given(bench: Bench) -> None:
    async with bench.session(Limits(cell_s=0.3)) as session:
        outcome = await session.run("while True: pass")
        expect(outcome.status == "timeout", f"got {outcome!r}")


@check_session()
async def an_interrupted_cell_keeps_the_variables(session: Session) -> None:
    await session.run("x = 1")
    outcome = await _run_and(session, LOOP, "interrupt")
    expect(outcome is not None and outcome.status == "interrupted", f"got {outcome!r}")
    expect_outcome(await session.run("x"), status="ok", value="1")


@check_session()
async def an_interrupt_between_cells_does_nothing(session: Session) -> None:
    await session.interrupt()
    expect_outcome(await session.run("x = 1\nx"), status="ok", value="1")
    await session.interrupt()
    expect_outcome(await session.run("x"), status="ok", value="1")


@check_session()
async def cancelling_the_caller_ends_the_cell_and_keeps_the_state(session: Session) -> None:
    await session.run("x = 1")
    outcome = await _run_and(session, LOOP, "cancel")
    expect(outcome is None, f"the cancelled call returned {outcome!r}")
    expect_outcome(await session.run("x"), status="ok", value="1")


@check_session()
async def a_process_that_exits_is_killed_and_the_next_cell_runs(session: Session) -> None:
    await session.run("x = 1")
    outcome = await session.run("import os\nprint('last words', flush=True)\nos._exit(3)")
    expect(outcome.status == "killed" and outcome.error, f"got {outcome!r}")
    expect(outcome.stdout == "last words\n", f"its output is gone: {outcome.stdout!r}")
    _expect_state_is_told(await session.run("x"), outcome)
    expect_outcome(await session.run("1 + 1"), status="ok", value="2")


@check_session()
async def a_process_that_is_killed_is_killed(session: Session) -> None:
    await session.run("x = 1")
    outcome = await session.run("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    expect(outcome.status == "killed" and outcome.error, f"got {outcome!r}")
    _expect_state_is_told(await session.run("x"), outcome)


@check_session()
async def a_forked_child_does_not_answer_for_the_cell(session: Session) -> None:
    outcome = await session.run("import os\nchild = os.fork()\nif child: os.waitpid(child, 0)\nos.getpid()")
    expect(outcome.status == "ok", f"got {outcome!r}")
    expect_outcome(await session.run("os.getpid()"), status="ok", value=outcome.value)


@check_session()
async def garbage_on_every_descriptor_does_not_put_cells_out_of_step(session: Session) -> None:
    outcome = await session.run(GARBAGE, timeout_s=10)
    expect(outcome.status in ("ok", "killed"), f"got {outcome!r}")
    after = [await session.run(f"{number}") for number in range(5)]
    wrong = [one for number, one in enumerate(after) if one.status == "ok" and one.value != str(number)]
    expect(not wrong, f"answers of other cells: {wrong!r}")
    expect_outcome(after[-1], status="ok", value="4")


async def _lock_is_free(bench: Bench) -> bool:
    with (bench.folder / "held").open("w") as held:
        for _ in range(500):
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                await anyio.sleep(0.01)
    return False


async def _expect_ended(bench: Bench, new_session: str) -> None:
    async with bench.session() as session:
        outcome = await session.run(HOLD.replace("NEW_SESSION", new_session))
        expect(outcome.status == "ok", f"got {outcome!r}")
    expect(await _lock_is_free(bench), "a process the session started lives on after close")


@check(needs="local")
async def close_ends_what_the_session_started(bench: Bench) -> None:
    await _expect_ended(bench, "False")


@check(needs="local")
async def close_ends_what_left_the_process_group(bench: Bench) -> None:
    await _expect_ended(bench, "True")


@check_session()
async def close_may_be_called_twice_and_nothing_runs_after(session: Session) -> None:
    await session.close()
    await session.close()
    await expect_refused(session.run("1"), SandboxUnavailable, "a closed session ran a cell")
