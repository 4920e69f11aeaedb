"""Sessions of unsafe-local: what the contract's kit does not say, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from pinfold.sandbox import FileRefused, Limits, Outcome, SandboxUnavailable, Session, Stream, open_session

pytestmark = pytest.mark.integration


@pytest.mark.installed
async def test_a_cell_runs(session: Session) -> None:
    outcome = await session.run("x = 41\nprint('hi')\nx + 1")
    assert outcome == Outcome(status="ok", value="42", stdout="hi\n", duration_s=outcome.duration_s)


@pytest.mark.installed
async def test_the_traceback_shows_the_cells_lines_and_none_of_ours(session: Session) -> None:
    await session.run("def half(n):\n    return n // 0")
    outcome = await session.run("half(\n    4)")
    assert outcome.error is not None
    assert [line for line in outcome.error.splitlines() if line.strip(" ~^")] == [
        "Traceback (most recent call last):",
        '  File "<cell 2>", line 1, in <module>',
        "    half(",
        '  File "<cell 1>", line 2, in half',
        "    return n // 0",
        "    n: int 4",
        "ZeroDivisionError: integer division or modulo by zero",
    ]


async def test_the_traceback_of_an_awaited_failure_starts_at_the_cell(session: Session) -> None:
    outcome = await session.run("import asyncio\nasync def no():\n    raise ValueError('no')\nawait no()")
    assert outcome.error is not None
    assert "asyncio/" not in outcome.error
    assert outcome.error.startswith('Traceback (most recent call last):\n  File "<cell 1>", line 4')


async def test_input_has_a_traceback_without_our_frames(session: Session) -> None:
    outcome = await session.run("name = input('name? ')")
    assert outcome.error is not None
    assert "input() has no user to ask here" in outcome.error
    assert "guest" not in outcome.error


async def test_the_last_value_is_an_underscore_unless_the_program_has_its_own(session: Session) -> None:
    await session.run("6 * 7")
    assert (await session.run("_ + 1")).value == "43"
    await session.run("_ = 'mine'")
    await session.run("1")
    assert (await session.run("_")).value == "'mine'"


async def test_classes_of_a_cell_can_be_pickled_and_have_source(session: Session) -> None:
    code = "import dataclasses, inspect, pickle\n@dataclasses.dataclass\nclass P:\n    x: int\ndef f():\n    return 1"
    await session.run(code)
    assert (await session.run("pickle.loads(pickle.dumps(P(1)))")).value == "P(x=1)"
    assert (await session.run("inspect.getsource(f)")).value == repr("def f():\n    return 1\n")


async def test_a_future_import_holds_for_later_cells_and_ours_hold_for_none(session: Session) -> None:
    assert (await session.run("def f(x: int): ...\nf.__annotations__['x']")).value == "<class 'int'>"
    await session.run("from __future__ import annotations")
    assert (await session.run("def f(x: int): ...\nf.__annotations__['x']")).value == "'int'"


async def test_await_and_asyncio_run_may_alternate_and_tasks_live_on(session: Session) -> None:
    await session.run(
        "import asyncio\nasync def two():\n    await asyncio.sleep(0)\n    return 2\ngate = asyncio.Event()"
    )
    await session.run("task = asyncio.create_task(gate.wait())\nawait asyncio.sleep(0)")
    assert (await session.run("asyncio.run(two())")).value == "2"
    assert (await session.run("gate.set()\nawait task")).value == "True"


async def test_multiprocessing_and_threads_and_subprocesses_work(session: Session) -> None:
    outcome = await session.run(
        "import multiprocessing, subprocess, threading\n"
        "def square(n):\n    return n * n\n"
        "with multiprocessing.get_context('fork').Pool(2) as pool:\n    squares = pool.map(square, range(4))\n"
        "thread = threading.Thread(target=print, args=('thread',)); thread.start(); thread.join()\n"
        "subprocess.run(['echo', 'process'])\n"
        "squares",
        timeout_s=20,
    )
    assert (outcome.status, outcome.value, outcome.stdout) == ("ok", "[0, 1, 4, 9]", "thread\nprocess\n")


async def test_a_module_of_the_workspace_can_be_imported_and_none_of_ours(session: Session) -> None:
    await session.put("helper.py", b"answer = 42")
    assert (await session.run("import helper\nhelper.answer")).value == "42"
    for name in ("cells", "frames", "files", "serve"):
        assert "ModuleNotFoundError" in ((await session.run(f"import {name}")).error or "")


async def test_a_long_value_is_cut_at_the_guest(session: Session) -> None:
    outcome = await session.run("'é' * 3_000_000")
    assert outcome.value is not None
    assert len(outcome.value.encode()) in (1 << 20, (1 << 20) - 1)


async def test_a_long_error_is_cut_at_the_guest(session: Session) -> None:
    outcome = await session.run("raise ValueError('x' * 3_000_000)")
    assert outcome.error is not None
    assert len(outcome.error) == 1 << 20


async def test_arrays_have_a_shape_only_when_the_library_made_them(session: Session) -> None:
    await session.put("numpy.py", b"class ndarray:\n    shape = (2, 3)\n    nbytes = 48\n")
    await session.run(
        "import numpy\nreal = numpy.ndarray()\n"
        "class Liar:\n    __module__ = 'numpy'\n    @property\n    def shape(self): raise BaseException\nliar = Liar()\n"
        "items = [1, 2]\ntext = 'abc'"
    )
    found = {one.name: (one.type, one.shape) for one in await session.variables()}
    assert found["real"] == ("ndarray", "2 x 3")
    assert found["liar"] == ("Liar", None)
    assert (found["items"], found["text"]) == (("list", "2"), ("str", "3"))


async def test_large_files_travel_both_ways(session: Session) -> None:
    content = os.urandom(1 << 20) * 20
    await session.put("big.bin", content)
    assert await session.get("big.bin") == content


async def test_a_fifo_is_refused_and_not_waited_for(session: Session) -> None:
    await session.run("import os\nos.mkfifo('pipe')")
    with anyio.fail_after(45):
        with pytest.raises(FileRefused, match="not a regular file"):
            await session.get("pipe")
        with pytest.raises(FileRefused):
            await session.put("pipe", b"x")


async def test_output_after_the_cell_counts_to_the_next(session: Session) -> None:
    await session.run(
        "import threading\ngo, gone = threading.Event(), threading.Event()\n"
        "def late():\n    go.wait(); print('late', flush=True); gone.set()\n"
        "threading.Thread(target=late, daemon=True).start()"
    )
    outcome = await session.run("go.set()\n_ = gone.wait()\nprint('now')")
    assert outcome.stdout == "late\nnow\n"


async def test_a_timeout_says_that_the_state_was_kept(session: Session) -> None:
    await session.run("x = 1")
    outcome = await session.run("x = 2\nwhile True: pass", timeout_s=1)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)
    assert outcome.error is not None
    assert outcome.error.startswith("The cell ran for more than 1 s and was interrupted; variables are as it left them")
    assert (await session.run("x")).value == "2"


async def test_a_blocked_await_is_interrupted_and_its_task_ended(session: Session) -> None:
    code = "import asyncio\nended = False\ntry:\n    await asyncio.sleep(60)\nfinally:\n    ended = True"
    outcome = await session.run(code, timeout_s=1)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)
    assert (await session.run("ended")).value == "True"
    assert (await session.run("await asyncio.sleep(0, 'on')")).value == "'on'"


async def test_a_cell_that_cannot_be_interrupted_is_killed_and_it_is_said(tmp_path: Path) -> None:
    async with open_session(tmp_path, "unsafe-local", limits=Limits(interrupt_grace_s=0.1)) as session:
        await session.run("x = 1\nimport signal")
        code = "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass"
        outcome = await session.run(code, timeout_s=1)
        assert (outcome.status, outcome.state_lost) == ("timeout", True)
        assert outcome.error == (
            "The cell ran for more than 1 s; it could not be interrupted and its process was killed; "
            "the variables are gone.\n"
        )
        assert (await session.run("'x' in globals()")).value == "False"


async def test_a_slow_repr_can_be_interrupted(session: Session) -> None:
    await session.run("class Slow:\n    def __repr__(self):\n        while True: pass")
    outcome = await session.run("Slow()", timeout_s=0.2)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)


async def test_a_huge_repr_can_be_interrupted(session: Session) -> None:
    await session.run("huge = [0] * 60_000_000")
    with anyio.fail_after(45):
        outcome = await session.run("huge", timeout_s=0.1)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)


async def test_a_caller_that_is_cancelled_already_starts_nothing(session: Session) -> None:
    with anyio.CancelScope() as scope:
        scope.cancel()
        await session.run("started = True")
    assert (await session.run("'started' in globals()")).value == "False"


async def test_an_exception_with_a_slow_text_can_be_interrupted(session: Session) -> None:
    await session.run("class Slow(Exception):\n    def __str__(self):\n        while True: pass")
    outcome = await session.run("raise Slow", timeout_s=0.2)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)


async def test_a_cell_is_interrupted_though_python_drops_what_is_raised_in_a_finalizer(session: Session) -> None:
    await session.run("class Slow:\n    def __del__(self):\n        while True: pass")
    outcome = await session.run("Slow()\nwhile True: pass", timeout_s=0.2)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)


async def test_a_cell_that_ignored_interrupts_does_not_make_the_next_one_deaf(session: Session) -> None:
    await session.run("import signal\n_ = signal.signal(signal.SIGINT, signal.SIG_IGN)")
    outcome = await session.run("while True: pass", timeout_s=0.2)
    assert (outcome.status, outcome.state_lost) == ("timeout", False)


async def test_an_interrupt_ends_a_child_in_the_foreground(session: Session) -> None:
    started = anyio.Event()
    outcomes: list[Outcome] = []

    def listen(_stream: Stream, _text: str) -> None:
        started.set()

    async def run() -> None:
        code = "import subprocess\nsubprocess.run(['sh', '-c', 'echo on; exec sleep 60'])"
        outcomes.append(await session.run(code, on_output=listen))

    with anyio.fail_after(50):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await started.wait()
            await session.interrupt()
    assert [outcome.status for outcome in outcomes] == ["interrupted"]


@pytest.mark.parametrize(
    ("code", "how"),
    [
        ("import os; os._exit(3)", "it exited with code 3"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "it was killed by SIGKILL"),
        ("import ctypes; ctypes.string_at(0)", "it was killed by SIGSEGV"),
    ],
)
async def test_a_dead_interpreter_says_how_it_died(session: Session, code: str, how: str) -> None:
    outcome = await session.run(code)
    assert (outcome.status, outcome.state_lost) == ("killed", True)
    assert outcome.error == f"The interpreter is gone: {how}; the variables are gone.\n"
    assert (await session.run("1")).value == "1"


async def test_a_death_between_cells_is_told_before_anything_else_runs(session: Session, tmp_path: Path) -> None:
    await session.run("x = 1")
    pid = int((await session.run("import os; os.getpid()")).value or "")
    os.kill(pid, signal.SIGKILL)
    await anyio.to_thread.run_sync(wait_until_gone, pid)
    outcome = await session.run("open('ran', 'w')")
    assert (outcome.status, outcome.state_lost) == ("killed", True)
    assert "killed by SIGKILL" in (outcome.error or "")
    assert not (tmp_path / "ran").exists()
    assert (await session.run("1")).value == "1"


def wait_until_gone(pid: int) -> None:
    """A dead process is a zombie until the session's own event loop has seen it: enough for us."""
    stat = Path(f"/proc/{pid}/stat")
    with suppress(OSError):
        while ") Z " not in stat.read_text(encoding="utf-8"):
            pass


