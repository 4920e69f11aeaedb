"""A fork with files of its own, made while a cell waits for a call: what it sees, what it can change, what is left of it."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import anyio
import pytest

from pinfold.events import Json
from pinfold.sandbox import Answer, Outcome, Spec, UndoRefused, provider_named
from pinfold.sandbox.session.session import GuestSession
from pinfold.sandbox.views import merge_view

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
CALL = "\nfrom _pinfold_guest.calls import call\ncall('fork')"
View = Callable[[int], Path]


@pytest.fixture
async def session(workspace: Path) -> AsyncGenerator[GuestSession]:
    (workspace / "a.txt").write_text("old")
    (workspace / ".env").write_text("KEY=secret")
    opened: Any = await provider_named("namespaces").open(Spec(workspace=workspace))
    yield opened
    await opened.close()


@pytest.fixture
def view(tmp_path: Path) -> View:
    def make(number: int) -> Path:
        place = tmp_path / f"view{number}"
        place.mkdir(mode=0o700)
        return place

    return make


async def while_it_waits(session: GuestSession, code: str, act: Callable[[], Awaitable[None]]) -> Outcome:
    async def on_call(_tool: str, _args: Mapping[str, Json]) -> Answer:
        await act()
        return Answer(status="ok")

    return await session.run(code, on_call=on_call)


async def test_it_sees_the_running_cell_and_its_changes_stay_its_own_until_they_are_merged(
    session: GuestSession, workspace: Path, view: View
) -> None:
    place, old = view(1), workspace / "a.txt"

    async def act() -> None:
        fork: Any = await session.fork(place)
        outcome = await fork.run("here += 1; open('a.txt', 'w').write(f'new {here}'); import os; os.getcwd(), here")
        assert outcome.value == f"('{fork.workspace}', 6)"
        assert old.read_text() == "old"
        await fork.close()
        assert [(one.path, one.how) for one in merge_view(workspace, place).applied] == [("a.txt", "changed")]
        fork.release_view()

    outcome = await while_it_waits(session, "here = 5" + CALL, act)
    assert outcome.status == "ok", outcome.error
    assert (await session.run("here, open('a.txt').read()")).value == "(5, 'new 6')"
    await session.undo()  # of the cell that only looked
    assert await session.undo() == ()
    assert old.read_text() == "old"


async def test_a_secret_is_masked_in_its_files_and_the_workspace_itself_cannot_be_written(
    session: GuestSession, workspace: Path, view: View
) -> None:
    async def act() -> None:
        fork: Any = await session.fork(view(1))
        assert (await fork.run("open('.env').read(), open('a.txt').read()")).value == "('', 'old')"
        outcome = await fork.run(f"open('ok.txt', 'w').close()\nopen({str(workspace / 'no.txt')!r}, 'w')")
        assert "Read-only file system" in (outcome.error or "")
        assert "Read-only file system" in ((await fork.run("open('/branch/x', 'w')")).error or "")
        await fork.close()
        fork.release_view()

    assert (await while_it_waits(session, CALL, act)).status == "ok"
    assert (await session.run("open('after.txt', 'w').close()")).status == "ok"


async def test_no_process_reads_a_secret_before_it_is_masked_in_its_files(
    session: GuestSession, workspace: Path, view: View
) -> None:
    for number in range(40):  # each is masked after the one before
        (workspace / f"{number:02}.pem").write_text("secret")
    await session.close()
    reads = """
import os
seen = 0
while True:
    try:
        fd = os.open('/branch/1/39.pem', 0)
        seen += 1
        if os.read(fd, 9): open('/tmp/leaked', 'w').close()
        os.close(fd)
        if seen == 1: open('/tmp/seen', 'w').close()
    except OSError: pass
"""
    fresh: Any = await provider_named("namespaces").open(Spec(workspace=workspace))
    await fresh.run(f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {reads!r}])")
    for number in range(15):
        fork: Any = await fresh.fork(view(number))
        await anyio.sleep(0.05)
        await fork.close()
        fork.release_view()
    done = await fresh.run("import os; p.kill(); [os.path.exists(f'/tmp/{n}') for n in ('seen', 'leaked')]")
    await fresh.close()
    assert done.value == "[True, False]"


async def test_a_secret_that_comes_while_it_is_open_is_masked_in_its_files_too(
    session: GuestSession, workspace: Path, view: View
) -> None:
    async def act() -> None:
        fork: Any = await session.fork(view(1))
        await fork.run("open('own.pem', 'w').write('its own')")
        for name in ("plain.txt", "late.pem", "own.pem"):
            (workspace / name).write_text("of the user")
        code = f"[open(f'{workspace}/{{n}}').read() for n in ('plain.txt', 'late.pem')]"
        while (await fork.run(code)).value != "['of the user', '']":
            pass
        names = "('plain.txt', 'late.pem', 'own.pem')"
        assert (await fork.run(f"[open(n).read() for n in {names}]")).value == "['of the user', '', 'its own']"
        await fork.close()
        fork.release_view()

    with anyio.fail_after(60):
        assert (await while_it_waits(session, CALL, act)).status == "ok"


async def test_what_it_left_running_ends_before_the_workspace_can_be_written_again(
    session: GuestSession, workspace: Path, view: View
) -> None:
    daemon = """
import os, time
def leave(name):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True:
                try: open(f'{here}/{name}', 'a').write('x')
                except OSError: pass
                time.sleep(0.01)
        os._exit(0)
    os.wait()
"""
    await session.run(f"here = {str(workspace)!r}{daemon}leave('before')")

    async def act() -> None:
        fork: Any = await session.fork(view(1))
        assert (await fork.run("leave('after')")).status == "ok"
        await fork.close()
        fork.release_view()

    assert (await while_it_waits(session, CALL, act)).status == "ok"
    grown = (workspace / "before").stat().st_size
    await anyio.sleep(0.3)
    assert (workspace / "before").stat().st_size > grown  # the session's own goes on, and it can be written to
    assert not (workspace / "after").exists()


async def test_what_it_wrote_is_there_when_the_whole_sandbox_is_gone(
    session: GuestSession, workspace: Path, view: View
) -> None:
    place = view(1)
    await session.run("x = 1")
    fork: Any = await session.fork(place)
    await fork.run("open('left.txt', 'w').write('left')")
    await session.close()
    assert [one.path for one in merge_view(workspace, place).applied] == ["left.txt"]
    fork.release_view()


async def test_there_are_places_for_eight_and_each_is_free_again(session: GuestSession, view: View) -> None:
    await session.run("x = 1")
    forks: list[Any] = [await session.fork(view(number)) for number in range(8)]
    with pytest.raises(UndoRefused, match="8 forks with files of their own are open"):
        await session.fork(view(8))
    await forks[3].close()
    forks[3].release_view()
    again: Any = await session.fork(view(9))
    assert again.workspace == forks[3].workspace
    assert (await again.run("import os; sorted(os.listdir('.'))")).value == "['.env', 'a.txt']"


async def test_a_call_from_a_thread_cannot_fork_and_says_so(session: GuestSession, view: View) -> None:
    async def act() -> None:
        with pytest.raises(UndoRefused, match="not from a thread"):
            await session.fork(view(1))

    thread = "t = threading.Thread(target=call, args=('fork',)); t.start(); t.join(); 'goes on'"
    code = f"import threading\nfrom _pinfold_guest.calls import call\n{thread}"
    assert (await while_it_waits(session, code, act)).value == "'goes on'"
