"""`pinfold mcp-server` over its standard streams: sessions, undo, files, progress and cancellation, on record."""

from __future__ import annotations

import base64
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from mcp import Client
from mcp.client import ClientRequestContext
from mcp.types import CallToolResult, ElicitRequestParams, ElicitResult, ImageContent
from tests.front.mcp_server.sdk_clients import ERAS, over_stdio, structure, text_of

from pinfold.app import SessionStore

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
Pinfold = Callable[..., Any]
TOOLS = {
    "run_python",
    "fork",
    "undo",
    "redo",
    "variables",
    "get_file",
    "put_file",
    "sessions",
    "open_session",
    "close_session",
}


async def ran(client: Client, code: str, **more: Any) -> CallToolResult:
    return await client.call_tool("run_python", {"code": code, **more})


@pytest.mark.parametrize("mode", ERAS)
async def test_a_client_of_either_era_finds_its_variables_again(workspace: Path, mode: str) -> None:
    async with over_stdio(workspace, mode=mode) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS
        first = await ran(client, "x = 41\nprint('hello')\nx + 1")
        assert not first.is_error
        told = structure(first)
        assert (told["status"], told["stdout"], told["value"], told["cell"]) == ("ok", "hello\n", "42", 1)
        assert told["variables"] == {"added": ["x"], "changed": [], "removed": []}
        assert text_of(first).startswith("hello\n42\n")
        assert structure(await ran(client, "x"))["value"] == "41"
        there = structure(await client.call_tool("variables", {}))["variables"]
        assert [(one["name"], one["type"]) for one in there] == [("x", "int")]


async def test_tools_say_what_they_may_do_and_errors_and_pictures_come_as_such(workspace: Path) -> None:
    png = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"0" * 20).decode()
    code = f"""\
class Picture:
    def _repr_png_(self):
        import base64
        return base64.b64decode({png!r})
Picture()"""
    async with over_stdio(workspace) as client:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        failed = await ran(client, "x = 1\n1 / 0")
        assert structure(await ran(client, "x"))["value"] == "1"
        shown = await ran(client, code)
    hints = {name: (a.read_only_hint, a.destructive_hint) for name, a in tools.items() if a}
    assert {name for name, (reads_only, _) in hints.items() if reads_only} == {"variables", "get_file", "sessions"}
    assert {name for name, (_, destroys) in hints.items() if destroys} == {
        "run_python",
        "undo",
        "redo",
        "put_file",
        "close_session",
    }
    assert failed.is_error
    assert structure(failed)["status"] == "error"
    assert "ZeroDivisionError" in structure(failed)["error"]
    pictures = [block for block in shown.content if isinstance(block, ImageContent)]
    assert [(one.mime_type, one.data) for one in pictures] == [("image/png", png)]


async def test_files_go_in_and_out_and_undo_takes_them_back(workspace: Path) -> None:
    async with over_stdio(workspace) as client:
        put = await client.call_tool("put_file", {"path": "in/a.txt", "content": "héllo"})
        assert not put.is_error, text_of(put)
        assert (workspace / "in/a.txt").read_text("utf-8") == "héllo"
        got = structure(await client.call_tool("get_file", {"path": "in/a.txt"}))
        assert (got["text"], got["base64"], got["size"]) == ("héllo", None, 6)
        data = base64.b64encode(bytes(range(256))).decode()
        await client.call_tool("put_file", {"path": "b.bin", "base64": data})
        assert structure(await client.call_tool("get_file", {"path": "b.bin"}))["base64"] == data
        undone = structure(await client.call_tool("undo", {}))
        assert undone["undone"] == [2]
        assert not (workspace / "b.bin").exists()
        assert structure(await client.call_tool("redo", {}))["redone"] == [2]
        assert (workspace / "b.bin").read_bytes() == bytes(range(256))


async def test_undo_takes_variables_back_and_a_fork_goes_its_own_way(workspace: Path) -> None:
    async with over_stdio(workspace) as client:
        await ran(client, "items = [1]")
        await ran(client, "items.append(2)")
        assert structure(await client.call_tool("undo", {"to": 1}))["to"] == 1
        assert structure(await ran(client, "items"))["value"] == "[1]"
        other = structure(await client.call_tool("fork", {}))["session"]
        await ran(client, "items.append('fork')", session=other)
        assert structure(await ran(client, "items", session=other))["value"] == "[1, 'fork']"
        assert structure(await ran(client, "items"))["value"] == "[1]"


async def test_cancelling_interrupts_the_cell_and_keeps_what_it_had(workspace: Path) -> None:
    async with over_stdio(workspace) as client:
        began = anyio.Event()

        async def told(progress: float, total: float | None, message: str | None) -> None:
            assert progress > 0
            assert total is None
            if message == "begun":
                began.set()

        async def endless() -> None:
            code = "x = 7\nprint('begun', flush=True)\nwhile True: pass"
            await client.call_tool("run_python", {"code": code}, progress_callback=told)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(endless)
            with anyio.fail_after(60):
                await began.wait()
            tasks.cancel_scope.cancel()
        with anyio.fail_after(60):
            after = structure(await ran(client, "x"))
    assert after["value"] == "7"
    assert after["cell"] == 2


