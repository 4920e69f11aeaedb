"""What is in a session: questions that wait, variables, displays, what left this machine, and exports."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Annotated, Literal

import anyio.to_thread
from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.background import BackgroundTask
from starlette.responses import FileResponse, Response

from pinfold.app import OutboundTotal, PageQuery, VariablePage, read_session, sum_outbound
from pinfold.app.storage.exports import SessionExport, export_name, save
from pinfold.events import (
    Action,
    ActionDenied,
    ActionFinished,
    ActionId,
    ActionProposed,
    ApprovalDecided,
    ApprovalRequested,
    BlobId,
    Decide,
    Entry,
    Json,
    Scope,
)
from pinfold.front.server.endpoints import BINARY, AnyEndpoint, Call, Endpoint, Given, Nothing


class Waiting(Struct, frozen=True, kw_only=True):
    """A question that waits for an answer; `shows` is exactly what is decided on."""

    id: ActionId
    action: Action
    request: ApprovalRequested


class WaitingList(Struct, frozen=True):
    approvals: tuple[Waiting, ...]


async def list_approvals(call: Call[Nothing, Nothing]) -> WaitingList:
    entries = await anyio.to_thread.run_sync(call.sessions.entries, call.session)
    return WaitingList(tuple(_waiting(entries)))


def _waiting(entries: Iterable[Entry]) -> list[Waiting]:
    proposed: dict[ActionId, Action] = {}
    found: dict[ActionId, Waiting] = {}
    for event in (entry.event for entry in entries):
        match event:
            case ActionProposed(id=id_, action=action):
                proposed[id_] = action
            case ApprovalRequested(id=id_) if id_ in proposed:
                found[id_] = Waiting(id=id_, action=proposed[id_], request=event)
            case ApprovalDecided(id=id_) | ActionDenied(id=id_) | ActionFinished(id=id_):
                found.pop(id_, None)
            case _:
                pass
    return list(found.values())


class Answer(Given, kw_only=True, frozen=True):
    digest: str
    verdict: Literal["allow", "deny"]
    scope: Scope = "once"
    words: str = ""


async def decide(call: Call[Nothing, Answer]) -> None:
    given = call.body
    link = await call.sessions.link(call.session, attended=True)
    id_ = ActionId(call.request.path_params["action"])
    decision = Decide(id=id_, digest=given.digest, verdict=given.verdict, scope=given.scope, words=given.words)
    await link.submit(decision)


# --- what is in the session


class VariableList(Struct, frozen=True):
    variables: tuple[dict[str, Json], ...]


async def variables(call: Call[Nothing, Nothing]) -> VariableList:
    link = await call.sessions.link(call.session, attended=True)
    return VariableList(tuple(await link.query("variables")))


class RowsQuery(Given, kw_only=True, frozen=True):
    offset: Annotated[int, Meta(ge=0)] = 0
    limit: Annotated[int, Meta(ge=1, le=500)] = 50
    sort: str | None = None
    descending: bool = False
    filter: str = ""
    column: str | None = None


async def variable_rows(call: Call[RowsQuery, Nothing]) -> VariablePage:
    link = await call.sessions.link(call.session, attended=True)
    query = PageQuery(**asdict(call.query))
    return await link.variable_page(call.request.path_params["name"], query)


class SentList(Struct, frozen=True):
    sent: tuple[OutboundTotal, ...]


async def sent(call: Call[Nothing, Nothing]) -> SentList:
    entries = await anyio.to_thread.run_sync(call.sessions.entries, call.session)
    return SentList(tuple(sum_outbound(entries)))


async def blob(call: Call[Nothing, Nothing]) -> Response:
    session, folder = await call.sessions.find(call.session)
    with read_session(folder, session) as (log, _):
        data = await anyio.to_thread.run_sync(log.blobs.get, BlobId(call.request.path_params["blob"]))
    return Response(data, media_type=BINARY, headers={"content-disposition": "attachment"})


class ExportQuery(Given, kw_only=True, frozen=True):
    format: SessionExport = "html"


async def export(call: Call[ExportQuery, Nothing]) -> Response:
    session, folder = await call.sessions.find(call.session)
    form = call.query.format
    name = export_name(folder, session, form)

    def write() -> str:
        with NamedTemporaryFile(prefix="pinfold-export-", delete=False) as file:
            path = Path(file.name)
        with read_session(folder, session) as (log, damage):
            save(log, form, path, damage, force=True, embed=True)
        return str(path)

    path = await anyio.to_thread.run_sync(write)
    gone = BackgroundTask(partial(Path(path).unlink, missing_ok=True))
    return FileResponse(path, filename=name, media_type=BINARY, background=gone)


_ONE = "/api/sessions/{session}"
ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint("GET", f"{_ONE}/approvals", "Questions that wait", list_approvals, answer=WaitingList),
    Endpoint("POST", f"{_ONE}/approvals/{{action}}", "Answer a question", decide, body=Answer, status=204),
    Endpoint("GET", f"{_ONE}/variables", "The session's variables", variables, answer=VariableList),
    Endpoint(
        "GET", f"{_ONE}/variables/{{name}}", "Rows of a variable", variable_rows, query=RowsQuery, answer=VariablePage
    ),
    Endpoint("GET", f"{_ONE}/sent", "What left this machine", sent, answer=SentList),
    Endpoint("GET", f"{_ONE}/blobs/{{blob}}", "A display, or a file before or after a change", blob, media=BINARY),
    Endpoint("GET", f"{_ONE}/export", "The session as a file", export, query=ExportQuery, media=BINARY),
)
