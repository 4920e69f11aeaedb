"""Checks of programs that are run beside the cells."""

from __future__ import annotations

import anyio

from pinfold.sandbox.conformance.bench import Bench, ContractBroken, check, check_session, expect, expect_outcome
from pinfold.sandbox.contract import COMMAND_BYTES, CommandOutcome, NotSupported, Resumable, Session, UndoRefused

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
        try:
            await session.command(["true"], timeout_s=5)
        except NotSupported:
            return
    raise ContractBroken("it says it has no commands, but ran one")


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
    await session.run("import os\nos.mkfifo('held')\nend = os.open('held', os.O_RDONLY | os.O_NONBLOCK)")
    ended = await _sh(session, 'exec 3> held; echo said; trap "" TERM; sleep 60 & wait', timeout_s=1.0)
    expect(ended.status == "timeout" and ended.stdout == b"said\n", f"got {ended!r}")
    expect_outcome(await session.run("os.read(end, 1)"), status="ok", value="b''")  # nobody holds it any more


@check(needs="commands")
async def a_command_that_is_cancelled_ends_and_the_state_is_kept(bench: Bench) -> None:
    async with bench.session() as session:
        await session.run("kept = 1")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_sh, session, WAITS)
            while not (bench.folder / "begun").exists():  # noqa: ASYNC110 - another process's doing
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
        # It goes on only when the host has heard it.
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
    await session.run("import os\nos.mkfifo('held')\nend = os.open('held', os.O_RDONLY | os.O_NONBLOCK)")
    begun = await _sh(session, "exec 3> held; sleep 600 > log 2>&1 & echo $!")
    alive = "try: os.read(end, 1); alive = False\nexcept BlockingIOError: alive = True\nalive"
    expect_outcome(await session.run(alive), status="ok", value="True")
    await _sh(session, "true")
    expect_outcome(await session.run(alive), status="ok", value="True")
    told = await _sh(session, 'kill "$1"', begun.stdout.decode().strip())
    expect(told.status == "ok", f"it could not be signalled: {told!r}")
    waits = "import select\n_ = select.select([end], [], [], 20)\nos.read(end, 1)"
    expect_outcome(await session.run(waits), status="ok", value="b''")
    waited = "try: os.wait()\nexcept ChildProcessError: none = True\nnone"
    expect_outcome(await session.run(waited), status="ok", value="True")


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


@check(needs="durable commands")
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


@check(needs="durable commands")
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
        try:
            await session.undo()
        except UndoRefused:
            return
    raise ContractBroken("there was nothing left to undo, but it did")
