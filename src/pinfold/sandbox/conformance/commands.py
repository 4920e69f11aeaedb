"""Checks of commands, and of tool calls that code inside makes."""

from __future__ import annotations

from collections.abc import Mapping

import anyio

from pinfold.events import Json
from pinfold.sandbox.conformance.capabilities import (
    Bench,
    ContractBroken,
    check,
    check_session,
    expect,
    expect_outcome,
    expect_refused,
)
from pinfold.sandbox.contract import (
    COMMAND_BYTES,
    Answer,
    CommandOutcome,
    NotSupported,
    Outcome,
    Resumable,
    Session,
    UndoRefused,
)

IMPORT = "from _pinfold_guest.calls import call\n"
THREADS = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(8) as pool:
    found = list(pool.map(lambda n: call("echo", n=n)["n"], range(40)))
found == list(range(40))
"""
HELD = "import os\nos.mkfifo('held')\nend = os.open('held', os.O_RDONLY | os.O_NONBLOCK)"
IS_LET_GO = "import select\n_ = select.select([end], [], [], 20)\nos.read(end, 1)"
HAS_NO_CHILD = "import os\ntry: os.wait()\nexcept ChildProcessError: none = True\nnone"
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
    expect_outcome(await session.run(HAS_NO_CHILD), status="ok", value="True")


@check_session(needs="calls and commands")
async def a_cell_that_ends_takes_the_command_of_its_call_with_it(session: Session) -> None:
    """A thread waits for the call while the cell itself ends."""
    ends: list[CommandOutcome] = []
    code = (
        "import threading\nthreading.Thread(target=call, args=['x'], daemon=True).start()\n"
        "while not os.path.exists('begun'): pass"
    )
    await session.run(IMPORT + HELD)

    async def answer(_tool: str, _args: Mapping[str, Json]) -> Answer:
        script = 'exec 3> held; trap "" TERM; echo > begun; sleep 60'
        with anyio.CancelScope(shield=True):
            ends.append(await session.command(["/bin/sh", "-c", script], timeout_s=50))
        return Answer(status="ok")

    with anyio.fail_after(20):
        outcome = await session.run(code, timeout_s=20, on_call=answer)
        expect(outcome.status == "ok", f"got {outcome!r}")
    expect([it.status for it in ends] == ["error"], f"the command came to {ends!r}")
    expect_outcome(await session.run(IS_LET_GO), status="ok", value="b''")
    expect_outcome(await session.run("call('echo', n=1)", on_call=_echo), status="ok", value="{'n': 1}")


SHELL = ("/bin/sh", "-c")
WAITS = 'trap "" TERM INT; echo begun > begun; sleep 60 & sleep 60'
ALARM = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: 1 / 0)\n_ = signal.setitimer(signal.ITIMER_REAL, 0.3)"


async def _sh(session: Session, script: str, *words: str, timeout_s: float = 20.0) -> CommandOutcome:
    return await session.command((*SHELL, script, "sh", *words), timeout_s=timeout_s)


@check()
async def a_provider_without_commands_says_so(bench: Bench) -> None:
    if bench.provider.capabilities.commands:
        return
    async with bench.session() as session:
        words = "it says it has no commands, but ran one"
        await expect_refused(session.command(["true"], timeout_s=5), NotSupported, words)


@check_session(needs="commands")
async def a_command_tells_how_it_ended_and_what_it_wrote(session: Session) -> None:
    ended = await session.command(
        (*SHELL, 'cat; echo "$1" >&2; exit 3', "sh", "a b\u00e9"), timeout_s=20, stdin=b"\0given" * 50_000
    )
    told = (ended.status, ended.code, ended.stdout, ended.stderr)
    expect(told == ("error", 3, b"\0given" * 50_000, "a b\u00e9\n".encode()), f"got {str(told)[:300]}")
    expect((await _sh(session, "true")).status == "ok", "an exit with 0 is no error")
    missing = await session.command(["/no/such/program"], timeout_s=20)
    expect(missing.status == "error" and missing.code is None and missing.stderr, f"got {missing!r}")


@check_session(needs="commands")
async def a_command_runs_in_the_workspace_with_the_environment_it_is_given(session: Session) -> None:
    await session.run("import os\nos.makedirs('deep/er')\nos.environ['MINE'] = 'cell'\nos.chdir('deep')")
    await session.put("in.txt", b"here")
    seen = await _sh(session, 'cat in.txt; echo "$MINE" > out.txt')
    expect(seen.stdout == b"here", f"it does not run in the workspace: {seen!r}")
    expect(await session.get("out.txt") == b"cell\n", "the interpreter's environment is not its own")
    given = await session.command((*SHELL, 'pwd; echo "$MINE$ONE"'), timeout_s=20, env={"ONE": "1"}, workdir="deep/er")
    expect(given.stdout.endswith(b"/deep/er\n1\n"), f"got {given!r}")


@check_session(needs="commands")
async def a_command_leaves_variables_and_children_alone(session: Session) -> None:
    await session.run("import os\nkept = 1")
    await _sh(session, "exit 1")
    await _sh(session, "sleep 60", timeout_s=0.2)
    waits = "try:\n    os.wait()\nexcept ChildProcessError:\n    kept += 1\nkept"
    expect_outcome(await session.run(waits), status="ok", value="2")


@check_session(needs="commands")
async def a_command_that_takes_too_long_ends_with_all_it_started(session: Session) -> None:
    await session.run(HELD)
    ended = await _sh(session, 'exec 3> held; echo said; trap "" TERM; sleep 60 & wait', timeout_s=1.0)
    expect(ended.status == "timeout" and ended.stdout == b"said\n", f"got {ended!r}")
    expect_outcome(await session.run("os.read(end, 1)"), status="ok", value="b''")  # no process holds it open any more


@check(needs="commands")
async def a_command_that_is_cancelled_ends_and_the_state_is_kept(bench: Bench) -> None:
    async with bench.session() as session:
        await session.run("kept = 1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_sh, session, WAITS)
            while not (bench.folder / "begun").exists():
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
        expect_outcome(await session.run("kept"), status="ok", value="1")


@check_session(needs="commands")
async def what_a_command_leaves_in_the_background_is_not_waited_for(session: Session) -> None:
    ended = await _sh(session, "sleep 60 & echo begun", timeout_s=20)
    expect(ended.status == "ok" and ended.duration_s < 10, f"got {ended!r}")


@check_session(needs="commands")
async def the_output_of_a_command_is_bounded(session: Session) -> None:
    ended = await _sh(session, f"head -c {COMMAND_BYTES + 1000} /dev/zero", timeout_s=30)
    expect(len(ended.stdout) == COMMAND_BYTES, f"{len(ended.stdout)} bytes were kept")
    expect(ended.status == "ok" and ended.dropped_bytes == 1000, f"{ended.dropped_bytes} were dropped")


@check_session(needs="commands")
async def a_timer_that_a_cell_left_behind_does_not_break_a_command_unsaid(session: Session) -> None:
    await session.run(ALARM)
    ended = await _sh(session, "sleep 1; echo done")
    expect(ended.stdout == b"done\n" or b"cut short" in ended.stderr, f"got {ended!r}")
    expect_outcome(await session.run("1"), status="ok", value="1")


@check(needs="commands")
async def what_a_command_writes_is_heard_as_it_comes(bench: Bench) -> None:
    heard: list[tuple[str, str]] = []
    async with bench.session() as session:
        # The command continues only when the host has received its output.
        goes_on = (bench.folder / "heard").touch
        script = "printf 'a\\303'; while [ ! -e heard ]; do :; done; printf '\\251'; echo b >&2"

        def on_output(stream: str, text: str) -> None:
            heard.append((stream, text))
            goes_on()

        ended = await session.command((*SHELL, script), timeout_s=5, on_output=on_output)
    expect(ended.status == "ok" and ended.stdout == "a\u00e9".encode(), f"got {ended!r}")
    expect(heard[0] == ("stdout", "a"), f"it was heard as {heard!r}")
    texts = {stream: "".join(text for of, text in heard if of == stream) for stream, _ in heard}
    expect(texts == {"stdout": "a\u00e9", "stderr": "b\n"}, f"it was heard as {heard!r}")


@check_session(needs="commands")
async def what_a_command_leaves_running_can_be_told_to_end_by_another(session: Session) -> None:
    await session.run(HELD)
    begun = await _sh(session, "exec 3> held; sleep 600 > log 2>&1 & echo $!")
    alive = "try: os.read(end, 1); alive = False\nexcept BlockingIOError: alive = True\nalive"
    expect_outcome(await session.run(alive), status="ok", value="True")
    await _sh(session, "true")
    expect_outcome(await session.run(alive), status="ok", value="True")
    told = await _sh(session, 'kill "$1"', begun.stdout.decode().strip())
    expect(told.status == "ok", f"it could not be signalled: {told!r}")
    expect_outcome(await session.run(IS_LET_GO), status="ok", value="b''")
    expect_outcome(await session.run(HAS_NO_CHILD), status="ok", value="True")


@check_session(needs="read_only_commands")
async def a_read_only_command_changes_no_file_and_the_next_one_may(session: Session) -> None:
    await session.put("f", b"here")
    for script in ("cat f; echo x > $TMPDIR/own && cat $TMPDIR/own", "echo x > f", "rm f", "chmod 4 f"):
        ended = await session.command((*SHELL, script), timeout_s=20, read_only=True)
        if ended.read_only == "impossible":
            return
        reads = script.startswith("cat")
        expect(ended.read_only == ("kept" if reads else "refused"), f"{script}: got {ended!r}")
        expect(not reads or ended.stdout == b"herex\n", f"it cannot read, or not write in TMPDIR: {ended!r}")
    expect(await session.get("f") == b"here", "a command that may only read has changed a file")
    expect((await _sh(session, "rm f")).status == "ok", "the next command is held to reading too")


def _resumable(session: Session) -> Resumable:
    if not isinstance(session, Resumable):
        raise ContractBroken("it says it is durable, but its sessions are not Resumable")
    return session


@check(needs="durable and commands")
async def a_command_that_counts_as_a_cell_is_undone_and_redone(bench: Bench) -> None:
    note, state = bench.folder / "note", bench.folder.parent / "state"
    async with bench.session(state=state) as opened:
        session = _resumable(opened)
        await session.run("kept = [1]", cell=3)
        for number in (5, 6):
            await session.command((*SHELL, "echo $0 >> note", str(number)), timeout_s=20, cell=number)
        expect(session.path == (3, 5, 6), f"the path is {session.path}")
        await session.undo()
        expect(note.read_text() == "5\n", f"undo left {note.read_text()!r}")
        await session.undo(to=3)
        expect(session.path == (3,) and not note.exists(), "undo to the cell before left the file")
        await session.redo()
        await session.redo()
        expect(note.read_text() == "5\n6\n", f"redo brought {note.read_text()!r}")
        expect_outcome(await session.run("kept"), status="ok", value="[1]")
    async with bench.session(state=state) as opened:
        session = _resumable(opened)
        await session.undo(to=5)
        expect(note.read_text() == "5\n", "after a restart it cannot be undone")
        expect_outcome(await session.run("kept"), status="ok", value="[1]")


@check(needs="durable and commands")
async def a_command_that_times_out_or_is_cancelled_can_be_undone(bench: Bench) -> None:
    async with bench.session(state=bench.folder.parent / "state") as opened:
        session = _resumable(opened)
        late = await session.command((*SHELL, "echo x > late; sleep 60"), timeout_s=0.5, cell=0)
        expect(late.status == "timeout" and (bench.folder / "late").exists(), f"got {late!r}")
        with anyio.CancelScope() as scope:
            await session.command(
                (*SHELL, "echo x > cut; echo said; sleep 60"),
                timeout_s=20,
                cell=0,
                on_output=lambda _stream, _text: scope.cancel(),
            )
        expect(session.path == (1, 2), f"the path is {session.path}")
        await session.undo()
        expect(sorted(it.name for it in bench.folder.iterdir()) == ["late"], "what was cut off is still there")
        await session.undo()
        expect([*bench.folder.iterdir()] == [], "what it did until its time was over is still there")
        await expect_refused(session.undo(), UndoRefused, "there was nothing left to undo, but it did")
