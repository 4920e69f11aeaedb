"""A session goes on in another process: each variable is back as it was, or named as lost. Never silently wrong."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.sandbox.evaluation import value

from pinfold.sandbox import Limits, Provider, Resumable, Savable, Spec, UndoRefused
from pinfold.sandbox.guests import UnsafeLocal
from pinfold.sandbox.providers.landlock import Landlock
from pinfold.sandbox.providers.namespaces import Namespaces

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
LIMITS = Limits(cell_s=20, interrupt_grace_s=0.1, memory_bytes=700 << 20)


PROVIDERS: dict[str, Callable[[], Provider]] = {
    "namespaces": Namespaces,
    "landlock": Landlock,
    "unsafe-local": UnsafeLocal,
}
everywhere = pytest.mark.parametrize("provider", PROVIDERS)


@asynccontextmanager
async def opened(folder: Path, provider: str = "namespaces") -> AsyncGenerator[Resumable]:
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    spec = Spec(workspace=workspace, state=folder / "state", limits=LIMITS)
    session = await PROVIDERS[provider]().open(spec)
    assert isinstance(session, Resumable)
    try:
        yield session
    finally:
        await session.close()


def labels(session: Resumable) -> dict[str, str]:
    assert session.resumed is not None
    return {label.name: label.status for label in session.resumed.labels}


@everywhere
async def test_a_session_goes_on_in_another_with_its_variables_and_its_undo(tmp_path: Path, provider: str) -> None:
    async with opened(tmp_path, provider) as session:
        assert session.resumed is None
        for code in (
            "import math\nitems = [1]",
            "def double(x): return 2 * x",
            "class Point:\n    def __init__(self, x): self.x = x\np = Point(3)",
            "items.append(double(p.x))",
            "late = 'bound only'",
        ):
            await session.run(code)
            # In `landlock` a state that comes while another is still being saved is left out.
            assert isinstance(session, Savable)
            await session.save()
    async with opened(tmp_path, provider) as session:
        assert labels(session) == {
            **dict.fromkeys(("math", "items", "double", "Point", "p"), "restored"),
            "late": "replayed",
        }
        assert await value(session, "(items, late, double(p.x), math.floor(1.5))") == ("([1, 6], 'bound only', 6, 1)")
        await session.undo(to=3)
        assert await value(session, "items") == "[1]"
    async with opened(tmp_path, provider) as session:
        assert session.path == (1, 2, 3, 7)
        await session.undo()
        await session.undo()
        assert "p" not in {one.name for one in await session.variables()}
    async with opened(tmp_path, provider) as session:
        await session.redo()
        assert await value(session, "p.x") == "3"


@everywhere
@pytest.mark.parametrize("to", [0, 1])
async def test_what_was_undone_at_once_can_be_redone_by_another_process(tmp_path: Path, provider: str, to: int) -> None:
    async with opened(tmp_path, provider) as session:
        await session.run("items = [1]")
        await session.run("items.append(2)")
        await session.run("items.append(3)")
        await session.undo()
        await session.undo(to=to)
    async with opened(tmp_path, provider) as session:
        await session.redo()
        assert await value(session, "items") == "[1, 2]"


@everywhere
async def test_code_is_shown_in_tracebacks_of_functions_that_came_back(tmp_path: Path, provider: str) -> None:
    async with opened(tmp_path, provider) as session:
        await session.run("def fails():\n    return 1 / 0")
    async with opened(tmp_path, provider) as session:
        outcome = await session.run("fails()")
    assert "return 1 / 0" in (outcome.error or "")


@everywhere
async def test_variables_are_known_by_the_cells_that_bound_them(tmp_path: Path, provider: str) -> None:
    async with opened(tmp_path, provider) as session:
        await session.run("a = [1]")
        await session.run("b = [2]; a.append(3)")
    async with opened(tmp_path, provider) as session:
        await session.run("c = 3")
        assert {one.name: one.cell for one in await session.variables()} == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("provider", ["namespaces", "unsafe-local"])
async def test_what_cannot_be_saved_is_named_with_the_reason_and_the_rest_comes_back(
    tmp_path: Path, provider: str
) -> None:
    async with opened(tmp_path, provider) as session:
        await session.run(
            "import socket, threading\n"
            "s = socket.socket()\nlock = threading.Lock()\ng = (x for x in range(3))\n"
            "held = {'inside': s}\nfine = {'a': [1, 2]}"
        )
    async with opened(tmp_path, provider) as session:
        assert session.resumed is not None
        lost = {label.name: label.reason for label in session.resumed.labels if label.status == "lost"}
        assert {"s", "g", "held"} <= lost.keys()
        assert all(lost.values())
        assert await value(session, "fine") == "{'a': [1, 2]}"
        assert await value(session, "'s' in globals()") == "False"


KILLED = """
import asyncio, sys
from pathlib import Path
from pinfold.sandbox import Limits, Spec
from pinfold.sandbox.providers.namespaces import Namespaces

