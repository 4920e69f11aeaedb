"""Sessions in an editor: begun, loaded, listed, forked, closed and removed; and what other agents got wrong there."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import acp.schema as wire
import anyio
import pytest
from tests.front.acp.editor import RequestError, call, editing, faults_of, script

from pinfold.app import SessionStore
from pinfold.app.session.mcp import client_servers
from pinfold.app.session.mcp.files import load_servers
from pinfold.events import SessionId

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]

NOTES = Path(__file__).parents[2] / "app" / "mcp" / "servers" / "notes.py"


class Raw:
    """The program, line by line."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []

    def write(self, line: bytes) -> None:
        assert self.process.stdin
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def read(self) -> dict[str, Any]:
        assert self.process.stdout
        self.lines.append(json.loads(self.process.stdout.readline().decode("utf-8", "strict")))
        return self.lines[-1]

    def ask(self, method: str, params: Any, id_: Any = 1) -> dict[str, Any]:
        """Its answer, past what comes before it."""
        self.write(json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params}).encode())
        while (message := self.read()).get("id") != id_ or "method" in message:
            pass
        return message


@contextmanager
def raw(workspace: Path, *args: str) -> Generator[Raw]:
    program = [sys.executable, "-m", "pinfold", "acp", *args]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=workspace) as process:
        try:
            yield Raw(process)
            assert process.stdin
            process.stdin.close()
            assert process.wait(60) == 0
        finally:
            process.kill()


def test_the_first_answer_says_what_the_agent_can_do(workspace: Path) -> None:
    """ACP-INIT-001 to 004, ACP-JSONRPC-001 to 005, ACP-EXT-001, ACP-SHUTDOWN-001, ACP-INFO-PARSE-001."""
    with raw(workspace) as agent:
        first = agent.ask("initialize", {"protocolVersion": 1, "clientCapabilities": {}}, "a-text")
        assert not faults_of(first, "initialize")
        assert first["result"]["protocolVersion"] == 1
        # Objects: JetBrains refuses `true`.
        able = first["result"]["agentCapabilities"]["sessionCapabilities"]
        assert able == {"list": {}, "delete": {}, "fork": {}, "resume": {}, "close": {}}
        assert agent.ask("initialize", {"protocolVersion": 65535}, 7)["result"]["protocolVersion"] == 1
        assert agent.ask("initialize", {}, 8)["error"]["code"] == -32602
        assert agent.ask("_unknown", {}, 9)["error"] == {"code": -32601, "message": "there is no method '_unknown'"}
        assert agent.ask("authenticate", {"methodId": first["result"]["authMethods"][0]["id"]}, 10)["result"] == {}
        assert agent.ask("authenticate", {"methodId": "nonsense"}, 11)["error"]["code"] == -32602
        for line, code in ((b"{nonsense", -32700), (b'{"foo": "bar"}', -32600), (b"[]", -32600), (b"\xff\xfe", -32700)):
            agent.write(line)
            answer = agent.read()
            assert (answer["id"], answer["error"]["code"]) == (None, code)
            assert not faults_of(answer, None)
        agent.write(b'{"jsonrpc": "2.0", "method": "nonsense/notification", "params": {}}')
        agent.write(b'{"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": "s_none"}}')
        assert agent.ask("session/prompt", {"sessionId": "s_none", "prompt": []}, 12)["error"]["code"] == -32002
        assert agent.ask("session/new", {"cwd": "here", "mcpServers": []}, 13)["error"]["code"] == -32602
        gone = agent.ask("session/new", {"cwd": "/nowhere", "mcpServers": []}, 14)["error"]
        assert "/nowhere" in gone["message"]
        assert agent.ask("session/list", {}, 15)["result"] == {"sessions": []}


