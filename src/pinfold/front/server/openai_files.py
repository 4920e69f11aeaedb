"""`/v1/files`: files that a client uploads once and names in its messages. A message puts them into the workspace."""

from __future__ import annotations

import time
from pathlib import PurePosixPath
from secrets import token_hex

import anyio
from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.responses import Response

from pinfold.front.server.endpoints import (
    BINARY,
    AnyEndpoint,
    BadInput,
    Call,
    Endpoint,
    Input,
    Nothing,
    UnknownName,
    attachment,
)
from pinfold.front.server.openai_types import Deleted
from pinfold.front.server.wire import StoredFile, wire_of

LARGEST = 64 << 20
_PURPOSES = frozenset({"assistants", "batch", "fine-tune", "vision", "user_data", "evals"})


class FileList(Struct, frozen=True, kw_only=True):
    data: tuple[StoredFile, ...]
    first_id: str | None
    last_id: str | None
    object: str = "list"
    has_more: bool = False


class FilesQuery(Input, kw_only=True, frozen=True):
    purpose: str = ""


async def upload_file(call: Call[Nothing, Nothing]) -> StoredFile:
    request = call.request
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise BadInput("send the file as a form: file and purpose", "file")
    async with request.form(max_files=1, max_fields=10) as form:
        file, purpose = form.get("file"), str(form.get("purpose") or "user_data")
        if not isinstance(file, UploadFile):
            raise BadInput("the form needs a file", "file")
        if purpose not in _PURPOSES:
            raise BadInput(f"purpose must be one of {', '.join(sorted(_PURPOSES))}", "purpose")
        if (file.size or 0) > LARGEST:
            raise BadInput(f"a file may have at most {LARGEST >> 20} MB; put larger ones into the workspace", "file")
        data = await file.read()
        stored = StoredFile(
            id=f"file-{token_hex(12)}",
            filename=PurePosixPath(file.filename or "upload").name or "upload",
            bytes=len(data),
            created_at=int(time.time()),
            purpose=purpose,
        )
    await anyio.to_thread.run_sync(wire_of(request).records.put, "file", stored.id, stored, data)
    return stored


async def list_stored_files(call: Call[FilesQuery, Nothing]) -> FileList:
    found = reversed(wire_of(call.request).records.all("file", StoredFile))
    data = tuple(one for one in found if call.query.purpose in ("", one.purpose))
    return FileList(data=data, first_id=data[0].id if data else None, last_id=data[-1].id if data else None)


async def get_file(call: Call[Nothing, Nothing]) -> StoredFile:
    return _find(call)


async def download_file(call: Call[Nothing, Nothing]) -> Response:
    stored = _find(call)
    data = await anyio.to_thread.run_sync(wire_of(call.request).records.content, "file", stored.id)
    return Response(data or b"", headers=attachment(stored.filename), media_type=BINARY)


async def delete_file(call: Call[Nothing, Nothing]) -> Deleted:
    stored = _find(call)
    wire_of(call.request).records.delete("file", stored.id)
    return {"id": stored.id, "object": "file", "deleted": True}


def _find(call: Call[Nothing, Nothing]) -> StoredFile:
    name: str = call.request.path_params["file"]
    stored = wire_of(call.request).records.get("file", name, StoredFile)
    if stored is None:
        raise UnknownName(f"no file is called {name!r}", "file_id")
    return stored


_FORM = {
    "file": {"type": "string", "contentMediaType": BINARY},
    "purpose": {"type": "string", "enum": sorted(_PURPOSES)},
}
_ONE = "/v1/files/{file}"
ENDPOINTS: tuple[AnyEndpoint, ...] = (
    Endpoint(
        "POST",
        "/v1/files",
        "Upload a file for messages",
        upload_file,
        answer=StoredFile,
        upload="multipart/form-data",
        form=_FORM,
    ),
    Endpoint("GET", "/v1/files", "Uploaded files", list_stored_files, query=FilesQuery, answer=FileList),
    Endpoint("GET", _ONE, "An uploaded file", get_file, answer=StoredFile),
    Endpoint("DELETE", _ONE, "Delete an uploaded file", delete_file, answer=Deleted),
    Endpoint("GET", f"{_ONE}/content", "Download an uploaded file", download_file, media=BINARY),
)
