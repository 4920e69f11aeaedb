"""Going back: variables as they were before a cell, whatever it did to its process."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sandbox.evaluation import value

from pinfold.sandbox import Limits, SandboxUnavailable, Session, Spec, UndoRefused, open_session
from pinfold.sandbox.providers.namespaces import Namespaces
from pinfold.sandbox.session.session import GuestSession

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
LEAVE = "import os\nitems.append(0)\n"
ENDS = {
    "os._exit": "os._exit(1)",
    "a signal": "os.kill(os.getpid(), 9)",
    "a segmentation fault": "import ctypes; ctypes.string_at(0)",
    "out of memory": "import mmap\nheld = mmap.mmap(-1, 1 << 31)\nfor at in range(0, 1 << 31, 4096): held[at] = 1",
}
DEAF = "items.append(0)\nimport signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\nwhile True: pass"


@pytest.fixture
async def session(tmp_path: Path) -> AsyncGenerator[Session]:
    limits = Limits(cell_s=20, interrupt_grace_s=0.1, memory_bytes=700 << 20)
    async with open_session(tmp_path, Namespaces(), limits=limits) as session:
        yield session


def pids() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208


def namespace_of(pid: str) -> str:
    try:
        return repr(os.readlink(f"/proc/{pid}/ns/pid"))  # noqa: PTH115
    except OSError:  # it is gone
        return ""


async def test_undo_takes_back_the_last_cell_and_redo_brings_it_again(session: Session) -> None:
    await session.run("items = list(range(3))")
    await session.run("items.append(3)")
    await session.run("del items")
    await session.undo()
    assert await value(session, "items") == "[0, 1, 2, 3]"
    await session.undo(to=1)
    await session.redo()
    assert await value(session, "items") == "[0, 1, 2, 3]"
    with pytest.raises(UndoRefused, match="nothing was undone"):
        await session.redo()


async def test_a_magic_over_a_cell_that_only_binds_names_is_kept(data_python: Path, tmp_path: Path) -> None:
    async with open_session(tmp_path, Namespaces(data_python)) as session:
        await session.run("%%capture\nitems = [1]")
        await session.run("items.append(2)")
        await session.undo()
        assert await value(session, "items") == "[1]"


async def test_cells_that_only_bind_names_are_run_again_instead_of_kept(session: Session) -> None:
    for code in ("a = 1", "b = [a, 'x']", "c = b", "b.append(2)", "d = -5"):
        await session.run(code)
    await session.undo(to=5)
    await session.undo(to=3)
    assert await value(session, "(a, b, c, b is c)") == "(1, [1, 'x'], [1, 'x'], True)"
    await session.undo(to=0)
    assert await value(session, "sorted(set(dir()) - {'__builtins__'})[:1]") == "['__doc__']"


@pytest.mark.parametrize("end", ENDS)
async def test_a_cell_that_ends_the_interpreter_is_rolled_back(session: Session, end: str) -> None:
    await session.run("items = list(range(3))")
    outcome = await session.run(LEAVE + ENDS[end])
    assert (outcome.status, outcome.rolled_back, outcome.state_lost) == ("killed", True, False), outcome
    assert "variables are as before the cell" in (outcome.error or "")
    assert await value(session, "items") == "[0, 1, 2]"


async def test_a_cell_that_asks_for_more_memory_than_it_may_have_is_rolled_back(
    session: Session, tmp_path: Path
) -> None:
    await session.run("items = list(range(3))")
    outcome = await session.run("items.append(0); open('made', 'w').close(); b = bytearray(20 << 30)")
    assert (outcome.status, outcome.rolled_back, outcome.state_lost) == ("killed", True, False), outcome
    assert "MemoryError" in (outcome.error or "")
    assert "ran out of memory; the variables are as before the cell" in (outcome.error or "")
    assert not (tmp_path / "made").exists()
    assert await value(session, "items") == "[0, 1, 2]"
    caught = await session.run("try: b = bytearray(20 << 30)\nexcept MemoryError: items.append(3)")
    assert (caught.status, caught.rolled_back) == ("ok", False)
    assert await value(session, "items") == "[0, 1, 2, 3]"
    await session.undo(to=1)
    assert await value(session, "items") == "[0, 1, 2]"


async def test_a_cell_that_cannot_be_interrupted_is_rolled_back(session: Session) -> None:
    await session.run("items = list(range(3))")
    outcome = await session.run(DEAF, timeout_s=0.2)
    assert (outcome.status, outcome.rolled_back) == ("timeout", True), outcome
    assert outcome.duration_s < 10  # 0.3 s on a machine that has nothing else to do
    assert await value(session, "items") == "[0, 1, 2]"


async def test_a_cell_that_ends_while_its_process_is_being_killed_is_rolled_back(session: Session) -> None:
    await session.run("items = [1]")
    assert isinstance(session, GuestSession)
    guest = session.slot.guest
    assert guest is not None
    channel = guest.channel

    def kill_as_it_answers() -> None:
        assert select.select([channel], [], [], 10)[0]
        guest.kill("it was time")

    outcome = await session.run(
        "import time\nprint('on', flush=True)\ntime.sleep(0.2)\nitems.append(0)",
        on_output=lambda _stream, _text: kill_as_it_answers(),
    )
    assert (outcome.status, outcome.rolled_back) == ("killed", True), outcome
    assert await value(session, "items") == "[1]"


async def test_an_interpreter_that_dies_between_cells_comes_back_and_it_is_said(session: Session) -> None:
    await session.run("items = list(range(3))")
    await session.run("import os, threading\nthreading.Timer(0.1, os._exit, [3]).start()")
    assert isinstance(session, GuestSession)
    guest = session.slot.guest
    assert guest is not None
    with anyio.fail_after(50):
        while guest.death is None:
            await anyio.sleep(0.01)
    outcome = await session.run("len(items)")
    assert outcome.value == "3", outcome
    assert any("died between cells: it exited with code 3" in notice for notice in outcome.notices)


async def test_an_interpreter_that_dies_while_variables_are_listed_is_brought_back(session: Session) -> None:
    await session.run("x = [1]")
    await session.run(
        "import gc, os\n"
        "(server,) = [type(it) for it in gc.get_objects() if {'_answer', '_list'} <= set(dir(type(it)))]\n"
        "server._list = lambda _: os._exit(3)"
    )
    with pytest.raises(SandboxUnavailable, match="died while it served 'variables'"):
        await session.variables()
    outcome = await session.run("x")
    assert (outcome.status, outcome.value) == ("ok", "[1]")


async def test_what_an_undone_cell_started_is_ended(session: Session) -> None:
    await session.run("items = list(range(3))")
    hide = "import ctypes; ctypes.CDLL(None).prctl(4, 0); import time; time.sleep(600)"
    code = f"import subprocess, sys\nkid = subprocess.Popen([sys.executable, '-c', {hide!r}], start_new_session=True)\nkid.pid"
    pid = await value(session, code)
    probe = f"import os\ntry: there = bool(os.kill({pid}, 0) is None)\nexcept ProcessLookupError: there = False\nthere"
    assert await value(session, probe) == "True"
    await session.undo(to=2)
    assert await value(session, probe) == "False"


async def test_the_program_cannot_wait_for_see_or_sweep_away_its_copies(session: Session) -> None:
    await session.run("items = list(range(3))")
    await session.run("items.append(3)")
    looks = """
