"""The tools that clients call: each finds its session, does one thing in it, and returns the result."""

from __future__ import annotations

import base64
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

import anyio
import msgspec
from mcp.shared.exceptions import MCPError
from mcp.types import INVALID_PARAMS, CallToolResult, ContentBlock, ImageContent, TextContent, Tool

from pinfold import events
from pinfold.app import NoSuchSession, rewound_in_words
from pinfold.app.clients import ANYONE, CellResult, ClientSession, ClientSessions
from pinfold.events import Delta, Event, Json, PinfoldError, SessionId
from pinfold.front.mcp_server import tool_schemas as schemas
from pinfold.front.mcp_server.clients import Client, Context, client_of, progress
from pinfold.text import first_line

_Result = TypeVar("_Result", bound=msgspec.Struct)
_Do: TypeAlias = Callable[[Client, Any], Awaitable[CallToolResult]]
_SHOWN = 100_000
"""Longest file, in characters, that is returned twice: as text, and in the structured result."""
_REMEMBERED = 4096
OWN = "mcp client"
NAMED = "mcp:"
"""Prefix of the titles of named sessions, so that clients cannot open the user's own."""


class Calls:
    def __init__(self, client_sessions: ClientSessions, *, with_agent: bool) -> None:
        self._client_sessions = client_sessions
        self._own: dict[str, SessionId] = {}
        """The default session of each client."""
        self._finding = anyio.Lock()
        declared = (*schemas.SANDBOX, schemas.AGENT) if with_agent else schemas.SANDBOX
        self._declared = {one.name: one for one in declared}

    @property
    def tools(self) -> list[Tool]:
        return [Tool.model_validate(one.wire()) for one in self._declared.values()]

    def has(self, name: str) -> bool:
        return name in self._declared

    async def call(self, context: Context, name: str, arguments: dict[str, Json]) -> CallToolResult:
        known = self._declared.get(name)
        if known is None:
            raise MCPError(code=INVALID_PARAMS, message=f"Unknown tool: {first_line(name, 80)}")
        try:
            given = events.convert(arguments, known.arguments)
        except msgspec.ValidationError as error:
            return failure(f"wrong arguments for {name}: {error}")
        do = cast(_Do, getattr(self, f"_{name}"))
        try:
            return await do(client_of(context), given)
        except PinfoldError as error:
            return failure(str(error))

    async def forget(self, client: str) -> None:
        """Release what is kept for a client that has gone."""
        self._own.pop(client, None)
        await self._client_sessions.forget(client)

    # --- one method for each tool

    async def _run_python(self, client: Client, given: schemas.RunPython) -> CallToolResult:
        session = await self._session(client, given.session)
        async with progress(client.context) as say:
            ran = await session.run(given.code, timeout_s=given.timeout_s, approve=client.approve, on_output=say)
        structure = _cell(session, ran)
        return result(_format_result(session, ran), structure, displays=ran.displays, failed=ran.end.outcome != "ok")

    async def _fork(self, client: Client, given: schemas.Fork) -> CallToolResult:
        session = await self._session(client, given.session)
        other = await self._client_sessions.fork(session, f"{session.title} (fork)")
        return result(f"{other.id} continues from where {session.id} is.", _describe_session(other))

    async def _undo(self, client: Client, given: schemas.UndoArguments) -> CallToolResult:
        return await self._apply_rewind(client, given.session, events.Undo(to=given.to, what=given.what))

    async def _redo(self, client: Client, given: schemas.RedoArguments) -> CallToolResult:
        return await self._apply_rewind(client, given.session, events.Redo())

    async def _apply_rewind(
        self, client: Client, name: str | None, command: events.Undo | events.Redo
    ) -> CallToolResult:
        session = await self._session(client, name)
        done = await session.rewind(command)
        structure = _fill(schemas.RewoundResult, done, session=session.id)
        return result(rewound_in_words(done), structure)

    async def _variables(self, client: Client, given: schemas.Variables) -> CallToolResult:
        session = await self._session(client, given.session)
        there = await session.variables()
        lines = [f"{one.name}: {one.type}{f' {one.shape}' if one.shape else ''}" for one in there]
        structure = schemas.VariablesResult(session=session.id, variables=there)
        return result("\n".join(lines) or "(no variables)", structure)

    async def _get_file(self, client: Client, given: schemas.GetFile) -> CallToolResult:
        session = await self._session(client, given.session)
        data = await session.get(given.path, approve=client.approve)
        text = _text(data)
        encoded = base64.b64encode(data).decode() if text is None else None
        structure = schemas.FileResult(session=session.id, path=given.path, size=len(data), text=text, base64=encoded)
        if text is None or len(text) > _SHOWN:
            text = f"[{given.path}: {len(data):,} bytes, in the structured result]"
        return result(text, structure)

    async def _put_file(self, client: Client, given: schemas.PutFile) -> CallToolResult:
        session = await self._session(client, given.session)
        written = await session.put(given.path, content=given.content, encoded=given.base64, approve=client.approve)
        return result(written, schemas.PutResult(session=session.id, written=written))

    async def _sessions(self, client: Client, _: schemas.ListSessions) -> CallToolResult:
        there = tuple(map(_describe_session, self._client_sessions.list_for(client.key)))
        lines = [f"{one.session}  {one.title}{'  (busy)' if one.busy else ''}" for one in there]
        return result("\n".join(lines) or "(no sessions)", schemas.SessionsResult(sessions=there))

    async def _open_session(self, client: Client, given: schemas.OpenSession) -> CallToolResult:
        if given.name is None:
            session = await self._client_sessions.open(f"{OWN} {client.name}, another")
            return result(f"{session.id} is open.", _describe_session(session))
        title = f"{NAMED}{given.name}"
        async with self._finding:
            session = self._client_sessions.find(title, client.key) or await self._client_sessions.resume(title, title)
            session = session or await self._client_sessions.open(title)
        return result(f"{session.id} is open as {given.name!r}.", _describe_session(session))

    async def _close_session(self, client: Client, given: schemas.CloseSession) -> CallToolResult:
        session = self._require_session(given.session, client)
        about = _describe_session(session)
        await self._client_sessions.close(session)
        return result(f"{session.id} is closed.", about)

    async def _ask(self, client: Client, given: schemas.Ask) -> CallToolResult:
        session = await self._session(client, given.session)
        async with progress(client.context) as say:
            answer, displays = await session.ask(
                given.prompt, approve=client.approve, on_event=partial(_report_activity, say)
            )
        structure = schemas.AskResult(
            session=session.id,
            text=answer.text,
            input_tokens=answer.usage.input_tokens,
            output_tokens=answer.usage.output_tokens,
            cost=answer.cost,
        )
        return result(answer.text, structure, displays=displays)

    # --- finding the session

    async def _session(self, client: Client, name: str | None) -> ClientSession:
        return await self.session_of(client) if name is None else self._require_session(name, client)

    async def session_of(self, client: Client) -> ClientSession:
        """Return the client's default session; open one if there is none."""
        async with self._finding:
            own = self._own.get(client.key) if client.key else None
            session = self._client_sessions.find(own, client.key) if own else None
            title = f"{OWN} {client.name}"
            if own and session is None:  # it was closed meanwhile
                session = await self._client_sessions.resume(own, title, client.key)
            session = session or await self._client_sessions.open(title, client.key or ANYONE)
            if client.key:
                self._own[client.key] = session.id
                if len(self._own) > _REMEMBERED:  # clients that left without notice
                    del self._own[next(iter(self._own))]
        return session

    def _require_session(self, name: str, client: Client) -> ClientSession:
        for wanted in (name, f"{NAMED}{name}"):
            if found := self._client_sessions.find(wanted, client.key):
                return found
        raise NoSuchSession(f"no session {name!r} here; `sessions` lists them, `open_session` opens one")


