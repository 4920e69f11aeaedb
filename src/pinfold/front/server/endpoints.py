"""What one endpoint of the server takes and gives, as types: for the code that serves it and for its description."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, TypeAlias, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pinfold.app import BlobMissing, NoSuchSession, OwnerGone, PageRefused, SessionBusy, TurnError
from pinfold.app.clients import FileRefused, NoSuchFile, ServedSessions
from pinfold.events import PinfoldError, Unavailable, convert, decode_json
from pinfold.front.server.gate import CLIENT, TICKET, BodyTooLarge, error_body

logger = logging.getLogger(__name__)
BINARY = "application/octet-stream"
Query = TypeVar("Query")
Body = TypeVar("Body")


class BadInput(PinfoldError):
    """A request that is not well formed."""


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NoSuchSession, 404),
    (BlobMissing, 404),
    (SessionBusy, 429),
    (OwnerGone, 503),
    (Unavailable, 503),
    (TurnError, 502),
    (BodyTooLarge, 413),
    (NoSuchFile, 404),
    (PageRefused, 404),
    (FileRefused, 403),
    (BadInput, 422),
    (msgspec.ValidationError, 422),
    (msgspec.DecodeError, 400),
    (PinfoldError, 409),  # it is well formed, and cannot be done as things are
)


class Nothing(Struct, frozen=True):
    """No query, or no body."""


class Given(Struct, forbid_unknown_fields=True, omit_defaults=True, kw_only=True, frozen=True):
    """What a client sends."""


class Call(Struct, Generic[Query, Body]):
    """One request, read."""

    request: Request
    query: Query
    body: Body

    @property
    def sessions(self) -> ServedSessions:
        return self.request.app.state.sessions

    @property
    def session(self) -> str:
        return self.request.path_params["session"]

    @property
    def client(self) -> str:
        """Who asks; empty where that is not known."""
        return self.request.scope.get(CLIENT, "")


class Endpoint(Struct, Generic[Query, Body], frozen=True):
    """`answer` is the type of a JSON answer; without, it is `media`, or nothing at all."""

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
    is_public: bool = False
    """The gate lets it through without a token."""

    async def serve(self, request: Request) -> Response:
        try:
            given = {name: value for name, value in request.query_params.items() if name != TICKET}
            query = convert(given, self.query, strict=False)
            body = await _read_body(request, self.body)
            answer = await self.handle(Call(request, query, body))
        except ClientDisconnect:
            return Response(status_code=499)
        except HTTPException as error:  # a form that cannot be read
            return json_response(error_body(error.detail, "BadInput"), error.status_code)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer, an unknown one is logged
            return failure(error)
        if isinstance(answer, Response):
            return answer
        return json_response(answer, self.status) if self.answer is not None else Response(status_code=self.status)


AnyEndpoint: TypeAlias = Endpoint[Any, Any]


def routes_of(endpoints: Iterable[AnyEndpoint]) -> list[Route]:
    """One for each path: a wrong method is told which ones there are."""
    by_path: dict[str, dict[str, AnyEndpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = one

    def serve(methods: dict[str, AnyEndpoint]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            return await methods[request.method].serve(request)

        return answer

    return [Route(path, serve(methods), methods=list(methods)) for path, methods in by_path.items()]


async def _read_body(request: Request, kind: Any) -> Any:
    return Nothing() if kind is Nothing else decode_json(await request.body() or b"{}", kind)


def attachment(name: str) -> dict[str, str]:
    """The header of a download: browsers save it under this name and never show it."""
    return {"content-disposition": f"attachment; filename*=utf-8''{quote(name)}"}


def json_response(value: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type="application/json")


def failure(error: Exception) -> Response:
    """What went wrong, in one line; what we did not expect is logged and not shown."""
    for kind, status in _STATUS:
        if isinstance(error, kind):
            more = {"retry-after": "1"} if status in (429, 503) else {}
            body = msgspec.json.encode(error_body(str(error), kind.__name__))
            return Response(body, status, more, media_type="application/json")
    logger.error("a request failed: %s", "".join(traceback.format_exception(error)))
    words = "the server failed; its log has the details (pinfold doctor says where)"
    return json_response(error_body(words, "ServerError"), 500)
