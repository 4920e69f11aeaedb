"""A session's contents: pending approvals, variables, displays, workspace files, data sent out, and exports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import Annotated, Literal

import anyio.to_thread
from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.background import BackgroundTask
from starlette.datastructures import UploadFile
from starlette.responses import FileResponse, Response, StreamingResponse

from pinfold.app import OutboundTotal, PageQuery, VariablePage, read_session, sum_outbound
from pinfold.app.clients import FileEntry, NoSuchFile, build_history, list_files, open_file, write_file
from pinfold.app.storage.exports import SessionExport, export_name, save
from pinfold.events import Action, ActionId, ApprovalRequested, BlobId, Decide, Json, Scope, SessionId
from pinfold.front.server.endpoints import BINARY, AnyEndpoint, BadInput, Call, Endpoint, Input, Nothing, attachment

_BLOCK = 1 << 20


class Waiting(Struct, frozen=True, kw_only=True):
    """A pending approval; `request.shows` is exactly what is decided on."""

    id: ActionId
    action: Action
    request: ApprovalRequested


class WaitingList(Struct, frozen=True):
    approvals: tuple[Waiting, ...]


async def list_approvals(call: Call[Nothing, Nothing]) -> WaitingList:
    def read() -> tuple[Waiting, ...]:
        actions = build_history(SessionId(call.session), call.sessions.entries(call.session)).state.open
        return tuple(
            Waiting(id=id_, action=one.proposed.action, request=one.asked)
            for id_, one in actions.items()
            if one.stage == "asking" and one.asked
        )

    return WaitingList(await anyio.to_thread.run_sync(read))


class Answer(Input, kw_only=True, frozen=True):
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


# --- contents


class VariableList(Struct, frozen=True):
    variables: tuple[dict[str, Json], ...]


async def variables(call: Call[Nothing, Nothing]) -> VariableList:
    link = await call.sessions.link(call.session, attended=True)
    return VariableList(tuple(await link.query("variables")))


class RowsQuery(Input, kw_only=True, frozen=True):
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


class ExportQuery(Input, kw_only=True, frozen=True):
    format: SessionExport = "html"


async def export(call: Call[ExportQuery, Nothing]) -> Response:
    session, folder = await call.sessions.find(call.session)
    form = call.query.format
    name = export_name(folder, session, form)

    def write() -> str:
        with NamedTemporaryFile(prefix="pinfold-export-", delete=False) as file:
            path = Path(file.name)
        with ExitStack() as on_failure:
            on_failure.callback(path.unlink, missing_ok=True)
            with read_session(folder, session) as (log, damage):
                save(log, form, path, damage, force=True, embed=True)
            on_failure.pop_all()
        return str(path)

    path = await anyio.to_thread.run_sync(write)
    gone = BackgroundTask(partial(Path(path).unlink, missing_ok=True))
    return FileResponse(path, filename=name, media_type=BINARY, background=gone)


# --- workspace files


class FolderQuery(Input, kw_only=True, frozen=True):
    path: str = ""


class FolderListing(Struct, frozen=True):
    path: str
    entries: tuple[FileEntry, ...]


class Written(Struct, frozen=True):
    paths: tuple[str, ...]


async def _workspace(call: Call[FolderQuery, Nothing] | Call[Nothing, Nothing]) -> Path:
    session, _ = await call.sessions.find(call.session)
    workspace = (await anyio.to_thread.run_sync(call.sessions.store.summary_of, session)).workspace
    if not workspace:
        raise NoSuchFile("this session has no folder yet")
    return Path(workspace)


async def list_folder(call: Call[FolderQuery, Nothing]) -> FolderListing:
    path, workspace = call.query.path, await _workspace(call)
    return FolderListing(path, tuple(await anyio.to_thread.run_sync(list_files, workspace, path)))


async def download(call: Call[Nothing, Nothing]) -> Response:
    path: str = call.request.path_params["path"]
    opened = ExitStack()
    file = opened.enter_context(open_file(await _workspace(call), path))
    headers = {**attachment(Path(path).name), "content-length": str(file.seek(0, 2))}
    file.seek(0)

    def blocks() -> Iterator[bytes]:
        with opened:
            while block := file.read(_BLOCK):
                yield block

    return StreamingResponse(blocks(), headers=headers, media_type=BINARY)


async def upload(call: Call[Nothing, Nothing]) -> Written:
    path: str = call.request.path_params["path"]
    workspace = await _workspace(call)
    with TemporaryFile(dir=call.sessions.store.root) as spool:
        async for chunk in call.request.stream():
            spool.write(chunk)
        spool.seek(0)
        await anyio.to_thread.run_sync(write_file, workspace, path, spool)
    return Written((path,))


async def upload_form(call: Call[Nothing, Nothing]) -> Written:
    workspace = await _workspace(call)
    paths: list[str] = []
    async with call.request.form(max_files=100) as form:
        for _, item in form.multi_items():
            if isinstance(item, UploadFile) and item.filename:
                await anyio.to_thread.run_sync(write_file, workspace, item.filename, item.file)
                paths.append(item.filename)
    if not paths:
        raise BadInput("the form holds no file; send multipart/form-data with files")
    return Written(tuple(paths))


_ONE = "/api/sessions/{session}"
_FILES = f"{_ONE}/files"
_FORM = {"files": {"type": "array", "minItems": 1, "items": {"type": "string", "contentMediaType": BINARY}}}
ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint("GET", f"{_ONE}/approvals", "List pending approvals", list_approvals, answer=WaitingList),
    Endpoint(
        "POST",
        f"{_ONE}/approvals/{{action}}",
        "Allow or deny an action, or answer a question",
        decide,
        body=Answer,
        status=204,
    ),
    Endpoint("GET", f"{_ONE}/variables", "The session's variables", variables, answer=VariableList),
    Endpoint(
        "GET", f"{_ONE}/variables/{{name}}", "Rows of a variable", variable_rows, query=RowsQuery, answer=VariablePage
    ),
    Endpoint("GET", f"{_ONE}/sent", "What left this machine", sent, answer=SentList),
    Endpoint("GET", f"{_ONE}/blobs/{{blob}}", "A display, or a file before or after a change", blob, media=BINARY),
    Endpoint("GET", f"{_ONE}/export", "The session as a file", export, query=ExportQuery, media=BINARY),
    Endpoint("GET", _FILES, "List a folder of the workspace", list_folder, query=FolderQuery, answer=FolderListing),
    Endpoint("GET", f"{_FILES}/{{path:path}}", "Download a file", download, media=BINARY),
    Endpoint("PUT", f"{_FILES}/{{path:path}}", "Upload a file", upload, answer=Written, upload=BINARY),
    Endpoint(
        "POST", _FILES, "Upload files by a form", upload_form, answer=Written, upload="multipart/form-data", form=_FORM
    ),
)