def _text(data: bytes) -> str | None:
    """Decode a file; None if it is not text."""
    try:
        return None if b"\0" in data else data.decode()
    except UnicodeDecodeError:
        return None


def _fill(kind: type[_Result], source: object, **fields: object) -> _Result:
    """Build a `kind` from `fields` and, for the others, the attributes of `source` with the same names."""
    rest = {name: getattr(source, name) for name in kind.__struct_fields__ if name not in fields}
    return kind(**fields, **rest)


def _cell(session: ClientSession, ran: CellResult) -> schemas.CellResult:
    names = _fill(schemas.VariableNames, ran.end.variables or schemas.VariableNames())
    more = {"displays": tuple(map(tuple, ran.displays)), "status": ran.end.outcome, "variables": names}
    printed = {"cell": ran.cell, "stdout": ran.stdout, "stderr": ran.stderr, "notices": ran.notices}
    return _fill(schemas.CellResult, ran.end, session=session.id, **more, **printed)


def _format_result(session: ClientSession, ran: CellResult) -> str:
    # The observation names read_file for cut outputs; clients have get_file instead.
    text = ran.end.observation.replace('read_file("blob:', 'get_file("blob:')
    return f"{text.rstrip()}\n[session {session.id}, cell {ran.cell}]" if ran.cell == 1 else text


def _describe_session(session: ClientSession) -> schemas.SessionResult:
    return schemas.SessionResult(
        session=session.id,
        title=session.title,
        workspace=session.workspace,
        busy=bool(session.busy),
    )


def _report_activity(say: Callable[[str], None], event: Event | Delta) -> None:
    match event:
        case events.ActionProposed(action=events.RunCell(code=code)):
            say(f"python: {first_line(code, 160)}")
        case events.ActionProposed(action=events.CallTool(tool=tool)):
            say(f"calls {tool}")
        case events.TextDelta(text=text, reasoning=False) if text.strip():
            say(text)
        case _:
            pass


PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_MOST = 8
_BYTES = 4 << 20
"""Most bytes of all pictures in one result."""


def result(
    text: str,
    structure: msgspec.Struct | None = None,
    *,
    displays: Sequence[Mapping[str, bytes]] = (),
    failed: bool = False,
) -> CallToolResult:
    pictures, left_out = _pictures(displays)
    if left_out:
        text += f"\n[{left_out} more pictures were left out]"
    content: list[ContentBlock] = [TextContent(text=sendable(text)), *pictures]
    plain = None if structure is None else _plain(msgspec.to_builtins(structure))
    return CallToolResult(content=content, structured_content=plain, is_error=failed)


def failure(words: str) -> CallToolResult:
    return result(words, failed=True)


def sendable(text: str) -> str:
    """Escape lone surrogates, which JSON cannot hold."""
    return text.encode("utf-8", "backslashreplace").decode()


def _plain(value: object) -> Json:
    match value:
        case str():
            return sendable(value)
        case dict():
            return {key: _plain(one) for key, one in cast("dict[str, Json]", value).items()}
        case list() | tuple():
            return [_plain(one) for one in cast("list[Json]", value)]
        case _:
            return value


def _pictures(displays: Sequence[Mapping[str, bytes]]) -> tuple[list[ImageContent], int]:
    shown: list[ImageContent] = []
    spent = left_out = 0
    for display in displays:
        mime = next((mime for mime in PICTURES if mime in display), "")
        data = display.get(mime, b"")
        if not mime:
            continue
        if len(shown) >= _MOST or spent + len(data) > _BYTES:
            left_out += 1
            continue
        spent += len(data)
        shown.append(ImageContent(data=base64.b64encode(data).decode(), mime_type=mime))
    return shown, left_out