async def test_cancelling_a_cell_that_cannot_be_interrupted_is_bounded_and_told(tmp_path: Path) -> None:
    started = anyio.Event()
    code = (
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
        "print('on', flush=True)\nwhile True: pass"
    )
    async with open_session(tmp_path, "unsafe-local", limits=Limits(interrupt_grace_s=0.1)) as session:
        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:

                async def run() -> None:
                    await session.run(code, on_output=lambda _stream, _text: started.set())

                tasks.start_soon(run)
                await started.wait()
                tasks.cancel_scope.cancel()
        outcome = await session.run("1")
        assert (outcome.status, outcome.state_lost) == ("killed", True)
        assert "was cancelled" in (outcome.error or "")
        assert (await session.run("1")).value == "1"


async def test_closing_ends_a_running_cell(tmp_path: Path) -> None:
    started = anyio.Event()
    outcomes: list[Outcome] = []
    async with open_session(tmp_path, "unsafe-local") as session:

        async def run() -> None:
            code = "print('on', flush=True)\nwhile True: pass"
            outcomes.append(await session.run(code, on_output=lambda _stream, _text: started.set()))

        with anyio.fail_after(50):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(run)
                await started.wait()
                await session.close()
    assert [outcome.status for outcome in outcomes] == ["killed"]
    assert "the session was closed" in (outcomes[0].error or "")


