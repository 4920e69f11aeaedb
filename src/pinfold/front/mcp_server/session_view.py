"""The view of a session for hosts with MCP Apps (SEP-1865): one `ui://` resource that shows results of the tools.

It is added to the answers to clients that declare the extension. Other clients see nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias, cast

from mcp.server.context import CallNext, HandlerResult
from mcp.shared.exceptions import MCPError
from mcp.types import METHOD_NOT_FOUND
from mcp_types.methods import serialize_server_result

from pinfold.app.clients import ClientSession, ClientSessions, SessionHistory
from pinfold.events import Json, PinfoldError
from pinfold.front.mcp_server.calls import sendable
from pinfold.front.mcp_server.clients import Context, client_of
from pinfold.text import first_line

EXTENSION = "io.modelcontextprotocol/ui"
MIME = "text/html;profile=mcp-app"
URI = "ui://pinfold/session"
TOOLS = ("run_python", "undo", "redo", "ask")
"""Tools whose results the view shows."""
ABOUT = "pinfold/view"
"""The key in `_meta` of a result under which the view finds more about the session."""
_CELLS = 50
_LINE = 200
_TABLES = 4
_TABLE_BYTES = 200_000
_META: dict[str, Json] = {"ui": {"prefersBorder": True}}
"""It has no `csp`, so hosts let the view load from no address at all."""
_RESOURCE: dict[str, Json] = {
    "uri": URI,
    "name": "session",
    "title": "Pinfold session",
    "description": "Output, plots, tables and cells of a session, with undo and redo.",
    "mimeType": MIME,
    "_meta": _META,
}
_Json: TypeAlias = dict[str, Json]


class SessionView:
    """Server middleware that adds the view to answers."""

    def __init__(self, client_sessions: ClientSessions) -> None:
        self._client_sessions = client_sessions
        self._html = Path(__file__).with_name("session_view.html").read_text(encoding="utf-8")

    async def __call__(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        return await self._answer(ctx, call_next) if _is_supported(ctx) else await call_next(ctx)

    async def _answer(self, context: Context, call_next: CallNext) -> HandlerResult:
        params = context.params or {}
        match context.method:
            case "initialize" | "server/discover":
                return _announce(cast(_Json, await call_next(context)))
            case "tools/list":
                return _link_tools(cast(_Json, await call_next(context)))
            case "tools/call" if params.get("name") in TOOLS:
                return await self._describe_session(context, cast(_Json, await call_next(context)))
            case "resources/list":
                listed = await _list(context, call_next, "resources")
                return {**listed, "resources": [_RESOURCE, *listed["resources"]]}
            case "resources/templates/list":
                return await _list(context, call_next, "resourceTemplates")
            case "resources/read" if params.get("uri") == URI:
                page = {"uri": URI, "mimeType": MIME, "text": self._html, "_meta": _META}
                return _serialize(context, {"contents": [page]})
            case _:
                return await call_next(context)

    async def _describe_session(self, context: Context, result: _Json) -> _Json:
        structure = cast("Mapping[str, Json]", result.get("structuredContent") or {})
        session = self._client_sessions.find(str(structure.get("session")), client_of(context).key)
        if session is None:
            return result
        turn = (context.params or {}).get("name") == "ask"
        try:
            about = await _describe(session, structure.get("cell"), of_turn=turn)
        except PinfoldError:  # the log cannot be read; the result is still good
            return result
        return {**result, "_meta": {**(result.get("_meta") or {}), ABOUT: about}}


async def _describe(session: ClientSession, shown: int | None, *, of_turn: bool) -> _Json:
    """Return the cells of a session, and the tables of cell `shown` or, with `of_turn`, of the last turn."""
    history = await session.history()
    cells = [
        {
            "cell": one.number,
            "code": sendable(first_line(one.code, _LINE)),
            "status": one.outcome or "running",
            "undone": one.undone,
        }
        for one in history.cells[-_CELLS:]
    ]
    tables = await _read_tables(session, history, shown, of_turn=of_turn)
    return {"cells": cells, "redo": bool(history.state.taken), "tables": tables}


async def _read_tables(
    session: ClientSession, history: SessionHistory, shown: int | None, *, of_turn: bool
) -> list[str]:
    turn = history.turns[-1].id if of_turn and history.turns else None
    cells = [one for one in history.cells if one.number == shown or (turn is not None and one.turn == turn)]
    blobs = [blob for one in cells for display in one.displays if (blob := display.mime.get("text/html"))]
    pages = [await session.live.blob(blob) for blob in blobs[:_TABLES]]
    return [one.decode("utf-8", "replace") for one in pages if len(one) <= _TABLE_BYTES and b"<table" in one]


def _is_supported(context: Context) -> bool:
    has = context.session.client_capabilities
    # The session knows the capabilities only after `initialize`, whose parameters hold them.
    given = (
        context.params if context.method == "initialize" else {"capabilities": {"extensions": has and has.extensions}}
    )
    match given:
        case {"capabilities": {"extensions": {"io.modelcontextprotocol/ui": {"mimeTypes": [*types]}}}}:
            return MIME in types
        case _:
            return False


def _announce(result: _Json) -> _Json:
    has = cast(_Json, result["capabilities"])
    ours = {"resources": has.get("resources") or {}, "extensions": {EXTENSION: {"mimeTypes": [MIME]}}}
    return {**result, "capabilities": {**has, **ours}}


def _link_tools(result: _Json) -> _Json:
    linked = {"ui": {"resourceUri": URI}}
    tools = cast("list[_Json]", result["tools"])
    return {**result, "tools": [{**one, "_meta": linked} if one["name"] in TOOLS else one for one in tools]}


async def _list(context: Context, call_next: CallNext, key: str) -> _Json:
    """Return the lists of exported servers, or an empty list if none has any."""
    try:
        return cast(_Json, await call_next(context))
    except MCPError as error:
        if error.error.code != METHOD_NOT_FOUND:
            raise
        return _serialize(context, {key: []})


def _serialize(context: Context, answer: _Json) -> _Json:
    """Serialize an answer with the fields that the client's version of the protocol has."""
    whole = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private", **answer}
    return serialize_server_result(context.method, context.protocol_version, whole)