async def test_everything_is_on_record_and_named_sessions_go_on(workspace: Path, pinfold: Pinfold) -> None:
    async with over_stdio(workspace) as client:
        own = structure(await ran(client, "mine = 1"))["session"]
        named = structure(await client.call_tool("open_session", {"name": "work"}))["session"]
        await ran(client, "kept = [1, 2]", session="work")
        await client.call_tool("get_file", {"path": "none.txt"})
        listed = structure(await client.call_tool("sessions", {}))["sessions"]
        assert {one["session"] for one in listed} == {own, named}
    assert {item.id for item in SessionStore().sessions()} == {own, named}
    assert all(item.owner is None for item in SessionStore().sessions())
    kinds = pinfold("sessions", "show", own, "--json")
    assert [event["action"]["code"] for event in kinds.of_kind("ActionProposed") if "code" in event["action"]] == [
        "mine = 1"
    ]
    assert [event["action"]["tool"] for event in kinds.of_kind("ActionProposed") if "tool" in event["action"]] == [
        "get_file"
    ]
    async with over_stdio(workspace) as client:
        again = structure(await client.call_tool("open_session", {"name": "work"}))["session"]
        assert again == named
        assert structure(await ran(client, "kept", session="work"))["value"] == "[1, 2]"


async def test_a_session_of_the_users_own_cannot_be_named(workspace: Path, pinfold: Pinfold) -> None:
    assert pinfold("exec", "-s", "private", "-c", "secret = 1").code == 0
    (kept,) = SessionStore().sessions()
    async with over_stdio(workspace) as client:
        for name in ("private", kept.id, "last"):
            refused = await ran(client, "secret", session=name)
            assert refused.is_error
            assert "no session" in text_of(refused)
        opened = structure(await client.call_tool("open_session", {"name": "private"}))["session"]
        assert opened != kept.id


async def test_an_ephemeral_server_leaves_nothing(workspace: Path) -> None:
    async with over_stdio(workspace, "--ephemeral") as client:
        assert structure(await ran(client, "1 + 1"))["value"] == "2"
        refused = await client.call_tool("fork", {})
        assert refused.is_error
        assert "nothing of it is kept" in text_of(refused)
    assert SessionStore().sessions() == []


async def test_wrong_arguments_get_one_line_that_says_what_is_wrong(workspace: Path) -> None:
    wrong: list[tuple[str, dict[str, Any], str]] = [
        ("run_python", {}, "missing required field `code`"),
        ("run_python", {"code": 1}, "Expected `str`, got `int`"),
        ("run_python", {"code": "1", "timeout_s": -1}, "> 0"),
        ("run_python", {"code": "1", "no": 1}, "unknown field `no`"),
        ("undo", {"what": "some"}, "Invalid enum value 'some'"),
        ("put_file", {"path": "a"}, "give either content, which is text, or base64"),
        ("put_file", {"path": "a", "base64": "*"}, "base64 cannot be decoded"),
        ("undo", {}, "there is no cell to undo"),
        ("close_session", {"session": "s_0"}, "no session 's_0' here"),
    ]
    async with over_stdio(workspace) as client:
        for tool, given, words in wrong:
            refused = await client.call_tool(tool, given)
            assert refused.is_error, (tool, given)
            assert words in text_of(refused)
            assert "\n" not in text_of(refused)


async def test_in_mode_read_only_nothing_is_written(workspace: Path) -> None:
    async with over_stdio(workspace, "--mode", "read-only") as client:
        refused = await client.call_tool("put_file", {"path": "a.txt", "content": "x"})
        assert refused.is_error
        assert not (workspace / "a.txt").exists()
        cell = await ran(client, "open('a.txt', 'w')")
        assert structure(cell)["status"] == "error"
        assert not (workspace / "a.txt").exists()


async def test_what_needs_a_yes_is_asked_of_the_client(workspace: Path) -> None:
    answers: list[ElicitResult] = []
    asked: list[str] = []

    async def elicited(_: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        asked.append(params.message)
        return answers[-1]

    async with over_stdio(workspace, "--mode", "ask", elicitation_callback=elicited) as client:
        for name, answer in {
            "a.txt": ElicitResult(action="accept", content={"decision": "allow"}),
            "b.txt": ElicitResult(action="accept", content={"decision": "deny"}),
            "c.txt": ElicitResult(action="decline"),
        }.items():
            answers.append(answer)
            put = await client.call_tool("put_file", {"path": name, "content": "x"})
            written = name == "a.txt"
            assert (not put.is_error, (workspace / name).exists()) == (written, written)
            assert name in asked[-1]
    assert len(asked) == 3


async def test_what_needs_a_yes_is_denied_where_the_client_cannot_be_asked(workspace: Path) -> None:
    async with over_stdio(workspace, "--mode", "ask") as client:
        refused = await client.call_tool("put_file", {"path": "a.txt", "content": "x"})
    assert refused.is_error
    assert "no user can be asked" in text_of(refused)
    assert not (workspace / "a.txt").exists()


async def test_ask_runs_the_agent_in_the_clients_session(
    workspace: Path, script: Callable[..., str], cell: Callable[..., dict[str, Any]]
) -> None:
    model = script(cell("print(x * 2)"), {"text": "It is 82."})
    lines: list[str] = []

    async def told(progress: float, total: float | None, message: str | None) -> None:
        assert progress == len(lines) + 1
        assert total is None
        lines.append(message or "")

    async with over_stdio(workspace, "--agent", "--model", model) as client:
        assert {tool.name for tool in (await client.list_tools()).tools} == TOOLS | {"ask"}
        own = structure(await ran(client, "x = 41"))["session"]
        answer = await client.call_tool("ask", {"prompt": "double x"}, progress_callback=told)
    assert text_of(answer) == "It is 82."
    assert structure(answer)["session"] == own
    assert lines