async def test_closing_lets_the_program_close_its_files(session: Session, tmp_path: Path) -> None:
    await session.run("f = open('left-open.txt', 'w')\n_ = f.write('written')")
    await session.close()
    assert await anyio.Path(tmp_path / "left-open.txt").read_text() == "written"


async def test_a_listener_that_raises_is_the_callers_error(session: Session) -> None:
    def listen(_stream: Stream, _text: str) -> None:
        raise LookupError("the caller's own")

    with pytest.raises(LookupError, match="the caller's own"):
        await session.run("print('x')", on_output=listen)
    assert (await session.run("1")).value == "1"


async def test_a_closed_session_refuses_everything(session: Session) -> None:
    await session.close()
    with pytest.raises(SandboxUnavailable, match="closed"):
        await session.variables()


@pytest.mark.safety
def test_killing_the_host_takes_the_guest_along(tmp_path: Path) -> None:
    host = (
        "import anyio, sys\nfrom pinfold.sandbox import open_session\n"
        "async def main():\n"
        "    async with open_session(sys.argv[1], 'unsafe-local') as s:\n"
        "        code = 'import os; print(os.getpid(), flush=True)\\nwhile True: pass'\n"
        "        await s.run(code, on_output=lambda _stream, text: print(text, end='', flush=True))\n"
        "anyio.run(main)"
    )
    command = [sys.executable, "-c", host, str(tmp_path)]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        guest = int(process.stdout.readline())
        assert Path(f"/proc/{guest}").exists()
        process.kill()
    wait_until_gone(guest)
