"""Endpoints with typed input and output, used both to serve requests and to describe the API."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Generic, TypeAlias, TypeVar, is_typeddict
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pinfold.app import BlobMissing, CommandRefused, NoSuchSession, OwnerGone, PageRefused, SessionBusy, TurnError
from pinfold.app.clients import FileRefused, NoSuchFile, ServedSessions
from pinfold.events import Json, PinfoldError, Unavailable, convert, decode_json
from pinfold.front.server.gate import CLIENT, TICKET, BodyTooLarge, Credentials, error_response

logger = logging.getLogger(__name__)
BINARY = "application/octet-stream"
Query = TypeVar("Query")
Body = TypeVar("Body")


class BadInput(PinfoldError):
    """The request is malformed; `param` names the part."""

    def __init__(self, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.param = param


class UnknownName(BadInput):
    """There is no such model, response or file."""


_STATUS: tuple[tuple[type[Exception], int, int], ...] = (
    (NoSuchSession, 404, 404),
    (BlobMissing, 404, 404),
    (SessionBusy, 429, 429),
    (OwnerGone, 503, 503),
    (Unavailable, 503, 503),
    (TurnError, 502, 502),
    (BodyTooLarge, 413, 413),
    (NoSuchFile, 404, 404),
    (UnknownName, 404, 404),
    (PageRefused, 404, 404),
    (FileRefused, 403, 403),
    (BadInput, 422, 400),
    (msgspec.ValidationError, 422, 400),
    (msgspec.DecodeError, 400, 400),
    (CommandRefused, 409, 409),
    (PinfoldError, 409, 400),  # well formed, but impossible in the current state
)
"""Status of each failure in Pinfold's own API, and in foreign protocols, whose clients would retry after 409."""


class Nothing(Struct, frozen=True):
    """No query, or no body."""


class Input(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """Base of the types that clients send."""


class Call(Struct, Generic[Query, Body]):
    """One request with its parsed query and body."""

    request: Request
    query: Query
    body: Body

    @property
    def sessions(self) -> ServedSessions:
        return self.request.app.state.sessions

    @property
    def credentials(self) -> Credentials:
        return self.request.app.state.credentials

    @property
    def session(self) -> str:
        return self.request.path_params["session"]

    @property
    def client(self) -> str:
        """Name of the client that sent the request; empty if unknown."""
        return self.request.scope.get(CLIENT, "")


class Endpoint(Struct, Generic[Query, Body], frozen=True):
    """`answer` is the type of a JSON answer. Without it, the answer has the content type `media`, or no body."""

    method: str
    path: str
    summary: str
    handle: Callable[[Call[Query, Body]], Awaitable[object]]
    query: Any = Nothing
    body: Any = Nothing
    answer: object = None
    status: int = 200
    media: str = ""
    upload: str = ""
    """The content type of a body that is not JSON."""
    form: dict[str, Json] = {}
    """The fields of a form, the first of which is required."""
    is_public: bool = False
    """True if the gate lets its requests through without a token."""

    async def serve(self, request: Request) -> Response:
        try:
            given = {name: value for name, value in request.query_params.items() if name != TICKET}
            query = convert(given, self.query, strict=False)
            body = await _read_body(request, self.body)
            answer = await self.handle(Call(request, query, body))
        except ClientDisconnect:
            return Response(status_code=499)
        except HTTPException as error:  # a form that cannot be read
            return error_response(error.detail, error.status_code, "BadInput")
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer, an unknown one is logged
            return failure(error, is_foreign=not self.path.startswith("/api/"))
        if isinstance(answer, Response):
            return answer
        return json_response(answer, self.status) if self.answer is not None else Response(status_code=self.status)


AnyEndpoint: TypeAlias = Endpoint[Any, Any]


def routes_of(endpoints: Iterable[AnyEndpoint]) -> list[Route]:
    """Return one route for each path, so that the answer to a wrong method names the allowed ones."""
    by_path: dict[str, dict[str, AnyEndpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = one

    def serve(methods: dict[str, AnyEndpoint]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await methods[request.method].serve(request)

        return answer

    return [Route(path, serve(methods), methods=list(methods)) for path, methods in by_path.items()]


async def _read_body(request: Request, kind: Any) -> Any:
    if kind is Nothing:
        return Nothing()
    body = await request.body() or b"{}"
    if not is_typeddict(kind):
        return decode_json(body, kind)
    whole = decode_json(body, dict[str, Json])
    convert(whole, kind)  # checks the fields that are read; the rest is passed on
    return whole


def attachment(name: str) -> dict[str, str]:
    """Return the header of a download, with which browsers save it under this name and never show it."""
    return {"content-disposition": f"attachment; filename*=utf-8''{quote(name)}"}


def json_response(value: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(value), status, headers, media_type="application/json")


def failure(error: Exception, *, is_foreign: bool = False) -> Response:
    """Describe an error in one line. An unexpected error is logged, not shown."""
    for kind, own, foreign in _STATUS:
        if isinstance(error, kind):
            status = foreign if is_foreign else own
            param = error.param if isinstance(error, BadInput) else None
            again = {"retry-after": "1"} if status in (429, 503) else {}
            return error_response(str(error), status, kind.__name__, param, again)
    logger.error("a request failed: %s", "".join(traceback.format_exception(error)))
    return error_response("the server failed; its log has the details (pinfold doctor says where)", 500, "ServerError")