async def main():
    folder = Path(sys.argv[1])
    (folder / "workspace").mkdir(exist_ok=True)
    session = await Namespaces().open(Spec(workspace=folder / "workspace", state=folder / "state"))
    for line in sys.stdin:
        outcome = await session.run(line)
        print(outcome.status, flush=True)
        if sys.argv[2] == "saved" and line.startswith("kept"):
            while not list((folder / "state" / "variables" / "states").glob("*.json")):
                await asyncio.sleep(0.001)
            print("saved", flush=True)

asyncio.run(main())
"""


def killed_after(folder: Path, cells: list[str], *, waits: str = "") -> None:
    """A process of its own runs the cells and is killed when the last has been answered."""
    command = [sys.executable, "-c", KILLED, str(folder), waits]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        for cell in cells:
            process.stdin.write(cell + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "ok\n"
            if waits and cell.startswith("kept"):
                assert process.stdout.readline() == "saved\n"
        process.send_signal(signal.SIGKILL)


async def test_after_a_kill_what_was_saved_is_back_and_what_was_not_is_named_by_its_cell(tmp_path: Path) -> None:
    cells = ["kept = [1]; n = list()", "n.append(1); open('made', 'w').close()", "m = n"]
    killed_after(tmp_path, cells, waits="saved")
    async with opened(tmp_path) as session:
        assert session.resumed is not None
        back = session.resumed
        assert back.cell in (1, 3)
        assert back.missing == ((2, 3) if back.cell == 1 else ())
        assert await value(session, "kept") == "[1]"
        assert await value(session, "n") == ("[]" if back.missing else "[1]")
        assert (tmp_path / "workspace" / "made").exists()
        for _ in range(4):
            await session.undo()
        assert not (tmp_path / "workspace" / "made").exists()


async def test_a_process_killed_before_anything_was_saved_loses_only_what_cannot_be_run_again(tmp_path: Path) -> None:
    killed_after(tmp_path, ["x = 1", "y = [x, 2]"])
    async with opened(tmp_path) as session:
        assert labels(session) == {"x": "replayed", "y": "replayed"}
        assert await value(session, "y") == "[1, 2]"


async def test_a_cell_that_needs_what_is_lost_is_named_as_missing(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.run("import threading\nlock, x = threading.Lock(), 1")
        await session.run("other = lock")
        assert isinstance(session, Savable)
        await session.save()
    async with opened(tmp_path) as session:
        assert session.resumed is not None
        assert session.resumed.missing == (2,)
        assert labels(session) == {"threading": "restored", "lock": "lost", "x": "restored"}


async def test_a_cell_that_was_cut_off_is_named_as_missing(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.run("items = list(range(3))")
    with (tmp_path / "state" / "trail").open("a", encoding="utf-8") as trail:
        trail.write(json.dumps(["runs", 2, "items.append(3)"]) + "\n")
    async with opened(tmp_path) as session:
        assert session.resumed is not None
        assert (session.resumed.cell, session.resumed.missing) == (1, (2,))
        assert await value(session, "items") == "[0, 1, 2]"
    async with opened(tmp_path) as session:
        assert session.resumed is not None
        assert (session.resumed.cell, session.resumed.missing) == (3, ())


async def test_copies_that_were_guessed_and_killed_are_made_up_for_by_saved_state(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.run("items = [1]")
        await session.run("items.append(2)")
    async with opened(tmp_path) as session:
        outcome = await session.run(
            "import os\nitems.append(3)\nfor pid in range(2, 4000):\n"
            "    try:\n        if pid != os.getpid(): os.kill(pid, 9)\n    except OSError: pass\nos._exit(1)"
        )
        assert (outcome.rolled_back, outcome.state_lost) == (True, False), outcome
        assert any("saved" in notice for notice in outcome.notices), outcome
        assert await value(session, "items") == "[1, 2]"


THREAD = "import threading\nstop = threading.Event()\nt = threading.Thread(target=stop.wait, daemon=True)\nt.start()\nitems = [1]"


async def test_a_state_in_which_threads_ran_comes_back_from_its_variables_and_it_is_said(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.run(THREAD)
        await session.run("items.append(2)")
        said = await session.undo()
        assert any("Threads ran in this state (1)" in line for line in said or ()), said
        assert any("Lost: " in line and "t (" in line for line in said or ()), said
        assert await value(session, "items") == "[1]"
        await session.run("items.append(3)")
        with pytest.raises(UndoRefused):
            await session.undo(to=99)
        await session.undo()
        assert await value(session, "items") == "[1]"


NONSENSE = """
import os, stat