import os
seen = sorted(int(name) for name in os.listdir('/proc') if name.isdigit())
try: waited = os.wait()
except ChildProcessError: waited = None
try: os.kill(-1, 9); swept = True
except PermissionError: swept = False
os.killpg(0, 0)
(len(seen), waited, swept)
"""
    assert await value(session, looks) == "(1, None, False)"
    await session.undo(to=1)
    assert await value(session, "items") == "[0, 1, 2]"


async def test_a_state_that_is_no_longer_kept_is_refused_and_nothing_changes(session: Session) -> None:
    await session.run("items = list(range(1))")
    for _ in range(40):
        await session.run("items.append(len(items))")
    with pytest.raises(UndoRefused, match="the state after cell 27 is no longer kept"):
        await session.undo(to=27)
    assert await value(session, "len(items)") == "41"
    with pytest.raises(UndoRefused, match="there is no state after cell 99"):
        await session.undo(to=99)
    await session.undo(to=40)
    assert await value(session, "len(items)") == "40"


async def test_a_session_with_copies_leaves_no_process_behind(tmp_path: Path) -> None:
    provider = Namespaces(pool=0)
    session = await provider.open(Spec(workspace=tmp_path))
    for count in range(4):
        await session.run(f"x{count} = list(range(3))")
    inside = await value(session, "import os; os.readlink('/proc/self/ns/pid')")
    await session.undo()
    await session.undo(to=0)
    await session.close()

    assert [pid for pid in pids() if namespace_of(pid) == inside] == []


@settings(max_examples=8)
@given(
    steps=st.lists(st.sampled_from(["append", "bind", "fail", "crash", "undo", "redo", "to"]), min_size=4, max_size=14)
)
async def test_any_order_of_cells_crashes_undo_and_redo_agrees_with_a_list(tmp_path: Path, steps: list[str]) -> None:
    async with open_session(tmp_path, Namespaces()) as session:
        await session.run("items = list(range(1)); x = 0")
        number = 1
        path, undone = [(1, [0], 0)], list[list[tuple[int, list[int], int]]]()
        for step in steps:
            _, items, x = path[-1]
            if step == "undo" and len(path) > 1:
                await session.undo()
                undone.append([path.pop()])
            elif step == "to" and len(path) > 2:
                await session.undo(to=path[1][0])
                undone.append(path[2:])
                del path[2:]
            elif step == "redo" and undone:
                await session.redo()
                path += undone.pop()
            elif step in ("append", "bind", "fail", "crash"):
                number += 1
                undone.clear()
                code = {
                    "append": f"items.append({number})",
                    "bind": f"x = {number}",
                    "fail": f"items.append({number}); 1 / 0",
                    "crash": f"items.append({number}); import os; os._exit(1)",
                }[step]
                outcome = await session.run(code)
                if step == "crash":
                    assert outcome.rolled_back
                else:
                    grown = [*items, number] if step != "bind" else items
                    path.append((number, grown, number if step == "bind" else x))
        assert await value(session, "(items, x)") == repr(path[-1][1:])


async def test_older_states_make_room_before_the_program_is_ended(tmp_path: Path) -> None:
    provider = Namespaces(pool=1)
    limits = Limits(memory_bytes=1 << 30)
    async with open_session(tmp_path, provider, limits=limits) as session:
        await session.run("held = bytearray(200 << 20)")
        for turn in range(1, 9):
            # Each state has memory of its own: nine of them would be twice the limit.
            code = f"for at in range(0, len(held), 4096): held[at] = {turn}"
            outcome = await session.run(code)
            assert outcome.status == "ok", outcome
        await session.undo()
        assert await value(session, "held[0]") == "7"


def tree(folder: Path) -> dict[str, str | None]:
    found = sorted(folder.rglob("*"))
    return {str(path.relative_to(folder)): path.read_text() if path.is_file() else None for path in found}


FILES = """
import os, shutil
os.makedirs('deep/er', exist_ok=True)
open('deep/er/one.txt', 'w').write('one')
open('two.txt', 'w').write('two')
"""
RUIN = """
import os, shutil
for name in os.listdir('.'):
    shutil.rmtree(name) if os.path.isdir(name) else os.unlink(name)
