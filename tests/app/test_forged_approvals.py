"""Answers to a real session's questions, from another process through its socket: only the right one to what is so now."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from bench.leak_suite.scenario import call
from bench.leak_suite.stage import DONE

from pinfold.app import Options, SessionStore, acquire
from pinfold.app.session.live_session import LiveSession
from pinfold.engine import digest_of
from pinfold.events import ActionFinished, ApprovalRequested, CallTool, Entry, Say, new_session_id, new_turn_id
from pinfold.model import ScriptedModel

pytestmark = [pytest.mark.safety, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
# Connects as any program of the user's could, says each line of its input, and prints what it is answered.
SAYS = """
import socket, sys
for line in sys.stdin.buffer:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(20)
        peer.connect(sys.argv[1])
        peer.sendall(line)
        print(peer.makefile().readline().strip())
"""
EDIT = {"path": "a.txt", "old": "two", "new": "2"}


class Session:
    def __init__(self, live: LiveSession, folder: Path) -> None:
        self.live = live
        self._folder = folder

    async def asked(self, after: str = "") -> ApprovalRequested:
        """The question that waits, another one than `after`."""
        with anyio.fail_after(60):
            async with self.live.subscribe(0) as feed:
                async for item in feed:
                    event = item.event if isinstance(item, Entry) else item
                    if isinstance(event, ApprovalRequested) and event.digest != after:
                        return event
        raise AssertionError("the session ended")

    async def finished(self) -> ActionFinished:
        with anyio.fail_after(60):
            async with self.live.subscribe(0) as feed:
                async for item in feed:
                    if isinstance(item, Entry) and isinstance(item.event, ActionFinished):
                        return item.event
        raise AssertionError("the session ended")

    async def taken(self, *decisions: dict[str, Any]) -> list[bool]:
        """Of each, whether it was."""
        lines = [json.dumps({"op": "submit", "command": {"kind": "Decide", **one}}) for one in decisions]
        return ['"ok"' in answer for answer in await self.said(*lines)]

    async def said(self, *lines: str) -> list[str]:
        def talk() -> str:
            return subprocess.run(
                [sys.executable, "-c", SAYS, "owner.sock"],
                input="".join(f"{line}\n" for line in lines),
                capture_output=True,
                text=True,
                cwd=self._folder,
                timeout=200,
                check=True,
            ).stdout

        return (await anyio.to_thread.run_sync(talk)).splitlines()


@asynccontextmanager
async def waiting(workspace: Path) -> AsyncGenerator[Session]:
    """A session whose model wants to edit a file, in mode ask."""
    (workspace / "a.txt").write_text("one\ntwo\n", encoding="utf-8")
    model = ScriptedModel([call("edit_file", **EDIT), DONE])
    options = Options(workspace=workspace, model=model, mode="ask", sandbox="namespaces", unattended=False)
    session = new_session_id()
    folder = SessionStore().folder_of(session)
    async with acquire(folder, session, options) as live:
        await live.submit(Say(turn=new_turn_id(), text="go"))
        yield Session(live, folder)


async def test_another_process_cannot_answer_but_with_what_was_asked(workspace: Path) -> None:
    async with waiting(workspace) as session:
        asked = await session.asked()
        assert "-two" in asked.shows
        right = {"id": asked.id, "digest": asked.digest, "verdict": "allow"}
        action = CallTool(tool="edit_file", args=EDIT)
        other = CallTool(tool="edit_file", args={**EDIT, "new": "22"})
        forged = [
            {**right, "digest": ""},
            {**right, "digest": asked.digest.upper()},
            {**right, "digest": asked.digest[:-1]},
            {**right, "digest": digest_of(asked.id, action)},
            {**right, "digest": digest_of(asked.id, other, asked.shows)},
            {**right, "digest": digest_of(asked.id, action, asked.shows.replace("+2", "+3"))},
            {**right, "id": "a_000000000000"},
            {**right, "digest": None},
            {**right, "verdict": "yes"},
            {**right, "verdict": ["allow"]},
            {**right, "scope": "forever"},
            {"id": asked.id, "verdict": "allow"},
        ]
        assert await session.taken(*forged) == [False] * len(forged)
        nonsense = ["{}", "[]", '{"op": "decide"}', '{"op": "submit", "command": {"kind": "ApprovalDecided"}}']
        assert not any('"ok"' in answer for answer in await session.said(*nonsense))
        assert (workspace / "a.txt").read_text(encoding="utf-8") == "one\ntwo\n"
        assert await session.taken(right, right) == [True, False]
        assert (await session.finished()).outcome == "ok"
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "one\n2\n"


async def test_a_yes_to_a_diff_is_none_once_the_file_is_another(workspace: Path) -> None:
    async with waiting(workspace) as session:
        asked = await session.asked()
        (workspace / "a.txt").write_text("eins\ntwo\n", encoding="utf-8")
        stale = {"id": asked.id, "digest": asked.digest, "verdict": "allow"}
        assert await session.taken(stale) == [True]
        again = await session.asked(after=asked.digest)
        assert (again.id, " eins" in again.shows) == (asked.id, True)
        assert await session.taken(stale) == [False]
        assert (workspace / "a.txt").read_text(encoding="utf-8") == "eins\ntwo\n"
        assert await session.taken({**stale, "digest": again.digest}) == [True]
        assert (await session.finished()).outcome == "ok"
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "eins\n2\n"


async def test_no_answer_to_one_session_counts_in_another(workspace: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    async with waiting(workspace) as session, waiting(tmp_path / "other") as other:
        mine, theirs = await session.asked(), await other.asked()
        assert mine.digest != theirs.digest
        wrong = {"id": theirs.id, "digest": theirs.digest, "verdict": "allow"}
        assert await session.taken(wrong, {**wrong, "id": mine.id}) == [False, False]
        assert await other.taken(wrong) == [True]
        assert (await other.finished()).outcome == "ok"
        assert await session.taken({"id": mine.id, "digest": mine.digest, "verdict": "deny"}) == [True]
    assert (workspace / "a.txt").read_text(encoding="utf-8") == "one\ntwo\n"
