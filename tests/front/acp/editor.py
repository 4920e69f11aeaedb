"""An editor: the SDK's own client on the real program, and a judge of every line that the program writes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

import acp.schema as wire
import anyio
from acp.client.connection import ClientSideConnection
from acp.connection import StreamDirection, StreamEvent
from jsonschema import Draft202012Validator
from pydantic import TypeAdapter
from tests.fork_server import forked

from acp import RequestError

Json = dict[str, Any]
_RESULTS: dict[str, Any] = {
    "initialize": wire.InitializeResponse,
    "authenticate": wire.AuthenticateResponse,
    "session/new": wire.NewSessionResponse,
    "session/load": wire.LoadSessionResponse,
    "session/resume": wire.ResumeSessionResponse,
    "session/fork": wire.ForkSessionResponse,
    "session/list": wire.ListSessionsResponse,
    "session/delete": wire.DeleteSessionResponse,
    "session/close": wire.CloseSessionResponse,
    "session/prompt": wire.PromptResponse,
    "session/set_mode": wire.SetSessionModeResponse,
    "session/set_config_option": wire.SetSessionConfigOptionResponse,
}
_PARAMS: dict[str, Any] = {
    "session/update": wire.SessionNotification,
    "session/request_permission": wire.RequestPermissionRequest,
    "elicitation/create": wire.CreateFormSessionElicitationRequest,
    "$/cancel_request": wire.CancelRequestNotification,
}
LONGEST = 64 << 20


@cache
def _schema_of(model: Any) -> Draft202012Validator:
    """The SDK's schema of a type, in which nothing may stand that is not named."""
    schema = TypeAdapter(model).json_schema(by_alias=True)
    for one in (schema, *schema.get("$defs", {}).values()):
        if "properties" in one and "additionalProperties" not in one:
            one["additionalProperties"] = False
    return Draft202012Validator(schema)


def faults_of(message: Json, method: str | None) -> list[str]:
    """What is wrong with a message of the agent's; `method` is that of the request it answers."""
    if message.get("jsonrpc") != "2.0":
        return ["no JSON-RPC 2.0"]
    if "method" in message:
        if message["method"] not in _PARAMS:
            return [f"{message['method']} is no method of clients"]
        checked, value = _PARAMS[message["method"]], message.get("params")
    elif "error" in message:
        checked, value = wire.Error, message["error"]
        if "\n" in str(value.get("message")) or not value.get("message"):
            return ["the message of an error is not one line"]
        if set(message) != {"jsonrpc", "id", "error"}:
            return ["an answer is a result or an error"]
    else:
        if set(message) != {"jsonrpc", "id", "result"} or method is None:
            return [f"an answer to nothing: {message}"]
        checked, value = _RESULTS[method], message["result"]
    found = _schema_of(checked).iter_errors(value)  # pyright: ignore[reportUnknownMemberType]
    return [f"{error.json_path}: {error.message[:300]}" for error in found]


@dataclass
class Editor:
    """What a user of an editor sees and does."""

    connection: ClientSideConnection
    process: Process
    updates: list[Json] = field(default_factory=list[Json])
    lines: list[Json] = field(default_factory=list[Json])
    asked: list[Json] = field(default_factory=list[Json])
    moved: list[anyio.Event] = field(default_factory=list[anyio.Event])
    """The last one is set by the next line."""
    session: str = ""

    def of(self, kind: str) -> list[Json]:
        return [one for one in self.updates if one["sessionUpdate"] == kind]

    @property
    def text(self) -> str:
        return "".join(one["content"]["text"] for one in self.of("agent_message_chunk"))

    def calls(self) -> list[Json]:
        """Each tool call as the editor shows it in the end."""
        shown: dict[str, Json] = {}
        for one in self.updates:
            if one["sessionUpdate"] in ("tool_call", "tool_call_update"):
                shown.setdefault(one["toolCallId"], {}).update(one)
        return list(shown.values())

    async def prompt(self, *blocks: str | Any) -> str:
        given = [wire.TextContentBlock(type="text", text=one) if isinstance(one, str) else one for one in blocks]
        return (await self.connection.prompt(session_id=self.session, prompt=given)).stop_reason

    async def ask(self, method: str, params: Json) -> Json:
        """A request that the SDK has no method for. Raises RequestError."""
        return cast("Json", await self.connection._conn.send_request(method, params))  # pyright: ignore[reportPrivateUsage]

    async def until(self, is_there: Callable[[], object]) -> None:
        """Looks again after every line."""
        with anyio.fail_after(60):
            while not is_there():
                await self.moved[-1].wait()