open('three.txt', 'w').write('three')
"""


async def test_files_come_back_with_the_variables_and_go_again(session: Session, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("before the session")
    await session.run(FILES)
    whole = tree(tmp_path)
    await session.run(RUIN)
    ruined = tree(tmp_path)
    assert ruined == {"three.txt": "three"}
    await session.undo()
    assert tree(tmp_path) == whole
    await session.redo()
    assert tree(tmp_path) == ruined
    await session.undo(to=0)
    assert tree(tmp_path) == {"mine.txt": "before the session"}


async def test_variables_and_files_can_be_undone_apart(session: Session, tmp_path: Path) -> None:
    await session.run("items = [len('a')]; kept = open('a.txt', 'w').write('one')")
    await session.run("items.append(2); kept = open('a.txt', 'w').write('two')")
    await session.undo(what="files")
    assert (tmp_path / "a.txt").read_text() == "one"
    assert await value(session, "items") == "[1, 2]"
    await session.run("items.append(3); kept = open('a.txt', 'w').write('three')")
    await session.undo(what="variables")
    assert (tmp_path / "a.txt").read_text() == "three"
    assert await value(session, "items") == "[1, 2]"


async def test_the_files_of_a_cell_that_was_rolled_back_are_as_before_it(session: Session, tmp_path: Path) -> None:
    await session.run(FILES)
    whole = tree(tmp_path)
    outcome = await session.run(f"{RUIN}\nos._exit(1)")
    assert (outcome.status, outcome.rolled_back) == ("killed", True)
    assert tree(tmp_path) == whole


async def test_what_the_user_changed_between_cells_is_left_and_said(session: Session, tmp_path: Path) -> None:
    await session.run(FILES)
    await session.run("kept = open('two.txt', 'a').write(', and more')")
    (tmp_path / "two.txt").write_text("the user's own")
    (tmp_path / "new.txt").write_text("the user's too")
    said = await session.undo()
    assert (tmp_path / "two.txt").read_text() == "the user's own"
    assert (tmp_path / "new.txt").read_text() == "the user's too"
    assert said == ("Left as it is, because it was changed outside of cells: new.txt, two.txt.",)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


async def test_what_undo_does_not_cover_is_said_with_the_first_cell(tmp_path: Path) -> None:
    _large(tmp_path / "big")
    os.mkfifo(tmp_path / "pipe")  # holds nothing
    (tmp_path / ".env").write_text("KEY=heron", encoding="utf-8")  # no code sees it
    async with open_session(tmp_path, Namespaces()) as session:
        (notice,) = (await session.run("1")).notices
        assert notice == "Undo does not cover big; nor /tmp and /dev/shm."
        assert (await session.run("1")).notices == ()


async def test_nothing_is_said_where_nothing_could_be_lost(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / ".env").write_text("KEY=heron", encoding="utf-8")
    async with open_session(tmp_path, Namespaces()) as session:
        assert (await session.run("1")).notices == ()


async def test_many_that_undo_does_not_cover_are_told_by_their_folder(tmp_path: Path) -> None:
    (tmp_path / "films" / "more").mkdir(parents=True)
    for name in ("own", "films/a", "films/b", "films/c", "films/d", "films/more/e"):
        _large(tmp_path / name)
    async with open_session(tmp_path, Namespaces()) as session:
        (notice,) = (await session.run("1")).notices
    assert "Undo does not cover own, films (5 files);" in notice


async def test_a_cell_that_was_cancelled_counts_and_can_be_undone(session: Session, tmp_path: Path) -> None:
    await session.run("items = list(range(3))")
    code = "items.append(3); kept = open('a.txt', 'w').write('one')\nprint('on', flush=True)\nwhile True: pass"
    with anyio.CancelScope() as scope:
        await session.run(code, on_output=lambda _stream, _text: scope.cancel())
    assert scope.cancelled_caught
    assert await value(session, "items") == "[0, 1, 2, 3]"
    await session.undo(to=1)
    assert await value(session, "items") == "[0, 1, 2]"
    assert not (tmp_path / "a.txt").exists()


async def test_a_kept_branch_is_undone_as_a_whole(session: Session) -> None:
    await session.run("items = list(range(3))")
    branch = await session.fork()
    assert "read-only while a branch" in (await branch.run("items.append(3)")).notices[0]
    assert (await branch.run("open('a.txt', 'w')")).status == "error"
    assert (await session.run("open('a.txt', 'w')")).status == "error"
    await branch.run("items.append(4)")
    await session.keep(branch)
    assert await value(session, "items.append(5); items") == "[0, 1, 2, 3, 4, 5]"
    assert (await session.run("kept = open('a.txt', 'w').write('x')")).status == "ok"
    await session.undo(to=3)
    assert await value(session, "items") == "[0, 1, 2, 3, 4]"
    await session.undo(to=1)
    assert await value(session, "items") == "[0, 1, 2]"
    with pytest.raises(UndoRefused, match="only an open branch of this session"):
        await session.keep(branch)


async def test_branches_end_where_the_session_is_begun_again_and_it_is_said(session: Session) -> None:
    await session.run("items = list(range(3))")
    branch = await session.fork()
    said = await session.undo()
    assert said
    assert "The branches of the session have ended" in said[-1]
    with pytest.raises(SandboxUnavailable):
        await branch.run("1")
    with pytest.raises(UndoRefused, match="only an open branch of this session"):
        await session.keep(branch)
    assert (await session.run("kept = open('a.txt', 'w').write('x')")).status == "ok"


async def test_branches_have_random_numbers_of_their_own_and_end_alone(session: Session) -> None:
    await session.run("import os, random\nown = random.Random(1)")
    first, second = await session.fork(), await session.fork()
    draw = "(random.random(), own.random())"
    drawn = [await value(one, draw) for one in (session, first, second)]
    assert len(set(drawn)) == 3
    assert (await first.run("os._exit(1)")).status == "killed"
    assert await value(second, "1 + 1") == "2"
    await second.close()
    assert await value(session, "2 + 2") == "4"
    assert (await session.run("kept = open('a.txt', 'w').write('x')")).status == "ok"
