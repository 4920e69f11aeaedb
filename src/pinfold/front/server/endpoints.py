"""What one endpoint of the server takes and gives, as types: for the code that serves it and for its description."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from pinfold.app import BlobMissing, CommandRefused, ConfigError, NoSuchSession, OwnerGone, SessionBusy, TurnError
from pinfold.app.clients import ServedSessions
from pinfold.events import BadEvent, PinfoldError, Unavailable, convert, decode_json
from pinfold.front.server.gate import CLIENT, TICKET, BodyTooLarge, error_body

logger = logging.getLogger(__name__)
BINARY = "application/octet-stream"
Query = TypeVar("Query")
Body = TypeVar("Body")
_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (NoSuchSession, 404),
    (BlobMissing, 404),
    (CommandRefused, 409),
    (SessionBusy, 429),
    (OwnerGone, 503),
    (Unavailable, 503),
    (TurnError, 502),
    (BodyTooLarge, 413),
    (ConfigError, 422),
    (BadEvent, 422),
    (msgspec.ValidationError, 422),
    (msgspec.DecodeError, 400),
    (PinfoldError, 400),
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

    def route(self) -> Route:
        return Route(self.path, self._serve, methods=[self.method])

    async def _serve(self, request: Request) -> Response:
        try:
            given = {name: value for name, value in request.query_params.items() if name != TICKET}
            query = convert(given, self.query, strict=False)
            body = await _read_body(request, self.body)
            answer = await self.handle(Call(request, query, body))
        except ClientDisconnect:
            return Response(status_code=499)
        except Exception as error:  # noqa: BLE001 - every failure becomes an answer, an unknown one is logged
            return failure(error)
        if isinstance(answer, Response):
            return answer
        return json_response(answer, self.status) if self.answer is not None else Response(status_code=self.status)


async def _read_body(request: Request, kind: Any) -> Any:
    return Nothing() if kind is Nothing else decode_json(await request.body() or b"{}", kind)


AnyEndpoint: TypeAlias = Endpoint[Any, Any]


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