class Nonsense:
    def __reduce__(self):
        for fd in range(3, 64):
            try:
                if stat.S_ISSOCK(os.fstat(fd).st_mode):
                    os.write(fd, %r)
            except OSError:
                pass
        return (int, ())

x = Nonsense()
"""


@pytest.mark.parametrize(
    "words",
    [
        b"\0" * 100_000,
        b'{"entries": [], "cells": {}, "around": {}}\n',
        b'{"bytes": "../../../../tmp/out", "size": 3}\nabc',
        b'{"bytes": "%s", "size": -1}\n' % (b"0" * 64),
        b'{"bytes": "%s", "size": 99999999999999}\n' % (b"0" * 64),
    ],
)
async def test_a_program_that_writes_nonsense_while_it_is_saved_harms_only_itself(tmp_path: Path, words: bytes) -> None:
    async with opened(tmp_path) as session:
        await session.run("before = [1]")
    async with opened(tmp_path) as session:
        await session.run(NONSENSE % words)
        assert await value(session, "before") == "[1]"
    names = {path.name for path in (tmp_path / "state" / "variables").rglob("*")}
    assert names <= {"bytes", "states", "partial"} | {f"{n}.json" for n in range(9)} | {
        name for name in names if len(name) == 64
    }
    async with opened(tmp_path) as session:
        outcome = await session.run("before")
        assert outcome.status in ("ok", "error")
        if outcome.status == "ok":
            assert outcome.value == "[1]"


@everywhere
async def test_a_damaged_state_is_named_and_the_session_goes_on(tmp_path: Path, provider: str) -> None:
    async with opened(tmp_path, provider) as session:
        await session.run("a = list(range(1000)); b = [2]")
    for path in (tmp_path / "state" / "variables" / "bytes").iterdir():
        path.write_bytes(path.read_bytes()[:-1] + b"!")
    async with opened(tmp_path, provider) as session:
        assert labels(session) == {"a": "lost", "b": "lost"}
        assert await value(session, "1 + 1") == "2"


async def test_a_trail_that_was_cut_off_still_leads_back(tmp_path: Path) -> None:
    async with opened(tmp_path) as session:
        await session.run("a = [1]")
        await session.run("b = [2]; a.append(1)")
    trail = tmp_path / "state" / "trail"
    lines = trail.read_bytes().splitlines(keepends=True)
    assert json.loads(lines[-1]) == ["ended", 2]
    trail.write_bytes(b"".join(lines[:-1]) + lines[-1][:5])
    async with opened(tmp_path) as session:
        assert session.path == (1, 2)
        assert await value(session, "a") == "[1, 1]"


ENDS = {"os._exit": "import os; os._exit(1)", "a signal": "import os; os.kill(os.getpid(), 9)"}


@pytest.mark.parametrize("provider", ["landlock", "unsafe-local"])
@pytest.mark.parametrize("end", ENDS)
async def test_without_copies_a_cell_that_ends_the_interpreter_is_rolled_back_from_saved_state(
    tmp_path: Path, provider: str, end: str
) -> None:
    made = tmp_path / "workspace" / "made"
    async with opened(tmp_path, provider) as session:
        await session.run("items = [1]")
        outcome = await session.run(f"items.append(2); open('made', 'w').close()\n{ENDS[end]}")
        assert (outcome.status, outcome.rolled_back) == ("killed", True), outcome
        assert not made.exists()
        assert await value(session, "items") == "[1]"
        await session.run("items.append(3); open('made', 'w').close()")
        await session.undo()
        assert not made.exists()
        assert await value(session, "items") == "[1]"
