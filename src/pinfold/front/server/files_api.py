"""The files of a session's workspace: list, download and upload."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import anyio.to_thread
from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.responses import Response, StreamingResponse

from pinfold.app.clients import FileEntry, NoSuchFile, list_files, open_file, write_file
from pinfold.front.server.endpoints import BINARY, AnyEndpoint, BadInput, Call, Endpoint, Given, Nothing, attachment

_BLOCK = 1 << 20
_ONE = "/api/sessions/{session}/files"


class FolderQuery(Given, kw_only=True, frozen=True):
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
        await _spool(call.request.stream(), spool)
        await anyio.to_thread.run_sync(write_file, workspace, path, spool)
    return Written((path,))


async def _spool(chunks: AsyncIterator[bytes], spool: IO[bytes]) -> None:
    async for chunk in chunks:
        spool.write(chunk)
    spool.seek(0)


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


_FORM = {"files": {"type": "array", "minItems": 1, "items": {"type": "string", "contentMediaType": BINARY}}}
ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint("GET", _ONE, "List a folder of the workspace", list_folder, query=FolderQuery, answer=FolderListing),
    Endpoint("GET", f"{_ONE}/{{path:path}}", "Download a file", download, media=BINARY),
    Endpoint("PUT", f"{_ONE}/{{path:path}}", "Upload a file", upload, answer=Written, upload=BINARY),
    Endpoint(
        "POST", _ONE, "Upload files by a form", upload_form, answer=Written, upload="multipart/form-data", form=_FORM
    ),
)
