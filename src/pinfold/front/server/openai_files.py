"""`/v1/files`: files that a client uploads once and names in its messages. A message puts them into the workspace."""

from __future__ import annotations

import time
from pathlib import PurePosixPath
from secrets import token_hex

import anyio
import msgspec
from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from pinfold.front.server.endpoints import BINARY, attachment
from pinfold.front.server.wire import StoredFile, UnknownName, Wire, told_errors, wire_of
from pinfold.front.server.wire_input import BadRequest

LARGEST = 64 << 20
_PURPOSES = frozenset({"assistants", "batch", "fine-tune", "vision", "user_data", "evals"})


def routes() -> list[Route]:
    return [
        Route("/v1/files", told_errors(upload), methods=["POST"]),
        Route("/v1/files", told_errors(list_files), methods=["GET"]),
        Route("/v1/files/{file}", told_errors(describe), methods=["GET"]),
        Route("/v1/files/{file}", told_errors(delete), methods=["DELETE"]),
        Route("/v1/files/{file}/content", told_errors(download), methods=["GET"]),
    ]


async def upload(request: Request) -> Response:
    if not request.headers.get("content-type", "").startswith("multipart/form-data"):
        raise BadRequest("send the file as a form: file and purpose", "file")
    async with request.form(max_files=1, max_fields=10) as form:
        file, purpose = form.get("file"), str(form.get("purpose") or "user_data")
        if not isinstance(file, UploadFile):
            raise BadRequest("the form needs a file", "file")
        if purpose not in _PURPOSES:
            raise BadRequest(f"purpose must be one of {', '.join(sorted(_PURPOSES))}", "purpose")
        if (file.size or 0) > LARGEST:
            raise BadRequest(f"a file can have {LARGEST >> 20} MB; put larger ones into the workspace", "file")
        data = await file.read()
        stored = StoredFile(
            id=f"file-{token_hex(12)}",
            filename=PurePosixPath(file.filename or "upload").name or "upload",
            bytes=len(data),
            created_at=int(time.time()),
            purpose=purpose,
        )
    await anyio.to_thread.run_sync(wire_of(request).records.put, "file", stored.id, stored, data)
    return JSONResponse(msgspec.to_builtins(stored))


async def list_files(request: Request) -> Response:
    wanted = request.query_params.get("purpose")
    found = [one for one in wire_of(request).records.all("file", StoredFile) if wanted in (None, one.purpose)]
    data = [msgspec.to_builtins(one) for one in reversed(found)]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return JSONResponse({"object": "list", "data": data, "has_more": False, "first_id": first, "last_id": last})


async def describe(request: Request) -> Response:
    return JSONResponse(msgspec.to_builtins(_find(wire_of(request), request)))


async def download(request: Request) -> Response:
    stored = _find(wire_of(request), request)
    data = await anyio.to_thread.run_sync(wire_of(request).records.content, "file", stored.id)
    return Response(data or b"", headers=attachment(stored.filename), media_type=BINARY)


async def delete(request: Request) -> Response:
    stored = _find(wire_of(request), request)
    wire_of(request).records.delete("file", stored.id)
    return JSONResponse({"id": stored.id, "object": "file", "deleted": True})


def _find(wire: Wire, request: Request) -> StoredFile:
    name: str = request.path_params["file"]
    stored = wire.records.get("file", name, StoredFile)
    if stored is None:
        raise UnknownName(f"no file is called {name!r}", "file_id")
    return stored
