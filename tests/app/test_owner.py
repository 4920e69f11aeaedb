"""One owner per session; everyone else works through its socket. With real processes."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import subprocess
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from pinfold.app import Options, PageQuery, RemoteSession, SessionBusy, SessionStore, acquire, connect
from pinfold.engine import CommandRefused
from pinfold.events import (
    ActionFinished,
    ActionId,
    Decide,
    Entry,
    Event,
    Execute,
    Rename,
    Say,
    SessionChanged,
    SessionId,
    TurnEnded,
    new_action_id,
    new_session_id,
    new_turn_id,
)
from pinfold.model import KeptReply, ScriptedModel

pytestmark = pytest.mark.integration
LOCAL = ("--sandbox", "unsafe-local")


@pytest.fixture
def place() -> tuple[Path, SessionId]:
    session = new_session_id()
    return SessionStore().folder_of(session), session


def scripted(workspace: Path, *texts: str) -> Options:
    model = ScriptedModel([KeptReply(text=text) for text in texts])
    return Options(workspace=workspace, model=model, sandbox="unsafe-local")


async def first(feed: Any, kind: type[Event]) -> Any:
    with anyio.fail_after(50):
        async for item in feed:
            if isinstance(item, Entry) and isinstance(item.event, kind):
                return item.event
    raise AssertionError("the feed ended")


async def test_another_process_speaks_through_the_owner(
    place: tuple[Path, SessionId], workspace: Path, pinfold: Callable[..., Any]
) -> None:
    folder, session = place
    async with acquire(folder, session, scripted(workspace, "said by the owner")) as live:
        done = await anyio.to_thread.run_sync(lambda: pinfold("resume", session, "hello"))
        assert (done.code, done.out) == (0, "said by the owner\n")
        assert [entry.event.text for entry in live.log.read() if isinstance(entry.event, TurnEnded)] == [
            "said by the owner"
        ]


async def test_the_socket_and_the_folders_are_for_their_user_alone(
    place: tuple[Path, SessionId], workspace: Path
) -> None:
    folder, session = place
    async with acquire(folder, session, scripted(workspace)):
        assert stat.S_IMODE((folder / "owner.sock").stat().st_mode) == 0o600
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.parent.stat().st_mode) == 0o700
    assert not (folder / "owner.sock").exists()


async def test_a_path_too_long_for_a_socket_works_all_the_same(tmp_path: Path, workspace: Path) -> None:
    folder = tmp_path / ("long-" * 20) / ("longer-" * 15)
    folder.mkdir(parents=True, mode=0o700)
    session = new_session_id()
    async with acquire(folder, session, scripted(workspace, "far away")):
        remote = RemoteSession(session, folder)
        async with remote.subscribe() as feed:
            await remote.submit(Say(turn=new_turn_id(), text="hello"))
            assert (await first(feed, TurnEnded)).text == "far away"


async def test_a_second_taker_is_told_who_was_first(place: tuple[Path, SessionId], workspace: Path) -> None:
    folder, session = place
    async with acquire(folder, session, scripted(workspace)):
        with pytest.raises(SessionBusy, match=f"in use by process {os.getpid()}"):
            async with acquire(folder, session, scripted(workspace)):
                pass


async def test_attaching_to_an_owned_session_gives_the_owners(place: tuple[Path, SessionId], workspace: Path) -> None:
    folder, session = place
    async with acquire(folder, session, scripted(workspace)) as live, live.subscribe() as feed:
        async with connect(folder, session, scripted(workspace)) as link:
            assert isinstance(link, RemoteSession)
            await link.submit(Rename(title="from afar"))
        assert (await first(feed, SessionChanged)).title == "from afar"


async def test_a_refusal_of_the_owner_reaches_the_asker(place: tuple[Path, SessionId], workspace: Path) -> None:
    folder, session = place
    async with acquire(folder, session, scripted(workspace)):
        with pytest.raises(CommandRefused, match="no approval is waiting"):
            await RemoteSession(session, folder).submit(Decide(id=ActionId("a_1"), digest="", verdict="allow"))


async def test_garbage_on_the_socket_leaves_the_owner_unharmed(workspace: Path) -> None:
    garbage = [
        b"\x00\xff\n",
        b"{}\n",
        b"[1]\n",
        b'{"op":"submit","command":{"kind":"Nope"}}\n',
        b'{"op":"page","name":"x","query":{"limit":"all"}}\n',
        b'{"op":"submit"',
        b"\n",
    ]
    session = new_session_id()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with acquire(folder, session, scripted(workspace)):
            for data in garbage:
                async with await anyio.connect_unix(folder / "owner.sock") as stranger:
                    await stranger.send(data)
            assert await RemoteSession(session, folder).answers()


async def test_an_owner_that_is_leaving_takes_nothing_it_would_not_do(workspace: Path) -> None:
    session = new_session_id()
    hello = json.dumps({"op": "submit", "command": {"kind": "Say", "turn": new_turn_id(), "text": "hello"}})
    with tempfile.TemporaryDirectory() as name:
        socket = Path(name, "owner.sock")
        async with anyio.create_task_group() as tasks, acquire(Path(name), session, scripted(workspace, "hi")):
            late = await anyio.connect_unix(socket)
            watching = await anyio.connect_unix(socket)
            await watching.send(b'{"op":"subscribe","after":0}\n')
            await watching.receive()  # by then both have been let in

            async def speak_late() -> None:
                async with late, watching:
                    with suppress(anyio.EndOfStream):  # it has left
                        while True:
                            await watching.receive()
                    await late.send(hello.encode() + b"\n")
                    with pytest.raises(anyio.EndOfStream):
                        await late.receive()

            tasks.start_soon(speak_late)


def test_a_dead_owners_session_is_taken_over(start: Any, pinfold: Callable[..., Any], script: Any, cell: Any) -> None:
    model = script(cell("while True: pass"), {"expect": "may or may not have taken effect", "text": "taken over"})
    running = start("run", *LOCAL, "--json", "--model", model, "go")
    session = json.loads(running.stdout.readline())["session"]
    while json.loads(running.stdout.readline())["kind"] != "ActionStarted":
        pass
    running.kill()
    running.wait(timeout=200)
    assert (SessionStore().find(session)[1] / "owner.sock").exists()
    done = pinfold("resume", session, "--json")
    assert [event["outcome"] for event in done.of_kind("ActionFinished")] == ["outcome_unknown"]
    assert (done.code, done.events[-1]["text"]) == (0, "taken over")


def test_of_several_takers_one_wins_and_all_are_served(
    workspace: Path, start: Any, pinfold: Callable[..., Any], script: Any
) -> None:
    model = script(*[{"text": f"answer {n}", "delay_s": 0.2} for n in range(6)])
    session = pinfold("run", *LOCAL, "--json", "--model", model, "begin").events[0]["session"]
    takers: list[subprocess.Popen[str]] = [start("resume", session, "--quiet", f"question {n}") for n in range(3)]
    answers = sorted(taker.communicate(timeout=200)[0] for taker in takers)
    assert answers[0].startswith("answer 1")
    said = [event["text"] for event in pinfold("export", session, "--to", "jsonl").of_kind("UserSpoke")]
    numbers = [event["seq"] for event in pinfold("export", session, "--to", "jsonl").events]
    assert sorted(said) == ["begin", "question 0", "question 1", "question 2"]
    assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.slow
def test_an_owner_that_does_not_answer_is_named_and_the_exit_code_says_later(
    pinfold: Callable[..., Any], script: Any
) -> None:
    pinfold("run", *LOCAL, "--model", script({"text": "one"}, {"text": "two"}), "begin")
    session, folder = SessionStore().find("last")
    with (folder / "owner.lock").open("r+") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = pinfold("resume", session, "hello")
    assert (done.code, done.err.count("\n")) == (75, 1)
    assert "does not answer" in done.err


async def test_a_page_of_a_variable_comes_from_the_owner(place: tuple[Path, SessionId], workspace: Path) -> None:
    folder, session = place
    async with acquire(folder, session, scripted(workspace)) as live:
        async with live.subscribe(live.log.seq) as feed:
            await live.submit(Execute(id=new_action_id(), code="x = [{'a': 2, 'b': None}, {'a': 1, 'b': 'é'}]"))
            await first(feed, ActionFinished)
        seq = live.log.seq
        remote, query = RemoteSession(session, folder), PageQuery(sort="a", limit=1)
        page = await remote.variable_page("x", query)
        assert (page.rows, page.total, [one.name for one in page.columns]) == (((1, "é"),), 2, ["a", "b"])
        assert page == await live.variable_page("x", query)
        with pytest.raises(CommandRefused, match="there is no column 'c'"):
            await remote.variable_page("x", PageQuery(sort="c"))
        with pytest.raises(CommandRefused, match="limit is 501; give 1 to 500"):
            await remote.variable_page("x", PageQuery(limit=501))
        assert live.log.seq == seq  # looking is not on record
