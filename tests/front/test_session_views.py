"""What the chat's commands show, on the command line: of a session that lives in another process and of one that does not."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import anyio.to_thread
import click
import pytest
from click.testing import CliRunner
from tests.front.chat.headless_chat import calling, cell, events_of, saying, talking

from pinfold.app import ConfigError
from pinfold.events import ApprovalRequested, Decide, Entry, Say, SessionRewound, TurnEnded, new_turn_id
from pinfold.front.cli.commands.rewind import fork_command, undo_command
from pinfold.front.cli.commands.sessions import sessions_command
from pinfold.front.cli.commands.trust import policy_command

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]


def ran(command: click.Command, *args: str) -> str:
    done = CliRunner().invoke(command, args)
    if done.exception and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


async def test_one_side_of_a_session_is_shown_alone(workspace: Path) -> None:
    replies = (cell("n = 1\nopen('a.txt', 'w').write('\\x1b[2Jone\\n')"), saying("done"))
    async with talking(workspace, *replies) as (chat, live):
        await chat.turn("write")

        def looks() -> None:
            def show(*flags: str) -> str:
                return ran(sessions_command, "show", chat.session, *flags)

            assert re.search(r"^n +int +28 B +1$", show("--vars"), re.MULTILINE)
            assert json.loads(show("--vars", "--json"))["name"] == "n"
            assert show("--files") == "  added  a.txt\n"
            assert show("--diff") == "a.txt (added, +1 -0)\n@@ -0,0 +1 @@\n+\\x1b[2Jone\n"
            assert json.loads(show("--diff", "--json"))["path"] == "a.txt"
            assert re.search(r"^scripted +2 +1,200 +34 +0 +unknown$", show("--cost"), re.MULTILINE)
            new = ran(fork_command, chat.session, "--title", "other").strip()
            assert re.search(rf"^{chat.session} \*.*\n  {new} .*other$", show("--branches"), re.MULTILINE)
            assert json.loads(show("--branches", "--json")) == {
                "session": new,
                "title": "other",
                "is": "fork",
                "of": chat.session,
            }

        await anyio.to_thread.run_sync(looks)
        assert not events_of(live, SessionRewound)


async def test_a_session_goes_back_by_turns(workspace: Path) -> None:
    replies = (cell("n = 1"), saying("one"), cell("n = 2"), saying("two"))
    async with talking(workspace, *replies) as (chat, live):
        await chat.turn("first")
        await chat.turn("second")

        def undo(*args: str) -> str:
            return ran(undo_command, chat.session, *args)

        def goes() -> None:
            with pytest.raises(ConfigError, match="there is no turn 7 to go back to; there are 1, 2"):
                undo("--turn", "7")
            assert "needs --turn N" in undo("--what", "chat")
            assert "cannot be combined" in undo("--turn", "1", "--to", "1")
            assert "Back to before turn 2: second\n  forgotten: turn 2\n" in undo("--turn", "-1", "--what", "chat")
            assert "undone: cells 1, 2 (variables and files)" in undo("--turn", "1")

        await anyio.to_thread.run_sync(goes)
        assert [event.what for event in events_of(live, SessionRewound)] == ["chat", "all"]
        assert "No variables." in await chat.type("/vars")


async def test_grants_of_a_session_are_listed_and_taken_back_with_an_owner_and_without(workspace: Path) -> None:
    replies = (
        calling("write_file", path="a.txt", content="x"),
        calling("shell", command="touch b.txt"),
        saying("done"),
    )
    async with talking(workspace, *replies, mode="ask", unattended=False) as (chat, live):
        async with live.subscribe() as feed:
            await live.submit(Say(turn=new_turn_id(), text="write"))
            async for item in feed:
                event = item.event if isinstance(item, Entry) else None
                if isinstance(event, ApprovalRequested):
                    yes = Decide(id=event.id, digest=event.digest, verdict="allow", scope="session")
                    await live.submit(yes)
                if isinstance(event, TurnEnded):
                    break
        session = chat.session

        def grants(*args: str) -> str:
            return ran(policy_command, "grants", "-s", session, *args)

        first, second = (await anyio.to_thread.run_sync(grants)).splitlines()
        assert "revoked" in await anyio.to_thread.run_sync(grants, "--revoke", first)
        assert await anyio.to_thread.run_sync(grants) == f"{second}\n"
    assert "revoked" in await anyio.to_thread.run_sync(grants, "--revoke", second)
    assert "no permissions of its own" in await anyio.to_thread.run_sync(grants)
    with pytest.raises(ConfigError, match="is not granted to"):
        await anyio.to_thread.run_sync(grants, "--revoke", second)