def test_little_is_loaded_before_the_first_answer(workspace: Path) -> None:
    """Time cannot be held to a number here; what takes it can."""
    program = (
        "import io, sys\n"
        "from pinfold.front.acp.handshake import answer_initialize\n"
        'asked = b\'{"id": 1, "method": "initialize", "params": {"protocolVersion": 1}}\\n\'\n'
        "assert answer_initialize(io.BytesIO(asked), io.BytesIO())[0] == b''\n"
        "import pinfold.front.cli.commands.chat\n"
        "print(sorted({'anyio', 'asyncio', 'msgspec', 'pydantic', 'acp', 'pinfold.app', 'pinfold.events'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=workspace)
    assert ran.stdout == "[]\n"


def test_a_session_is_answered_before_anything_is_told_of_it(workspace: Path, tmp_path: Path) -> None:
    """ACP-SESSION-001, ACP-SESSION-002, ACP-TRANSPORT-001, ACP-TRANSPORT-002."""
    flags = ("--allow-host", "example.org", "--mount", str(tmp_path / "script.jsonl"), "--max-steps", "3")
    with raw(workspace, "--model", script(tmp_path, [{"text": "x"}]), *flags) as agent:
        agent.ask("initialize", {"protocolVersion": 1})
        made = agent.ask("session/new", {"cwd": str(workspace), "mcpServers": []}, 2)
        assert [one.get("id") for one in agent.lines] == [1, 2]
        assert "models" not in made["result"]
        other = agent.ask("session/new", {"cwd": str(workspace), "mcpServers": []}, 3)
        assert made["result"]["sessionId"] != other["result"]["sessionId"]
        # Longer than the line that a reader of asyncio's takes.
        long = [{"type": "text", "text": "long " * 40_000}]
        done = agent.ask("session/prompt", {"sessionId": made["result"]["sessionId"], "prompt": long}, 4)
        assert done["result"] == {"stopReason": "end_turn"}
    assert [one.id for one in SessionStore().sessions()] == [
        made["result"]["sessionId"]
    ]  # nothing was said in the other


async def test_a_loaded_session_shows_all_that_happened_and_a_resumed_one_nothing(workspace: Path) -> None:
    """ACP-LOAD-001 to 003, ACP-RESUME-001, ACP-RESUME-002, ACP-CLOSE-001."""
    replies = [call("python", "Look:", code="x = 41\nprint('seen')"), {"text": "First."}, {"text": "Second."}]
    async with editing(workspace, replies) as editor:
        await editor.prompt("One")
        await editor.prompt("Two")
        before = editor.calls()
        await editor.ask("session/close", {"sessionId": editor.session})
        editor.updates.clear()
        await editor.ask("session/resume", {"sessionId": editor.session, "cwd": str(workspace)})
        assert not [one for one in editor.updates if one["sessionUpdate"].endswith("_chunk")]
        for is_open in (True, False):
            if not is_open:
                await editor.ask("session/close", {"sessionId": editor.session})
            editor.updates.clear()
            await editor.connection.load_session(session_id=editor.session, cwd=str(workspace), mcp_servers=[])
            assert [one["content"]["text"] for one in editor.of("user_message_chunk")] == ["One", "Two"]
            assert "Look:First.Second." in editor.text.replace("\n", "")
            assert [one["content"] for one in editor.calls()] == [one["content"] for one in before]
            assert "result" in editor.lines[-1]


async def test_after_a_kill_everything_is_there_and_the_turn_can_go_on(workspace: Path) -> None:
    slow = "y = 7\nprint('begun', flush=True)\nimport time\nwhile True:\n    time.sleep(0.1)"
    replies = [
        call("python", "Counting.", code="x = 41"),
        {"text": "First."},
        call("python", code=slow),
        {"text": "Back."},
    ]
    async with editing(workspace, replies) as editor:
        session = editor.session
        await editor.prompt("One")
        pending = asyncio.ensure_future(editor.prompt("Two"))
        await editor.until(lambda: len(editor.calls()) == 2 and "begun" in str(editor.calls()[1]["content"][1:]))
        editor.process.kill()
        await editor.process.wait()
        pending.cancel()
    async with editing(workspace, replies, opens=False) as editor:
        await editor.connection.load_session(session_id=session, cwd=str(workspace), mcp_servers=[])
        editor.session = session
        assert [one["content"]["text"] for one in editor.of("user_message_chunk")] == ["One", "Two"]
        assert "Counting.First." in editor.text.replace("\n", "")
        done, lost = editor.calls()
        assert (done["status"], lost["status"]) == ("completed", "failed")
        assert await editor.prompt("continue") == "end_turn"
        assert editor.text.endswith("Back.")
        await editor.prompt("/vars")
        assert "x     int" in editor.text


async def test_sessions_are_listed_forked_and_removed(workspace: Path, tmp_path: Path) -> None:
    """ACP-LIST-001, ACP-LIST-002, ACP-DELETE-001, ACP-DELETE-002."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    async with editing(workspace, [call("python", code="x = 1"), {"text": "Done."}]) as editor:
        await editor.prompt("Hello")
        listed = (await editor.connection.list_sessions(cwd=str(workspace))).sessions
        assert [(one.session_id, one.title, one.cwd) for one in listed] == [(editor.session, "Hello", str(workspace))]
        assert (await editor.connection.list_sessions(cwd=str(elsewhere))).sessions == []
        forked = await editor.ask(
            "session/fork", {"sessionId": editor.session, "cwd": str(workspace), "mcpServers": []}
        )
        first, editor.session = editor.session, forked["sessionId"]
        assert first != editor.session
        await editor.prompt("/vars")
        assert "x     int" in editor.text
        for name in (first, first, "../../etc", "last", "Hello", "s_"):
            assert await editor.ask("session/delete", {"sessionId": name}) == {}
        left = (await editor.connection.list_sessions(cwd=str(workspace))).sessions
        assert [one.session_id for one in left] == [editor.session]
        for name, words in ((first, "there is no session"), ("last", "there is no session"), ("../..", "there is no")):
            with pytest.raises(RequestError, match=words):
                await editor.connection.load_session(session_id=name, cwd=str(workspace), mcp_servers=[])
        await editor.ask("session/close", {"sessionId": editor.session})
        with pytest.raises(RequestError, match="is a session of"):
            await editor.connection.load_session(session_id=editor.session, cwd=str(elsewhere), mcp_servers=[])


async def test_closing_a_session_cancels_its_prompt(workspace: Path) -> None:
    """ACP-CLOSE-002."""
    slow = "print('begun', flush=True)\nimport time\ntime.sleep(600)"
    async with editing(workspace, [call("python", code=slow), {"text": "Done."}]) as editor:
        stopped: list[str] = []

        async def run() -> None:
            stopped.append(await editor.prompt("Go."))

        async with anyio.create_task_group() as group:
            group.start_soon(run)
            await editor.until(lambda: "begun" in str([one["content"][1:] for one in editor.calls()]))
            await editor.ask("session/close", {"sessionId": editor.session})
        assert stopped == ["cancelled"]


def test_a_prompt_that_is_cancelled_at_once_does_not_run(workspace: Path, tmp_path: Path) -> None:
    with raw(workspace, "--model", script(tmp_path, [call("python", code="open('ran', 'w')"), {"text": "x"}])) as agent:
        agent.ask("initialize", {"protocolVersion": 1})
        made = agent.ask("session/new", {"cwd": str(workspace), "mcpServers": []}, 2)["result"]["sessionId"]
        said = {"sessionId": made, "prompt": [{"type": "text", "text": "Go."}]}
        cancel = {"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": made}}
        prompt = {"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": said}
        agent.write(json.dumps(prompt).encode() + b"\n" + json.dumps(cancel).encode())
        while (answer := agent.read()).get("id") != 3:
            pass
        assert answer["result"] == {"stopReason": "cancelled"}
    assert not (workspace / "ran").exists()


@contextmanager
def terminal(workspace: Path, *replies: dict[str, Any]) -> Generator[tuple[subprocess.Popen[str], str]]:
    """`pinfold run` once it runs its first cell, and the id of its session."""
    model = script(workspace.parent, replies)
    program = [sys.executable, "-m", "pinfold", "run", "--json", "--model", model, "--workspace", str(workspace), "Go."]
    pipe = subprocess.PIPE
    with subprocess.Popen(program, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True) as process:
        try:
            assert process.stdout
            line = next(json.loads(line) for line in process.stdout if json.loads(line)["kind"] == "ActionStarted")
            yield process, line["session"]
        finally:
            process.kill()


async def test_a_session_of_the_terminal_is_followed_and_then_taken_over(workspace: Path) -> None:
    code = "import os, time\nwhile not os.path.exists('go'):\n    time.sleep(0.01)"
    replies = [call("python", code=code), {"text": "From the terminal."}, {"text": "To the editor."}]
    with terminal(workspace, *replies) as (run, session):
        async with editing(workspace, opens=False) as editor:
            editor.session = session
            await editor.connection.load_session(session_id=session, cwd=str(workspace), mcp_servers=[])
            (workspace / "go").touch()
            await editor.until(lambda: "From the terminal." in editor.text)
            assert run.wait(60) == 0
            assert await editor.prompt("And now?") == "end_turn"
            assert editor.text.endswith("To the editor.")


def test_servers_of_an_editor_get_no_more_than_those_of_a_project(tmp_path: Path) -> None:
    """Positive and negative control: a plain one is confined to a sandbox, one with variables is not used."""
    named: list[dict[str, Any]] = [
        {"name": "notes", "command": "/bin/notes", "args": ["/home"], "env": [{"name": "A", "value": "b"}]},
        {"name": "leak", "command": "/bin/leak", "args": [], "env": [{"name": "KEY", "value": "${OPENAI_API_KEY}"}]},
        {"name": "remote", "type": "http", "url": "https://example.com/mcp", "headers": []},
        {"name": "old", "type": "sse", "url": "https://example.com/sse", "headers": []},
    ]
    data, left_out = client_servers(named)
    found = load_servers(client=data)
    specs = {spec.name: spec for spec in found.specs}
    assert set(specs) == {"notes", "remote"}
    assert (specs["notes"].reach, specs["notes"].is_confined, specs["notes"].env) == ("workspace", True, {"A": "b"})
    assert len(left_out) == 1
    assert "'old' is not used" in left_out[0]
    assert any("leak is not used: variables" in fault for fault in found.faults)


@pytest.mark.parametrize("option", ["allow", "deny"])
async def test_a_server_of_the_editor_is_called_once_the_user_agrees(workspace: Path, option: str) -> None:
    (workspace / "server.py").write_bytes(NOTES.read_bytes())
    (workspace / "notes").mkdir()
    args = ["server.py", str(workspace / "notes")]
    server = wire.McpServerStdio(name="others", command=sys.executable, args=args, env=[])
    used = call("python", code="from servers.others import note\nnote(text='a')")
    async with editing(workspace, [used, {"text": "Done."}], servers=[server], answer=option) as editor:
        await editor.prompt("Keep a note.")
    assert editor.asked
    assert (workspace / "notes" / "notes.txt").exists() == (option == "allow")


async def test_a_server_that_cannot_be_used_is_said(workspace: Path) -> None:
    server = wire.SseMcpServer(type="sse", name="old", url="https://example.com/sse", headers=[])
    async with editing(workspace, [{"text": "Done."}], servers=[server]) as editor:
        await editor.prompt("Go.")
    assert "'old' is not used: only stdio and http are supported" in editor.text


def test_what_is_printed_by_the_way_does_not_reach_the_editor(workspace: Path) -> None:
    program = (
        "import os, subprocess, sys\n"
        "from pinfold.front.acp.handshake import own_streams\n"
        "with own_streams() as (reads, writes):\n"
        "    print('stray', flush=True)\n"
        "    subprocess.run(['cat'], check=True)\n"
        "    os.system('echo stray')\n"
        "    writes.write(reads.readline())\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], input=b"line\n", capture_output=True, check=True, cwd=workspace
    )
    assert (ran.stdout, ran.stderr) == (b"line\n", b"stray\nstray\n")


def test_a_signal_ends_it_and_keeps_the_session(workspace: Path, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "pinfold", "acp", "--model", script(tmp_path, [{"text": "x"}])]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=dict(os.environ)) as process:
        agent = Raw(process)
        agent.ask("initialize", {"protocolVersion": 1})
        made = agent.ask("session/new", {"cwd": str(workspace), "mcpServers": []}, 2)["result"]["sessionId"]
        agent.ask("session/prompt", {"sessionId": made, "prompt": [{"type": "text", "text": "Hello"}]}, 3)
        process.terminate()
        assert process.wait(60) == 0
    assert SessionStore().summary_of(SessionId(made)).title == "Hello"
