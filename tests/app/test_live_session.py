"""What a front end can do with a live session, its own or another process's. Real sandbox, scripted models."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from pinfold.app import Link, Options, RemoteSession, SessionStore, acquire, event_of, fork
from pinfold.app.clients import entries_of
from pinfold.events import (
    ActionFinished,
    ActionStarted,
    Clear,
    Configure,
    Entry,
    FileChange,
    Noticed,
    Rewind,
    RunCell,
    Say,
    SessionRewound,
    TurnEnded,
    new_action_id,
    new_session_id,
    new_turn_id,
)
from pinfold.sandbox import Mount

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Script = Callable[..., str]


async def said(link: Link, text: str) -> list[Any]:
    """The events of a turn."""
    events: list[Any] = []
    turn = new_turn_id()
    async with link.subscribe((await link.status()).seq) as feed:
        await link.submit(Say(turn=turn, text=text))
        with anyio.fail_after(60):
            async for item in feed:
                if isinstance(item, Entry):
                    events.append(item.event)
                    if isinstance(item.event, TurnEnded) and item.event.turn == turn:
                        return events
    raise AssertionError("the feed ended")


async def test_a_session_is_seen_and_changed_the_same_from_its_owner_and_from_elsewhere(
    workspace: Path, script: Script, cell: Any
) -> None:
    (workspace / "old.txt").write_text("one\ntwo\n")
    writes = "open('old.txt', 'a').write('three\\n'); open('new.bin', 'wb').write(b'\\0'); total = 42"
    model = script(cell(writes), {"text": "done"}, cell("import os; os.remove('new.bin')"), {"text": "gone"})
    other = script(
        {"expect": "Variables of the session, all still there: total (int of cell 1)", "text": "I am new"}, name="o"
    )
    session = new_session_id()
    folder = SessionStore().folder_of(session)
    options = Options(workspace=workspace, model=model, mode="auto", sandbox="namespaces")
    async with acquire(folder, session, options) as live:
        far = RemoteSession(session, folder)
        first = await said(live, "write")
        (files,) = [event.files for event in first if isinstance(event, ActionFinished)]
        assert [(one.path, one.how) for one in files] == [("new.bin", "added"), ("old.txt", "changed")]
        assert files[0] == FileChange(path="new.bin", how="added")  # no text, no content
        before, after = files[1].before, files[1].after
        assert before is not None
        assert after is not None
        for link in (live, far):
            assert await link.blob(before) == b"one\ntwo\n"
            assert await link.blob(after) == b"one\ntwo\nthree\n"
            (total,) = [one for one in await link.query("variables") if one["name"] == "total"]
            assert (total["type"], total["cell"]) == ("int", 1)
            tools = await link.query("tools")
            assert {"read_file", "fetch"} <= {one["name"] for one in tools}
            assert await link.query("servers") == []
            assert await link.query("grants") == []
            standing = await link.status()
            assert (standing.model, standing.mode, standing.sandbox) == (model, "auto", "namespaces")
        second = await said(far, "remove")
        (files,) = [event.files for event in second if isinstance(event, ActionFinished)]
        assert [(one.path, one.how) for one in files] == [("new.bin", "removed")]
        turn = second[0].turn
        async with far.subscribe((await far.status()).seq) as feed:
            await far.submit(Rewind(turn=turn))
            item = await anext(aiter(feed))
        assert isinstance(item, Entry)
        assert isinstance(item.event, SessionRewound)
        assert item.event.forgotten == (turn,)
        assert (workspace / "new.bin").read_bytes() == b"\0"
        await far.submit(Clear())
        await far.submit(Configure(model=other))
        ended = (await said(live, "who are you?"))[-1]
        assert ended.text == "I am new"
    async with acquire(folder, session, Options()) as live:
        assert (await live.status()).model == other


async def test_a_cell_that_is_interrupted_while_the_sandbox_starts_ends_before_that_and_the_next_one_runs(
    workspace: Path, tmp_path: Path
) -> None:
    session, shared = new_session_id(), tmp_path / "shared"
    shared.mkdir()
    options = Options(workspace=workspace, mounts=(Mount(path=shared, writable=True),))
    async with acquire(SessionStore().folder_of(session), session, options) as live:
        async with live.subscribe(live.log.seq) as feed, anyio.create_task_group() as tasks:
            tasks.start_soon(live.act, new_action_id(), RunCell(code="import time\ntime.sleep(600)"))
            async for item in feed:
                if isinstance(event_of(item), ActionStarted):
                    tasks.cancel_scope.cancel()
                    break
        last = live.log.seq
        assert (await live.act(new_action_id(), RunCell(code="6 * 7"))).value == "42"
        events = [entry.event for entry in entries_of(live)]
    assert isinstance(events[last - 1], ActionFinished)
    assert any(isinstance(event, Noticed) and str(shared) in event.text for event in events[last:])


async def test_a_fork_of_a_live_session_has_what_its_last_cell_did(workspace: Path) -> None:
    session, shelf = new_session_id(), SessionStore()
    async with acquire(shelf.folder_of(session), session, Options(workspace=workspace)) as live:
        # What takes long to save is not saved again soon, of itself.
        for code in ("numbers = list(range(50_000))", "numbers[0] = 'first'", "last = 'heron'"):
            await live.act(new_action_id(), RunCell(code=code))
        new, _ = await fork(shelf, session)
    shown = {}
    async with acquire(shelf.folder_of(new), new, Options()) as forked:
        for name in ("numbers[0]", "last"):
            shown[name] = (await forked.act(new_action_id(), RunCell(code=name))).value
    assert shown == {"numbers[0]": "'first'", "last": "'heron'"}