Answer = str | Callable[[Json], Any]


class _Client:
    """Answers what it is asked: `answer` is the id of an option, or a function of the request."""

    def __init__(self, answer: Answer, asked: list[Json]) -> None:
        self._answer = answer
        self._asked = asked

    async def session_update(self, **_: Any) -> None:
        pass  # the observer saw it

    async def request_permission(self, tool_call: Any, options: Any, **_: Any) -> Any:
        asked = {"call": tool_call.model_dump(by_alias=True), "options": {one.option_id: one for one in options}}
        self._asked.append(asked)
        chosen = self._answer if isinstance(self._answer, str) else await self._answer(asked)
        if chosen is None:
            return wire.RequestPermissionResponse(outcome=wire.DeniedOutcome(outcome="cancelled"))
        outcome = wire.AllowedOutcome(outcome="selected", option_id=chosen)
        return wire.RequestPermissionResponse(outcome=outcome)

    async def create_elicitation(self, message: str, mode: Any, **_: Any) -> Any:
        self._asked.append({"message": message, "mode": mode})
        assert not isinstance(self._answer, str)
        return await self._answer(self._asked[-1])


def script(tmp_path: Path, replies: Sequence[Json]) -> str:
    path = tmp_path / "script.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    return f"scripted:{path}"


def call(tool: str, text: str = "", **args: Any) -> Json:
    return {"text": text, "calls": [{"tool": tool, "args": args}]}


@asynccontextmanager
async def _started(*program: str, cwd: Path) -> AsyncGenerator[Process]:
    """Ends by itself when its input ends."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, *program, stdin=pipe, stdout=pipe, env=dict(os.environ), cwd=cwd, limit=LONGEST
    )
    assert process.stdin
    assert process.stdout
    try:
        yield process
        process.stdin.close()
        with anyio.fail_after(60):
            assert await process.stdout.read() == b""
            assert await process.wait() in (0, -signal.SIGKILL)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        cast("Any", process)._transport.close()


@asynccontextmanager
async def editing(
    workspace: Path,
    replies: Sequence[Json] = (),
    *args: str,
    answer: Answer = "deny",
    capabilities: Json | None = None,
    opens: bool = True,
    servers: Sequence[Any] = (),
) -> AsyncGenerator[Editor]:
    """An editor with one session open. At the end every line that the agent wrote is judged."""
    faults: list[str] = []
    methods: dict[Any, str] = {}
    asked: list[Json] = []
    updates: list[Json] = []
    lines: list[Json] = []
    moved = [anyio.Event()]

    def judge(event: StreamEvent) -> None:
        message = event.message
        if event.direction == StreamDirection.OUTGOING:
            if "method" in message and "id" in message:
                methods[message["id"]] = message["method"]
            return
        lines.append(message)
        faults.extend(faults_of(message, methods.get(message.get("id"))))
        if message.get("method") == "session/update":
            updates.append(message["params"]["update"])
        moved.append(anyio.Event())
        moved[-2].set()

    model = ["--model", script(workspace.parent, replies)] if replies else []
    program = forked("-m", "pinfold", "acp", *model, *args)
    client: Any = _Client(answer, asked)
    async with _started(*program, cwd=workspace) as process:
        assert process.stdin
        assert process.stdout
        connection = ClientSideConnection(
            client, process.stdin, process.stdout, observers=[judge], use_unstable_protocol=True
        )
        try:
            editor = Editor(connection, process, updates, lines, asked, moved)
            given = wire.ClientCapabilities.model_validate(capabilities or {})
            await connection.initialize(protocol_version=1, client_capabilities=given)
            if opens:
                made = await connection.new_session(cwd=str(workspace), mcp_servers=list(servers))
                editor.session = made.session_id
            yield editor
        finally:
            await connection.close()
    assert not faults, "\n".join(faults)


__all__ = ["Editor", "RequestError", "call", "editing", "faults_of", "script"]
